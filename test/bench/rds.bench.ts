/** Reliable datagrams against SENDs on the same link, and against others that are reliable. */
import { dgramPingPong } from './dgram.js';
import { flowFigures } from './flow.js';
import { atLeast, atMost, interleave, medianOf, medians } from './harness.js';
import type { Bar, Bench, BenchResult, Figures, Pace, Variant } from './harness.js';
import type { WayOptions } from './message-ends.js';
import { MessagePair } from './messages.js';
import { TripLog } from './trips.js';

const TRIPS = 3000;
/** Round trips that do not count: code is compiled, and polling threads settle. */
const WARM_UP_TRIPS = 20_000;
const SECONDS = 0.5;
/** For each size and mode where the crossover is looked for. */
const CROSSOVER_SECONDS = 0.2;
const SMALL = 64;
const BLOCK = 8192;
/** From here on directed mode is held against WRITE. */
const DIRECTED = 65536;
/** Seed 003: half the latency, and half the processor time, of what it was held against. */
const SEED = 0.5;
/** Seed 003: where copying and not copying cost the same. */
const SEED_CROSSOVER_KIB = 8;
const CROSSOVER_SIZES = [8192, 16384, 32768, 65536, 131072, 262144];
const LARGEST = 262144;

type Kind = 'both' | 'directed' | 'crossover';

/** The ways: name, ends, and kinds of measurements. */
const WAYS: readonly (readonly [name: string, options: WayOptions, kinds: readonly Kind[]])[] = [
  ['send', { way: 'send', progress: 'inline', bytesMax: BLOCK }, ['both']],
  ['rds', { way: 'rds', progress: 'inline', bytesMax: BLOCK }, ['both']],
  ['send_thread', { way: 'send', progress: 'thread', bytesMax: BLOCK }, ['both']],
  ['rds_thread', { way: 'rds', progress: 'thread', bytesMax: LARGEST }, ['both', 'crossover']],
  ['zero_copy', { way: 'zero', progress: 'thread', bytesMax: LARGEST }, ['crossover']],
  ['dgram', { way: 'dgram', progress: 'inline', bytesMax: BLOCK }, ['both']],
  [
    'one_device',
    { way: 'rds', progress: 'thread', bytesMax: BLOCK, name: `bench-rds-${process.pid}` },
    ['both'],
  ],
  ['udp_with_acks', { way: 'acks', progress: 'inline', bytesMax: BLOCK }, ['both']],
  ['udx', { way: 'udx', progress: 'inline', bytesMax: BLOCK }, ['both']],
  ['write', { way: 'write', progress: 'thread', bytesMax: DIRECTED }, ['directed']],
  ['write_anew', { way: 'write-anew', progress: 'thread', bytesMax: DIRECTED }, ['directed']],
  ['directed', { way: 'directed', progress: 'thread', bytesMax: DIRECTED }, ['directed']],
  ['directed_anew', { way: 'directed-anew', progress: 'thread', bytesMax: DIRECTED }, ['directed']],
];

function variantsOf(
  log: TripLog,
  share: number,
  name: string,
  pair: MessagePair,
  kinds: readonly Kind[],
): Variant[] {
  const flow = (bytes: number, seconds: number): Variant => {
    return async () => flowFigures(`${name}_${bytes}`, await pair.flow(bytes, seconds * share));
  };
  return kinds.flatMap((kind): Variant[] => {
    if (kind === 'directed') return [flow(DIRECTED, SECONDS)];
    if (kind === 'crossover') {
      return CROSSOVER_SIZES.filter((bytes) => bytes !== BLOCK || !kinds.includes('both')).map(
        (bytes) => flow(bytes, CROSSOVER_SECONDS),
      );
    }
    return [
      async () => log.keep(`${name}_${SMALL}`, await pair.trips(SMALL, TRIPS * share)),
      flow(BLOCK, SECONDS),
    ];
  });
}

/** KiB: the smallest size from which on not copying takes less processor time; NaN: none does. */
function crossoverOf(rounds: readonly Figures[]): number {
  const cost = (name: string, bytes: number): number =>
    medianOf(rounds, (figures) => figures[`${name}_${bytes}_cpu_s_per_million`]!);
  const pays = CROSSOVER_SIZES.map((bytes) => cost('zero_copy', bytes) < cost('rds_thread', bytes));
  const first = pays.lastIndexOf(false) + 1;
  return (CROSSOVER_SIZES[first] ?? NaN) / 1024;
}

async function run(pace: Pace): Promise<BenchResult> {
  const log = new TripLog();
  const pairs: MessagePair[] = [];
  const variants: Variant[] = [];
  let rounds: Figures[];
  try {
    for (const [name, options, kinds] of WAYS) {
      const pair = await MessagePair.open(name, options);
      pairs.push(pair);
      if (kinds.includes('both')) await pair.trips(SMALL, WARM_UP_TRIPS * pace.share);
      variants.push(...variantsOf(log, pace.share, name, pair, kinds));
    }
    const bare = { bytes: SMALL, count: TRIPS * pace.share };
    variants.push(async () => log.keep(`node_dgram_${SMALL}`, await dgramPingPong(bare)));
    rounds = await interleave('rds', variants, pace);
  } finally {
    for (const pair of pairs) await pair.close();
  }
  const figures = {
    ...medians(rounds),
    crossover_kib: crossoverOf(rounds),
    seed_crossover_kib: SEED_CROSSOVER_KIB,
  };
  const bars = barsOf(rounds);
  return { rounds, counts: 'messages', figures, distributions: log.distributions, bars };
}

function barsOf(rounds: readonly Figures[]): Bar[] {
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
  return [
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
    atLeast(
      'directed mode of 64 KiB against WRITE, out of other memory each time',
      ratio(`directed_anew_${DIRECTED}_mps`, `write_${DIRECTED}_mps`),
      0.95,
    ),
    atLeast(
      'the same against WRITE out of other memory each time',
      ratio(`directed_anew_${DIRECTED}_mps`, `write_anew_${DIRECTED}_mps`),
      0.95,
    ),
    ...sameHost(rounds),
    ...against('UDP with acknowledgements in JavaScript', 'udp_with_acks'),
    ...against('udx-native', 'udx'),
  ];
}

/** RDS sockets of two processes: of one device, and of a device each. */
function sameHost(rounds: readonly Figures[]): Bar[] {
  const ratio = (one: string, other: string): number =>
    medianOf(rounds, (figures) => figures[one]! / figures[other]!);
  const trip = `${SMALL}_p50_us`;
  const acknowledged = 'UDP with acknowledgements in JavaScript';
  const cost = (way: string, bytes: number, most: number): Bar => {
    const figure = `${bytes}_cpu_s_per_million`;
    const what = `${way}: processor time of a message of ${bytes} B against ${acknowledged}`;
    return atMost(what, ratio(`${way}_${figure}`, `udp_with_acks_${figure}`), most);
  };
  return [
    atMost(
      'one_device: 64 B to and fro against node:dgram, p50',
      ratio(`one_device_${trip}`, `node_dgram_${trip}`),
      0.5,
    ),
    cost('one_device', SMALL, 0.5),
    cost('one_device', BLOCK, 0.5),
    atMost(
      `dgram: 64 B to and fro against ${acknowledged}, p50`,
      ratio(`dgram_${trip}`, `udp_with_acks_${trip}`),
      1,
    ),
    cost('dgram', SMALL, 1),
    cost('dgram', BLOCK, 1),
  ];
}

export const bench: Bench = {
  name: 'rds',
  description: 'reliable datagrams against SENDs, UDP with acknowledgements, and udx-native',
  run,
};
