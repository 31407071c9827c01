/**
 * The yardsticks that our own figures are held against: the least that two processes can do over
 * UDP by bare system calls, what node:dgram and node:net do, and other people's programs. All over
 * loopback, two processes each, rounds interleaved.
 */
import { barePump, bareSpin, BUFFERS } from './bare.js';
import { dgramPingPong, dgramPump } from './dgram.js';
import { flowFigures } from './flow.js';
import { interleave, measured, medians } from './harness.js';
import type { Bench, BenchResult, Pace, Variant } from './harness.js';
import { netPingPong, netPump } from './net.js';
import { YARDSTICKS, Yardsticks } from './programs.js';
import { TripLog } from './trips.js';

const SECONDS = 0.5;
const LARGE = 4160;
const LARGE_SEGMENTS = 15;
const SMALL = 64;
const CHUNK = 65536;
const TRIPS = 5000;

function ownVariants(share: number, log: TripLog): { names: string[]; variants: Variant[] } {
  const names: string[] = [];
  const variants: Variant[] = [];
  const seconds = SECONDS * share;
  for (const { name, bytes: receiveBufferBytes, window } of BUFFERS) {
    const bare = `bare_pump_${LARGE}_${name}`;
    const dgram = `dgram_pump_${LARGE}_${name}`;
    const common = { packetBytes: LARGE, receiveBufferBytes, seconds };
    names.push(`${bare}_gbps`, `${dgram}_gbps`);
    variants.push(
      async () =>
        flowFigures(bare, await barePump({ ...common, segments: LARGE_SEGMENTS, window })),
      async () => flowFigures(dgram, await dgramPump(common)),
    );
  }
  const trips = { bytes: SMALL, count: TRIPS * share };
  names.push(`net_pump_${CHUNK}_gbps`);
  names.push('bare_spin_64_p50_us', 'dgram_ping_pong_64_p50_us', 'net_ping_pong_64_p50_us');
  variants.push(
    async () => flowFigures(`net_pump_${CHUNK}`, await netPump({ chunkBytes: CHUNK, seconds })),
    async () => log.keep('bare_spin_64', await bareSpin(trips)),
    async () => log.keep('dgram_ping_pong_64', await dgramPingPong(trips)),
    async () => log.keep('net_ping_pong_64', await netPingPong(trips)),
  );
  return { names, variants };
}

async function run(pace: Pace): Promise<BenchResult> {
  const log = new TripLog();
  const own = ownVariants(pace.share, log);
  const programs = YARDSTICKS.map(({ name }) => name);
  const yardsticks = new Yardsticks(programs);
  const rounds = await interleave('peers', [...own.variants, ...yardsticks.variants], pace);
  const figures = medians(rounds);
  return {
    rounds,
    figures,
    distributions: log.distributions,
    bars: [...own.names, ...programs].map((name) =>
      yardsticks.bar(name, name, () => measured(name, figures[name])),
    ),
  };
}

export const bench: Bench = {
  name: 'peers',
  description: 'yardsticks: bare sockets, node:dgram, node:net, libfabric, UCX, iperf3, loopback',
  run,
};
