/**
 * A connection between two devices: two queue pairs at a time, taken down after an error or a crash
 * and made anew as long as there is work. It knows which errors there may be, and why.
 */
import {
  AccessFlag,
  AsyncEvent,
  QpState,
  RefusalError,
  WcStatus,
  WcStatusName,
} from '../../host/index.js';
import { FlowAudit, type Operation } from './auditor.js';
import { isOrderedWire, mayRunOutOfRetries } from './options.js';
import type { Random } from './random.js';
import { FLUSH_ACCESS } from './store.js';
import { Side } from './side.js';
import { Violation } from './violation.js';
import { Workload } from './workload.js';
import type { World } from './world.js';

/** Times that a connection is made at most. */
const INCARNATIONS_MAX = 6;
/** How long it takes to notice that a connection is broken, on average. */
const NOTICE_MICROS = 2000;
const PSN_MASK = 0xffffff;

/** Payload of full packets: that of the path MTU, or more, which both ends agreed on. */
function longOf(random: Random, mtu: number): number {
  return mtu < 4096 && random.chance(0.3) ? mtu + 8 * random.below(mtu / 8) : mtu;
}

export class Connection {
  readonly world: World;
  readonly index: number;
  /** Indices of its devices; they may be the same. */
  readonly ends: readonly [number, number];
  /** Path MTU in bytes, of the queue pairs in use. */
  mtu = 0;
  sides: readonly Side[] = [];
  /** Nothing is posted any more. */
  ended = true;
  /** One side was taken down by its application. */
  disconnected = false;
  /** A path between the two was cut, or a device crashed. */
  disturbed = false;
  incarnations = 0;
  readonly #workloads: readonly Workload[];
  readonly #random: Random;
  #failing = false;
  #skipsIcrc = false;

