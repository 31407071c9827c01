/**
 * The engine's ICRC against the CRC-32 of zlib, packet by packet: ours inside WebAssembly as the
 * transport calls it, zlib's from JavaScript on prepared views, which is how a program in
 * JavaScript would use it.
 */
import { crc32 } from 'node:zlib';
import {
  atLeast,
  interleave,
  medianOf,
  medians,
  type Bench,
  type BenchResult,
  type Figures,
  type Pace,
} from './harness.js';
import { selftestBench } from './selftest.js';

const LENGTHS = [64, 256, 1088, 4160] as const;
const BUFFER_BYTES = 65536;
/** Bytes per measurement. */
const BYTES = 2 ** 26;
/** Of a packet, the ICRC covers all but its own four bytes. */
const ICRC_SIZE = 4;

const buffer = Uint8Array.from({ length: BUFFER_BYTES }, (_, index) => Math.imul(index, 167) >> 3);

function zlib(length: number): number {
  const views: Uint8Array[] = [];
  for (let at = 0; at + length <= BUFFER_BYTES; at += length) {
    views.push(buffer.subarray(at, at + length - ICRC_SIZE));
  }
  const passes = Math.ceil(BYTES / BUFFER_BYTES);
  const start = performance.now();
  for (let pass = 0; pass < passes; pass++) for (const view of views) crc32(view);
  return ((performance.now() - start) * 1e6) / (passes * views.length);
}

/** 10^9 bytes per second. */
function speeds(name: string, nanosOf: (length: number) => number): Figures {
  return Object.fromEntries(
    LENGTHS.map((length) => [`${name}_${length}_gbps`, length / nanosOf(length)]),
  );
}

function ours(): Figures {
  const nanos = selftestBench('icrc');
  return { ...nanos, ...speeds('engine', (length) => nanos[`icrc_${length}_ns`]!) };
}

async function run(pace: Pace): Promise<BenchResult> {
  const rounds = await interleave('icrc', [ours, () => speeds('zlib', zlib)], pace);
  const ratio = (length: number): number =>
    medianOf(rounds, (f) => f[`engine_${length}_gbps`]! / f[`zlib_${length}_gbps`]!);
  return {
    rounds,
    figures: medians(rounds),
    bars: [
      atLeast('icrc 4160 B against zlib', ratio(4160), 2),
      atLeast('icrc 1088 B against zlib', ratio(1088), 1.5),
    ],
  };
}

export const bench: Bench = {
  name: 'icrc',
  description: 'the ICRC per packet inside the engine, against zlib.crc32 per packet',
  run,
};
