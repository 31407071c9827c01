/**
 * Lookups of memory keys, inside WebAssembly: 1,000 and 1,000,000 live keys, and bare memory of
 * the larger table's size as the yardstick (assembly/selftest/bench-keys.ts).
 */
import { atMost, interleave, medianOf, medians } from './harness.js';
import type { Bench, BenchResult, Pace } from './harness.js';
import { selftestBench } from './selftest.js';

async function run(pace: Pace): Promise<BenchResult> {
  const rounds = await interleave('keys', [() => selftestBench('keys')], pace);
  const figures = medians(rounds);
  const growth = medianOf(rounds, (f) => f['independent_1000000_ns']! / f['independent_1000_ns']!);
  const ofMemory = (how: string): number =>
    medianOf(rounds, (f) => f[`${how}_1000000_ns`]! / f[`${how}_memory_ns`]!);
  return {
    rounds,
    figures,
    bars: [
      atMost('independent lookup, 1,000,000 keys against 1,000', growth, 2),
      atMost('independent lookup, 1,000,000 keys, of a bare load', ofMemory('independent'), 3),
      atMost('dependent lookup, 1,000,000 keys, of a bare load', ofMemory('dependent'), 1.15),
      atMost('independent lookup, 1,000,000 keys, ns', figures['independent_1000000_ns']!, 20),
      atMost('dependent lookup, 1,000,000 keys, ns', figures['dependent_1000000_ns']!, 80),
    ],
  };
}

export const bench: Bench = {
  name: 'keys',
  description: 'lookups of memory keys with 1,000 and 1,000,000 of them alive',
  run,
};
