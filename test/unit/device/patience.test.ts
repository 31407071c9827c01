/** How long a process waits for what another has. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Patience } from '../../../host/device/patience.js';

/** `millis`: what each nap takes, in turn; the last one stays. Returns the naps until it ends. */
function naps(patience: (now: () => number) => Patience, ...millis: number[]): number {
  let now = 0;
  let calls = 0;
  const waiter = patience(() => {
    if (++calls % 2 === 0) now += millis.length > 1 ? millis.shift()! : millis[0]!;
    return now;
  });
  let count = 1;
  while (waiter.nap()) count++;
  return count;
}

const fresh = (now: () => number): Patience => new Patience(now);

test('who waits for another gives up after 20 s', () => {
  assert.is(naps(fresh, 50), 401);
});

test('who is stopped for an hour while it waits goes on waiting', () => {
  assert.is(naps(fresh, 3_600_000, 50), 400, 'the hour counts as 100 ms');
});

test('what came renews it', () => {
  const renewed = (now: () => number): Patience => {
    const patience = new Patience(now);
    for (let nap = 0; nap < 100; nap++) patience.nap();
    patience.renew();
    return patience;
  };
  assert.is(naps(renewed, 100), 201);
});

test.run();
