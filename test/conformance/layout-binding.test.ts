/** How a memory layout is set: binding, keys, limits, and every way in which a list is wrong. */
import { asPosted } from '../support/any-request.js';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { NakCode } from '#build/abi.js';
import {
  AccessFlag,
  MrLayoutCapFlag,
  MrSetLayoutFlag,
  QpType,
  SendFlag,
  WcOpcode,
  WrOpcode,
  type LayoutMemoryRegion,
  type MemoryRegion,
  type MrLayoutInterleaved,
  type Sge,
} from '../../host/index.js';
import { EVERY, column, isMisuse, onLayouts, refusal, sent } from '../support/layouts.js';
import { ACK, Requests, invalidate, lastStatus, reconnect } from '../support/windows.js';
import { FULL_ACCESS, onWire, pattern } from '../support/wire.js';

const { REMOTE_WRITE, ZERO_BASED, MW_BIND } = AccessFlag;
const { WITH_POST_WR, AVOID_INVALIDATION } = MrSetLayoutFlag;
const { REMOTE_ACCESS_ERROR } = NakCode;

test('queryDevice returns the limits of layouts', () =>
  onWire({}, (wire) => {
    const caps = wire.context.queryDevice().mrLayoutCaps;
    assert.equal(caps, {
      capFlags: 31,
      maxNumSg: 65536,
      maxInlineNumSg: 65536,
      maxNumInterleaved: 4096,
      maxInlineNumInterleaved: 4096,
      maxMrStrideDimension: 8,
      maxMrNestingLevel: 4,
    });
    const { SG, INTERLEAVED, INTERLEAVED_REPEAT } = MrLayoutCapFlag;
    assert.equal([SG, INTERLEAVED, INTERLEAVED_REPEAT], [1, 2, 4]);
    assert.is(MrLayoutCapFlag.INTERLEAVED_NONUNIFORM_REPEAT, 8);
    assert.is(MrLayoutCapFlag.INTERLEAVED_NONUNIFORM_DATUM_TOTAL, 16);
  }));

test('a region without memory opens nothing before it has a layout', () =>
  onLayouts(({ wire, layout }) => {
    const mr = layout();
    assert.equal([mr.bound, mr.length, mr.addr], [false, 0, 0n]);
    assert.is(new Requests(wire).write(mr.rkey, 0n), REMOTE_ACCESS_ERROR);
    reconnect(wire);
    assert.is(sent(wire, { addr: 0, length: 1, lkey: mr.lkey }), 'LOC_PROT_ERR');
  }));

test('a layout needs no memory, and memory needs no layout', () =>
  onLayouts(({ pd, layout }) => {
    assert.throws(() => pd.regMr(null, 1 as 0, ZERO_BASED), isMisuse);
    assert.throws(() => layout(-1), isMisuse);
    assert.throws(() => layout(ZERO_BASED | REMOTE_WRITE), refusal('EINVAL', /LOCAL_WRITE/));
    assert.throws(() => layout(ZERO_BASED | MW_BIND), refusal('EOPNOTSUPP', /cannot have/));
    assert.throws(() => layout(ZERO_BASED | (1 << 15)), refusal('EOPNOTSUPP', /cannot have/));
  }));

test('set without flags it is bound on return, under a new key from the second time on', () =>
  onLayouts((world) => {
    const { wire, layout, memory } = world;
    const mr = layout();
    const first = mr.rkey;
    mr.setLayoutInterleaved(0, column(world));
    assert.equal([mr.rkey, mr.bound, mr.length], [first, true, 64]);
    assert.is(new Requests(wire).write(first, 0n), ACK);
    assert.equal(memory.slice(8, 16), pattern(8));
    mr.setLayoutInterleaved(0, column(world, 8, 16));
    assert.is.not(mr.rkey, first);
    assert.is(mr.rkey >>> 8, first >>> 8);
    assert.is(mr.lkey, mr.rkey);
    assert.is(reconnect(wire).write(mr.rkey, 0n), ACK);
    assert.equal(memory.slice(16, 24), pattern(8));
    assert.is(reconnect(wire).write(first, 0n), REMOTE_ACCESS_ERROR);
  }));

