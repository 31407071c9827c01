import * as assert from 'uvu/assert';
import { runSelftest, type SelftestResult } from '../../../host/engine/selftest.js';
import { runSelftestOnSecondHost } from '../../support/second-wasi-host.js';
import { test } from '../../support/suite.js';

/** TAP by its rules: numbered lines, a plan at the end that counts them. */
function assertTap({ stdout, stderr, exitCode }: SelftestResult): void {
  const lines = stdout.trimEnd().split('\n');
  const failures = lines.filter((line) => !line.startsWith('ok '));
  const plan = failures.pop();
  assert.equal(failures, [], stdout);
  const checks = lines.length - 1;
  assert.ok(checks >= 15, `only ${checks} checks`);
  assert.is(plan, `1..${checks}`);
  for (const [index, line] of lines.slice(0, checks).entries()) {
    assert.ok(line.startsWith(`ok ${index + 1} - `), line);
  }
  assert.is(stderr, '');
  assert.is(exitCode, 0);
}

test('the checks of the engine pass under node:wasi', () => {
  assertTap(runSelftest());
});

test('the checks of the engine pass under a WASI made for browsers, with the same output', () => {
  const second = runSelftestOnSecondHost(['check']);
  assertTap(second);
  assert.is(second.stdout, runSelftest(['check']).stdout);
});

for (const [name, run] of [
  ['node:wasi', runSelftest],
  ['the second host', runSelftestOnSecondHost],
] as const) {
  test(`wrong arguments end with exit code 2 and a usage line on ${name}`, () => {
    for (const args of [['nonsense'], ['bench'], ['bench', 'nonsense'], ['check', 'more']]) {
      const { exitCode, stdout, stderr } = run(args);
      assert.is(exitCode, 2, args.join(' '));
      assert.is(stdout, '');
      assert.match(stderr, /^usage: selftest /);
    }
  });
}

test('loading node:wasi emits no warning, and leaves warnings of others alone', () => {
  const warnings: string[] = [];
  const emitWarning = process.emitWarning;
  process.emitWarning = (warning: string | Error): void => void warnings.push(String(warning));
  try {
    runSelftest(['nonsense']);
    process.emitWarning('something else');
  } finally {
    process.emitWarning = emitWarning;
  }
  assert.equal(warnings, ['something else']);
});
