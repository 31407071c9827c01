/** Stencils with offsets below their base pointer, and layouts over many layouts. */
import * as assert from 'uvu/assert';
import { NakCode, PlacementType } from '#build/abi.js';
import {
  AccessFlag,
  MrSetLayoutFlag,
  WrOpcode,
  explainLayout,
  mpiIndexed,
  type LayoutMemoryRegion,
  type Sge,
} from '../../host/index.js';
import { FLUSH_ACCESS } from '../support/durable.js';
import { DONE, FLUSHING, flush, kept } from '../support/flush.js';
import { EVERY, isMisuse, onLayouts, refusal, sent, type World } from '../support/layouts.js';
import { ACK, Requests, reconnect } from '../support/windows.js';
import { FULL_ACCESS, onWire, pattern } from '../support/wire.js';
import { testsIn } from '../support/tests-in.js';

const test = testsIn(onLayouts);

const { AVOID_INVALIDATION } = MrSetLayoutFlag;
const { REMOTE_ACCESS_ERROR } = NakCode;
/** PSN of the peer's requests. */
const THEIRS = 0x200;

/** The bytes that a SEND through a stencil at this base pointer carries. */
function gathered({ wire }: World, stencil: LayoutMemoryRegion, addr: bigint, length: number) {
  wire.qp.postSend({ opcode: WrOpcode.SEND, sgList: [{ addr, length, lkey: stencil.lkey }] });
  return [...wire.takePackets()[0]!.payload];
}

test('a stencil spans from its lowest offset to its highest, also with negative offsets', (world) => {
  const { layout, mr, memory } = world;
  // 136 bytes: from 64 before the base pointer to 72 behind it.
  const offsets = [-64, 64, 0];
  const forms: readonly ((offset: number) => number | bigint)[] = [
    (offset) => offset,
    (offset) => BigInt(offset),
    (offset) => BigInt.asUintN(64, BigInt(offset)),
  ];
  for (const form of forms) {
    const stencil = layout(FULL_ACCESS);
    const list = offsets.map((offset) => ({ addr: form(offset), length: 8, lkey: mr.lkey }));
    stencil.setLayoutSg(0, list);
    assert.is(stencil.length, 24);
    const at = (base: number) =>
      offsets.flatMap((offset) => [...memory.slice(base + offset, base + offset + 8)]);
    const bytes = gathered(world, stencil, mr.addr + 64n, 72);
    assert.equal(bytes, [64, 200, 336].flatMap(at), 'three instances, 136 bytes apart');
    reconnect(world.wire);
  }
});

test('instance 0xffffffff is the last one', (world) => {
  const { wire, layout, mr, memory } = world;
  const stencil = layout(FULL_ACCESS);
  const origin = BigInt.asUintN(64, mr.addr - 0xffffffffn);
  const source = { firstDatum: { addr: 0, length: 1, lkey: mr.lkey }, dims: [] };
  stencil.setLayoutInterleaved(0, [source], { origin });
  const before = memory.slice();
  assert.is(new Requests(wire).write(stencil.rkey, 0xffffffffn, 1), ACK);
  assert.equal([...memory.slice(0, 2)], [pattern(1)[0], before[1]]);
  assert.is(reconnect(wire).write(stencil.rkey, 0x100000000n, 1), REMOTE_ACCESS_ERROR);
  assert.equal(memory.slice(1), before.slice(1));
});

test('sources with negative offsets interleave, and instance k is at k times the extent for peers', (world) => {
  const { wire, layout, mr, memory } = world;
  const stencil = layout(FULL_ACCESS);
  const source = (addr: number | bigint) => ({
    firstDatum: { addr, length: 4, lkey: mr.lkey },
    dims: [{ offsetStride: 16, datumCount: 2 }],
  });
  // From -24 to 4 + 16 + 4: 48 bytes.
  stencil.setLayoutInterleaved(0, [source(-24n), source(4)], { origin: mr.addr + 100n });
  assert.is(new Requests(wire).write(stencil.rkey, 16n * 3n, 16), ACK);
  const bytes = pattern(16);
  const base = 100 + 3 * 48;
  [base - 24, base + 4, base - 8, base + 20].forEach((at, index) => {
    assert.equal(memory.slice(at, at + 4), bytes.slice(index * 4, index * 4 + 4), `datum ${index}`);
  });
});

