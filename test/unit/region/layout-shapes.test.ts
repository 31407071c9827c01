/** Random memory layouts: each request reaches the bytes that the oracle says, and no others. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { ArenaLayout, Opcode, PlacementType } from '#build/abi.js';
import type { DurableRange } from '../../../host/device/durable/durable-store.js';
import { structAt } from '../../../host/engine/struct.js';
import { Mtu, WrOpcode } from '../../../host/index.js';
import { LayoutSide, type Named } from '../../simulation/layout-side.js';
import { Random } from '../../simulation/random.js';
import { FLUSH_ACCESS } from '../../support/durable.js';
import { DONE, FLUSHING, flush } from '../../support/flush.js';
import { onWire, pattern, type Wire } from '../../support/wire.js';

const LAYOUTS = 200;
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
    side.check('');
    side.clear();
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
    onWire({ ...FLUSHING, mtu: Mtu.MTU_4096, device: { memoryBytes: 2 ** 25 } }, (wire) => {
      if (seed > 0) distrustPrograms(wire);
      const world = new World(wire, seed);
      for (let count = 0; count < LAYOUTS; count++) world.step();
    }));
}

test.run();
