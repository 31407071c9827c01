/**
 * SHMEM by four processes of one machine: a put of 8 bytes, a barrier of four, a put of 1 MiB
 * beside a WRITE of 1 MiB on the local path of the same round.
 */
import { ShmemJob } from '../support/shmem-job.js';
import { atLeast, atMost, interleave, medians } from './harness.js';
import type { Bench, BenchResult, Figures, Pace } from './harness.js';
import { makeLists, openWorld, pump } from './pump.js';

const PES = 4;
const SECONDS = 0.5;
const MIB = 2 ** 20;

async function job(seconds: number): Promise<Figures> {
  const environment = { BENCH_SECONDS: `${seconds}` };
  const [first] = await new ShmemJob('shmem-load.js', PES, () => environment).ends;
  if (first?.code !== 0) throw new Error(`a PE of the bench failed: ${first?.errors}`);
  return JSON.parse(first.lines[0]!) as Figures;
}

async function run(pace: Pace): Promise<BenchResult> {
  const seconds = SECONDS * pace.share;
  const world = await openWorld(2 * MIB, true);
  const lists = makeLists(world, MIB, MIB);
  const write = async (): Promise<Figures> => {
    const ran = await pump(world, lists, seconds);
    return { write_1mib_gbps: (ran.count * MIB) / 1e9 / ran.seconds };
  };
  try {
    const rounds = await interleave('shmem', [() => job(seconds), write], pace);
    const figures = medians(rounds);
    const ratio = figures['put_1mib_gbps']! / figures['write_1mib_gbps']!;
    return {
      figures: { ...figures, put_of_write: ratio },
      rounds,
      bars: [
        atMost('a put of 8 bytes, ns', figures['put_8_ns']!, 300),
        atMost('a barrier of four, us', figures['barrier_us']!, 10),
        atLeast('puts of 1 MiB against WRITEs', ratio, 0.9),
      ],
    };
  } finally {
    await world.a.context.close();
  }
}

export const bench: Bench = {
  name: 'shmem',
  description: 'OpenSHMEM by four processes: puts of 8 B and 1 MiB, barriers.',
  run,
};
