import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { sample } from '../support/sample.js';
import { fuzzPosted } from './posted.js';
import { replayRegressions } from './regressions.js';

test('what was found once is not found again', async () => {
  const replays = await replayRegressions();
  assert.ok(replays.length > 0);
  for (const { what, error } of replays) assert.is(error, undefined, `${what}: ${error}`);
});

test('hostile work neither traps, nor hangs, nor touches memory that was not granted', async () => {
  const report = await fuzzPosted(sample(15_000, 60_000), 4);
  assert.ok(report.executions > 1000);
  const { percent, missing } = report.postedPath;
  const places = missing.map(({ file, line, kind }) => `${file}:${line} ${kind}`).join('\n');
  assert.ok(percent >= 95, `${percent.toFixed(1)} % of the posted path's branches\n${places}`);
});

test.run();
