/** The network goes away under a data channel: another way is found, and queue pairs live on. */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { missingBrowser } from '../support/browser.js';
import type { Seen } from './cut-network.js';

const mayCut = process.getuid?.() === 0 && existsSync('/usr/sbin/nft');
const missing = missingBrowser() ?? (mayCut ? undefined : 'it takes root and nftables');
if (missing) throw new Error(missing);
const test = suite('a network that is cut');

async function cutNetwork(between: 'tabs' | 'node', count = 1): Promise<Seen> {
  const program = fileURLToPath(new URL('./cut-network.js', import.meta.url));
  const child = spawn('unshare', ['-n', process.execPath, program, between, `${count}`], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [output, code] = await Promise.all([
    text(child.stdout),
    new Promise((resolve) => child.on('close', resolve)),
  ]);
  assert.is(code, 0);
  return JSON.parse(output) as Seen;
}

for (const [count, how] of [
  [1, 'restart ICE'],
  [3, 'restart ICE of three connections'],
] as const) {
  test(`two tabs ${how}, and the WRITE that was under way comes to its end`, async () => {
    await restartTabs(count);
  });
}

async function restartTabs(count: number): Promise<void> {
  const { events, connections, differences, seconds, errors } = await cutNetwork('tabs', count);
  assert.is(differences, 0, 'every byte is there');
  for (const told of events) {
    assert.equal(told, ['connected', 'interrupted', 'restored'], JSON.stringify(events));
  }
  const [before, after] = connections;
  assert.is(after, before, 'the same connection, by another way');
  // Of each peer its own, and the one that carries the address.
  assert.ok(before > count, `${before}`);
  assert.ok(seconds < 35, `${seconds} s`);
  assert.equal(errors, []);
}

test('where the other side has no ICE restart a new connection takes the old one’s place', async () => {
  const { events, connections, differences, seconds, errors } = await cutNetwork('node');
  assert.is(differences, 0);
  const [there, here] = events;
  assert.equal(here, ['connected', 'interrupted', 'restored'], JSON.stringify(events));
  assert.not.ok(there!.includes('disconnected'), JSON.stringify(there));
  const [before, after] = connections;
  assert.ok(after > before, 'another connection');
  assert.ok(seconds < 35, `${seconds} s`);
  // The refused restart is on the console, as browsers have it, and nothing else.
  assert.ok(
    errors.every((line) => /400/.test(line)),
    errors.join(),
  );
});

test.run();
