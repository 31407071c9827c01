/** Random memory layouts: each request reaches the bytes that the oracle says, and no others. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  ArenaLayout,
  KEY_ENTRY_SIZE,
  KeyEntryLayout,
  KeyKind,
  LAYOUT_SIZE,
  LAYOUT_SOURCE_SIZE,
  LayoutDimensionLayout,
  LayoutLayout,
  LayoutSourceLayout,
  NakCode,
  Opcode,
  PlacementType,
} from '#build/abi.js';
import type { DurableRange } from '../../../host/device/durable/durable-store.js';
import { structAt } from '../../../host/engine/struct.js';
import {
  MrSetLayoutFlag,
  Mtu,
  QpState,
  WrOpcode,
  type LayoutMemoryRegion,
} from '../../../host/index.js';
import { LayoutSide, type Named } from '../../simulation/layout-side.js';
import { Random } from '../../simulation/random.js';
import { FLUSH_ACCESS } from '../../support/durable.js';
import { DONE, FLUSHING, flush } from '../../support/flush.js';
import { EVERY, onLayouts } from '../../support/layouts.js';
import { reconnect } from '../../support/windows.js';
import { onWire, pattern, type Wire } from '../../support/wire.js';

const LAYOUTS = 150;
const OPTIONS = { ...FLUSHING, mtu: Mtu.MTU_4096, device: { memoryBytes: 2 ** 25 } };
const SMALL = { ...OPTIONS, mtu: Mtu.MTU_256, device: { memoryBytes: 2 ** 25, sendBuffers: 1 } };
const FENCE = 0x5a;
const BYTES_MAX = 4096;
/** Bytes for copies of heads and sources: more than LAYOUT_PLACES_BYTES. */
const PLACES = 4096;

/** The engine copies programs before it reads them, as if other processes could write them. */
function distrustPrograms({ context }: Wire): void {
  const { memory, heap, address } = context.device.arena;
  const layoutPlaces = heap.alloc(PLACES);
  const bounds = { layoutPlaces, heapStart: PLACES, heapEnd: memory.bytes.length };
  Object.assign(structAt(memory, ArenaLayout, address), bounds);
}

class World {
  readonly #wire: Wire;
  readonly #side: LayoutSide;
  readonly #random: Random;
  readonly #flushed: DurableRange[] = [];
  #psn = 0x200;
  /** Atomics that were executed. */
  added = 0;

  constructor(wire: Wire, seed: number) {
    this.#wire = wire;
    this.#random = new Random(seed);
    const { durables, arena } = wire.context.device;
    durables.addCommit(0, arena.memory.bytes.length, (ranges, done) => {
      this.#flushed.push(...ranges);
      done();
    });
    this.#side = new LayoutSide(wire, this.#random, FLUSH_ACCESS);
  }

