import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { sample } from '../support/sample.js';
import { fuzzAuthentic } from './receive.js';

test('packets of authenticated connections, right, wrong and late, change nothing else', async () => {
  const report = await fuzzAuthentic(sample(15_000, 30_000), 1);
  assert.ok(report.completions > sample(250, 500), 'work completes in between');
  const { percent, missing } = report.authenticPath;
  const places = missing.map(({ file, line, kind }) => `${file}:${line} ${kind}`).join('\n');
  assert.ok(percent >= 95, `${percent.toFixed(1)} % of the branches of packet-auth\n${places}`);
});

test.run();