test('AVOID_INVALIDATION keeps the key, which opens the new layout', () =>
  onLayouts((world) => {
    const { wire, layout, memory, base } = world;
    const mr = layout();
    mr.setLayoutInterleaved(0, column(world));
    const key = mr.rkey;
    mr.setLayoutSg(AVOID_INVALIDATION, [base(512, 16)]);
    assert.equal([mr.rkey, mr.length], [key, 16]);
    assert.is(new Requests(wire).write(key, 8n), ACK);
    assert.equal(memory.slice(520, 528), pattern(8));
  }));

test('WITH_POST_WR records; BIND_MR binds in the order of its queue, for what is behind it (S7)', () =>
  onLayouts((world) => {
    const { wire, layout } = world;
    const mr = layout();
    mr.setLayoutInterleaved(WITH_POST_WR, column(world));
    assert.equal([mr.bound, mr.length], [false, 64]);
    assert.is(new Requests(wire).write(mr.rkey, 0n), REMOTE_ACCESS_ERROR);
    reconnect(wire);
    const sendFlags = SendFlag.SIGNALED;
    wire.qp.postSend([
      { wrId: 1, opcode: WrOpcode.BIND_MR, sendFlags, mrSetLayout: { mr } },
      { opcode: WrOpcode.SEND, sgList: [{ addr: 8, length: 8, lkey: mr.lkey }] },
    ]);
    const [wc] = wire.cq.poll(1);
    assert.equal([wc!.wrId, wc!.status, wc!.opcode], [1n, 0, WcOpcode.BIND_MR]);
    assert.equal(wire.takePackets()[0]!.payload, world.memory.slice(72, 80));
    assert.ok(mr.bound);
    // A second layout: until it is bound the first one stands.
    const before = mr.rkey;
    mr.setLayoutInterleaved(WITH_POST_WR, column(world, 8, 24));
    assert.is.not(mr.rkey, before);
    assert.is(reconnect(wire).write(before, 0n), ACK);
    wire.qp.postSend({ opcode: WrOpcode.BIND_MR, sendFlags, mrSetLayout: { mr } });
    assert.is(lastStatus(wire), 'SUCCESS');
    assert.is(reconnect(wire).write(before, 0n), REMOTE_ACCESS_ERROR);
    assert.is(reconnect(wire).write(mr.rkey, 0n), ACK);
    assert.equal(world.memory.slice(24, 32), pattern(8));
  }));

test('of layouts that are recorded the last one counts; BIND_MR without one fails', () =>
  onLayouts((world) => {
    const { wire, layout, memory } = world;
    const mr = layout();
    const bind = () => {
      const sendFlags = SendFlag.SIGNALED;
      wire.qp.postSend({ opcode: WrOpcode.BIND_MR, sendFlags, mrSetLayout: { mr } });
      return lastStatus(wire);
    };
    mr.setLayoutInterleaved(WITH_POST_WR, column(world));
    mr.setLayoutInterleaved(WITH_POST_WR, column(world, 8, 40));
    assert.is(bind(), 'SUCCESS');
    assert.is(new Requests(wire).write(mr.rkey, 0n), ACK);
    assert.equal(memory.slice(40, 48), pattern(8));
    assert.is(bind(), 'LOC_QP_OP_ERR');
    reconnect(wire);
    assert.is(new Requests(wire).write(mr.rkey, 8n), ACK, 'what was bound stands');
    // Recorded, and then overtaken by one that is bound at once.
    mr.setLayoutInterleaved(WITH_POST_WR, column(world));
    mr.setLayoutInterleaved(0, column(world, 8, 48));
    reconnect(wire);
    assert.is(bind(), 'LOC_QP_OP_ERR');
  }));

test('BIND_MR needs a region of the queue pair’s domain, and is not for datagrams', async () => {
  await onLayouts((world) => {
    const { wire } = world;
    const pd = wire.context.allocPd();
    const memory = wire.context.alloc(64);
    const base = pd.regMr(memory, FULL_ACCESS);
    const mr = pd.regMr(null, 0, EVERY);
    mr.setLayoutSg(WITH_POST_WR, [{ addr: base.addr, length: 64, lkey: base.lkey }]);
    const sendFlags = SendFlag.SIGNALED;
    wire.qp.postSend({ opcode: WrOpcode.BIND_MR, sendFlags, mrSetLayout: { mr } });
    assert.is(lastStatus(wire), 'LOC_QP_OP_ERR');
    assert.is(mr.bound, false);
    assert.throws(() => wire.qp.postSend(asPosted({ opcode: WrOpcode.BIND_MR })), /mrSetLayout/);
    mr.dereg();
    assert.throws(
      () => wire.qp.postSend({ opcode: WrOpcode.BIND_MR, mrSetLayout: { mr } }),
      isMisuse,
    );
  });
  await onWire({ qp: { qpType: QpType.UD } }, (wire) => {
    const mr = wire.pd.regMr(null, 0, ZERO_BASED);
    wire.qp.postSend({ opcode: WrOpcode.BIND_MR, mrSetLayout: { mr } });
    assert.is(lastStatus(wire), 'LOC_QP_OP_ERR');
  });
});

