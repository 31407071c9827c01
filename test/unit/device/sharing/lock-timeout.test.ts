/** The timeout of a wait for a lock that another process holds. */
import * as assert from 'uvu/assert';
import { LockTimeout } from '../../../../host/device/sharing/lock-timeout.js';
import { test } from '../../../support/suite.js';

/** `millis`: duration of each nap; the last one repeats. Returns the naps until the timeout. */
function naps(timeout: (now: () => number) => LockTimeout, ...millis: number[]): number {
  let now = 0;
  let calls = 0;
  const waiter = timeout(() => {
    if (++calls % 2 === 0) now += millis.length > 1 ? millis.shift()! : millis[0]!;
    return now;
  });
  let count = 1;
  while (waiter.nap()) count++;
  return count;
}

const fresh = (now: () => number): LockTimeout => new LockTimeout(undefined, now);

test('a wait for another process ends after 5 s', () => {
  assert.is(naps(fresh, 50), 101);
});

test('a process that is stopped for an hour while it waits continues to wait', () => {
  assert.is(naps(fresh, 3_600_000, 50), 100, 'the hour counts as 100 ms');
});

test('after a wait has ended the next one has the full timeout', () => {
  const renewed = (now: () => number): LockTimeout => {
    const timeout = new LockTimeout(undefined, now);
    for (let nap = 0; nap < 50; nap++) timeout.nap();
    timeout.renew();
    return timeout;
  };
  assert.is(naps(renewed, 50), 101);
});
