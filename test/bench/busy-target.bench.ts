/**
 * READs, WRITEs and atomics of a process whose main thread is blocked for seconds, against one
 * whose main thread is idle: one-sided operations are served by the device's own thread. And of
 * a process whose main thread computes all the time: with two cores it takes one from the bench.
 */
import { atMost, interleave, medianOf, medians } from './harness.js';
import type { Bar, Bench, BenchResult, Distribution, Figures, Pace } from './harness.js';
import { ONE_SIDED, oneSidedTrips, type OneSidedOptions } from './stack-trips.js';

const BLOCKED_SECONDS = 5;
const IDLE_SECONDS = 1;
const BYTES = 64;
const P50_MOST = 2;
const P99_MOST_MICROS = 5000;

async function run({ share, ...pace }: Pace): Promise<BenchResult> {
  const distributions: Record<string, Distribution> = {};
  const trips = async (
    target: string,
    seconds: number,
    how?: OneSidedOptions['how'],
  ): Promise<Figures> => {
    const timed = { bytes: BYTES, seconds: seconds * share };
    const { trips, sentAgain, cpuSeconds } = await oneSidedTrips(how ? { ...timed, how } : timed);
    const figures: Figures = { [`${target}_packets_sent_again`]: sentAgain };
    const count = ONE_SIDED.reduce((sum, kind) => sum + trips[kind].count, 0);
    figures[`${target}_cpu_s_per_million`] = cpuSeconds / (count / 1e6);
    for (const kind of ONE_SIDED) {
      const { p50Micros, p99Micros, distribution, count } = trips[kind];
      figures[`${target}_${kind}_p50_us`] = p50Micros;
      figures[`${target}_${kind}_p99_us`] = p99Micros;
      figures[`${target}_${kind}_count`] = count;
      distributions[`${target}_${kind}_us`] = distribution;
    }
    return figures;
  };
  const rounds = await interleave(
    'busy-target',
    [
      () => trips('idle', IDLE_SECONDS),
      () => trips('blocked', BLOCKED_SECONDS, 'blocked'),
      () => trips('computing', IDLE_SECONDS, 'computing'),
    ],
    { share, ...pace },
  );
  const figures = medians(rounds);
  const bars = ONE_SIDED.flatMap((kind): Bar[] => {
    const p50 = (target: string) => `${target}_${kind}_p50_us`;
    const against = medianOf(rounds, (f) => f[p50('blocked')]! / f[p50('idle')]!);
    return [
      atMost(`${kind}, target blocked, p50 against an idle one`, against, P50_MOST),
      atMost(
        `${kind}, target blocked, p99, us`,
        figures[`blocked_${kind}_p99_us`]!,
        P99_MOST_MICROS,
      ),
    ];
  });
  const again = Math.max(...rounds.map((figures) => figures['blocked_packets_sent_again']!));
  bars.push(atMost('target blocked: packets sent again, worst round', again, 0));
  return { rounds, figures, bars, distributions };
}

export const bench: Bench = {
  name: 'busy-target',
  description: 'READ, WRITE and FETCH_ADD at a process whose main thread is blocked for 5 s',
  run,
};
