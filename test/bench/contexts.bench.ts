/**
 * 20,000 contexts of one device in one process, against one context: entries in the device's tables,
 * memory, and how long opening one takes; and what a packet costs when 2,000 of them send in turn.
 * Two devices in one thread over the loopback link; what is compared has as many queue pairs and
 * completion queues. Also 60 processes that open a named device at once.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { ArenaLayout, CONTEXT_SLOT_SIZE, ContextSlotLayout } from '#build/abi.js';
import { structAt } from '../../host/engine/struct.js';
import {
  Mtu,
  SendFlag,
  VirtualClock,
  WcStatus,
  WrOpcode,
  createLoopbackPair,
  openDevice,
  type CompletionQueue,
  type Context,
  type LoopbackNetwork,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
} from '../../host/index.js';
import { loadPosix } from '../../host/link/posix.js';
import { freshName } from '../support/member.js';
import { ALL_ACCESS, connect, type Side } from '../support/pair.js';
import {
  Stopwatch,
  atMost,
  interleave,
  median,
  medianOf,
  medians,
  missing,
  progress,
  type Bar,
  type Bench,
  type BenchResult,
  type Figures,
  type Pace,
  type Variant,
} from './harness.js';
import { measureStarts } from './starts.js';

const MOST = 20_000;
/** Those that send. */
const MANY = 2000;
const PROCESSES = 60;
const START_SECONDS = 5;
const SECONDS = 0.4;
const BATCH = 64;
const BUFFER_BYTES = 64 * 1024;
const SIZES = [4096, 64];
const SHARE_KEY = 0xc0de;
const CAP = { maxSendWr: 16, maxRecvWr: 1, maxSendSge: 1, maxRecvSge: 1 };
const ONE_ATOMIC = { maxRdAtomic: 1, maxDestRdAtomic: 1 };

interface World {
  readonly first: Context;
  readonly contexts: readonly Context[];
  readonly lines: readonly { readonly qp: QueuePair; readonly cq: CompletionQueue }[];
  readonly source: MemoryRegion;
  readonly target: MemoryRegion;
  readonly peer: Context;
  readonly network: LoopbackNetwork;
  readonly openMicros: readonly number[];
  readonly attachMicros: readonly number[];
  /** Of this process, with what a context with a domain needs, and with queues besides. */
  readonly bytesEach: number;
  readonly queueBytesEach: number;
}

/** Garbage is collected before memory is counted. */
const collect = ((): (() => void) => {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc') as () => void;
})();

/** Bytes of this process's objects and of the device's memory. */
function bytesHeld({ device }: Context): number {
  collect();
  collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  const { arena } = device;
  // The device's own memory is one buffer that is allocated whole: allocations from it count.
  return heapUsed + arrayBuffers - arena.heap.bytesFree;
}

