/**
 * Cost of the engines and the host around them without a kernel in between: RC WRITEs between two
 * devices in one thread. ICRC on, path MTU 4096, timers armed, one completion per 32 requests,
 * lists of 64 requests per `postSend` (pump.ts). And the engine alone, each side by itself
 * (shuttle.ts).
 */
import { Stopwatch, atLeast, atMost, interleave, medians } from './harness.js';
import type { Bench, BenchResult, Figures, Pace } from './harness.js';
import { makeLists, openWorld, pump, type Run, type World } from './pump.js';
import { Shuttle, type ShuttleOptions } from './shuttle.js';

/** How long each measurement of a round takes. */
const SECONDS = 1;
const LARGE = 65536;
const SMALL = 64;
/** Both sides together stay in the second-level cache. */
const HOT_BYTES = 512 * 1024;
/** Both sides together stay in no cache. */
const COLD_BYTES = 32 * 2 ** 20;

/** Nanoseconds a packet, each side, timers and completions in. */
const ALONE: readonly (ShuttleOptions & { readonly name: string; readonly most: number })[] = [
  { name: 'alone_64_hot', size: 64, length: 32, regions: 1, most: 100, ...both(4096) },
  {
    name: 'alone_64_random',
    size: 64,
    length: 32,
    regions: 10_000,
    bytes: 10_000 * 4096,
    localBytes: 65536,
    most: 220,
  },
  { name: 'alone_4096_hot', size: LARGE, length: 4, regions: 1, most: 450, ...both(131072) },
  { name: 'alone_4096_cold', size: LARGE, length: 4, regions: 1, most: 700, ...both(2 ** 24) },
];

function both(bytes: number) {
  return { bytes, localBytes: bytes };
}

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

/** Copy speed of the machine between two buffers of that size, in the same round. */
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

function alone(name: string, shuttle: Shuttle, seconds: number): Figures {
  const { requester, responder } = shuttle.measure(seconds);
  return {
    [`${name}_requester_ns_per_packet`]: requester,
    [`${name}_responder_ns_per_packet`]: responder,
  };
}

async function run(pace: Pace): Promise<BenchResult> {
  const seconds = SECONDS * pace.share;
  const hot = await openWorld(HOT_BYTES);
  const cold = await openWorld(COLD_BYTES);
  for (const { a } of [hot, cold]) a.buffer.forEach((_, i) => (a.buffer[i] = i ^ (i >> 8)));
  const hotLarge = makeLists(hot, LARGE, HOT_BYTES);
  const hotSmall = makeLists(hot, SMALL, HOT_BYTES);
  const coldLarge = makeLists(cold, LARGE, COLD_BYTES);
  const shuttles: { name: string; shuttle: Shuttle }[] = [];
  for (const { name, ...options } of ALONE) {
    shuttles.push({ name, shuttle: await Shuttle.open(options) });
  }
  const rounds = await interleave(
    'engine',
    [
      async () => large('write_65536_hot', await pump(hot, hotLarge, seconds)),
      async () => small('write_64', await pump(hot, hotSmall, seconds)),
      async () => large('write_65536_cold', await pump(cold, coldLarge, seconds)),
      () => copies(HOT_BYTES),
      ...shuttles.map(
        ({ name, shuttle }) =>
          () =>
            alone(name, shuttle, seconds),
      ),
    ],
    pace,
  );
  check(hot);
  check(cold);
  for (const { shuttle } of shuttles) {
    shuttle.verify();
    await shuttle.close();
  }
  const figures = medians(rounds);
  return {
    rounds,
    figures,
    bars: [
      atLeast('WRITEs of 64 KiB in one thread, GB/s', figures['write_65536_hot_gbps']!, 2.5),
      atLeast('WRITEs of 64 bytes in one thread, millions/s', figures['write_64_mps']!, 2.5),
      ...ALONE.flatMap(({ name, most }) =>
        ['requester', 'responder'].map((side) => {
          const value = figures[`${name}_${side}_ns_per_packet`]!;
          return atMost(`${name}: ${side}, ns per packet`, value, most);
        }),
      ),
    ],
  };
}

export const bench: Bench = {
  name: 'engine',
  description: 'two devices in one thread over the loopback link: RC WRITEs, ICRC on',
  run,
};
