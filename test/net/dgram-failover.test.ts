/** UDP programs whose interface fails: their datagrams go over another one, in order and once. */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';
import { sample } from '../support/sample.js';
import { missingForNetwork } from './network.js';
import type { Failure, Ways } from './two-ways.js';

const test = suite('net/dgram-failover');

const FAILURES = [
  ['silent', 'carries no more packets'],
  ['down', 'goes down'],
  ['address', 'loses its address'],
] as const;

async function run(how: Failure): Promise<Ways> {
  const folder = mkdtempSync(join(tmpdir(), 'verbena-ways-'));
  const offload = fileURLToPath(new URL('build/host/dgram/offload.js', root));
  const program = fileURLToPath(new URL('build/test/net/two-ways.js', root));
  const words = ['-n', process.execPath, '--import', offload, program, 'send', how];
  try {
    const child = spawn('unshare', words, {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, XDG_RUNTIME_DIR: folder, VERBENA_DGRAM: 'heartbeatMillis=600' },
    });
    const code = new Promise((resolve) => child.on('close', resolve));
    const [output, errors] = await Promise.all([text(child.stdout), text(child.stderr)]);
    assert.is(await code, 0, errors);
    return JSON.parse(output) as Ways;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The pair of addresses that `rds-info` shows, and the number of pairs. */
function routeOf(connections: string): string {
  return connections.split('\n')[1]!.trim().split(/\s+/).slice(-3).join(' ');
}

if (missingForNetwork() === undefined) {
  for (const [how, what] of FAILURES.slice(0, sample(1, FAILURES.length))) {
    test(`the interface ${what}: datagrams go over the other one, once and in order`, async () => {
      const ways = await run(how);
      const { sent, received, firstWrong, answers, asked, before, after } = ways;
      const said = JSON.stringify(ways);
      assert.equal([received, firstWrong, answers], [sent, -1, asked], said);
      // The programs see the addresses that they bound.
      assert.equal([ways.sources, ways.answerSources], [['10.77.0.1'], ['10.77.0.2']]);
      assert.is(ways.byUdpAfterFailure, 0, said);
      assert.is(routeOf(before), '10.77.0.1 10.77.0.2 4', said);
      assert.is(routeOf(after), '10.77.1.1 10.77.1.2 4', said);
    });
  }
} else {
  console.log(`not run: ${missingForNetwork()}`);
}

test.run();
