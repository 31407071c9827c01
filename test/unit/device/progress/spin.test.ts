/** When a thread polls for work before it sleeps. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { VirtualClock } from '../../../../host/index.js';
import { Spin } from '../../../../host/device/progress/spin.js';

/** `away`: how long each yield takes, in turn; the last one stays. */
function spinning(...away: number[]) {
  const clock = new VirtualClock();
  const spin = new Spin(100, clock, () => {
    clock.advance(away.length > 1 ? away.shift()! : away[0]!);
  });
  const looks = (): number => spin.until(clock.now()) - clock.now();
  /** Polls and yields while polling is worth it; returns the pause that follows. */
  const pause = (): number => {
    while (looks() > 0) spin.yield();
    let micros = 0;
    for (; looks() === 0; micros += 1000) clock.advance(1000);
    return micros;
  };
  return { clock, spin, looks, pause };
}

test('a thread that gets the processor back soon goes on polling', () => {
  const { spin, looks } = spinning(1, 60, 499);
  for (let look = 0; look < 1000; look++) {
    assert.is(looks(), 100);
    spin.yield();
  }
});

test('a thread that gets the processor back late sleeps for a while, then polls again', () => {
  const { spin, looks, clock } = spinning(1000, 1);
  spin.yield();
  assert.is(looks(), 0);
  clock.advance(999);
  assert.is(looks(), 0);
  clock.advance(1);
  assert.is(looks(), 100);
});

test('a thread that loses the processor repeatedly polls ever more rarely, but does', () => {
  const { pause } = spinning(4000);
  const pauses = Array.from({ length: 10 }, pause);
  assert.equal(
    pauses,
    [4, 8, 16, 32, 64, 128, 256, 512, 640, 640].map((millis) => millis * 1000),
  );
});

test('a loss of the processor is forgotten after a while', () => {
  const { pause, clock, looks } = spinning(4000);
  pause();
  pause();
  clock.advance(100_000);
  assert.is(looks(), 100);
  assert.is(pause(), 4_000);
});

test('a thread that expects work at once keeps the processor, and polls in a pause too', () => {
  const clock = new VirtualClock();
  let yields = 0;
  const away = (): void => {
    yields++;
    clock.advance(4000);
  };
  const spin = new Spin(100, clock, away, 20);
  assert.is(spin.until(clock.now()), clock.now() + 100);
  clock.advance(19);
  spin.yield();
  assert.is(yields, 0);
  clock.advance(1);
  spin.yield();
  assert.is(yields, 1);
  assert.is(spin.until(clock.now()), clock.now() + 20);
  assert.is(new Spin(5, clock, away, 20).until(clock.now()), clock.now() + 5);
});

test('with two processors polling hinders threads that work; with three it does not', () => {
  const clock = new VirtualClock();
  const looks = (processors: number, othersWork: boolean): number =>
    new Spin(100, clock, () => assert.unreachable(), 20, processors).until(0, othersWork);
  assert.equal(
    [1, 2, 3].map((processors) => looks(processors, true)),
    [0, 0, 100],
  );
  assert.is(looks(2, false), 100);
  assert.is(new Spin(100, clock, () => assert.unreachable()).until(0, true), 100);
});

test('a thread whose waits are long sleeps at once, until most are short', () => {
  const looks = (...waits: readonly number[]): boolean => {
    const spin = new Spin(100, new VirtualClock(), () => assert.unreachable());
    for (const micros of waits) spin.waited(micros);
    return spin.until(0) > 0;
  };
  assert.ok(looks(300, 300, 300));
  assert.not(looks(301));
  assert.ok(looks(301, 99));
  // A question, and its answer.
  assert.not(looks(1000, 50, 1000, 50));
  assert.not(looks(1000, 1000, 1000, 50, 50));
  assert.ok(looks(1000, 1000, 1000, 50, 50, 50));
});

test('a thread with a poll time of 0 never polls', () => {
  const clock = new VirtualClock();
  const spin = new Spin(0, clock, () => assert.unreachable());
  assert.is(spin.until(clock.now()), clock.now());
});

test.run();
