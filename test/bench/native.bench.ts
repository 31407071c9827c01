/**
 * The batching link with system calls by koffi and by `node:ffi`, in Node 26, in the same rounds:
 * bandwidth of 4160-byte packets between two processes, round trips of 64 bytes, processor time.
 */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { fetchNode } from '../interop/node-versions.js';
import { HIDDEN_KOFFI } from '../support/without-koffi.js';
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

/** Its newest release: up to 26.5 `node:ffi` needs a flag. */
const MAJOR = 26;
const RATIO = 0.95;
const SHUTTLE = { packetBytes: 4160, segments: 15, runs: 20_000 };
const PUMP = { packetBytes: 4160, segments: 15, receiveBufferBytes: 4 * 2 ** 20, window: 5 };

/** In a process of its own: what the link reaches with the calls that this process has. */
async function child(share: number): Promise<void> {
  const pump = await linkPump({ ...PUMP, seconds: share });
  const trips = await linkSpin({ bytes: 64, count: Math.ceil(10_000 * share) });
  const figures: Figures = {
    gbps: pump.bytes / pump.seconds / 1e9,
    cpu_s_per_gb: (pump.initiatorCpuSeconds + pump.targetCpuSeconds) / (pump.bytes / 1e9),
    trip_64_p50_us: trips.p50Micros,
    shuttle_15x4160_cpu_ns_per_packet: await linkShuttle(SHUTTLE),
    shuttle_1x64_cpu_ns_per_packet: await linkShuttle({ ...SHUTTLE, packetBytes: 64, segments: 1 }),
  };
  console.log(JSON.stringify(figures));
}

function measured(node: string, name: string, options: readonly string[], share: number): Variant {
  return () => {
    const args = [...options, fileURLToPath(import.meta.url), 'child', String(share)];
    const { status, stdout, stderr } = spawnSync(node, args, { encoding: 'utf8' });
    if (status !== 0) throw new Error(`the process with ${name} ended with ${status}: ${stderr}`);
    const figures = Object.entries(JSON.parse(stdout) as Figures);
    return Object.fromEntries(figures.map(([figure, value]) => [`${name}_${figure}`, value]));
  };
}

async function run(pace: Pace): Promise<BenchResult> {
  const node = await fetchNode(MAJOR);
  const variants = [
    measured(node, 'koffi', [], pace.share),
    measured(node, 'ffi', HIDDEN_KOFFI, pace.share),
  ];
  const rounds = await interleave('native', variants, pace);
  const ratio = (figure: string): number =>
    medianOf(rounds, (round) => round[`ffi_${figure}`]! / round[`koffi_${figure}`]!);
  return {
    rounds,
    figures: medians(rounds),
    bars: [
      atLeast('bandwidth with node:ffi against koffi', ratio('gbps'), RATIO),
      atMost('64-byte round trip with node:ffi against koffi', ratio('trip_64_p50_us'), 1 / RATIO),
    ],
  };
}

export const bench: Bench = {
  name: 'native',
  description: 'system calls by koffi and by node:ffi, two processes with Node 26',
  run,
};

if (process.argv[2] === 'child') await child(Number(process.argv[3]));
