/**
 * The yardsticks that our own figures are held against: the least that two processes can do over
 * UDP by bare system calls, what node:dgram does, and other people's programs. All over loopback,
 * two processes each, rounds interleaved.
 */
import { loadavg } from 'node:os';
import { barePump, bareSpin, BUFFERS, pumpFigures, spinFigures } from './bare.js';
import { dgramPingPong, dgramPump } from './dgram.js';
import {
  interleave,
  measured,
  medians,
  missing,
  type Bench,
  type BenchResult,
  type Variant,
} from './harness.js';
import { isInstalled, PROGRAMS } from './programs.js';

const SECONDS = 0.5;
const LARGE = 4160;
const LARGE_SEGMENTS = 15;
const SMALL = 64;

function ownVariants(): { names: string[]; variants: Variant[] } {
  const names: string[] = [];
  const variants: Variant[] = [];
  for (const { name, bytes: receiveBufferBytes, window } of BUFFERS) {
    const bare = `bare_pump_${LARGE}_${name}`;
    const dgram = `dgram_pump_${LARGE}_${name}`;
    const common = { packetBytes: LARGE, receiveBufferBytes, seconds: SECONDS };
    names.push(`${bare}_gbps`, `${dgram}_gbps`);
    variants.push(
      async () =>
        pumpFigures(bare, await barePump({ ...common, segments: LARGE_SEGMENTS, window })),
      async () => pumpFigures(dgram, await dgramPump(common)),
    );
  }
  const trips = { bytes: SMALL, count: 5000 };
  names.push('bare_spin_64_p50_us', 'dgram_ping_pong_64_p50_us');
  variants.push(
    async () => spinFigures('bare_spin_64', await bareSpin(trips)),
    async () => spinFigures('dgram_ping_pong_64', await dgramPingPong(trips)),
  );
  return { names, variants };
}

async function run(): Promise<BenchResult> {
  const there = PROGRAMS.filter(isInstalled);
  const own = ownVariants();
  const rounds = await interleave('peers', [
    ...own.variants,
    ...there.map((program) => () => program.measure()),
    () => ({ load_average_1_minute: loadavg()[0]! }),
  ]);
  const figures = medians(rounds);
  return {
    figures,
    bars: [
      ...own.names.map((name) => measured(name, figures[name])),
      ...PROGRAMS.flatMap((program) =>
        program.figures.map((name) =>
          there.includes(program)
            ? measured(name, figures[name])
            : missing(name, program.aptPackage),
        ),
      ),
    ],
  };
}

export const bench: Bench = {
  name: 'peers',
  description: 'yardsticks: bare sockets, node:dgram, libfabric, UCX, iperf3, over loopback',
  run,
};