test('LOCAL_INV and the peer’s SEND_WITH_INV take the layout away; another can be set', () =>
  onLayouts((world) => {
    const { wire, layout } = world;
    const mr = layout();
    mr.setLayoutInterleaved(0, column(world));
    const first = mr.rkey;
    assert.is(invalidate(wire, first), 'SUCCESS');
    assert.is(mr.bound, false);
    assert.is(new Requests(wire).write(first, 0n), REMOTE_ACCESS_ERROR);
    reconnect(wire);
    mr.setLayoutInterleaved(0, column(world));
    const second = mr.rkey;
    assert.is.not(second, first, 'a key that was killed does not come back');
    assert.is(reconnect(wire).invalidate(second), ACK);
    assert.is(mr.bound, false);
    assert.is(reconnect(wire).write(second, 0n), REMOTE_ACCESS_ERROR);
    reconnect(wire);
    assert.is(invalidate(wire, second), 'LOC_QP_OP_ERR', 'once');
    mr.dereg();
    assert.throws(() => mr.setLayoutInterleaved(0, column(world)), isMisuse);
  }));

test('what is wrong with a list is found when it is set, by entry, and nothing changes', () =>
  onLayouts((world) => {
    const { wire, layout, base } = world;
    const mr = layout();
    mr.setLayoutInterleaved(0, column(world));
    const key = mr.rkey;
    const ilv = (change: object, ...dims: MrLayoutInterleaved['dims']): MrLayoutInterleaved[] => [
      ...column(world),
      { firstDatum: base(), dims, ...change },
    ];
    const dim = (offsetStride: number | bigint, datumCount: number | bigint) => ({
      offsetStride,
      datumCount,
    });
    const foreignPd = wire.context.allocPd();
    const foreign = foreignPd.regMr(wire.context.alloc(64), FULL_ACCESS);
    const gone = world.pd.regMr(wire.context.alloc(64), FULL_ACCESS);
    gone.dereg();
    const at = (from: MemoryRegion): Sge => ({ addr: from.addr, length: 8, lkey: from.lkey });
    const nine = Array.from({ length: 9 }, () => dim(0, 1));
    const cases: readonly [() => void, RegExp][] = [
      [() => mr.setLayoutSg(0, []), /empty/],
      [() => mr.setLayoutInterleaved(0, []), /empty/],
      [() => mr.setLayoutSg(4, [base()]), /flags/],
      [() => mr.setLayoutSg(0, [base(), base(0, 0)]), /entry 1 has a length.*0/],
      [() => mr.setLayoutSg(0, [base(), base(4089)]), /entry 1 goes beyond/],
      [() => mr.setLayoutSg(0, [base(-1)]), /entry 0 goes beyond/],
      [() => mr.setLayoutSg(0, [{ ...base(), addr: 2n ** 64n - 4n }]), /entry 0 goes beyond/],
      [() => mr.setLayoutSg(0, [base(), at(gone)]), /entry 1 names a key that opens nothing/],
      [() => mr.setLayoutSg(0, [base(), at(foreign)]), /entry 1 names a key that opens nothing/],
      [() => mr.setLayoutSg(0, [{ ...base(), lkey: 0 }]), /entry 0 names a key/],
      [() => mr.setLayoutInterleaved(0, ilv({}, dim(64, 0))), /entry 1 has .* 0/],
      [() => mr.setLayoutInterleaved(0, ilv({ numRepeated: 0 }, dim(64, 2))), /entry 1 has .* 0/],
      [() => mr.setLayoutInterleaved(0, ilv({ firstDatum: base(0, 0) })), /entry 1 has .* 0/],
      [() => mr.setLayoutInterleaved(0, ilv({}, dim(64, 65))), /entry 1 goes beyond/],
      [() => mr.setLayoutInterleaved(0, ilv({}, dim(2n ** 63n, 2))), /4 GiB/],
      [() => mr.setLayoutInterleaved(0, ilv({}, dim(2n ** 32n, 2n ** 32n))), /4 GiB/],
      [() => mr.setLayoutInterleaved(0, ilv({}, dim(0, 2n ** 32n - 1n))), /4 GiB/],
      [() => mr.setLayoutInterleaved(0, ilv({}, dim(0, 65536), dim(0, 65536))), /4 GiB/],
      [() => mr.setLayoutInterleaved(0, ilv({}, dim(2n ** 31n, 3))), /4 GiB/],
      [() => mr.setLayoutInterleaved(0, ilv({}, ...nine)), /more than 8 dimensions/],
    ];
    for (const [set, pattern] of cases) assert.throws(set, refusal('EINVAL', pattern));
    const wrong: readonly (() => void)[] = [
      () => mr.setLayoutSg(-1, [base()]),
      () => mr.setLayoutSg(0.5, [base()]),
      () => mr.setLayoutSg(0, [{ ...base(), length: -5000000000 }]),
      () => mr.setLayoutSg(0, [{ ...base(), addr: -1n }]),
      () => mr.setLayoutSg(0, [{ ...base(), lkey: 2 ** 40 }]),
      () => mr.setLayoutInterleaved(0, ilv({}, dim(-1, 2))),
      () => mr.setLayoutInterleaved(0, ilv({}, dim(1.5, 2))),
      () => mr.setLayoutSg(0, [base()], { extent: -1 }),
    ];
    for (const set of wrong) assert.throws(set, isMisuse);
    assert.equal([mr.rkey, mr.bound, mr.length], [key, true, 64]);
    assert.is(new Requests(wire).write(key, 0n), ACK);
  }));