  constructor(world: World, index: number, ends: readonly [number, number], random: Random) {
    this.world = world;
    this.index = index;
    this.ends = ends;
    this.#random = random;
    const { options } = world;
    // One side at most, so that the cause of an error is known.
    const culprit = random.chance(options.errors) ? random.below(2) : -1;
    this.#workloads = [0, 1].map(
      (side) => new Workload(options, side === culprit, random.split('workload', side)),
    );
  }

  get name(): string {
    return `connection ${this.index} (${this.ends.join('-')}) #${this.incarnations}`;
  }

  /** Everything is posted, complete and received. */
  get finished(): boolean {
    if (this.#failing || this.#workloads.some(({ left }) => left > 0)) return false;
    return this.sides.every(
      ({ out }) => out.retired === out.operations.length && out.received === out.messages.length,
    );
  }

  /** How far it is, for a report. */
  get progress(): string {
    const left = this.#workloads.map((workload) => workload.left);
    const open = this.sides.map(({ out }) => `${out.retired}/${out.operations.length}`);
    return `${this.name}: to post ${left.join('+')}, complete ${open.join(' and ')}`;
  }

  /** Makes both queue pairs and connects them. */
  connect(): void {
    const { options, devices } = this.world;
    const own = this.#random.split('incarnation', this.incarnations++);
    const mtu = options.mtu === 0 ? own.between(1, 5) : options.mtu;
    this.mtu = longOf(own.split('payload'), 128 << mtu);
    this.ended = false;
    this.disconnected = false;
    this.disturbed = this.world.network.isCut(...this.ends);
    this.#failing = false;
    const sides = this.ends.map(
      (end, side) => new Side(this, devices[end]!, own.split('side', side), this.mtu),
    );
    this.sides = sides;
    sides.forEach((side, index) => {
      const peer = sides[1 - index]!;
      side.peer = peer;
      const name = `${this.name} ${side.device.index}->${peer.device.index}`;
      side.out = new FlowAudit(name, peer.target, peer.receive, this.mtu, peer.store?.durable);
      peer.in = side.out;
    });
    const psns = [own, own].map((random) =>
      random.chance(0.3) ? PSN_MASK - random.below(64) : random.u32() & PSN_MASK,
    );
    const reads = own.between(1, options.rdAtomicMax);
    this.#giveKeys(own);
    const isWhole = options.corruption === 0;
    this.#skipsIcrc = isWhole && own.split('icrc').chance(options.skipsIcrc);
    sides.forEach((side, index) => {
      this.#modify(side, mtu, psns[index]!, psns[1 - index]!, reads);
      this.#workloads[index]!.begin(side);
    });
    for (const side of sides) {
      side.postReceives();
      side.device.call();
    }
  }

  /** Packet keys as the connection manager makes them: one for each direction, new each time. */
  #giveKeys(random: Random): void {
    const { authenticated } = this.world.options;
    if (authenticated === 'none') return;
    const drawn = random.split('keys');
    const [one, other] = [drawn, drawn].map((each) =>
      Uint8Array.from({ length: 32 }, () => each.below(256)),
    );
    const encrypt = authenticated === 'encrypt';
    this.sides[0]!.qp.setPacketKeys({ sendKey: one!, recvKey: other!, encrypt });
    this.sides[1]!.qp.setPacketKeys({ sendKey: other!, recvKey: one!, encrypt });
  }

  #modify(side: Side, mtu: number, ourPsn: number, theirPsn: number, reads: number): void {
    const { options } = this.world;
    const { gid: dgid, port } = side.peer.device.context.local;
    const { ownKind, localPath } = options;
    const { reorderPackets } = side.peer.qp.cap;
    const usesWire = localPath === 'none' || (localPath === 'one' && side === this.sides[1]);
    const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC } = AccessFlag;
    const all = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
    const access = options.placement > 0 ? all | FLUSH_ACCESS : all;
    side.qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: access });
    side.qp.modify({
      qpState: QpState.RTR,
      ahAttr: {
        ...{ dgid, port, ownKind, reorderPackets, payloadBytes: this.mtu },
        ...(usesWire && { path: 'wire' as const }),
        skipIcrc: this.#skipsIcrc,
      },
      pathMtu: mtu,
      destQpNum: side.peer.qp.qpNum,
      rqPsn: theirPsn,
      maxDestRdAtomic: reads,
      minRnrTimer: options.minRnrTimer,
    });
    side.qp.modify({
      qpState: QpState.RTS,
      sqPsn: ourPsn,
      timeout: options.timeout,
      retryCnt: options.retryCnt,
      rnrRetry: options.rnrRetry,
      maxRdAtomic: reads,
    });
  }

  /** The application of one side has its turn. */
  turn(side: Side): void {
    if (this.ended || side.lost) return;
    const { options, random } = this.world;
    if (options.slowReceiverMicros === 0) side.postReceives();
    if (options.reregistration > 0 && random.chance(options.reregistration)) {
      random.pick(side.areas).renew();
    }
    if (options.authenticated !== 'none' && random.chance(0.01)) rotateKey(side);
    if (options.drains > 0 && random.chance(options.drains)) side.drain();
    this.#workloads[this.sides.indexOf(side)]!.post(side);
  }

  /** A request completed with an error: may it? */
  judgeError(side: Side, operation: Operation, status: number): void {
    const first = !side.failedSend;
    side.failed = true;
    side.failedSend = true;
    this.#fail();
    if (status === WcStatus.WR_FLUSH_ERR) return;
    const what = `${operation.kind.name} ${operation.index}: ${WcStatusName[status] ?? status}`;
    if (!first) side.fail(`${what} after an error, not flushed`);
    side.reason = what;
    if (operation.error?.status === status) return;
    const allowed =
      (status === WcStatus.RETRY_EXC_ERR && this.#mayRunOut(side)) ||
      (status === WcStatus.RNR_RETRY_EXC_ERR &&
        operation.message >= 0 &&
        this.world.options.rnrRetry < 7);
    if (!allowed) side.fail(`${what}, and there is no reason for it`);
  }

  #mayRunOut(side: Side): boolean {
    const { options } = this.world;
    if (side.peer.lost || this.disturbed || this.disconnected) return true;
    if (mayRunOutOfRetries(options)) return true;
    // A peer in ERR is silent; but what it refused, it was to say so.
    const silent = side.peer.qp.state === QpState.ERR;
    // Unless a FLUSH is in front of that: its store may take longer than all retries.
    const { spoiled } = side.out;
    const held = options.placement > 0 && options.storeMicros > 0;
    const told = isOrderedWire(options) && spoiled?.peerFails && !spoiled.silent && !held;
    return silent && !told;
  }

  /** A receive completed with an error. `operation`: what would have been placed there. */
  judgeReceiveError(side: Side, operation: Operation | undefined, status: number): void {
    side.failed = true;
    side.failedReceive = true;
    this.#fail();
    if (status === WcStatus.WR_FLUSH_ERR) return;
    if (operation?.error?.receiveStatus === status) return;
    const name = operation ? `${operation.kind.name} ${operation.index}` : 'nothing';
    const what = `receive ${side.in.receivesRetired - 1} of ${name}`;
    side.fail(`${what} completes with ${WcStatusName[status] ?? status}`);
  }

  judgeEvent(side: Side, event: number, name: string): void {
    if (event === AsyncEvent.SQ_DRAINED) return this.#drained(side);
    // Where retries may run out, all packets of the path MTU may be lost, and a short one answered.
    if (event === AsyncEvent.PATH_MTU_ERR && this.#mayRunOut(side)) return;
    const refusal = event === AsyncEvent.QP_REQ_ERR || event === AsyncEvent.QP_ACCESS_ERR;
    if (!refusal || !side.in.spoiled?.peerFails) side.fail(`asynchronous event ${name}`);
    this.#fail();
  }

  /** Its send queue is empty as far as it was begun: after a while it goes on. */
  #drained(side: Side): void {
    side.drained();
    const { queue, options } = this.world;
    const { incarnations } = this;
    queue.plan(queue.now + this.#random.exponential(options.applicationMicros + 20), () => {
      if (this.incarnations !== incarnations || this.ended || side.lost) return;
      side.resume();
    });
  }

  /** A device is gone, or a queue pair failed: a connected side notices later. */
  #fail(): void {
    if (this.#failing || this.ended) return;
    this.#failing = true;
    const { queue, options } = this.world;
    const incarnation = this.incarnations;
    // Not before an answer that is on its way, or waits for a buffer or a store, can have come.
    const busy = options.placement > 0 ? 10 * options.storeMicros : 0;
    const least = 100 + 6 * options.latencyMicros + 4 * options.lateReleaseMicros + busy;
    const at = queue.now + least + this.#random.exponential(NOTICE_MICROS);
    queue.plan(at, () => {
      if (this.incarnations === incarnation && !this.ended) this.takeDown();
    });
  }

  /** One of its devices crashed. */
  crashed(): void {
    if (this.ended) return;
    this.disturbed = true;
    this.#fail();
  }

  /** Ends both queue pairs, judges what they leave, and begins anew when there is more to do. */
  takeDown(): void {
    this.ended = true;
    this.#judge();
    for (const side of this.sides) this.#checkToldOf(side);
    for (const side of this.sides) side.takeDown();
    this.#judge();
    for (const side of this.sides) {
      side.audit();
      if (side.failed && !side.lost) this.#checkReason(side);
    }
    for (const side of this.sides) side.destroy();
    this.sides = [];
    this.world.takenDown++;
    this.#failing = false;
    if (this.incarnations >= INCARNATIONS_MAX) {
      for (const workload of this.#workloads) workload.left = 0;
    }
    this.reconnect();
  }

  /** Makes the connection again, if there is work and both devices live. */
  reconnect(): void {
    const { queue, devices } = this.world;
    if (!this.ended || this.#workloads.every(({ left }) => left === 0)) return;
    const at = queue.now + this.#random.exponential(NOTICE_MICROS);
    queue.plan(at, () => {
      if (this.ended && this.ends.every((end) => devices[end]!.alive)) this.connect();
    });
  }

  #judge(): void {
    for (const { device } of this.sides) device.collect();
    for (const { device } of this.sides) device.judge();
  }

  /** Over an ordered wire a refused requester has its NAK by now, with the reason. */
  #checkToldOf(side: Side): void {
    const { spoiled } = side.out;
    if (!isOrderedWire(this.world.options) || !spoiled?.peerFails || spoiled.silent) return;
    // A peer that failed by itself has refused nothing.
    if (side.peer.qp.state !== QpState.ERR || side.peer.reason || side.failedSend) return;
    side.fail(`the peer refused ${spoiled.name}, and this side was not told`);
  }

  #checkReason(side: Side): void {
    const explained = side.reason || this.disconnected || side.in.spoiled?.peerFails;
    if (!explained) throw new Violation(`${side.out.name}: in ERR for no known reason`);
  }

  /** The end of the run, after everything succeeded. */
  finish(): void {
    this.ended = true;
    const way = this.#random.pick(['destroy', 'error', 'reset'] as const);
    for (const side of this.sides) {
      if (way === 'error') side.takeDown();
      if (way === 'reset') side.qp.modify({ qpState: QpState.RESET });
    }
    this.#judge();
    for (const side of this.sides) {
      if (way === 'error') side.audit();
      else side.auditMemory();
    }
    for (const side of this.sides) side.destroy();
    this.sides = [];
  }
}

/** EAGAIN: the peer has not followed the last rotation. EINVAL: the queue pair is in ERR. */
function rotateKey({ qp }: Side): void {
  try {
    qp.rotateKey();
  } catch (error) {
    if (!(error instanceof RefusalError)) throw error;
    if (error.code !== (qp.state === QpState.ERR ? 'EINVAL' : 'EAGAIN')) throw error;
  }
}