test('an extent may be negative: instance k is below instance k - 1', (world) => {
  const { wire, layout, mr, memory } = world;
  for (const extent of [-32, -32n]) {
    const stencil = layout(FULL_ACCESS);
    const list = [{ addr: 0, length: 8, lkey: mr.lkey }];
    stencil.setLayoutSg(0, list, { extent, origin: mr.addr + 64n });
    const at = (from: number) => [...memory.slice(from, from + 8)];
    assert.equal(
      gathered(world, stencil, mr.addr + 64n, 24),
      [64, 32, 0].flatMap(at),
      'a base pointer of our own',
    );
    assert.is(reconnect(wire).write(stencil.rkey, 16n), ACK);
    assert.equal(memory.slice(0, 8), pattern(8));
    assert.is(reconnect(wire).write(stencil.rkey, 24n), REMOTE_ACCESS_ERROR);
    memory.forEach((_, index) => (memory[index] = index * 7));
    reconnect(wire);
  }
});

test('a base pointer may be a distance: offsets are addresses, and the origin is negative', (world) => {
  const { wire, layout, mr, memory } = world;
  const stencil = layout(FULL_ACCESS);
  const list = [{ addr: mr.addr + 64n, length: 8, lkey: mr.lkey }];
  // Instances 0, 1 and 2 have base pointers -64, 0 and 64.
  stencil.setLayoutSg(0, list, { extent: 64, origin: -64 });
  for (const k of [0, 1, 2]) {
    assert.is(reconnect(wire).write(stencil.rkey, BigInt(8 * k)), ACK);
    assert.equal(memory.slice(64 * k, 64 * k + 8), pattern(8));
  }
  assert.is(reconnect(wire).write(stencil.rkey, BigInt(8 * 64)), REMOTE_ACCESS_ERROR);
});

test('pieces that descend, cross the base pointer or touch each other are at the correct addresses', (world) => {
  const { layout, mr, memory } = world;
  const cases: readonly (readonly number[])[] = [
    [-16, -8, 0, 8],
    [-24, -8, 8, 24],
    [24, 8, -8, -24],
    [0, -8, 8, -16],
    [-8, -8, 0],
  ];
  for (const offsets of cases) {
    const stencil = layout(FULL_ACCESS);
    stencil.setLayoutSg(
      0,
      offsets.map((addr) => ({ addr, length: 8, lkey: mr.lkey })),
    );
    const span = Math.max(...offsets) + 8 - Math.min(...offsets);
    const at = (base: number) =>
      offsets.flatMap((offset) => [...memory.slice(base + offset, base + offset + 8)]);
    const bytes = gathered(world, stencil, mr.addr + 512n, offsets.length * 16);
    assert.equal(bytes, [512, 512 + span].flatMap(at), `${offsets}`);
    reconnect(world.wire);
  }
});

test('mpiIndexed takes displacements below the base, of stencils and of addresses', (world) => {
  const { wire, layout, mr, memory } = world;
  const stencil = layout(FULL_ACCESS);
  stencil.setLayoutSg(0, mpiIndexed({ addr: 0, lkey: mr.lkey }, [1, 2], [-2, 1], 4));
  const at = (from: number, length: number) => [...memory.slice(from, from + length)];
  assert.equal(gathered(world, stencil, mr.addr + 8n, 12), [...at(0, 4), ...at(12, 8)]);
  reconnect(wire);
  const plain = layout();
  plain.setLayoutSg(0, mpiIndexed({ addr: mr.addr + 8n, lkey: mr.lkey }, [1, 2], [-2, 1], 4));
  assert.equal(gathered(world, plain, 0n, 12), [...at(0, 4), ...at(12, 8)]);
  assert.match(
    explainLayout([{ addr: -8n, length: 4, lkey: mr.lkey }], () => 'grid'),
    '4 bytes in a row: 4 bytes from -8 of grid.',
  );
});

