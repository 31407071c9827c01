/**
 * The batching link without an engine against bare system calls, in the same rounds: what the link
 * costs. One way with runs of 15 x 4160 and 64 x 64 bytes, and round trips of 64 bytes.
 */
import { barePump, bareShuttle, bareSpin, BUFFERS, type PumpOptions } from './bare.js';
import { flowFigures } from './flow.js';
import { gatherShuttle } from './gather-send.js';
import {
  atLeast,
  atMost,
  interleave,
  medianOf,
  medians,
  type Bench,
  type BenchResult,
  type Figures,
  type Pace,
  type Variant,
} from './harness.js';
import { linkPump, linkShuttle, linkSpin } from './link-pump.js';
import { tripFigures } from './trips.js';

const SECONDS = 0.5;
const LEAST_RATIO = 0.8;
const MOST_TRIP_RATIO = 1.3;
const SHUTTLES = [
  { name: '15x4160', packetBytes: 4160, segments: 15, runs: 20_000 },
  { name: '64x64', packetBytes: 64, segments: 64, runs: 20_000 },
  { name: '1x64', packetBytes: 64, segments: 1, runs: 20_000 },
];
const GATHERS = [
  { name: 'hot', sourceBytes: 2 ** 17, runs: 4000 },
  { name: 'cold', sourceBytes: 2 ** 25, runs: 4000 },
];
const TRIPS = { bytes: 64, count: 5000 };

function shapes(share: number): (PumpOptions & { readonly name: string })[] {
  return BUFFERS.flatMap(({ name, bytes, window }) => {
    const common = { receiveBufferBytes: bytes, seconds: SECONDS * share };
    return [
      { ...common, name: `4160_${name}`, packetBytes: 4160, segments: 15, window },
      { ...common, name: `64_${name}`, packetBytes: 64, segments: 64, window: window + 3 },
    ];
  });
}

async function run(pace: Pace): Promise<BenchResult> {
  const pumps = shapes(pace.share);
  const variants = pumps.flatMap((shape): Variant[] => [
    async () => flowFigures(`bare_pump_${shape.name}`, await barePump(shape)),
    async () => flowFigures(`link_pump_${shape.name}`, await linkPump(shape)),
  ]);
  const shuttles = SHUTTLES.map(({ name, ...shape }): Variant => async () => ({
    [`bare_shuttle_${name}_cpu_ns_per_packet`]: await bareShuttle(shape),
    [`link_shuttle_${name}_cpu_ns_per_packet`]: await linkShuttle(shape),
  }));
  const gathers = GATHERS.map(({ name, ...shape }): Variant => async () => ({
    [`copied_send_${name}_cpu_ns_per_packet`]: await gatherShuttle(shape, false),
    [`gathered_send_${name}_cpu_ns_per_packet`]: await gatherShuttle(shape, true),
  }));
  const rounds = await interleave(
    'link',
    [
      ...variants,
      ...shuttles,
      ...gathers,
      async () => tripFigures('bare_spin_64', await bareSpin(TRIPS)),
      async () => tripFigures('link_spin_64', await linkSpin(TRIPS)),
    ],
    pace,
  );
  const ratio = (name: string): number =>
    medianOf(rounds, (f: Figures) => f[`link_pump_${name}_gbps`]! / f[`bare_pump_${name}_gbps`]!);
  const ratios = Object.fromEntries(
    pumps.map(({ name }) => [`link_to_bare_pump_${name}_ratio`, ratio(name)]),
  );
  const shuttleRatios = Object.fromEntries(
    SHUTTLES.map(({ name }) => [
      `link_to_bare_shuttle_${name}_ratio`,
      medianOf(
        rounds,
        (f) =>
          f[`link_shuttle_${name}_cpu_ns_per_packet`]! /
          f[`bare_shuttle_${name}_cpu_ns_per_packet`]!,
      ),
    ]),
  );
  const gatherRatios = Object.fromEntries(
    GATHERS.map(({ name }) => [
      `gathered_to_copied_send_${name}_ratio`,
      medianOf(
        rounds,
        (f) =>
          f[`gathered_send_${name}_cpu_ns_per_packet`]! /
          f[`copied_send_${name}_cpu_ns_per_packet`]!,
      ),
    ]),
  );
  const trip = medianOf(rounds, (f) => f['link_spin_64_p50_us']! / f['bare_spin_64_p50_us']!);
  return {
    rounds,
    figures: {
      ...medians(rounds),
      ...ratios,
      ...shuttleRatios,
      ...gatherRatios,
      link_to_bare_spin_64_ratio: trip,
    },
    bars: [
      ...pumps.map(({ name }) =>
        atLeast(`link against bare pump, ${name}`, ratio(name), LEAST_RATIO),
      ),
      atMost('link against bare spin, 64 B round trip', trip, MOST_TRIP_RATIO),
    ],
  };
}

export const bench: Bench = {
  name: 'link',
  description: 'the batching link alone against bare system calls, two processes, loopback',
  run,
};
