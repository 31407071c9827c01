/** Several test files in one process: each has a result of its own, whatever the others do. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { inBatches, runBatch } from '../support/file-batches.js';
import type { Result } from '../support/judge.js';
import { root } from '../support/paths.js';

const test = suite('unit/file-batches');

const FILES: Readonly<Record<string, string>> = {
  passes: `test('one', () => {}); test('two', () => {}); test.run();`,
  fails: `test('one', () => {}); test('two', () => { throw new Error('wrong'); }); test.run();`,
  forgets: `test('one', () => {});`,
  skips: `test('one', () => {}); test['skip']('two', () => {}); test.run();`,
  leaves: `test('one', () => void setInterval(() => {}, 1000)); test.run();`,
  changes: `test('one', () => void (process.env.ODD = '1')); test.run();`,
  exits: `test('one', () => process.exit(3)); test.run();`,
  throws: `test('one', () => void setTimeout(() => { throw new Error('late'); }, 1)); test.run();`,
  waits: `test('one', () => new Promise(() => {})); test.run();`,
  hangs: `test('one', () => new Promise(() => setInterval(() => {}, 1000))); test.run();`,
  warns: `test('one', () => void setTimeout(() => {}, -1)); test.run();
    process.emitWarning('-1 is a negative number', 'TimeoutNegativeWarning');`,
};

/** Runs these files in this order; what the runner says of each. */
async function run(names: readonly string[], secondsMax = 100): Promise<string[]> {
  const folder = mkdtempSync(fileURLToPath(new URL('build/batch-', root)));
  const results: Result[] = [];
  try {
    const batch = names.map((file) => {
      const program = join(folder, `${file}.mjs`);
      writeFileSync(program, `import { test } from 'uvu'; ${FILES[file]}`);
      return { file, program };
    });
    const env = { ...process.env, FORCE_COLOR: '0', VERBENA_TEST_OPEN_MILLIS: '200' };
    await runBatch(batch, secondsMax, env, (result) => results.push(result));
  } finally {
    rmSync(folder, { recursive: true });
  }
  return results.map(({ file, passed, failed, complaint }) => {
    return `${file}: ${passed} passed, ${failed} failed${complaint ? `, ${complaint}` : ''}`;
  });
}

test('each file is judged by its own tests and its own output', async () => {
  assert.equal(await run(['passes', 'fails', 'forgets', 'skips', 'warns', 'passes']), [
    'passes: 2 passed, 0 failed',
    'fails: 1 passed, 1 failed',
    'forgets: 0 passed, 1 failed, ran no test: is test.run() missing?',
    'skips: 1 passed, 1 failed, skipped 1: a skipped test proves nothing',
    'warns: 1 passed, 1 failed, a timer got a delay beyond its range',
    'passes: 2 passed, 0 failed',
  ]);
});

test('a file that ends the process fails, and those behind it run in another one', async () => {
  assert.equal(await run(['exits', 'passes', 'throws', 'passes', 'waits', 'fails']), [
    'exits: 0 passed, 1 failed, ended with 3 and without a summary',
    'passes: 2 passed, 0 failed',
    'throws: 1 passed, 1 failed, ended with 1',
    'passes: 2 passed, 0 failed',
    'waits: 0 passed, 1 failed, ended with 13 and without a summary',
    'fails: 1 passed, 1 failed',
  ]);
});

test('a file that leaves a handle open fails', async () => {
  assert.equal(await run(['leaves', 'passes', 'changes', 'passes']), [
    'leaves: 1 passed, 1 failed, left open: 1 Timeout',
    'passes: 2 passed, 0 failed',
    'changes: 1 passed, 1 failed, changed process.env or the directory',
    'passes: 2 passed, 0 failed',
  ]);
});

test('a file that does not end in time is ended, and those behind it run', async () => {
  assert.equal(await run(['hangs', 'passes'], 8), [
    'hangs: 0 passed, 1 failed, did not end within 8 s',
    'passes: 2 passed, 0 failed',
  ]);
});

test('each file is in one batch, and long ones are alone', () => {
  const short = Array.from({ length: 30 }, (_, index) => `unit/short-${index}`);
  const others = ['cli/perf', 'fuzz/one', 'fuzz/two', 'shared/files'];
  const batches = inBatches([...short, ...others]);
  assert.equal(batches.flat().sort(), [...short, ...others].sort());
  const sizes = batches.map(({ length }) => length).sort();
  assert.equal(sizes, [1, 1, 15, 15, 2]);
});

test.run();
