/** Waits that end by a timeout or an AbortSignal. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { checkLimits, withinLimits } from '../../../host/base/wait-limits.js';
import { expectMisuse, rejection } from '../../support/refusal.js';

const late = (): Error => new Error('late');
const never = new Promise<never>(() => {});

test('the first limit that is reached decides; without limits the promise is returned', async () => {
  const promise = Promise.resolve(5);
  assert.is(withinLimits(promise, {}, late), promise);
  assert.is(await withinLimits(promise, { timeout: 1000 }, late), 5);
  assert.is(
    ((await rejection(withinLimits(never, { timeout: 1 }, late))) as Error).message,
    'late',
  );
  const controller = new AbortController();
  const limits = { timeout: 10_000, signal: controller.signal };
  const waits = withinLimits(never, limits, late);
  controller.abort(new Error('stop'));
  assert.is(((await rejection(waits)) as Error).message, 'stop');
  const failed = Promise.reject(new Error('failed'));
  assert.is(
    ((await rejection(withinLimits(failed, { timeout: 10_000 }, late))) as Error).message,
    'failed',
  );
});

test('a signal that is aborted already ends the wait', async () => {
  const signal = AbortSignal.abort(new Error('before'));
  assert.is(((await rejection(withinLimits(never, { signal }, late))) as Error).message, 'before');
});

test('one signal ends any number of waits, without a warning, and ended waits are forgotten', async () => {
  const warnings: Error[] = [];
  const note = (warning: Error): void => void warnings.push(warning);
  process.on('warning', note);
  const controller = new AbortController();
  const { signal } = controller;
  for (let count = 0; count < 100; count++) {
    await withinLimits(Promise.resolve(count), { signal }, late);
  }
  const waits = Array.from({ length: 100 }, () => rejection(withinLimits(never, { signal }, late)));
  controller.abort(new Error('stop'));
  for (const error of await Promise.all(waits)) assert.is((error as Error).message, 'stop');
  await new Promise((resolve) => setImmediate(resolve));
  process.off('warning', note);
  assert.equal(warnings, []);
});

test('invalid limits are refused by name', () => {
  checkLimits({ timeout: 0, signal: new AbortController().signal });
  for (const timeout of [-1, NaN, Infinity, '5' as never]) {
    expectMisuse(() => checkLimits({ timeout }), 'timeout');
  }
  expectMisuse(() => checkLimits({ signal: {} as AbortSignal }), 'signal');
});

test.run();