/** `count` queue pairs in as many contexts, or in one. */
async function openWorld(count: number, contextCount: number): Promise<World> {
  const { a, b, network } = createLoopbackPair({ auto: false });
  const clock = new VirtualClock();
  const limits = {
    clock,
    memoryBytes: 64 * 2 ** 20 + count * 16384,
    queuePairsMax: count,
    completionQueuesMax: count + 1,
    rdAtomicMax: 1,
  };
  const first = await openDevice({ link: a, ...limits });
  const peer = await openDevice({ link: b, ...limits });
  const pd = first.allocPd();
  const handle = pd.allocShpd(SHARE_KEY);
  const source = pd.regMr(first.alloc(BUFFER_BYTES), ALL_ACCESS);
  const contexts = [first];
  const domains: ProtectionDomain[] = [pd];
  const openMicros: number[] = [];
  const attachMicros: number[] = [];
  const before = bytesHeld(first);
  while (contexts.length < contextCount) {
    const start = performance.now();
    const context = first.openDevice();
    const opened = performance.now();
    domains.push(context.sharePd(handle, SHARE_KEY));
    openMicros.push((opened - start) * 1000);
    attachMicros.push((performance.now() - start) * 1000);
    contexts.push(context);
  }
  const bytesEach = (bytesHeld(first) - before) / (contextCount - 1 || 1);
  const own = Array.from({ length: count }, (_, index) =>
    contexts[index % contextCount]!.createCq(16),
  );
  const lines = Array.from({ length: count }, (_, index) => {
    const cq = own[index]!;
    const qp = domains[index % contextCount]!.createQp({ sendCq: cq, recvCq: cq, cap: CAP });
    return { qp, cq };
  });
  const queueBytesEach = (bytesHeld(first) - before) / (contextCount - 1 || 1);
  const peerPd = peer.allocPd();
  const peerCq = peer.createCq(16);
  const buffer = peer.alloc(BUFFER_BYTES);
  const target = peerPd.regMr(buffer, ALL_ACCESS);
  const options = { mtu: Mtu.MTU_4096, attributes: ONE_ATOMIC };
  for (const { qp, cq } of lines) {
    const theirs = peerPd.createQp({ sendCq: peerCq, recvCq: peerCq, cap: CAP });
    const side = { context: peer, pd: peerPd, cq: peerCq, buffer, mr: target, qp: theirs };
    connect(qp, side, 1, 1, options);
    connect(theirs, { context: first, pd, cq, buffer, mr: source, qp } as Side, 1, 1, options);
  }
  return {
    first,
    contexts,
    lines,
    source,
    target,
    peer,
    network,
    openMicros,
    attachMicros,
    bytesEach,
    queueBytesEach,
  };
}

/** Nanoseconds a packet, of either side: all queue pairs write in turn. */
function measure(world: World, size: number, seconds: number): number {
  const { source, target, lines, network } = world;
  const request = {
    opcode: WrOpcode.RDMA_WRITE,
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr: source.addr, length: size, lkey: source.lkey }],
    rdma: { remoteAddr: target.addr, rkey: target.rkey },
  };
  const packets = (): bigint =>
    [world.first, world.peer].reduce((sum, each) => sum + each.counters().sentPkts, 0n);
  const before = packets();
  const watch = new Stopwatch();
  for (let next = 0; watch.cpuSeconds() < seconds;) {
    const busy = new Set<CompletionQueue>();
    for (let posted = 0; posted < BATCH; posted++) {
      const { qp, cq } = lines[next]!;
      qp.postSend(request);
      busy.add(cq);
      next = next + 1 === lines.length ? 0 : next + 1;
    }
    for (let completed = 0; completed < BATCH;) {
      network.deliver();
      for (const cq of busy) {
        for (const { status } of cq.poll(BATCH)) {
          if (status !== WcStatus.SUCCESS) throw new Error(`completion status ${status}`);
          completed++;
        }
      }
    }
  }
  return (watch.cpuSeconds() * 1e9) / Number(packets() - before);
}

/** Places that the device has taken in tables which all its processes share. */
function entriesOf({ device }: Context): Figures {
  const { arena } = device;
  const { state, contextSlots, contextsMax } = structAt(arena.memory, ArenaLayout, arena.address);
  const { regionCount } = structAt(arena.memory, ArenaLayout, state);
  const slots = Array.from({ length: contextsMax }, (_, index) =>
    structAt(arena.memory, ContextSlotLayout, contextSlots + index * CONTEXT_SLOT_SIZE),
  ).filter(({ context }) => context !== 0);
  return { keys: regionCount, slots: slots.length };
}

