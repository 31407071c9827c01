/**
 * Many queue pairs: 8 that send together, between two processes, against one; and
 * what 10,000 connected queue pairs cost, against a device that has one: one of them active, and
 * all of them in turn. Two devices in one thread over the loopback link, ICRC on, timers armed;
 * every message is posted by itself, 64 of them between deliveries, and completes. One queue pair
 * gets one acknowledgement for the 64, 64 queue pairs get 64: so bars are per packet, and the
 * figures say both.
 */
import {
  Mtu,
  SendFlag,
  WcStatus,
  WrOpcode,
  createLoopbackPair,
  openDevice,
  type Context,
  type Link,
  type LoopbackNetwork,
  type MemoryRegion,
  type QueuePair,
  type SendWorkRequest,
} from '../../host/index.js';
import { ALL_ACCESS, connect, type Side } from '../support/pair.js';
import {
  Stopwatch,
  atLeast,
  atMost,
  interleave,
  medianOf,
  medians,
  progress,
  type Bench,
  type BenchResult,
  type Figures,
  type Pace,
  type Variant,
} from './harness.js';
import { BUFFERS } from './bare.js';
import { flowFigures } from './flow.js';
import { stream } from './stream.js';

const MANY = 10_000;
const BATCH = 64;
const SECONDS = 0.4;
/** Between two processes. */
const TOGETHER = 8;
const STREAM = { size: 65536, bytes: 16 * 2 ** 20 };
const STREAM_SECONDS = 1;
const LARGE = 4096;
const SMALL = 64;
/** Source and target of all messages: hot, so that what is measured are queue pairs. */
const BUFFER_BYTES = 64 * 1024;

interface End {
  readonly context: Context;
  readonly side: Omit<Side, 'qp'>;
  readonly mr: MemoryRegion;
  readonly qps: QueuePair[];
}

interface World {
  readonly a: End;
  readonly b: End;
  readonly network: LoopbackNetwork;
}

async function openEnd(link: Link, count: number): Promise<End> {
  const context = await openDevice({
    link,
    memoryBytes: 64 * 2 ** 20 + count * 16384,
    queuePairsMax: count,
    rdAtomicMax: 1,
  });
  const pd = context.allocPd();
  const cq = context.createCq(4096);
  const buffer = context.alloc(BUFFER_BYTES);
  const mr = pd.regMr(buffer, ALL_ACCESS);
  const cap = { maxSendWr: BATCH, maxRecvWr: 1, maxSendSge: 1, maxRecvSge: 1 };
  const qps = Array.from({ length: count }, () => pd.createQp({ sendCq: cq, recvCq: cq, cap }));
  return { context, side: { context, pd, cq, buffer, mr }, mr, qps };
}

async function openWorld(count: number): Promise<World> {
  const pair = createLoopbackPair({ auto: false });
  const a = await openEnd(pair.a, count);
  const b = await openEnd(pair.b, count);
  const options = {
    mtu: Mtu.MTU_4096,
    attributes: { timeout: 14, maxRdAtomic: 1, maxDestRdAtomic: 1 },
  };
  for (let index = 0; index < count; index++) {
    const [qpA, qpB] = [a.qps[index]!, b.qps[index]!];
    connect(qpA, { ...b.side, qp: qpB }, 1, 1, options);
    connect(qpB, { ...a.side, qp: qpA }, 1, 1, options);
  }
  return { a, b, network: pair.network };
}

function message({ a, b }: World, size: number): SendWorkRequest {
  return {
    opcode: WrOpcode.RDMA_WRITE,
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr: Number(a.mr.addr), length: size, lkey: a.mr.lkey }],
    rdma: { remoteAddr: Number(b.mr.addr), rkey: b.mr.rkey },
  };
}

/** Packets that both ends have sent. */
function packets({ a, b }: World): number {
  return Number(a.context.counters().sentPkts + b.context.counters().sentPkts);
}

