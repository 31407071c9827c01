/** When it is worth looking for work before going to sleep. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { VirtualClock } from '../../../host/index.js';
import { Spin } from '../../../host/device/spin.js';

/** `away`: how long each yield takes, in turn; the last one stays. */
function spinning(...away: number[]) {
  const clock = new VirtualClock();
  const spin = new Spin(100, clock, () => {
    clock.advance(away.length > 1 ? away.shift()! : away[0]!);
  });
  const looks = (): number => spin.until(clock.now()) - clock.now();
  /** Looks and yields as long as it is worth it; how long nobody may look then. */
  const pause = (): number => {
    while (looks() > 0) spin.yield();
    let micros = 0;
    for (; looks() === 0; micros += 1000) clock.advance(1000);
    return micros;
  };
  return { clock, spin, looks, pause };
}

test('who gets the processor back soon goes on looking', () => {
  const { spin, looks } = spinning(1, 60, 499);
  for (let look = 0; look < 1000; look++) {
    assert.is(looks(), 100);
    spin.yield();
  }
});

test('who gets it back late sleeps for a while, and looks again after that', () => {
  const { spin, looks, clock } = spinning(3000, 1);
  spin.yield();
  assert.is(looks(), 0);
  clock.advance(9_999);
  assert.is(looks(), 0);
  clock.advance(1);
  assert.is(looks(), 100);
});

test('who loses it again and again looks ever more rarely, but does', () => {
  const { pause } = spinning(4000);
  const pauses = Array.from({ length: 7 }, pause);
  assert.equal(
    pauses,
    [10, 20, 40, 80, 160, 160, 160].map((millis) => millis * 1000),
  );
});

test('who has lost it once, long ago, has lost nothing', () => {
  const { pause, clock, looks } = spinning(4000);
  pause();
  pause();
  clock.advance(50_000);
  assert.is(looks(), 100);
  assert.is(pause(), 10_000);
});

test('who is not to look does not', () => {
  const clock = new VirtualClock();
  const spin = new Spin(0, clock, () => assert.unreachable());
  assert.is(spin.until(clock.now()), clock.now());
});

test.run();
