/** What a soak says about memory: a leak is seen, what comes and goes is none. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import type { Sample } from './coordinator.js';
import { least, trendOf } from './memory.js';

const test = suite('soak/memory');

/** A sample a second, of the member that lives on and of another one. */
function samples(engine: (second: number) => number): Sample[] {
  return Array.from({ length: 100 }, (_, seconds) => {
    const memory = { engine: engine(seconds), rss: 50 + seconds, heap: 7, receives: 0 };
    const of = (member: number) => ({ seconds, member, incarnation: 0, ...memory });
    return [of(0), { ...of(1), engine: 1e9 }];
  }).flat();
}

test('what is taken and given back is no growth, wherever the last sample fell', () => {
  for (const first of [0, 1, 2, 3]) {
    const busy = samples((second) => 1000 + ((second + first) % 4 === 0 ? 0 : 4000));
    const { before, after } = trendOf(busy, 'engine', least);
    assert.equal([before, after], [1000, 1000]);
  }
});

test('what leaks is growth, however much comes and goes', () => {
  const leaking = samples((second) => 1000 + 10 * second + (second % 4 === 0 ? 0 : 4000));
  const { before, after, bytesPerMinute } = trendOf(leaking, 'engine', least);
  assert.ok(after - before >= 450, `${after - before}`);
  assert.ok(Math.abs(bytesPerMinute - 600) < 30, `${bytesPerMinute}`);
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
