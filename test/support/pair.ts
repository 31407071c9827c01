/**
 * Two devices on one wire and one virtual clock, connected queue pairs between them: the smallest
 * world in which verbs work. Nothing runs by itself; `settle` and `run` say when.
 */
import {
  AccessFlag,
  Endpoint,
  LoopbackNetwork,
  Mtu,
  QpState,
  QpType,
  VirtualClock,
  createLoopbackPair,
  openDevice,
  type AddressAttributes,
  type CompletionQueue,
  type Context,
  type Link,
  type MemoryRegion,
  type OpenOptions,
  type ProtectionDomain,
  type QpAttributes,
  type QpInitAttributes,
  type QueuePair,
  type SharedReceiveQueue,
  type SrqInitAttributes,
} from '../../host/index.js';

/** Everything one side has: the ladder from context to queue pair. */
export interface Side {
  readonly context: Context;
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly qp: QueuePair;
  /** Of the queue pair, if `PairOptions.srq` is set. */
  readonly srq?: SharedReceiveQueue;
  /** `bytes` of registered memory with every access. */
  readonly buffer: Uint8Array;
  readonly mr: MemoryRegion;
}

export interface PairOptions {
  readonly bytes?: number;
  readonly mtu?: number;
  readonly device?: Partial<OpenOptions>;
  readonly qp?: Partial<QpInitAttributes>;
  /** Each side's queue pair takes receive requests from a shared receive queue. */
  readonly srq?: SrqInitAttributes;
  /** Rights of the registered memory. Default ALL_ACCESS. */
  readonly access?: number;
  /** Changes of the attributes that connect both sides. */
  readonly attributes?: QpAttributes;
  /** Changes of the address that each side has of the other. */
  readonly address?: Partial<AddressAttributes>;
  /** Wraps each side's link: faults, traces. */
  readonly wrap?: (link: Link, side: 'a' | 'b', clock: VirtualClock) => Link;
  /** Both sides have the parameters that the connection manager sends to Verbena peers. */
  readonly acquainted?: boolean;
  /** Packets that both sides keep when they come ahead. Default 0: go-back-N. */
  readonly reorderPackets?: number;
  /** Default true: both queue pairs in RTS. */
  readonly connect?: boolean;
  /** Places of each side's completion queue. Default 4096. */
  readonly cqe?: number;
  /** Both sides are in one device, and requests go by packets or by the local path. */
  readonly oneDevice?: 'wire' | 'local';
  /** Both sides are contexts of one device, as two threads have them. */
  readonly contexts?: boolean;
}

/**
 * Options of `connect` between real sockets. The default tries for 34 ms, which a busy machine may
 * keep a peer's thread waiting; this for 2.1 s.
 */
export const PATIENT = { attributes: { timeout: 16 } };

export const ALL_ACCESS =
  AccessFlag.LOCAL_WRITE |
  AccessFlag.REMOTE_WRITE |
  AccessFlag.REMOTE_READ |
  AccessFlag.REMOTE_ATOMIC;

/** An open window: what is tested is not how it grows. */
export const WINDOW_PACKETS = 512;
/**
 * An open writes into each slot of its tables: with the default of 1,024 queue pairs that is 240
 * pages of new memory, and a third of the processor time.
 */
export const QUEUE_PAIRS_MAX = 128;

export class Pair {
  readonly a: Side;
  readonly b: Side;
  readonly clock: VirtualClock;
  readonly #deliver: () => number;

  constructor(a: Side, b: Side, clock: VirtualClock, deliver: () => number) {
    this.a = a;
    this.b = b;
    this.clock = clock;
    this.#deliver = deliver;
  }

  /** Delivers until nothing travels; time stands still. Returns packets delivered. */
  settle(): number {
    let total = 0;
    for (let count = this.#deliver(); count > 0; count = this.#deliver()) total += count;
    return total;
  }

  /** Delivers and lets time jump from timer to timer until `done`, at most `seconds` virtual ones. */
  run(done: () => boolean, seconds = 60): void {
    const end = this.clock.now() + seconds * 1e6;
    for (;;) {
      this.settle();
      if (done()) return;
      const next = this.clock.nextMicros();
      if (next === undefined) throw new Error('nothing is due and nothing travels, but not done');
      if (next > end) throw new Error(`not done after ${seconds} virtual seconds`);
      this.clock.step();
    }
  }

  async close(): Promise<void> {
    await this.b.context.close();
    await this.a.context.close();
  }
}

async function makeSide(link: Link, clock: VirtualClock, options: PairOptions): Promise<Side> {
  const { device = {} } = options;
  const context = await openDevice({
    ...('threadShare' in device ? {} : { memoryBytes: 16 * 2 ** 20 }),
    queuePairsMax: QUEUE_PAIRS_MAX,
    initialWindowPackets: WINDOW_PACKETS,
    ...device,
    link,
    clock,
  } as OpenOptions);
  return sideOf(context, options);
}

/** A side of a device that is opened with `open`, in real time. */
export async function openSide(open: OpenOptions, options: PairOptions = {}): Promise<Side> {
  return sideOf(await openDevice(open), options);
}

function sideOf(context: Context, options: PairOptions): Side {
  const pd = context.allocPd();
  const cq = context.createCq(options.cqe ?? 4096);
  const { reorderPackets = 0 } = options;
  const cap = { reorderPackets, ...options.qp?.cap };
  const shared = options.srq && { srq: pd.createSrq(options.srq) };
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, ...shared, ...options.qp, cap });
  const buffer = context.alloc(options.bytes ?? 65536);
  const mr = pd.regMr(buffer, options.access ?? ALL_ACCESS);
  return { context, pd, cq, qp, ...shared, buffer, mr };
}

