/**
 * A world to measure in: two devices in one thread over the loopback link, on the real clock, and
 * a loop that keeps the send queue of one of them full.
 */
import {
  Mtu,
  QpType,
  SendFlag,
  WcStatus,
  WrOpcode,
  createLoopbackPair,
  openDevice,
  type Context,
  type Link,
  type LoopbackNetwork,
  type SendWorkRequest,
} from '../../host/index.js';
import { ALL_ACCESS, connect, type Side } from '../support/pair.js';
import { Stopwatch } from './harness.js';
import { allocPageAligned } from './page-aligned.js';

/** Requests per call of `postSend`. */
const LIST = 64;
const SIGNALLED_EVERY = 32;
const SEND_QUEUE = 256;
/** The event loop has its turn this often: timers fire as they do in an application. */
const TURN_MICROS = 1000;

export interface World {
  readonly a: Side;
  readonly b: Side;
  readonly network: LoopbackNetwork;
}

function sideOf(context: Context, bytes: number, qpType: number): Side {
  const pd = context.allocPd();
  const cq = context.createCq(1024);
  const qp = pd.createQp({ qpType, sendCq: cq, recvCq: cq, cap: { maxSendWr: SEND_QUEUE } });
  const buffer = allocPageAligned(context, bytes);
  const mr = pd.regMr(buffer, ALL_ACCESS);
  return { context, pd, cq, qp, buffer, mr };
}

/** `local`: both sides in one device, so that requests go by the local path. */
export async function openWorld(
  bytes: number,
  local = false,
  qpType: number = QpType.RC,
): Promise<World> {
  const { network, a, b } = createLoopbackPair({ auto: false });
  const memoryBytes = (local ? 2 : 1) * bytes + 32 * 2 ** 20;
  const open = (link: Link): Promise<Context> =>
    openDevice({ link, memoryBytes, regionsMax: 32768 });
  const sideA = sideOf(await open(a), bytes, qpType);
  const sideB = sideOf(local ? sideA.context : await open(b), bytes, qpType);
  const reliable = qpType === QpType.RC ? { attributes: { timeout: 17 } } : {};
  const options = { mtu: Mtu.MTU_4096, ...reliable };
  connect(sideA.qp, sideB, 100, 200, options);
  connect(sideB.qp, sideA, 200, 100, options);
  return { a: sideA, b: sideB, network };
}

/** Lists of requests that walk over `bytes` of both sides' memory in steps of `size`. */
export function makeLists({ a, b }: World, size: number, bytes: number): SendWorkRequest[][] {
  const places = bytes / size;
  const lists: SendWorkRequest[][] = [];
  for (let first = 0; first < places; first += LIST) {
    lists.push(
      Array.from({ length: LIST }, (_, index) => {
        // An odd factor visits every place once, in no order that a prefetcher guesses.
        const offset = (Math.imul(first + index, 0x9e3779b1) >>> 0) % places;
        return {
          wrId: first + index,
          opcode: WrOpcode.RDMA_WRITE,
          sendFlags: (index + 1) % SIGNALLED_EVERY === 0 ? SendFlag.SIGNALED : 0,
          sgList: [{ addr: Number(a.mr.addr) + offset * size, length: size, lkey: a.mr.lkey }],
          rdma: { remoteAddr: Number(b.mr.addr) + offset * size, rkey: b.mr.rkey },
        };
      }),
    );
  }
  return lists;
}

export interface Run {
  readonly seconds: number;
  readonly cpuSeconds: number;
  readonly count: number;
}

/** Keeps the queue full for `duration` seconds, then waits for the last completion. */
export async function pump(
  world: World,
  lists: readonly SendWorkRequest[][],
  duration: number,
): Promise<Run> {
  const { a, network } = world;
  const watch = new Stopwatch();
  const end = performance.now() + duration * 1000;
  let posted = 0;
  let done = 0;
  let next = 0;
  let turn = performance.now();
  for (;;) {
    const now = performance.now();
    if (now < end) {
      while (posted - done <= SEND_QUEUE - LIST) {
        a.qp.postSend(lists[next]!);
        next = (next + 1) % lists.length;
        posted += LIST;
      }
    } else if (posted === done) break;
    network.deliver();
    for (const completion of a.cq.poll(64)) {
      if (completion.status !== WcStatus.SUCCESS) throw new Error(`status ${completion.status}`);
      done += SIGNALLED_EVERY;
    }
    if (now - turn > TURN_MICROS / 1000) {
      turn = now;
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
  return { seconds: watch.seconds(), cpuSeconds: watch.cpuSeconds(), count: done };
}
