/** A SEND to and fro between two processes, in each way to progress. */
import { bareSpin } from './bare.js';
import { dgramPingPong } from './dgram.js';
import { atMost, interleave, medianOf, medians } from './harness.js';
import type { Bench, BenchResult, Pace } from './harness.js';
import { Yardsticks } from './programs.js';
import { sendTrips } from './stack-trips.js';
import { TripLog } from './trips.js';

const COUNT = 3000;
const FABRIC = 'fi_pingpong_tcp_64_rtt_us';

async function run(pace: Pace): Promise<BenchResult> {
  const trips = { bytes: 64, count: COUNT * pace.share };
  const yardsticks = new Yardsticks([FABRIC]);
  const log = new TripLog();
  const rounds = await interleave(
    'send-lat',
    [
      async () => log.keep('bare_spin', await bareSpin(trips)),
      async () => log.keep('dgram', await dgramPingPong(trips)),
      async () => log.keep('poll', await sendTrips({ ...trips, progress: 'poll', waits: false })),
      async () =>
        log.keep('thread_polled', await sendTrips({ ...trips, progress: 'thread', waits: false })),
      async () =>
        log.keep('thread_waits', await sendTrips({ ...trips, progress: 'thread', waits: true })),
      ...yardsticks.variants,
    ],
    pace,
  );
  const ratio = (one: string, other: string): number =>
    medianOf(rounds, (figures) => figures[one]! / figures[other]!);
  const poll = 'poll mode against libfabric tcp';
  return {
    rounds,
    figures: medians(rounds),
    distributions: log.distributions,
    bars: [
      yardsticks.bar(poll, FABRIC, () => atMost(poll, ratio('poll_p50_us', FABRIC), 0.85)),
      atMost('poll mode against the bare spin', ratio('poll_p50_us', 'bare_spin_p50_us'), 1.75),
      atMost(
        'thread, waiting: p99 of its p50',
        ratio('thread_waits_p99_us', 'thread_waits_p50_us'),
        5,
      ),
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
