/**
 * Memory that moves between heaps when the file system is full, without a budget: on a small tmpfs
 * in a namespace of mounts, which a system may forbid (then this file has no test).
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';
import type { FullStorage } from './full-storage.js';

const test = suite('shared/full-storage');
const NAMESPACE = ['--map-root-user', '--mount', '--propagation', 'private'];
const MIB = 2 ** 20;

async function run(): Promise<FullStorage> {
  const folder = mkdtempSync(join(tmpdir(), 'verbena-full-'));
  const program = fileURLToPath(new URL('build/test/shared/full-storage.js', root));
  try {
    const child = spawn('unshare', [...NAMESPACE, process.execPath, program, folder], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const [output, errors, [code]] = await Promise.all([
      text(child.stdout),
      text(child.stderr),
      once(child, 'close'),
    ]);
    assert.is(code, 0, errors);
    return JSON.parse(output) as FullStorage;
  } finally {
    rmdirSync(folder);
  }
}

if (spawnSync('unshare', [...NAMESPACE, 'true']).status === 0) {
  test('a full file system: heaps pass on what is free, refusals name the remedy', async () => {
    const seen = await run();
    const full = /no room for \d+ bytes at .*: the file system is full; free memory .*ENOSPC/;
    assert.match(seen.refusal, /^heap: no 60000 bytes are free.*it cannot grow beyond/);
    for (const message of [seen.refusal, seen.otherHeap, seen.contextAlloc]) {
      assert.match(message, full);
    }
    assert.match(seen.open, /no room for 4194304 bytes.*use fewer \(memoryBytes\).*ENOSPC/);
    assert.ok(seen.first > 300, JSON.stringify(seen));
    // All but what lies in the same huge or table page as memory in use.
    assert.ok(seen.moved > 150 && seen.moved <= 200, JSON.stringify(seen));
    assert.is(seen.areZero, true);
    assert.is(seen.isIntact, true);
    assert.ok(seen.freeBytes > 24 * MIB, JSON.stringify(seen));
    assert.is(seen.later, 10);
    assert.is(seen.afterKill, 1);
  });
}

test.run();
