/** A file arrives although the network is down for longer than the retries of a connection last. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { cliPath, noise } from '../support/processes.js';
import { Network, addressOf, missingForNetwork } from './network.js';

const test = suite('net/outage');
/** The file takes 3 s. A connection ends after 4.3 s without an answer. */
const LINK = { rate: 20, queue: 100, rtt: 1 };
const BYTES = 6_000_000;
const OUTAGE_MILLIS = 6000;

if (missingForNetwork() === undefined) {
  test('put reconnects after an outage of the network, and sends the rest', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'verbena-outage-'));
    const network = await Network.open(2);
    try {
      network.set(LINK);
      const directory = join(folder, 'received');
      mkdirSync(directory);
      const source = join(folder, 'file');
      const bytes = noise(BYTES);
      writeFileSync(source, bytes);
      const words = ['serve', '--dir', directory, '--bind', addressOf(2), '--no-token'];
      const server = network.start(2, process.execPath, [cliPath, ...words]);
      await server.printed('stdout', /\S/);
      const client = network.start(1, process.execPath, [
        ...[cliPath, 'put', source, addressOf(2), '--piece-bytes', '64k', '--json'],
      ]);
      await network.untilCarried(BYTES / 4, client.ended);
      network.cut(true);
      await sleep(OUTAGE_MILLIS);
      network.cut(false);
      const { code, stdout, stderr } = await client.ended;
      server.kill();
      assert.is(code, 0, stderr);
      const { reconnects } = JSON.parse(stdout) as { reconnects: number };
      assert.ok(reconnects >= 1, stderr);
      assert.is(Buffer.compare(readFileSync(join(directory, 'file')), bytes), 0);
    } finally {
      await network.close();
      rmSync(folder, { recursive: true });
    }
  });
} else {
  console.log(`not run: ${missingForNetwork()}`);
}

test.run();
