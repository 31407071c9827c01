/** Long work in slices: the order of turns, and work that is done once. */
import * as assert from 'uvu/assert';
import { Slices, mergeExtents } from '../../../host/nvme/slices.js';
import { test } from '../../support/suite.js';

test('owners take turns, and the event loop has one after each slice', async () => {
  const slices = new Slices();
  const log: string[] = [];
  const [a, b] = [{}, {}];
  let turns = 0;
  let isOver = false;
  const count = (): void => {
    turns++;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  const work = (owner: object, name: string): Promise<void> =>
    slices.run(owner, () => {
      log.push(name);
      return Promise.resolve();
    });
  await Promise.all([
    ...['a1', 'a2', 'a3'].map((name) => work(a, name)),
    ...['b1', 'b2'].map((name) => work(b, name)),
  ]);
  isOver = true;
  assert.equal(log, ['a1', 'b1', 'a2', 'b2', 'a3']);
  assert.ok(turns >= 4, `${turns} turns of the event loop`);
});

test('a slice that fails ends no other', async () => {
  const slices = new Slices();
  const owner = {};
  const failing = slices.run(owner, () => Promise.reject(new Error('no')));
  const throwing = slices.run(owner, () => {
    throw new Error('nor this');
  });
  const other = slices.run(owner, () => Promise.resolve());
  const results = await Promise.allSettled([failing, throwing, other]);
  assert.equal(
    results.map(({ status }) => status),
    ['rejected', 'rejected', 'fulfilled'],
  );
  await slices.run(owner, () => Promise.resolve());
});

test('bytes that are named twice are worked on once', () => {
  assert.equal(mergeExtents([]), []);
  assert.equal(
    mergeExtents([
      [100, 10],
      [0, 50],
      [40, 20],
      [10, 5],
      [110, 1],
      [200, 1],
    ]),
    [
      [0, 60],
      [100, 11],
      [200, 1],
    ],
  );
  assert.equal(mergeExtents(Array.from({ length: 256 }, () => [0, 1000] as const)), [[0, 1000]]);
});
