/** When a store waits before its next turn, for which FLUSHes, and for how long. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { GroupCommit } from '../../../../host/device/durable/group-commit.js';

const TOOK = 400;

/** One whose last turn took 400 us, until `at`, with `company` FLUSHes under way. */
function after(company: number, at = TOOK): GroupCommit {
  const groupCommit = new GroupCommit();
  groupCommit.ended(at - TOOK, at, company);
  return groupCommit;
}

test('before the first turn a store waits for no FLUSH', () => {
  const groupCommit = new GroupCommit();
  assert.is(groupCommit.company, 0);
  assert.is(groupCommit.micros(1, 0), 0);
});

test('a store waits for answered requesters until a quarter of a turn after its end', () => {
  const groupCommit = after(32);
  assert.is(groupCommit.company, 32);
  assert.is(groupCommit.micros(1, TOOK), 100);
  assert.is(groupCommit.micros(31, TOOK + 99), 1);
  assert.is(groupCommit.micros(1, TOOK + 100), 0);
  assert.is(groupCommit.micros(1, TOOK + 5000), 0, 'the first one came late');
});

test('when as many are there as there were, it begins', () => {
  const groupCommit = after(32);
  assert.is(groupCommit.micros(32, TOOK), 0);
  assert.is(groupCommit.micros(33, TOOK), 0);
});

test('a slower turn is worth a longer wait', () => {
  const groupCommit = new GroupCommit();
  groupCommit.ended(0, 100_000, 2);
  assert.is(groupCommit.micros(1, 100_000), 25_000);
});

test('requesters whose FLUSHes return in time form one group', () => {
  const groupCommit = after(32);
  assert.is(groupCommit.most, Infinity);
  assert.ok(groupCommit.micros(1, TOOK) > 0);
  groupCommit.waited(true);
  assert.is(groupCommit.most, Infinity);
});

test('requesters whose FLUSHes do not return in time form two groups, until they do', () => {
  const groupCommit = after(31);
  assert.ok(groupCommit.micros(16, TOOK) > 0);
  groupCommit.waited(false);
  assert.is(groupCommit.most, 16);
  groupCommit.ended(TOOK, 2 * TOOK, 31);
  assert.is(groupCommit.micros(15, 2 * TOOK), 0, 'it does not wait again at once');
  assert.is(groupCommit.most, 16);
  assert.ok(groupCommit.micros(15, 2 * TOOK) > 0);
  groupCommit.waited(true);
  assert.is(groupCommit.most, Infinity);
});

test('a first FLUSH after the wait makes two groups; one long after is a newcomer', () => {
  const late = after(32);
  assert.is(late.micros(32, TOOK + 100), 0);
  assert.is(late.most, 16);
  const newcomers = after(32);
  assert.is(newcomers.micros(32, 3 * TOOK), 0);
  assert.is(newcomers.most, Infinity);
});

test('a single requester is a group', () => {
  const groupCommit = after(1);
  assert.is(groupCommit.micros(1, TOOK + 100), 0);
  assert.is(groupCommit.most, 1);
});

test('FLUSHes that are under way count on, for a while', () => {
  const groupCommit = after(32);
  groupCommit.ended(TOOK, 2 * TOOK, 20);
  assert.is(groupCommit.company, 31);
  for (let turn = 0; turn < 20; turn++) groupCommit.ended(0, TOOK, 20);
  assert.is(groupCommit.company, 20);
});

test('after a wait in vain a store does not wait for some turns, ever more of them', () => {
  const groupCommit = after(2);
  const pauses = Array.from({ length: 8 }, () => {
    assert.is(groupCommit.micros(1, TOOK), 100);
    groupCommit.waited(false);
    let turns = 0;
    while (groupCommit.micros(1, TOOK) === 0) turns++;
    return turns;
  });
  assert.equal(pauses, [1, 3, 7, 15, 31, 63, 64, 64]);
});

test('a wait that succeeded resets the count of waits in vain', () => {
  const groupCommit = after(2);
  groupCommit.waited(false);
  groupCommit.waited(false);
  groupCommit.waited(true);
  assert.is(groupCommit.micros(1, TOOK), 100);
  groupCommit.waited(false);
  assert.is(groupCommit.micros(1, TOOK), 0);
  assert.is(groupCommit.micros(1, TOOK), 100);
});

test.run();
