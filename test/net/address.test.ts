/** A file arrives although its sender gets another address meanwhile. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { cliPath, noise } from '../support/processes.js';
import { Network, addressOf, missingForNetwork } from './network.js';

const test = suite('net/address');
/** The file takes 2 s. */
const LINK = { rate: 20, queue: 100, rtt: 1 };
const BYTES = 4_000_000;

if (missingForNetwork() === undefined) {
  for (const [what, bound] of [
    ['goes on from another address of this machine, and says so', false],
    ['stays at the address of --bind, and gives up', true],
  ] as const) {
    test(`put ${what}`, async () => {
      const folder = mkdtempSync(join(tmpdir(), 'verbena-address-'));
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
        const place = bound ? ['--bind', addressOf(1), '--outage', '5'] : [];
        const client = network.start(1, process.execPath, [
          ...[cliPath, 'put', source, addressOf(2), '--piece-bytes', '64k', ...place],
        ]);
        await network.untilCarried(BYTES / 4, client.ended);
        const address = network.changeAddress(1);
        const { code, stderr } = await client.ended;
        server.kill();
        assert.is(code, bound ? 1 : 0, stderr);
        const isNoted = stderr.includes(`going on from ${address}`);
        assert.is(isNoted, !bound, stderr);
        if (bound) return;
        assert.is(Buffer.compare(readFileSync(join(directory, 'file')), bytes), 0);
      } finally {
        await network.close();
        rmSync(folder, { recursive: true });
      }
    });
  }
} else {
  console.log(`not run: ${missingForNetwork()}`);
}

test.run();
