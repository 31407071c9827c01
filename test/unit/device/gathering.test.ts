/** When a store waits before its next turn, for whom, and for how long. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Gathering } from '../../../host/device/gathering.js';

const test = suite('device/gathering');
const TOOK = 400;

/** One whose last turn took 400 us, until `at`, with `company` FLUSHes under way. */
function after(company: number, at = TOOK): Gathering {
  const gathering = new Gathering();
  gathering.ended(at - TOOK, at, company);
  return gathering;
}

test('before the first turn nobody is waited for', () => {
  const gathering = new Gathering();
  assert.is(gathering.company, 0);
  assert.is(gathering.micros(1, 0), 0);
});

test('who was just told is waited for until a quarter of a turn after its end, and no longer', () => {
  const gathering = after(32);
  assert.is(gathering.company, 32);
  assert.is(gathering.micros(1, TOOK), 100);
  assert.is(gathering.micros(31, TOOK + 99), 1);
  assert.is(gathering.micros(1, TOOK + 100), 0);
  assert.is(gathering.micros(1, TOOK + 5000), 0, 'the first one came late');
});

test('when as many are there as there were, it begins', () => {
  const gathering = after(32);
  assert.is(gathering.micros(32, TOOK), 0);
  assert.is(gathering.micros(33, TOOK), 0);
});

test('a slower turn is worth a longer wait', () => {
  const gathering = new Gathering();
  gathering.ended(0, 100_000, 2);
  assert.is(gathering.micros(1, 100_000), 25_000);
});

test('those who come back in time are one group', () => {
  const gathering = after(32);
  assert.is(gathering.most, Infinity);
  assert.ok(gathering.micros(1, TOOK) > 0);
  gathering.waited(true);
  assert.is(gathering.most, Infinity);
});

test('those who do not are two groups, until they do', () => {
  const gathering = after(31);
  assert.ok(gathering.micros(16, TOOK) > 0);
  gathering.waited(false);
  assert.is(gathering.most, 16);
  gathering.ended(TOOK, 2 * TOOK, 31);
  assert.is(gathering.micros(15, 2 * TOOK), 0, 'it does not wait again at once');
  assert.is(gathering.most, 16);
  assert.ok(gathering.micros(15, 2 * TOOK) > 0);
  gathering.waited(true);
  assert.is(gathering.most, Infinity);
});

test('so are those of whom the first comes back later; but who comes long after is a newcomer', () => {
  const late = after(32);
  assert.is(late.micros(32, TOOK + 100), 0);
  assert.is(late.most, 16);
  const newcomers = after(32);
  assert.is(newcomers.micros(32, 3 * TOOK), 0);
  assert.is(newcomers.most, Infinity);
});

test('a single one is a group', () => {
  const gathering = after(1);
  assert.is(gathering.micros(1, TOOK + 100), 0);
  assert.is(gathering.most, 1);
});

test('some are on their way and count on, for a while', () => {
  const gathering = after(32);
  gathering.ended(TOOK, 2 * TOOK, 20);
  assert.is(gathering.company, 31);
  for (let turn = 0; turn < 20; turn++) gathering.ended(0, TOOK, 20);
  assert.is(gathering.company, 20);
});

test('who waited in vain does not wait for a while, ever longer', () => {
  const gathering = after(2);
  const pauses = Array.from({ length: 8 }, () => {
    assert.is(gathering.micros(1, TOOK), 100);
    gathering.waited(false);
    let turns = 0;
    while (gathering.micros(1, TOOK) === 0) turns++;
    return turns;
  });
  assert.equal(pauses, [1, 3, 7, 15, 31, 63, 64, 64]);
});

test('who waited for somebody who came forgets what was in vain', () => {
  const gathering = after(2);
  gathering.waited(false);
  gathering.waited(false);
  gathering.waited(true);
  assert.is(gathering.micros(1, TOOK), 100);
  gathering.waited(false);
  assert.is(gathering.micros(1, TOOK), 0);
  assert.is(gathering.micros(1, TOOK), 100);
});

test.run();