test('an invalid negative number is misuse, and the error names argument, value and rule', () =>
  onLayouts(({ layout, mr, base }) => {
    const [plain, stencil] = [layout(), layout(FULL_ACCESS)];
    const below = { addr: -8, length: 8, lkey: mr.lkey };
    const misuse = (pattern: RegExp) => (error: unknown) =>
      isMisuse(error) && pattern.test((error as Error).message);
    assert.throws(() => plain.setLayoutSg(0, [below]), misuse(/sgList\[0\]\.addr.*got -8/));
    assert.throws(() => plain.setLayoutSg(0, [base()], { extent: -8 }), misuse(/extent.*got -8/));
    const dims = [{ offsetStride: -8, datumCount: 2 }];
    for (const mine of [plain, stencil]) {
      assert.throws(
        () => mine.setLayoutInterleaved(0, [{ firstDatum: base(), dims }]),
        misuse(/offsetStride.*got -8/),
      );
    }
    for (const addr of [-(2n ** 63n) - 1n, 2n ** 64n, -0.5, NaN, -(2 ** 60)]) {
      assert.throws(() => stencil.setLayoutSg(0, [{ ...below, addr }]), misuse(/addr.*-2\^63/));
    }
    for (const extent of [2n ** 32n, -(2n ** 32n), 2n ** 64n - 1n, -(2n ** 63n)]) {
      const set = () => stencil.setLayoutSg(0, [{ ...below }], { extent });
      assert.throws(set, refusal('EINVAL', /4 GiB or more apart/));
    }
    const wide = [below, { ...below, addr: 2n ** 32n }];
    assert.throws(() => stencil.setLayoutSg(0, wide), refusal('EINVAL', /4 GiB or more apart/));
    assert.is(stencil.bound, false);
  }));

/** A layout of `pieces` pieces, none adjacent to the next. */
function pieces({ base, layout }: World, count: number): LayoutMemoryRegion {
  const made = layout();
  made.setLayoutSg(
    0,
    Array.from({ length: count }, (_, index) => base((index * index * 5) % 4000, 1 + (index & 1))),
  );
  return made;
}

/** `count` pieces of the layouts in turn. */
function inTurn(layouts: readonly LayoutMemoryRegion[], count: number): Sge[] {
  return Array.from({ length: count }, (_, index) => ({
    addr: index,
    length: 1,
    lkey: layouts[index % layouts.length]!.lkey,
  }));
}

test('2,100 pieces that alternate between two layouts of 2,100 pieces are no cycle', (world) => {
  const below = [pieces(world, 2100), pieces(world, 2100)];
  const above = (layouts: readonly LayoutMemoryRegion[]) => {
    const mr = world.layout();
    mr.setLayoutSg(0, inTurn(layouts, 2100));
    return mr;
  };
  const middle = [above(below), above(below)];
  const upper = [above(middle), above(middle)];
  const start = process.cpuUsage();
  const top = above(upper);
  const { user } = process.cpuUsage(start);
  assert.is(top.length, 2100);
  assert.ok(user < 200_000, `${user} us to visit 10,500 pieces`);
  // The search continues to the end: a layout behind all of them is still found.
  const list = [...inTurn(below, 2099), { addr: 0, length: 1, lkey: upper[1]!.lkey }];
  for (const mr of [...below, ...middle]) {
    assert.throws(
      () => mr.setLayoutSg(AVOID_INVALIDATION, list),
      refusal('EINVAL', /part of itself/),
    );
  }
});

