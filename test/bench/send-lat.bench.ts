/** A SEND to and fro between two processes, in each way to progress. */
import { loadavg } from 'node:os';
import { bareSpin, spinFigures } from './bare.js';
import { dgramPingPong } from './dgram.js';
import { atMost, interleave, medianOf, medians, missing } from './harness.js';
import type { Bench, BenchResult, Figures } from './harness.js';
import { isInstalled, PROGRAMS } from './programs.js';
import { sendTrips } from './stack.js';

const TRIPS = { bytes: 64, count: 3000 };
const FABRIC = 'fi_pingpong_tcp_64_rtt_us';

async function run(): Promise<BenchResult> {
  const fabric = PROGRAMS.find(({ figures }) => figures.includes(FABRIC))!;
  const there = isInstalled(fabric);
  const rounds = await interleave('send-lat', [
    async () => spinFigures('bare_spin', await bareSpin(TRIPS)),
    async () => spinFigures('dgram', await dgramPingPong(TRIPS)),
    async () => spinFigures('poll', await sendTrips({ ...TRIPS, progress: 'poll', waits: false })),
    async () =>
      spinFigures('thread_polled', await sendTrips({ ...TRIPS, progress: 'thread', waits: false })),
    async () =>
      spinFigures('thread_waits', await sendTrips({ ...TRIPS, progress: 'thread', waits: true })),
    ...(there ? [() => fabric.measure()] : []),
    () => ({ load_average_1_minute: loadavg()[0]! }),
  ]);
  const ratio = (one: string, other: string): number =>
    medianOf(rounds, (figures: Figures) => figures[one]! / figures[other]!);
  const poll = 'poll mode against libfabric tcp';
  return {
    figures: medians(rounds),
    bars: [
      there ? atMost(poll, ratio('poll_p50_us', FABRIC), 0.7) : missing(poll, fabric.aptPackage),
      atMost('poll mode against the bare spin', ratio('poll_p50_us', 'bare_spin_p50_us'), 1.9),
      atMost('thread, polled, against dgram', ratio('thread_polled_p50_us', 'dgram_p50_us'), 1),
      atMost('thread, waiting, against dgram', ratio('thread_waits_p50_us', 'dgram_p50_us'), 2.5),
    ],
  };
}

export const bench: Bench = {
  name: 'send-lat',
  description: 'round trips of 64-byte SENDs between two processes, UDP loopback',
  run,
};
