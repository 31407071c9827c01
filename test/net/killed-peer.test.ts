/** UDP programs whose peer is killed: they return to UDP soon, and lose few datagrams. */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';
import type { Death, Killed } from './killed-peer.js';
import { missingForNetwork } from './network.js';
import { longOnly } from '../support/sample.js';

const test = suite('net/killed-peer');
const longTest = longOnly(test);
/** The peer's system sends an ICMP message a second; without it a path fails after 5 to 15 s. */
const NOTICED_MILLIS = 3500;
/** The peer is silent for a heartbeat, then the restarted process answers. */
const HEARTBEAT_MILLIS = 3000;

async function run(how: Death, settings: string): Promise<Killed> {
  const folder = mkdtempSync(join(tmpdir(), 'verbena-killed-'));
  const offload = fileURLToPath(new URL('build/host/dgram/offload.js', root));
  const program = fileURLToPath(new URL('build/test/net/killed-peer.js', root));
  const words = ['-n', process.execPath, '--import', offload, program, 'send', how];
  try {
    const child = spawn('unshare', words, {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, XDG_RUNTIME_DIR: folder, VERBENA_DGRAM: settings },
    });
    const code = new Promise((resolve) => child.on('close', resolve));
    const [output, errors] = await Promise.all([text(child.stdout), text(child.stderr)]);
    assert.is(await code, 0, errors);
    return JSON.parse(output) as Killed;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

if (missingForNetwork() === undefined) {
  for (const failover of ['off', 'auto']) {
    test(`failover=${failover}: the rejections of a peer's system end its path`, async () => {
      const killed = await run('gone', `failover=${failover}`);
      const { udpMillis } = killed;
      assert.ok(udpMillis >= 0 && udpMillis < NOTICED_MILLIS, JSON.stringify(killed));
    });
  }

  longTest(
    'a peer that restarts is reached by the pair that answers, not after the others',
    async () => {
      const settings = `heartbeatMillis=${HEARTBEAT_MILLIS}`;
      const killed = await run('restarted', settings);
      const { udpMillis } = killed;
      const limit = HEARTBEAT_MILLIS + NOTICED_MILLIS;
      assert.ok(udpMillis >= 0 && udpMillis < limit, JSON.stringify(killed));
    },
  );

  test('an outbox that leaves by UDP does not overflow the receiver', async () => {
    const settings = 'failover=off,heartbeatMillis=600,outageMillis=3000';
    const killed = await run('plain', settings);
    const { sent, queued, received, awayMillis, isInOrder } = killed;
    const said = JSON.stringify(killed);
    assert.ok(queued > 1500, said);
    // Messages in flight when the path failed are lost: at most 112 to a port. No rate helps a
    // server that does not run: 8 a millisecond leave the outbox, and the program sends 1.
    assert.ok(received >= 0.95 * (sent - 112 - 9 * awayMillis), said);
    assert.ok(isInOrder, said);
  });
} else {
  console.log(`not run: ${missingForNetwork()}`);
}

test.run();
