/**
 * What the engines and the host around them cost when no kernel is in between: RC WRITEs between
 * two devices in one thread. ICRC on, path MTU 4096, timers armed, one completion per 32 requests,
 * lists of 64 requests per `postSend` (pump.ts).
 */
import {
  Stopwatch,
  atLeast,
  interleave,
  medians,
  type Bench,
  type BenchResult,
  type Figures,
} from './harness.js';
import { makeLists, openWorld, pump, type Run, type World } from './pump.js';

/** How long each measurement of a round takes. */
const SECONDS = 1;
const LARGE = 65536;
const SMALL = 64;
/** Both sides together stay in the second-level cache. */
const HOT_BYTES = 512 * 1024;
/** Both sides together stay in no cache. */
const COLD_BYTES = 32 * 2 ** 20;

function check({ a, b }: World): void {
  const { retransmittedPkts, timeouts } = a.context.counters();
  if (retransmittedPkts > 0n || timeouts > 0n) {
    throw new Error(`${retransmittedPkts} packets sent again, ${timeouts} timeouts`);
  }
  const at = a.buffer.findIndex((byte, index) => b.buffer[index] !== byte);
  if (at >= 0) throw new Error(`byte ${at} differs`);
}

function large(prefix: string, { count, seconds, cpuSeconds }: Run): Figures {
  const gigabytes = (count * LARGE) / 1e9;
  return {
    [`${prefix}_gbps`]: gigabytes / seconds,
    [`${prefix}_cpu_s_per_gb`]: cpuSeconds / gigabytes,
  };
}

function small(prefix: string, { count, seconds, cpuSeconds }: Run): Figures {
  return {
    [`${prefix}_mps`]: count / 1e6 / seconds,
    [`${prefix}_cpu_s_per_million`]: cpuSeconds / (count / 1e6),
  };
}

/** What the machine copies between two buffers of that size, in the same round. */
function copies(bytes: number): Figures {
  const from = new Uint8Array(bytes).fill(1);
  const to = new Uint8Array(bytes);
  const watch = new Stopwatch();
  let count = 0;
  while (watch.seconds() < SECONDS / 4) {
    for (let at = 0; at < bytes; at += LARGE) to.set(from.subarray(at, at + LARGE), at);
    count += bytes;
  }
  return { copy_65536_gbps: count / 1e9 / watch.seconds() };
}

async function run(): Promise<BenchResult> {
  const hot = await openWorld(HOT_BYTES);
  const cold = await openWorld(COLD_BYTES);
  for (const { a } of [hot, cold]) a.buffer.forEach((_, i) => (a.buffer[i] = i ^ (i >> 8)));
  const hotLarge = makeLists(hot, LARGE, HOT_BYTES);
  const hotSmall = makeLists(hot, SMALL, HOT_BYTES);
  const coldLarge = makeLists(cold, LARGE, COLD_BYTES);
  const rounds = await interleave('engine', [
    async () => large('write_65536_hot', await pump(hot, hotLarge, SECONDS)),
    async () => small('write_64', await pump(hot, hotSmall, SECONDS)),
    async () => large('write_65536_cold', await pump(cold, coldLarge, SECONDS)),
    () => copies(HOT_BYTES),
  ]);
  check(hot);
  check(cold);
  const figures = medians(rounds);
  return {
    figures,
    bars: [
      atLeast('WRITEs of 64 KiB in one thread, GB/s', figures['write_65536_hot_gbps']!, 2.5),
      atLeast('WRITEs of 64 bytes in one thread, millions/s', figures['write_64_mps']!, 2.5),
    ],
  };
}

export const bench: Bench = {
  name: 'engine',
  description: 'two devices in one thread over the loopback link: RC WRITEs, ICRC on',
  run,
};