test('FLUSH through alternating layouts visits each of them once', () =>
  kept(
    ({ wire, mr }) => {
      const region = () => wire.pd.regMr(null, 0, FLUSH_ACCESS | AccessFlag.ZERO_BASED);
      const scattered = (): LayoutMemoryRegion => {
        const made = region();
        const list = Array.from({ length: 2100 }, (_, index) => ({
          addr: mr.addr + BigInt((index * index * 5) % 4000),
          length: 1 + (index & 1),
          lkey: mr.lkey,
        }));
        made.setLayoutSg(0, list);
        return made;
      };
      const top = region();
      top.setLayoutSg(0, inTurn([scattered(), scattered()], 2100));
      const where = { virtualAddress: 0n, key: top.rkey, dmaLength: top.length };
      flush(wire, THEIRS, PlacementType.GLOBAL, where);
      wire.expectPacket({ ...DONE, psn: THEIRS });
    },
    { ...FLUSHING, device: { memoryBytes: 64 * 2 ** 20 } },
  ));

test('FLUSH through a stencil with a negative extent covers the lowest to the highest instance', () =>
  kept(({ wire, store, mr }) => {
    const stencil = wire.pd.regMr(null, 0, FLUSH_ACCESS);
    const list = [{ addr: -8, length: 8, lkey: mr.lkey }];
    stencil.setLayoutSg(0, list, { extent: -32, origin: mr.addr + 1032n });
    // Instances 2 to 4: 960, 928 and 896 behind the first byte.
    const where = { virtualAddress: 16n, key: stencil.rkey, dmaLength: 24 };
    flush(wire, THEIRS, PlacementType.PERSISTENT, where);
    assert.equal(store.asked, [[896, 72]]);
    store.answer();
    wire.expectPacket({ ...DONE, psn: THEIRS });
    const beyond = { ...where, virtualAddress: 8n * 33n, dmaLength: 8 };
    flush(wire, THEIRS + 1, PlacementType.PERSISTENT, beyond);
    wire.expectPacket({ psn: THEIRS + 1, syndrome: REMOTE_ACCESS_ERROR });
  }));

test('a cycle is found behind any of hundreds of adjacent layouts', ({ layout, base }) => {
  const over = (mr: LayoutMemoryRegion): Sge => ({ addr: 0, length: 8, lkey: mr.lkey });
  const plain = (): LayoutMemoryRegion => {
    const mr = layout();
    mr.setLayoutSg(0, [base(0, 8)]);
    return mr;
  };
  const target = plain();
  const below = plain();
  const middle = Array.from({ length: 400 }, () => {
    const mr = layout();
    mr.setLayoutSg(0, [over(below)]);
    return mr;
  });
  const top = layout();
  top.setLayoutSg(0, middle.map(over));
  const refused = refusal('EINVAL', /part of itself/);
  for (const index of [0, 1, 255, 256, 257, 399]) {
    middle[index]!.setLayoutSg(AVOID_INVALIDATION, [over(target)]);
    assert.throws(() => target.setLayoutSg(AVOID_INVALIDATION, [over(top)]), refused, `${index}`);
    middle[index]!.setLayoutSg(AVOID_INVALIDATION, [over(below)]);
  }
});

test('sources with several dimensions interleave over nested layouts', (world) => {
  const { layout, base, memory } = world;
  const inner = layout();
  inner.setLayoutSg(0, [base(1024, 64), base(0, 64)]);
  const middle = layout();
  middle.setLayoutSg(0, [{ addr: 32, length: 64, lkey: inner.lkey }]);
  const top = layout();
  const source = (addr: number) => ({
    firstDatum: { addr, length: 2, lkey: middle.lkey },
    dims: [
      { offsetStride: 4, datumCount: 3 },
      { offsetStride: 20, datumCount: 2 },
    ],
  });
  top.setLayoutInterleaved(0, [source(0), source(3)]);
  const row = [...memory.slice(1056, 1088), ...memory.slice(0, 32)];
  const data = [0, 4, 8, 20, 24, 28].flatMap((at) => [at, at + 1, at + 3, at + 4]);
  assert.equal(
    gathered(world, top, 0n, 24),
    data.map((at) => row[at]),
  );
});

