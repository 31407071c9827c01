import * as assert from 'uvu/assert';
import { fuzzAuthentic } from './receive.js';
import { test } from '../support/suite.js';

test('packets of authenticated connections, right, wrong and late, change nothing else', async () => {
  const report = await fuzzAuthentic(30_000, 1);
  assert.ok(report.completions > 500, 'work completes in between');
  const { percent, missing } = report.authenticPath;
  const places = missing.map(({ file, line, kind }) => `${file}:${line} ${kind}`).join('\n');
  assert.ok(percent >= 95, `${percent.toFixed(1)} % of the branches of packet-auth\n${places}`);
});
