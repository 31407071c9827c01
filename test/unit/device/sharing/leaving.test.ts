/** Programs that end with a device open. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import * as assert from 'uvu/assert';
import { test } from '../../../support/suite.js';

const leaver = fileURLToPath(new URL('../../../support/leaver.js', import.meta.url));

for (const [way, code, what] of [
  ['exit', 3, 'process.exit()'],
  ['throw', 1, 'an uncaught error'],
  ['reject', 1, 'an unhandled rejection'],
  ['terminate', 4, 'the end of its worker'],
] as const) {
  test(`a program whose device is open does not wait for the thread’s sleep to end: ${what}`, () => {
    const { status, stderr, signal } = spawnSync(process.execPath, [leaver, way], {
      timeout: 20_000,
      killSignal: 'SIGKILL',
      encoding: 'utf8',
    });
    assert.is(signal, null, 'it ends by itself');
    assert.is(status, code);
    if (code === 1) assert.match(stderr, /this is the end/);
    else assert.is(stderr, '');
  });
}