test('a stream or a source of 4 GiB is refused, whichever entries it is made of', () =>
  onLayouts(({ wire, layout, base }) => {
    const mr = layout();
    const whole = { addr: wire.mr.addr, length: 65536, lkey: wire.mr.lkey };
    const of = (firstDatum: Sge, ...dims: (readonly [stride: bigint, count: bigint])[]) => ({
      firstDatum,
      dims: dims.map(([offsetStride, datumCount]) => ({ offsetStride, datumCount })),
    });
    const half = 2n ** 31n;
    const cases: readonly [list: MrLayoutInterleaved[], RegExp][] = [
      [[of(base(), [half, 2n], [half, 2n])], /entry 0.*4 GiB/],
      [[of(base(0, 1), [1n, half + 1n])], /entry 0 goes beyond/],
      [[of(whole, [0n, 65537n])], /entry 0.*4 GiB/],
      [[of(whole, [0n, 40000n]), of(whole, [0n, 40000n])], /entry 1.*4 GiB/],
    ];
    for (const [list, text] of cases) {
      assert.throws(() => mr.setLayoutInterleaved(0, list), refusal('EINVAL', text));
    }
    const many = new Array<Sge>(65536).fill(whole);
    assert.throws(() => mr.setLayoutSg(0, many), refusal('EINVAL', /entry 65535.*4 GiB/));
  }));

