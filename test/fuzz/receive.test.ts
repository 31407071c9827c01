import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { fuzzReceive } from './receive.js';

test('100,000 hostile packets neither trap nor touch memory that was not granted', async () => {
  const report = await fuzzReceive(100_000, 1);
  assert.ok(report.reconnects > 100, 'packets get through to what can fail');
  // Every RC opcode is let in by the border; other services stop at the queue pair's type.
  for (const [name, opcode] of Object.entries(Opcode)) {
    if (name.startsWith('RC_')) assert.ok((report.served.get(opcode) ?? 0) > 50, name);
  }
});

test.run();