/** The same on a device that processes share by its name: one slot and one socket. */
async function ofNamedDevice(): Promise<Figures> {
  const { posix } = await loadPosix();
  if (!posix) return {};
  const first = await openDevice({ name: freshName(), address: '127.0.97.1', port: 0 });
  const pd = first.allocPd();
  const handle = pd.allocShpd(SHARE_KEY, first.alloc(64));
  pd.regMr(first.alloc(BUFFER_BYTES), ALL_ACCESS);
  const contexts = [first];
  const micros: number[] = [];
  while (contexts.length < MOST) {
    const start = performance.now();
    const context = first.openDevice();
    context.sharePd(handle, SHARE_KEY);
    micros.push((performance.now() - start) * 1000);
    contexts.push(context);
  }
  const { keys, slots } = entriesOf(first);
  for (const context of contexts) await context.close();
  return { named_keys: keys!, named_slots: slots!, named_attach_p50_us: median(micros) };
}

function startBar(seconds: number | undefined): Bar {
  const what = `seconds until ${PROCESSES} processes have opened a named device (verbena/verbs)`;
  return seconds === undefined
    ? missing(what, 'koffi (npm)')
    : atMost(what, seconds, START_SECONDS);
}

/** Processes that start together; few for a look whether everything runs. */
async function starts(pace: Pace): Promise<Figures> {
  if (!(await loadPosix()).posix) return {};
  progress(`contexts: starting ${PROCESSES} processes, three times`);
  return measureStarts(pace.share < 1 ? 4 : PROCESSES);
}

async function run(pace: Pace): Promise<BenchResult> {
  // While this process is small: what it forks is a copy of its page tables.
  const started = await starts(pace);
  progress(`contexts: opening ${MOST}`);
  const most = await openWorld(1, MOST);
  const [entries, attachMillis] = [entriesOf(most.first), median(most.attachMicros) / 1000];
  const many = await openWorld(MANY, MANY);
  const one = await openWorld(MANY, 1);
  const variants = SIZES.flatMap((size) => [
    (): Figures => ({
      [`one_context_${size}_packet_ns`]: measure(one, size, SECONDS * pace.share),
    }),
    (): Figures => ({
      [`contexts_${size}_packet_ns`]: measure(many, size, SECONDS * pace.share),
    }),
  ]) satisfies Variant[];
  const rounds = await interleave('contexts', variants, pace);
  const ratio = (size: number): number =>
    medianOf(
      rounds,
      (figures) =>
        figures[`contexts_${size}_packet_ns`]! / figures[`one_context_${size}_packet_ns`]!,
    );
  const alone = entriesOf(one.first);
  const figures: Figures = {
    ...medians(rounds),
    contexts: most.contexts.length,
    keys: entries['keys']!,
    slots: entries['slots']!,
    open_p50_us: median(most.openMicros),
    attach_p50_us: median(most.attachMicros),
    bytes_each: most.bytesEach,
    bytes_each_with_queues: many.queueBytesEach,
    ...(await ofNamedDevice()),
    ...started,
  };
  for (const { first, peer, contexts } of [most, many, one]) {
    for (const context of contexts) if (context !== first) await context.close();
    await first.close();
    await peer.close();
  }
  return {
    rounds,
    figures,
    bars: [
      atMost(
        'keys of 20,000 contexts that share, against one',
        figures['keys']! / alone['keys']!,
        1,
      ),
      atMost('slots of 20,000 contexts, against one', figures['slots']! / alone['slots']!, 1),
      atMost('KiB for a context with its domain', most.bytesEach / 1024, 16),
      atMost('KiB with a completion queue and a queue pair', many.queueBytesEach / 1024, 16),
      figures['named_keys'] === undefined
        ? missing('keys of 20,000 contexts of a named device', 'koffi (npm)')
        : atMost('keys of 20,000 contexts of a named device', figures['named_keys'], 1),
      atMost('attaching: open and sharePd, p50, ms', attachMillis, 1),
      startBar(figures['start_verbs_s']),
      atMost('a packet of 4 KiB, 2,000 contexts in turn against one', ratio(4096), 1.1),
      atMost('a packet of 64 B, 2,000 contexts in turn against one', ratio(64), 1.1),
    ],
  };
}

export const bench: Bench = {
  name: 'contexts',
  description: '20,000 contexts of one device in one process, against one',
  run,
};
