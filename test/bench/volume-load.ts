/** Dynamic workload of seed 002: habits of volumes, and volumes that join under load. */
import type { VirtualClock } from '../../host/index.js';
import type { Random } from '../simulation/random.js';

/** How requests come to a volume: by chance at a rate, and `burst` of them at once now and then. */
export interface Habit {
  readonly name: string;
  readonly perSecond: number;
  readonly burst: number;
  readonly burstsPerSecond: number;
}

function times(count: number, habit: Habit): Habit[] {
  return Array.from({ length: count }, () => habit);
}

/** Of every sixteen volumes. */
export const HABITS: readonly Habit[] = [
  ...times(3, { name: 'bursts', perSecond: 50, burst: 96, burstsPerSecond: 4 }),
  ...times(2, { name: 'HA pair', perSecond: 1000, burst: 8, burstsPerSecond: 20 }),
  ...times(3, { name: 'sustained', perSecond: 2000, burst: 0, burstsPerSecond: 0 }),
  ...times(8, { name: 'idle VM', perSecond: 20, burst: 4, burstsPerSecond: 1 }),
];

export interface Load {
  readonly clock: Pick<VirtualClock, 'now' | 'at'>;
  readonly random: Random;
  /** No request is issued after it. */
  readonly endMicros: number;
}

/** Asks as the habit says until the end. */
export function live({ clock, random, endMicros }: Load, habit: Habit, ask: () => void): void {
  const exponential = (perSecond: number): number =>
    (-Math.log(1 - random.below(1e6) / 1e6) * 1e6) / perSecond;
  const repeat = (rate: number, work: () => void): void => {
    const next = clock.now() + exponential(rate);
    if (rate === 0 || next >= endMicros) return;
    clock.at(next, () => {
      work();
      repeat(rate, work);
    });
  };
  repeat(habit.perSecond, ask);
  repeat(habit.burstsPerSecond, () => {
    for (let count = 0; count < habit.burst; count++) ask();
  });
}

/** Joins `count` volumes: the first now, the others one by one in four fifths of the time. */
export function joinAll(
  { clock, endMicros }: Load,
  first: number,
  count: number,
  join: (index: number) => void,
): void {
  const startMicros = clock.now();
  for (let index = 0; index < count; index++) {
    if (index < first) join(index);
    else {
      const part = (index - first + 1) / (count - first + 1);
      clock.at(startMicros + part * 0.8 * (endMicros - startMicros), () => join(index));
    }
  }
}
