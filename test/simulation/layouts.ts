/**
 * Random memory layouts on both ends of a wire that loses packets: every operation at any offset,
 * against the naive oracle, byte by byte, and nothing written elsewhere.
 * `npm run sim -- --layouts`.
 */
import {
  AccessFlag,
  Mtu,
  QpType,
  SendFlag,
  WcStatusName,
  WrOpcode,
  faultLink,
  type Sge,
} from '../../host/index.js';
import { makePair, type Pair } from '../support/pair.js';
import { LayoutSide, type Made, type Named } from './layout-side.js';
import { Random, withRandomKeys } from './random.js';
import { Violation } from './violation.js';

/** Layouts of one seed: half on each side, those that they stand on not counted. */
export const LAYOUTS_A_SEED = 20;
const DEPTH_MAX = 4;
const MTUS = [Mtu.MTU_256, Mtu.MTU_512, Mtu.MTU_1024, Mtu.MTU_2048, Mtu.MTU_4096];
const LOSSES = [0, 0.01, 0.1];
const LENGTHS = [64, 700, 3000, 9000];

/** Where places come twice, what is left there is not said. */
function apart(stream: readonly number[]): boolean {
  return new Set(stream).size === stream.length;
}

class LayoutWorld {
  readonly #pair: Pair;
  readonly #random: Random;
  readonly #sides: readonly [LayoutSide, LayoutSide];

  constructor(pair: Pair, random: Random) {
    this.#pair = pair;
    this.#random = random;
    this.#sides = [
      new LayoutSide(pair.a, random.split('a')),
      new LayoutSide(pair.b, random.split('b')),
    ];
  }

  /** One layout on each side, and operations between them. */
  step(): void {
    const bytesFree = () =>
      this.#sides.map(({ side }) => side.context.device.arena.heap.bytesFree).join();
    const before = bytesFree();
    const [near, far] = this.#sides.map((side) => side.make(this.#random.between(1, DEPTH_MAX)));
    for (let count = 3; count > 0; count--) this.#operate(near!, far!);
    for (const side of this.#sides) side.clear();
    if (bytesFree() !== before) throw new Violation('memory of layouts was not given back');
  }

  #operate(nearLayout: Made, farLayout: Made): void {
    const random = this.#random;
    const [a, b] = this.#sides;
    const reliable = this.#pair.a.qp.qpType === QpType.RC;
    const operation = random.pick(reliable ? ['SEND', 'WRITE', 'READ'] : ['SEND', 'WRITE']);
    const most = random.pick(LENGTHS);
    const near = a.name(nearLayout, most, false);
    const far = b.name(farLayout, most, operation !== 'SEND');
    const length = Math.min(near.stream.length, far.stream.length);
    const ours = near.stream.slice(0, length);
    const theirs = far.stream.slice(0, length);
    const reads = operation === 'READ';
    if (!apart(reads ? ours : theirs)) return;
    if (reads) a.expect(ours, b.read(theirs));
    else b.expect(theirs, a.read(ours));
    const local: Sge = { addr: near.addr, length, lkey: near.key };
    if (operation === 'SEND') this.#send(local, { addr: far.addr, length, lkey: far.key });
    else this.#move(reads ? WrOpcode.RDMA_READ : WrOpcode.RDMA_WRITE, local, far);
    a.check(operation);
    b.check(operation);
  }

  /** The layout may be one of several pieces. */
  #send(local: Sge, target: Sge): void {
    const { a, b } = this.#pair;
    b.qp.postRecv({ sgList: this.#cut(target) });
    const sgList = this.#cut(local);
    a.qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED, sgList });
    this.#finish(1, 1);
  }

  #move(opcode: number, local: Sge, { addr, key }: Named): void {
    const rdma = { remoteAddr: addr, rkey: key };
    this.#pair.a.qp.postSend({ opcode, sendFlags: SendFlag.SIGNALED, sgList: [local], rdma });
    this.#finish(1, 0);
  }

  /** Two entries in place of one; a stencil's address is a base pointer and cannot be moved on. */
  #cut(sge: Sge): Sge[] {
    const stencil = this.#sides.some((side) => side.isStencil(sge.lkey));
    if (stencil || sge.length < 2 || this.#random.chance(0.5)) return [sge];
    const first = this.#random.between(1, Number(sge.length) - 1);
    return [
      { ...sge, length: first },
      { ...sge, addr: BigInt(sge.addr) + BigInt(first), length: Number(sge.length) - first },
    ];
  }

  #finish(ours: number, theirs: number): void {
    const { a, b } = this.#pair;
    const done = [a.cq.poll(0), b.cq.poll(0)];
    this.#pair.run(() => {
      done[0]!.push(...a.cq.poll(16));
      done[1]!.push(...b.cq.poll(16));
      return done[0]!.length >= ours && done[1]!.length >= theirs;
    });
    for (const { status } of done.flat()) {
      if (status !== 0) throw new Violation(`a request ended with ${WcStatusName[status]}`);
    }
  }
}

/** Runs a seed. Throws what it finds. */
export async function simulateLayouts(seed: number): Promise<void> {
  const random = new Random(seed).split('layouts');
  const loss = random.pick(LOSSES);
  // UC does not retransmit lost packets.
  const qpType = loss === 0 && random.chance(0.3) ? QpType.UC : QpType.RC;
  const qpAccessFlags =
    qpType === QpType.UC ? AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE : undefined;
  await withRandomKeys(random.split('keys'), async () => {
    const pair = await makePair({
      mtu: random.pick(MTUS),
      device: { memoryBytes: 8 * 2 ** 20 },
      qp: { qpType, cap: { maxSendSge: 4, maxRecvSge: 4 } },
      ...(qpAccessFlags === undefined ? {} : { attributes: { qpAccessFlags } }),
      reorderPackets: random.chance(0.3) ? 16 : 0,
      wrap: (link) => (loss === 0 ? link : faultLink(link, { loss, seed: random.u32() })),
    });
    try {
      const world = new LayoutWorld(pair, random);
      for (let step = 0; step < LAYOUTS_A_SEED / 2; step++) world.step();
    } finally {
      await pair.close();
    }
  });
}
