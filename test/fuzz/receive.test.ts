import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Opcode, OpcodeName } from '#build/abi.js';
import { sample } from '../support/sample.js';
import { fuzzReceive } from './receive.js';

test('hostile packets neither trap nor touch memory that was not granted', async () => {
  const report = await fuzzReceive(sample(15_000, 60_000), 1);
  assert.ok(report.completions > 1000, 'work completes in between');
  for (const opcode of Object.values(Opcode)) {
    assert.ok(report.opcodes.has(opcode), `${OpcodeName[opcode]} never got past the border`);
  }
  const { percent, missing } = report.receivePath;
  const places = missing.map(({ file, line, kind }) => `${file}:${line} ${kind}`).join('\n');
  assert.ok(percent >= 95, `${percent.toFixed(1)} % of the receive path's branches\n${places}`);
});

test.run();
