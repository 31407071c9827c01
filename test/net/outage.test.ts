/** A file arrives although the network is down for longer than the retries of a connection last. */
import { setTimeout as sleep } from 'node:timers/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { missingForNetwork } from './network.js';
import { putFile } from './put-file.js';

const test = suite('net/outage');
const BYTES = 6_000_000;
/** A connection ends after 4.3 s without an answer. */
const OUTAGE_MILLIS = 6000;

if (missingForNetwork() === undefined) {
  test('put reconnects after an outage of the network, and sends the rest', () =>
    putFile(
      BYTES,
      ['--json'],
      async (network) => {
        network.cut(true);
        await sleep(OUTAGE_MILLIS);
        network.cut(false);
      },
      ({ ended: { code, stdout, stderr }, isWhole }) => {
        assert.is(code, 0, stderr);
        const { reconnects } = JSON.parse(stdout) as { reconnects: number };
        assert.ok(reconnects >= 1, stderr);
        assert.ok(isWhole());
      },
    ));
} else {
  console.log(`not run: ${missingForNetwork()}`);
}

test.run();