/** The traits of a peer that the connection manager would exchange. */
function traitsOf({ context }: Pick<Side, 'context'>): {
  ownKind: boolean;
  receiveBufferBytes: number;
} {
  return { ownKind: true, receiveBufferBytes: context.device.info.receiveBufferBytes };
}

/** Takes `qp` to RTS, connected to `peer`, whose requests begin at `theirPsn`. */
export function connect(
  qp: QueuePair,
  peer: Pick<Side, 'context' | 'qp'>,
  ourPsn: number,
  theirPsn: number,
  options: PairOptions,
): void {
  const extra = options.attributes ?? {};
  const pick = (names: readonly (keyof QpAttributes)[]): QpAttributes =>
    Object.fromEntries(names.filter((n) => extra[n] !== undefined).map((n) => [n, extra[n]]));
  qp.modify({
    qpState: QpState.INIT,
    pkeyIndex: 0,
    portNum: 1,
    qpAccessFlags: ALL_ACCESS,
    ...pick(['qpAccessFlags']),
  });
  const reliable = qp.qpType === QpType.RC;
  qp.modify({
    qpState: QpState.RTR,
    ahAttr: {
      dgid: peer.context.local.gid,
      port: peer.context.local.port,
      ...(options.acquainted ? traitsOf(peer) : {}),
      reorderPackets: options.reorderPackets ?? 0,
      ...(options.oneDevice === 'wire' ? { path: 'wire' } : {}),
      ...options.address,
    },
    pathMtu: options.mtu ?? Mtu.MTU_1024,
    destQpNum: peer.qp.qpNum,
    rqPsn: theirPsn,
    ...(reliable ? { maxDestRdAtomic: 16, minRnrTimer: 12 } : {}),
    ...pick(['maxDestRdAtomic', 'minRnrTimer']),
  });
  qp.modify({
    qpState: QpState.RTS,
    sqPsn: ourPsn,
    ...(reliable ? { timeout: 10, retryCnt: 7, rnrRetry: 7, maxRdAtomic: 16 } : {}),
    ...pick(['timeout', 'retryCnt', 'rnrRetry', 'maxRdAtomic']),
  });
}

/** Takes a queue pair of datagrams to RTS. */
export function makeDatagramsReady(qp: QueuePair, qkey: number, sqPsn = 0): void {
  qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qkey });
  qp.modify({ qpState: QpState.RTR });
  qp.modify({ qpState: QpState.RTS, sqPsn });
}

/** Both sides as contexts of one device: with a port each, at one address. */
async function makeContexts(
  network: LoopbackNetwork,
  clock: VirtualClock,
  options: PairOptions,
): Promise<readonly [Side, Side]> {
  const [a, b] = [4791, 4792].map((port) => network.link(Endpoint.parse('127.0.0.1', port)));
  const { device = {}, ...rest } = options;
  const shared = { ...rest, device: { memoryBytes: 48 * 2 ** 20, threadsMax: 2, ...device } };
  const first = await makeSide(a!, clock, shared);
  const threadShare = first.context.share();
  const { memoryBytes: _, ...limits } = device;
  const second = await makeSide(b!, clock, { ...rest, device: { ...limits, threadShare } });
  return [first, second];
}

/** Lets the engines look at what other contexts announced. Returns how many did. */
function serveMessages(sides: readonly Side[]): number {
  let count = 0;
  for (const { context } of sides) {
    if (!context.device.hasMessages) continue;
    context.device.poll();
    count++;
  }
  return count;
}

export async function makePair(options: PairOptions = {}): Promise<Pair> {
  const clock = new VirtualClock();
  const { network, a, b } = createLoopbackPair({ auto: false });
  const wrap = options.wrap ?? ((link: Link) => link);
  let sideA: Side;
  let sideB: Side;
  if (options.contexts) [sideA, sideB] = await makeContexts(network, clock, options);
  else {
    sideA = await makeSide(wrap(a, 'a', clock), clock, options);
    sideB = options.oneDevice
      ? sideOf(sideA.context, options)
      : await makeSide(wrap(b, 'b', clock), clock, options);
  }
  if (options.connect !== false) {
    // Near the wrap of the 24 bits: every test crosses it sooner or later.
    connect(sideA.qp, sideB, 0xfffff0, 0xfffff8, options);
    connect(sideB.qp, sideA, 0xfffff8, 0xfffff0, options);
  }
  const sides = options.contexts ? [sideA, sideB] : [];
  return new Pair(sideA, sideB, clock, () => network.deliver() + serveMessages(sides));
}