test('at its limits a layout works, and one beyond is refused', () =>
  onLayouts(({ wire, layout, base, memory }) => {
    const { mrLayoutCaps: caps } = wire.context.queryDevice();
    const mr = layout();
    const pieces = (count: number) =>
      // No two of one stride, so that none is joined with its neighbour.
      Array.from({ length: count }, (_, index) =>
        base((index * index * 5) % 4000, 1 + (index & 1)),
      );
    const list = pieces(caps.maxNumSg);
    mr.setLayoutSg(0, list);
    const total = list.reduce((sum, { length }) => sum + Number(length), 0);
    assert.is(mr.length, total);
    const last = list.at(-1)!;
    assert.is(reconnect(wire).write(mr.rkey, BigInt(total - 2), 2), ACK);
    const at = Number(last.addr) - memory.byteOffset;
    assert.equal(memory.slice(at, at + 2), pattern(2));
    assert.throws(() => mr.setLayoutSg(0, pieces(caps.maxNumSg + 1)), refusal('EINVAL', /longer/));

    const sources = (count: number) =>
      Array.from({ length: count }, (_, index) => ({
        firstDatum: base(index % 4000, 1),
        numRepeated: 1 + (index % 3),
        dims: [{ offsetStride: 1, datumCount: 1 + (index % 7) }],
      }));
    mr.setLayoutInterleaved(0, sources(caps.maxNumInterleaved));
    assert.is(reconnect(wire).write(mr.rkey, BigInt(mr.length - 8)), ACK);
    assert.throws(
      () => mr.setLayoutInterleaved(0, sources(caps.maxNumInterleaved + 1)),
      refusal('EINVAL', /longer/),
    );

    const dims = (count: number) =>
      Array.from({ length: count }, (_, index) => ({ offsetStride: 3 ** index, datumCount: 2 }));
    mr.setLayoutInterleaved(0, [{ firstDatum: base(0, 1), dims: dims(caps.maxMrStrideDimension) }]);
    assert.is(mr.length, 2 ** 8);
    assert.is(reconnect(wire).write(mr.rkey, 255n, 1), ACK);
    assert.is(memory[(3 ** 8 - 1) / 2], pattern(1)[0]);

    const tower = (height: number) => {
      let below = base(0, 16);
      for (let level = 0; level < height; level++) {
        const floor = layout();
        floor.setLayoutSg(0, [below]);
        below = { addr: 0, length: 16, lkey: floor.lkey };
      }
      return below;
    };
    const top = tower(caps.maxMrNestingLevel);
    assert.is(reconnect(wire).write(top.lkey, 8n), ACK);
    assert.throws(() => tower(caps.maxMrNestingLevel + 1), refusal('EINVAL', /too many layouts/));
  }));

test('a layout is no part of itself, not even through others', () =>
  onLayouts(({ layout, base }) => {
    const [one, two, three] = [layout(), layout(), layout()];
    one.setLayoutSg(0, [base(0, 16)]);
    const of = (mr: LayoutMemoryRegion): Sge => ({ addr: 0, length: 16, lkey: mr.lkey });
    assert.throws(() => one.setLayoutSg(0, [of(one)]), refusal('EINVAL', /part of itself/));
    two.setLayoutSg(0, [of(one)]);
    three.setLayoutSg(0, [base(64, 16), of(two)]);
    for (const flags of [0, AVOID_INVALIDATION, WITH_POST_WR]) {
      assert.throws(() => one.setLayoutSg(flags, [of(two)]), refusal('EINVAL', /part of itself/));
      assert.throws(() => one.setLayoutSg(flags, [of(three)]), refusal('EINVAL', /part of itself/));
    }
  }));

test('layouts that were recorded past each other do not go round in circles either', () =>
  onLayouts(({ wire, layout, base }) => {
    const [one, two] = [layout(), layout()];
    const of = (mr: LayoutMemoryRegion): Sge => ({ addr: 0, length: 16, lkey: mr.lkey });
    one.setLayoutSg(0, [base(0, 16)]);
    two.setLayoutSg(0, [base(0, 16)]);
    // Each stands on the other, seen from when neither was bound yet.
    const [first, second] = [of(one), of(two)];
    one.setLayoutSg(WITH_POST_WR | AVOID_INVALIDATION, [second]);
    two.setLayoutSg(WITH_POST_WR | AVOID_INVALIDATION, [first]);
    const sendFlags = SendFlag.SIGNALED;
    for (const mr of [one, two]) {
      wire.qp.postSend({ opcode: WrOpcode.BIND_MR, sendFlags, mrSetLayout: { mr } });
      assert.is(lastStatus(wire), 'SUCCESS');
    }
    for (const mr of [one, two]) {
      assert.is(reconnect(wire).write(mr.rkey, 0n), REMOTE_ACCESS_ERROR);
    }
  }));

test('memory of layouts that were replaced comes back', () =>
  onLayouts((world) => {
    const { heap } = world.wire.context.device.arena;
    const mr = world.layout();
    mr.setLayoutInterleaved(0, column(world));
    const free = heap.bytesFree;
    const { wire } = world;
    for (let turn = 0; turn < 50; turn++) {
      mr.setLayoutInterleaved(turn & 3, column(world));
      if (turn % 5 === 0) {
        wire.qp.postSend({ opcode: WrOpcode.BIND_MR, mrSetLayout: { mr } });
        reconnect(wire);
      }
      if (turn % 7 === 0) {
        invalidate(wire, mr.lkey);
        reconnect(wire);
      }
    }
    mr.setLayoutInterleaved(0, column(world));
    assert.is(heap.bytesFree, free);
    mr.dereg();
    assert.ok(heap.bytesFree > free);
  }));

test.run();
