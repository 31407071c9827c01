/** The verdict of a soak on memory: a leak is detected, temporary memory is not a leak. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { Sample } from './coordinator.js';
import { settledTrendOf, trendOf } from './memory.js';

/** A sample a second, of the member that lives on and of another one. */
function samples(engine: (second: number) => number): Sample[] {
  return Array.from({ length: 100 }, (_, seconds): Sample[] => {
    const memory = { engine: engine(seconds), rss: 50 + seconds, heap: 7, receives: 0 };
    const quiet = seconds < 90 ? undefined : 'last';
    const settled = seconds >= 25 && seconds < 35 ? 'first' : quiet;
    const of = (member: number) =>
      ({ seconds, member, incarnation: 0, settled, ...memory }) as const;
    return [of(0), { ...of(1), engine: 1e9 }];
  }).flat();
}

test('temporary memory is no growth, neither in quiet times nor between them', () => {
  for (const first of [0, 1, 2, 3]) {
    const busy = samples((second) => {
      const isFileOpen = (second + first) % 4 !== 0;
      return 1000 + (isFileOpen ? 4000 : 0) + (second > 40 && second < 80 ? 2500 : 0);
    });
    const { before, after } = settledTrendOf(busy, 'engine');
    assert.equal([before, after], [1000, 1000]);
  }
});

test('what leaks is growth, however much comes and goes', () => {
  const leaking = samples((second) => 1000 + 10 * second + (second % 4 === 0 ? 0 : 4000));
  const { before, after, bytesPerMinute } = settledTrendOf(leaking, 'engine');
  assert.equal([before, after], [1280, 1920]);
  assert.ok(Math.abs(bytesPerMinute - 600) < 30, `${bytesPerMinute}`);
});

test('a quiet time of which nothing was heard proves nothing', () => {
  const early = samples(() => 1000).filter(({ settled }) => settled !== 'last');
  const { before, after } = settledTrendOf(early, 'engine');
  assert.not(after - before <= 0);
});

test('medians, of the second and of the last quarter', () => {
  const { before, after, bytesPerMinute } = trendOf(
    samples(() => 0),
    'rss',
  );
  assert.equal([before, after], [87, 137]);
  assert.ok(Math.abs(bytesPerMinute - 60) < 1e-9);
});

test.run();
