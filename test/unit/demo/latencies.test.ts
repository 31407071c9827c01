/** Durations that the demo shows, with and without samples. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Latencies, millis } from '../../../host/demo/latencies.js';
import { Losses, type Lossy } from '../../../host/demo/page/losses.js';
import type { Session } from '../../../host/demo/session.js';

test('a duration without a figure is a dash', () => {
  assert.equal([new Latencies().quantile(0.5), Infinity, 0.123, 1.23, 12.3].map(millis), [
    '–',
    '–',
    '0.12 ms',
    '1.2 ms',
    '12 ms',
  ]);
});

test('messages that a closed channel never returns count for no later figure', async () => {
  const trips: ((millis: number) => void)[] = [];
  const reliable = { trip: () => new Promise<number>((resolve) => trips.push(resolve)) };
  const way = { reliable, impair: async () => 0, leave: async () => {} };
  const session = { over: new Promise(() => {}) } as unknown as Session;
  const losses = new Losses({
    endpoint: { faults: { change: () => {}, counters: { lost: 0 } } },
    yardsticks: { relay: async () => way },
  } as unknown as Lossy);
  await losses.set(session, 3);
  while (trips.length < 2) await new Promise((resolve) => setTimeout(resolve, 10));
  trips[0]!(7);
  await Promise.resolve();
  assert.is(losses.reliable.quantile(1), 7);
  await losses.set(session, 0);
  for (const trip of trips) trip(Infinity);
  await Promise.resolve();
  assert.ok(Number.isNaN(losses.reliable.quantile(1)));
});

test.run();