  /** A layout and every kind of request to it. */
  step(): void {
    const side = this.#side;
    const layout = side.make(this.#random.between(1, 4));
    const named = (remote: boolean): Named => side.name(layout, BYTES_MAX, remote);
    this.#read(named(true));
    this.#write(named(true), true);
    this.#flush(named(true));
    this.#send(named(false));
    this.#write(named(false), false);
    this.#add(named(true));
    if (!layout.pointers) this.#exceed(layout.mr, layout.packed);
    side.check('');
    side.clear();
  }

  /** A READ through a layout waits behind a long one; a WRITE to one of its bytes waits, too. */
  overtake(): void {
    const { link, mr: long } = this.#wire;
    const layout = this.#side.make(this.#random.between(1, 2));
    const { addr, key, stream } = this.#side.name(layout, BYTES_MAX, true);
    const reth = { virtualAddress: BigInt(addr), key, dmaLength: stream.length };
    link.holds = true;
    const opcode = Opcode.RC_RDMA_READ_REQUEST;
    this.#wire.sendPacket({ opcode, psn: 0x200, ...this.#wire.reth(0, long.length) });
    const psn = 0x200 + long.length / 256;
    this.#wire.sendPacket({ opcode, psn, ...reth });
    const last = psn + Math.ceil(stream.length / 256);
    const place = this.#random.pick(stream);
    const { mr, actual } = this.#side.areas[place >> 20]!;
    const before = actual.slice();
    this.#wire.sendPacket(
      {
        opcode: Opcode.RC_RDMA_WRITE_ONLY,
        psn: last,
        key: mr.rkey,
        virtualAddress: mr.addr + BigInt(place & 0xfffff),
        dmaLength: 1,
      },
      Uint8Array.of(before[place & 0xfffff]! ^ 1),
    );
    assert.equal(actual, before, `place ${place}`);
    link.release();
    assert.is(this.#wire.takePackets().at(-1)!.psn, last, 'a NAK requests it again');
    this.#wire.qp.modify({ qpState: QpState.RESET });
    this.#wire.connect(SMALL);
    this.#side.clear();
  }

  /** Other processes write anything over programs; true: a request found its way all the same. */
  scribble(fence: Uint8Array): boolean {
    const random = this.#random;
    const made = this.#side.make(random.between(1, 4));
    const { arena } = this.#wire.context.device;
    const { keys, keyMask } = structAt(arena.memory, ArenaLayout, arena.address);
    for (let index = 0; index <= keyMask; index++) {
      const at = keys + index * KEY_ENTRY_SIZE;
      const { key, access, address } = structAt(arena.memory, KeyEntryLayout, at);
      if (key === 0 || !(access & KeyKind.LAYOUT) || random.chance(0.3)) continue;
      const word = (address >> 2) + random.below((LAYOUT_SIZE + LAYOUT_SOURCE_SIZE) >> 2);
      const values = [0, 1, 0xffffffff, 0x80000000, random.below(100), random.u32()];
      arena.memory.words[word] = random.pick(values);
    }
    const { rkey, addr } = made.mr;
    const range = { key: rkey, virtualAddress: addr, dmaLength: Math.min(made.packed, 4096) };
    const opcode = random.pick([Opcode.RC_RDMA_READ_REQUEST, Opcode.RC_RDMA_WRITE_ONLY]);
    const isWrite = opcode === Opcode.RC_RDMA_WRITE_ONLY;
    const fields = { opcode, psn: this.#psn++, ackRequest: 1, ...range };
    this.#wire.sendPacket(fields, isWrite ? range.dmaLength : 0);
    const { syndrome } = this.#wire.expectPacket({});
    if (syndrome !== 0x1f) this.#reconnect(syndrome);
    assert.ok(fence.every((byte) => byte === FENCE));
    this.#side.clear();
    return syndrome === 0x1f;
  }

  #read({ addr, key, stream }: Named): void {
    const reth = { virtualAddress: BigInt(addr), key, dmaLength: stream.length };
    this.#wire.sendPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: this.#psn++, ...reth });
    const { payload } = this.#wire.expectPacket({ syndrome: 0x1f });
    assert.equal(payload, this.#side.read(stream));
  }

  /** A WRITE; not `remote`: a SEND. */
  #write({ addr, key, stream }: Named, remote: boolean): void {
    // Where places come twice, their content is unspecified.
    if (new Set(stream).size < stream.length) return;
    const bytes = pattern(stream.length, this.#random.below(256));
    const reth = { virtualAddress: BigInt(addr), key, dmaLength: stream.length };
    const sgList = [{ addr, length: stream.length, lkey: key }];
    if (!remote) this.#wire.qp.postRecv({ sgList });
    const opcode = remote ? Opcode.RC_RDMA_WRITE_ONLY : Opcode.RC_SEND_ONLY;
    const fields = { opcode, psn: this.#psn++, ackRequest: 1, ...(remote ? reth : {}) };
    this.#wire.sendPacket(fields, bytes);
    this.#wire.expectPacket({ syndrome: 0x1f });
    this.#side.expect(stream, bytes);
  }

  /** An atomic needs eight bytes in one piece, at a multiple of 8 of memory. */
  #add({ addr, key, stream }: Named): void {
    const skip = Number(-BigInt(addr) & 7n);
    const places = stream.slice(skip, skip + 8);
    if (places.length < 8) return;
    const virtualAddress = BigInt(addr) + BigInt(skip);
    const { areas } = this.#side;
    const first = areas[places[0]! >> 20]!.actual.byteOffset + (places[0]! & 0xfffff);
    const isRow = places.every((place, index) => place === places[0]! + index) && first % 8 === 0;
    const fields = { opcode: Opcode.RC_FETCH_ADD, psn: this.#psn++, key, virtualAddress };
    this.#wire.sendPacket({ ...fields, swapAdd: 1n, ackRequest: 1 });
    const { syndrome } = this.#wire.expectPacket({});
    if (syndrome !== 0x1f) return this.#reconnect(syndrome);
    assert.ok(isRow, `bytes at ${places}`);
    this.added++;
    const sum = Buffer.from(this.#side.read(places)).readBigUInt64LE() + 1n;
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64LE(BigInt.asUintN(64, sum));
    this.#side.expect(places, bytes);
  }

  /** The end of the stream, and one byte more. */
  #exceed({ rkey: key, addr }: LayoutMemoryRegion, packed: number): void {
    const behind = this.#random.below(Math.min(packed, BYTES_MAX));
    const range = { key, virtualAddress: addr + BigInt(packed - behind), dmaLength: behind + 1 };
    this.#wire.sendPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: this.#psn, ...range });
    this.#reconnect(this.#wire.expectPacket({}).syndrome);
    flush(this.#wire, this.#psn, PlacementType.PERSISTENT, range);
    this.#reconnect(this.#wire.expectPacket({}).syndrome);
    const virtualAddress = addr + BigInt((packed - 1) & ~7);
    if (packed % 8 === 0) return;
    const add = { opcode: Opcode.RC_FETCH_ADD, psn: this.#psn, key, virtualAddress, swapAdd: 1n };
    this.#wire.sendPacket({ ...add, ackRequest: 1 });
    this.#reconnect(this.#wire.expectPacket({}).syndrome);
  }

  #reconnect(syndrome: number): void {
    assert.is(syndrome, NakCode.REMOTE_ACCESS_ERROR);
    this.#wire.qp.modify({ qpState: QpState.RESET });
    this.#wire.connect(OPTIONS);
    this.#psn = 0x200;
  }

  #send({ addr, key, stream }: Named): void {
    this.#wire.qp.postSend({
      opcode: WrOpcode.SEND,
      sgList: [{ addr, length: stream.length, lkey: key }],
    });
    const { psn, payload } = this.#wire.expectPacket({ opcode: Opcode.RC_SEND_ONLY });
    assert.equal(payload, this.#side.read(stream));
    this.#wire.acknowledge(psn);
  }

  #flush({ addr, key, stream }: Named): void {
    this.#flushed.length = 0;
    const range = { virtualAddress: BigInt(addr), key, dmaLength: stream.length };
    flush(this.#wire, this.#psn++, PlacementType.PERSISTENT, range);
    this.#wire.expectPacket(DONE);
    for (const place of stream) {
      const at = this.#side.areas[place >> 20]!.actual.byteOffset + (place & 0xfffff);
      const holds = ({ offset, length }: DurableRange) => offset <= at && at < offset + length;
      assert.ok(this.#flushed.some(holds), `place ${place}`);
    }
  }
}

for (const [seed, what] of ['one process has', 'several processes share'].entries()) {
  test(`READ, WRITE, SEND, FLUSH reach the bytes of random layouts of an arena that ${what}`, () =>
    onWire(OPTIONS, (wire) => {
      if (seed > 0) distrustPrograms(wire);
      const world = new World(wire, seed);
      for (let count = 0; count < LAYOUTS; count++) world.step();
      assert.ok(world.added > LAYOUTS / 50, `${world.added} atomics were executed`);
    }));
}

test('programs that other processes write over lead to no byte outside of the regions', () =>
  onWire(OPTIONS, (wire) => {
    distrustPrograms(wire);
    const world = new World(wire, 3);
    const fence = wire.context.alloc(2 ** 16).fill(FENCE);
    let found = 0;
    for (let count = 0; count < LAYOUTS; count++) if (world.scribble(fence)) found++;
    assert.ok(found > 0 && found < LAYOUTS, `${found} of ${LAYOUTS}`);
  }));

test('a WRITE waits for a READ through a layout that has yet to return the byte', () =>
  onWire(SMALL, (wire) => {
    const world = new World(wire, 4);
    for (let count = 0; count < LAYOUTS / 3; count++) world.overtake();
  }));

test('data of every size are read and written where they lie', () =>
  onWire(OPTIONS, (wire) => {
    const { buffer, mr } = wire;
    const layout = wire.pd.regMr(null, 0, EVERY);
    let psn = 0x200;
    for (const length of [1, 3, 4, 8, 15, 16, 17, 255, 256, 257, 320, 640, 1024]) {
      for (const sources of [[0], [0, 8192]]) {
        buffer.set(pattern(buffer.length, length));
        const offsetStride = length + 24;
        const dims = [{ offsetStride, datumCount: 4 }];
        const list = sources.map((at) => ({
          firstDatum: { addr: mr.addr + BigInt(at), length, lkey: mr.lkey },
          dims,
        }));
        layout.setLayoutInterleaved(MrSetLayoutFlag.AVOID_INVALIDATION, list);
        const places = [0, 1, 2, 3].flatMap((row) => sources.map((at) => at + row * offsetStride));
        const stream = (from: Uint8Array) =>
          Buffer.concat(places.map((at) => from.subarray(at, at + length)));
        const reth = { key: layout.rkey, virtualAddress: 0n, dmaLength: layout.length };
        wire.sendPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn, ...reth });
        const answers = wire.takePackets();
        psn += answers.length;
        const payload = Buffer.concat(answers.map((answer) => answer.payload));
        assert.equal(payload, stream(buffer), `${length}`);
        if (layout.length > BYTES_MAX) continue;
        const bytes = pattern(layout.length, 99);
        const write = { opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: psn++, ...reth };
        wire.sendPacket({ ...write, ackRequest: 1 }, bytes);
        wire.expectPacket({ syndrome: 0x1f });
        assert.equal(stream(buffer), Buffer.from(bytes), `${length}`);
        const next = places[0]! + length;
        assert.equal(buffer.slice(next, next + 24), pattern(next + 24, length).slice(next));
      }
    }
  }));

test('a program that contradicts itself is refused', () =>
  onLayouts(({ wire, layout, base }) => {
    distrustPrograms(wire);
    const { memory, address } = wire.context.device.arena;
    const { keys, keyMask } = structAt(memory, ArenaLayout, address);
    const source = (offset: number, cycles: number) => {
      const dims = [
        { offsetStride: 16, datumCount: 4 },
        { offsetStride: 128, datumCount: cycles },
      ];
      return { firstDatum: base(offset), numRepeated: 2, dims };
    };
    for (const cycles of [3, 4]) {
      const mr = layout();
      mr.setLayoutInterleaved(0, [source(0, 3), source(1024, cycles)]);
      const entry = structAt(memory, KeyEntryLayout, keys + ((mr.lkey >>> 8) & keyMask) * 32);
      const head = structAt(memory, LayoutLayout, entry.address);
      const second = entry.address + LAYOUT_SIZE + LAYOUT_SOURCE_SIZE;
      const one = structAt(memory, LayoutSourceLayout, second);
      const dimension = structAt(memory, LayoutDimensionLayout, one.dimensions);
      const even = [
        [head, { cycleBytes: 0 }],
        [head, { cycleBytes: 15 }],
        [one, { within: 17 }],
        [one, { within: 2 ** 31 }],
        [one, { repeated: 3 }],
      ] as const;
      const wrong: readonly (readonly [object, object])[] = [
        ...(cycles === 3 ? even : [[head, { uneven: 8 }] as const]),
        [head, { count: 0 }],
        [head, { count: 65537 }],
        [head, { packed: 0 }],
        [one, { datum: 0 }],
        [one, { count: 0 }],
        [one, { repeated: 0 }],
        [one, { total: 7 }],
        [one, { span: one.span - 1 }],
        [one, { stride: 2 ** 31 }],
        [one, { dimensionCount: 0 }],
        [one, { dimensionCount: 8 }],
        [one, { dimensions: 0 }],
        [one, { dimensions: 2 ** 32 - 4 }],
        [dimension, { count: 0 }],
        [dimension, { stride: 2 ** 31 }],
      ];
      const read = (length = mr.length) =>
        reconnect(wire).ask(Opcode.RC_RDMA_READ_REQUEST, mr.rkey, 0n, length);
      const whole = memory.bytes.slice(entry.address, entry.address + 512);
      for (const [struct, change] of wrong) {
        assert.is(read(), 0x1f);
        Object.assign(struct, change);
        // The first bytes need no other source.
        const found = read(struct === head ? 8 : mr.length);
        assert.is(found, NakCode.REMOTE_ACCESS_ERROR, JSON.stringify(change));
        memory.bytes.set(whole, entry.address);
      }
      entry.sequence++;
      assert.is(read(), NakCode.REMOTE_ACCESS_ERROR, 'another engine is changing the entry');
      entry.sequence--;
    }
  }));

test.run();