/** Nanoseconds when the first `active` queue pairs send in turn: a message, and a packet. */
async function measure(
  world: World,
  active: number,
  size: number,
  seconds: number,
): Promise<{ message: number; packet: number }> {
  const before = packets(world);
  const { a, network } = world;
  const request = message(world, size);
  const { cq } = a.side;
  const watch = new Stopwatch();
  let next = 0;
  let count = 0;
  while (watch.seconds() < seconds) {
    for (let posted = 0; posted < BATCH; posted++) {
      a.qps[next]!.postSend(request);
      next = next + 1 === active ? 0 : next + 1;
    }
    for (let completed = 0; completed < BATCH;) {
      network.deliver();
      for (const { status } of cq.poll(BATCH)) {
        if (status !== WcStatus.SUCCESS) throw new Error(`completion status ${status}`);
        completed++;
      }
    }
    count += BATCH;
    // Timers have their turn, as in an application.
    if (count % 16384 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  const nanos = watch.seconds() * 1e9;
  return { message: nanos / count, packet: nanos / (packets(world) - before) };
}

function streams(share: number): Variant[] {
  return BUFFERS.flatMap(({ name: buffer, bytes: socketBufferBytes }) =>
    [1, TOGETHER].map((queuePairs): Variant => async () => {
      const flow = await stream({
        ...STREAM,
        opcode: WrOpcode.RDMA_WRITE,
        queuePairs,
        seconds: STREAM_SECONDS * share,
        progress: 'poll',
        socketBufferBytes,
      });
      return flowFigures(`write_65536_qps_${queuePairs}_${buffer}`, flow);
    }),
  );
}

async function run(pace: Pace): Promise<BenchResult> {
  progress(`qps: connecting ${MANY} queue pairs`);
  const watch = new Stopwatch();
  const many = await openWorld(MANY);
  const connectSeconds = watch.seconds();
  const one = await openWorld(1);
  const figure =
    (name: string, world: World, active: number, size: number) => async (): Promise<Figures> => {
      const { message: whole, packet } = await measure(world, active, size, SECONDS * pace.share);
      return { [`${name}_message_ns`]: whole, [`${name}_packet_ns`]: packet };
    };
  const rounds = await interleave(
    'qps',
    [
      figure('one_4096', one, 1, LARGE),
      figure('one_of_many_4096', many, 1, LARGE),
      figure('many_in_turn_4096', many, MANY, LARGE),
      figure('one_64', one, 1, SMALL),
      figure('one_of_many_64', many, 1, SMALL),
      figure('many_in_turn_64', many, MANY, SMALL),
      ...streams(pace.share),
    ],
    pace,
  );
  const ratio = (name: string, to: string): number =>
    medianOf(rounds, (figures) => figures[name]! / figures[to]!);
  const gbps = (queuePairs: number, buffer: string): string =>
    `write_65536_qps_${queuePairs}_${buffer}_gbps`;
  const [large, stock] = BUFFERS as [(typeof BUFFERS)[0], (typeof BUFFERS)[0]];
  return {
    rounds,
    figures: { ...medians(rounds), connect_10000_s: connectSeconds },
    bars: [
      ...[large, stock].map(({ name: buffer }) =>
        atLeast(
          `${TOGETHER} queue pairs together against one, ${buffer}`,
          ratio(gbps(TOGETHER, buffer), gbps(1, buffer)),
          0.9,
        ),
      ),
      atLeast(
        `${TOGETHER} queue pairs together with SO_RCVBUF ${stock.name}`,
        ratio(gbps(TOGETHER, stock.name), gbps(TOGETHER, large.name)),
        0.5,
      ),
      atMost(
        'one of 10,000, 4 KiB',
        ratio('one_of_many_4096_packet_ns', 'one_4096_packet_ns'),
        1.05,
      ),
      atMost('one of 10,000, 64 B', ratio('one_of_many_64_packet_ns', 'one_64_packet_ns'), 1.05),
      atMost(
        '10,000 in turn, 4 KiB',
        ratio('many_in_turn_4096_packet_ns', 'one_4096_packet_ns'),
        1.3,
      ),
      atMost('10,000 in turn, 64 B', ratio('many_in_turn_64_packet_ns', 'one_64_packet_ns'), 2),
    ],
  };
}

export const bench: Bench = {
  name: 'qps',
  description: '8 queue pairs together against one; 10,000 of them against one, in one thread',
  run,
};
