/** Reliable datagrams against SENDs on the same link, and against others that are reliable. */
import { flowFigures } from './flow.js';
import { atLeast, atMost, interleave, medianOf, medians } from './harness.js';
import type { Bench, BenchResult, Pace, Variant } from './harness.js';
import type { Way, WayOptions } from './message-ends.js';
import { messageFlow, messageTrips } from './messages.js';
import { TripLog } from './trips.js';

const TRIPS = 2000;
const SECONDS = 1;
const SMALL = 64;
const BLOCK = 8192;
/** From here on directed mode is held against WRITE. */
const DIRECTED = 65536;
/** Seed 003: half the latency, and half the processor time, of what it was held against. */
const SEED = 0.5;

const WAYS: readonly (readonly [name: string, way: Way, progress: WayOptions['progress']])[] = [
  ['send', 'send', 'inline'],
  ['rds', 'rds', 'inline'],
  ['send_thread', 'send', 'thread'],
  ['rds_thread', 'rds', 'thread'],
  ['dgram', 'dgram', 'inline'],
  ['udp_with_acks', 'acks', 'inline'],
  ['udx', 'udx', 'inline'],
];

async function run(pace: Pace): Promise<BenchResult> {
  const log = new TripLog();
  const variants = WAYS.flatMap(([name, way, progress]): Variant[] => [
    async () => {
      const count = TRIPS * pace.share;
      return log.keep(`${name}_64`, await messageTrips({ way, progress, bytes: SMALL, count }));
    },
    async () => {
      const seconds = SECONDS * pace.share;
      const flow = await messageFlow({ way, progress, bytes: BLOCK, seconds });
      return flowFigures(`${name}_8192`, flow);
    },
  ]);
  for (const way of ['write', 'directed'] as const) {
    variants.push(async () => {
      const seconds = SECONDS * pace.share;
      const flow = await messageFlow({ way, progress: 'thread', bytes: DIRECTED, seconds });
      return flowFigures(`${way}_${DIRECTED}`, flow);
    });
  }
  const rounds = await interleave('rds', variants, pace);
  const ratio = (one: string, other: string): number =>
    medianOf(rounds, (figures) => figures[one]! / figures[other]!);
  const against = (name: string, other: string) => [
    atMost(
      `64 B to and fro against ${name}, p50`,
      ratio('dgram_64_p50_us', `${other}_64_p50_us`),
      SEED,
    ),
    atMost(
      `processor time of a message of 64 B against ${name}`,
      ratio('dgram_64_cpu_s_per_million', `${other}_64_cpu_s_per_million`),
      SEED,
    ),
    atMost(
      `processor time of a message of 8 KiB against ${name}`,
      ratio('dgram_8192_cpu_s_per_million', `${other}_8192_cpu_s_per_million`),
      SEED,
    ),
  ];
  return {
    rounds,
    counts: 'messages',
    figures: medians(rounds),
    distributions: log.distributions,
    bars: [
      ...(['', '_thread'] as const).flatMap((how) => [
        atMost(
          `64 B to and fro against SEND${how}, p50`,
          ratio(`rds${how}_64_p50_us`, `send${how}_64_p50_us`),
          1.2,
        ),
        atLeast(
          `messages of 8 KiB against SEND${how}`,
          ratio(`rds${how}_8192_mps`, `send${how}_8192_mps`),
          0.8,
        ),
      ]),
      atLeast(
        'directed mode of 64 KiB against WRITE',
        ratio(`directed_${DIRECTED}_mps`, `write_${DIRECTED}_mps`),
        0.95,
      ),
      ...against('UDP with acknowledgements in JavaScript', 'udp_with_acks'),
      ...against('udx-native', 'udx'),
    ],
  };
}

export const bench: Bench = {
  name: 'rds',
  description: 'reliable datagrams against SENDs, UDP with acknowledgements, and udx-native',
  run,
};
