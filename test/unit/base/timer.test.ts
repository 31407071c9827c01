/** Delays in the range of the event loop's timers. */
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { TIMER_MILLIS_MAX, checkMillis, timerMillis } from '../../../host/base/timer.js';
import { RealClock } from '../../../host/device/clock.js';
import { DataChannelLink } from '../../../host/link/channel/data-channel.js';
import { WebSocketLink } from '../../../host/link/channel/websocket.js';
import { root } from '../../support/paths.js';

const host = fileURLToPath(new URL('host/', root));

/** The delays passed to `setTimeout` while `work` runs. */
async function delaysOf(work: () => Promise<void>): Promise<number[]> {
  const delays: number[] = [];
  const { setTimeout: real } = globalThis;
  globalThis.setTimeout = ((action: () => void, millis: number) => {
    delays.push(millis);
    return real(action, millis);
  }) as typeof setTimeout;
  try {
    await work();
  } finally {
    globalThis.setTimeout = real;
  }
  return delays;
}

test('a delay is never negative, NaN or beyond 31 bits', () => {
  for (const [given, expected] of [
    [5, 5],
    [0.5, 0.5],
    [0, 0],
    [-1, 0],
    [-Infinity, 0],
    [NaN, 0],
    [TIMER_MILLIS_MAX, TIMER_MILLIS_MAX],
    [TIMER_MILLIS_MAX + 1, TIMER_MILLIS_MAX],
    [Infinity, TIMER_MILLIS_MAX],
  ] as const) {
    assert.is(timerMillis(given), expected, `${given}`);
  }
});

test('an option beyond the range of timers is refused', () => {
  for (const wrong of [-1, NaN, Infinity, TIMER_MILLIS_MAX + 1, '5' as unknown as number]) {
    assert.throws(
      () => checkMillis('each', wrong),
      /^each: must be a number of milliseconds from 0/,
    );
  }
  assert.throws(() => new DataChannelLink({ returnMillis: 2 ** 31 }), /returnMillis/);
  assert.throws(() => new DataChannelLink({ openMillis: 2 ** 40 }), /openMillis/);
  assert.throws(() => new WebSocketLink({ openMillis: 2 ** 31 }), /openMillis/);
});

test('a deadline in the past fires at once, whether the timer may be late or not', async () => {
  const clock = new RealClock();
  for (const mayBeLate of [false, true]) {
    const delays = await delaysOf(
      () => new Promise((resolve) => void clock.at(clock.now() - 50_000, resolve, mayBeLate)),
    );
    assert.ok(
      delays.every((millis) => millis >= 0),
      delays.join(),
    );
  }
});

test('a deadline in a hundred years does not fire early, and costs no turns', async () => {
  const clock = new RealClock();
  const delays = await delaysOf(async () => {
    let hasFired = false;
    const cancel = clock.at(clock.now() + 3.2e15, () => (hasFired = true), true);
    await new Promise((resolve) => setImmediate(resolve));
    cancel();
    assert.not(hasFired);
  });
  assert.equal(delays, [TIMER_MILLIS_MAX]);
});

/** A number, a constant, or an expression of them without a subtraction. */
function isConstant(node: ts.Expression): boolean {
  if (ts.isNumericLiteral(node)) return true;
  if (ts.isIdentifier(node)) return /^[A-Z0-9_]+$/.test(node.text);
  if (ts.isParenthesizedExpression(node)) return isConstant(node.expression);
  if (!ts.isBinaryExpression(node)) return false;
  const { left, right, operatorToken } = node;
  const isMinus = operatorToken.kind === ts.SyntaxKind.MinusToken;
  return !isMinus && isConstant(left) && isConstant(right);
}

/** The delay argument; undefined: the call is no timer, or has no delay. */
function delayOf(call: ts.CallExpression): ts.Expression | undefined {
  const name = call.expression.getText();
  if (/^set(Timeout|Interval)$/.test(name)) return call.arguments[1];
  if (/[Ss]ocket\.setTimeout$/.test(name) || name === 'AbortSignal.timeout') {
    return call.arguments[0];
  }
  const isPromise = name === 'sleep' && /timers\/promises/.test(call.getSourceFile().text);
  return isPromise ? call.arguments[0] : undefined;
}

test('every delay in the host is a constant, or goes through timerMillis', () => {
  let count = 0;
  for (const name of readdirSync(host, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.ts')) continue;
    const text = readFileSync(join(host, name), 'utf8');
    const visit = (node: ts.Node): void => {
      const delay = ts.isCallExpression(node) ? delayOf(node) : undefined;
      if (delay) {
        count++;
        const isRight = isConstant(delay) || /^timerMillis\(/.test(delay.getText());
        assert.ok(isRight, `${name}: a timer of ${delay.getText()}`);
      }
      ts.forEachChild(node, visit);
    };
    visit(ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true));
  }
  assert.ok(count > 60, `${count} timers`);
});

test.run();