test('a layout in the slot of a destroyed layout is not mistaken for it', () =>
  onWire({ device: { regionsMax: 16 } }, ({ pd, mr }) => {
    const over = (below: LayoutMemoryRegion): Sge => ({ addr: 0, length: 8, lkey: below.lkey });
    const plain = (): LayoutMemoryRegion => {
      const made = pd.regMr(null, 0, EVERY);
      made.setLayoutSg(0, [{ addr: mr.addr, length: 8, lkey: mr.lkey }]);
      return made;
    };
    const [gone, side, above, top] = [plain(), plain(), plain(), plain()];
    side.setLayoutSg(AVOID_INVALIDATION, [over(gone)]);
    above.setLayoutSg(AVOID_INVALIDATION, [over(side), over(side)]);
    // Two slots a region: the table has 32.
    const slot = (gone.lkey >>> 8) & 31;
    gone.dereg();
    const newcomer = (): LayoutMemoryRegion => {
      for (let turn = 0; turn < 10_000; turn++) {
        const made = plain();
        if (((made.lkey >>> 8) & 31) === slot) return made;
        made.dereg();
      }
      throw new Error('no key was drawn for this slot');
    };
    const other = newcomer();
    // No layout refers to the new one: a layout over the destroyed one has no base any more.
    other.setLayoutSg(AVOID_INVALIDATION, [over(top), over(top)]);
    top.setLayoutSg(AVOID_INVALIDATION, [over(above), over(above)]);
    assert.ok(top.bound);
  }));

test('a chain of 2,000 layouts, each set before the one below it, is searched to its end', () =>
  onWire({ device: { memoryBytes: 64 * 2 ** 20 } }, ({ pd, mr }) => {
    // Each was a layout of regions only when the one above it was set: no level counts them.
    const chain = Array.from({ length: 2000 }, () => {
      const made = pd.regMr(null, 0, EVERY);
      made.setLayoutSg(0, [{ addr: mr.addr, length: 8, lkey: mr.lkey }]);
      return made;
    });
    const over = (below: LayoutMemoryRegion): Sge => ({ addr: 0, length: 8, lkey: below.lkey });
    for (let index = 0; index < chain.length - 1; index++) {
      chain[index]!.setLayoutSg(AVOID_INVALIDATION, [over(chain[index + 1]!)]);
    }
    const last = chain.at(-1)!;
    for (const index of [0, 1, 300, 1998]) {
      assert.throws(
        () => last.setLayoutSg(AVOID_INVALIDATION, [over(chain[index]!)]),
        refusal('EINVAL', /part of itself/),
        `link ${index}`,
      );
    }
  }));

test('a stencil beyond the end of its region is refused at use, on either side', (world) => {
  const { wire, layout, mr, memory } = world;
  const stencil = layout(FULL_ACCESS);
  const before = memory.slice();
  stencil.setLayoutSg(0, [{ addr: -16, length: 8, lkey: mr.lkey }], { origin: mr.addr });
  assert.is(reconnect(wire).write(stencil.rkey, 0n), REMOTE_ACCESS_ERROR);
  reconnect(wire);
  const at = (addr: bigint) => ({ addr, length: 8, lkey: stencil.lkey });
  assert.is(sent(wire, at(mr.addr + 15n)), 'LOC_PROT_ERR');
  assert.equal(memory.slice(), before);
  reconnect(wire);
  assert.is(sent(wire, at(mr.addr + 16n)), 'SUCCESS');
});

test.run();
