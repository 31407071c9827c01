/** Threads and memory of devices that are opened and closed again and again. */
import { readFileSync, readdirSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { openDevice } from '../../../../host/index.js';
import { expectRejected } from '../../../support/refusal.js';

const ADDRESS = '127.0.233.9';
const PROGRESS = 'thread';

/** Pages of V8's heap: its young generation grows by 32, then by 64 of them, at any time. */
const HEAP_PAGE_BYTES = 2 ** 18;

/** Mappings of this process but those. */
function mappings(): number {
  const lines = readFileSync('/proc/self/maps', 'utf8').trim().split('\n');
  const isOther = (line: string): boolean => {
    const [range, access, , , inode] = line.split(/\s+/);
    const [start, end] = range!.split('-').map((address) => Number.parseInt(address, 16));
    return end! - start! !== HEAP_PAGE_BYTES || access !== 'rw-p' || inode !== '0';
  };
  return lines.filter(isOther).length;
}

const threads = (): number => readdirSync('/proc/self/task').length;
const residentMiB = (): number => {
  const [, kib] = /VmRSS:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))!;
  return Number(kib) / 1024;
};

async function openAndClose(memoryBytes: number, used: number): Promise<void> {
  const context = await openDevice({ address: ADDRESS, port: 0, progress: PROGRESS, memoryBytes });
  context.alloc(used).fill(1);
  await context.close();
}

/** Memories that V8 has not collected have mappings of their own. */
async function collected(): Promise<number> {
  setFlagsFromString('--expose-gc');
  const collect = (runInNewContext('globalThis') as typeof globalThis).gc!;
  setFlagsFromString('--no-expose-gc');
  for (let turn = 0; turn < 3; turn++) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    collect();
  }
  return mappings();
}

test('100 devices, one after the other, leave neither mappings nor threads', async () => {
  // V8's own heap grows at first.
  for (let count = 0; count < 100; count++) await openAndClose(2 ** 23, 64);
  const [before, running] = [await collected(), threads()];
  for (let count = 0; count < 100; count++) await openAndClose(2 ** 23, 64);
  const after = await collected();
  assert.ok(after - before < 20, `${before} mappings, then ${after}`);
  assert.is(threads(), running);
});

test('memory of closed devices does not add up', async () => {
  await openAndClose(2 ** 28, 150 * 2 ** 20);
  const before = residentMiB();
  for (let count = 0; count < 6; count++) await openAndClose(2 ** 28, 150 * 2 ** 20);
  assert.ok(residentMiB() - before < 450, `${before} MiB, then ${residentMiB()}`);
});

test('memory of closed devices stays as it was while the program holds it', async () => {
  const held: Uint8Array[] = [];
  for (let count = 1; count <= 4; count++) {
    const context = await openDevice({ address: ADDRESS, port: 0, progress: PROGRESS });
    held.push(context.alloc(64).fill(count));
    await context.close();
    await openAndClose(2 ** 28, 150 * 2 ** 20);
  }
  assert.equal(
    held.map((bytes) => bytes.every((byte) => byte === bytes[0])),
    [true, true, true, true],
  );
  assert.equal(
    held.map(([first]) => first),
    [1, 2, 3, 4],
  );
});

test('of devices at the same time one thread is kept, and serves the next device', async () => {
  const options = { address: ADDRESS, port: 0, progress: PROGRESS } as const;
  await openAndClose(2 ** 23, 64);
  const idle = threads();
  const all = await Promise.all([1, 2, 3].map(() => openDevice(options)));
  assert.is(threads(), idle + 2);
  await Promise.all(all.map((context) => context.close()));
  assert.is(threads(), idle);
});

test('a thread whose device could not be opened serves the next one', async () => {
  await using first = await openDevice({ address: ADDRESS, port: 0, progress: PROGRESS });
  const { port } = first.device.info.local;
  const taken = { address: ADDRESS, port, progress: PROGRESS } as const;
  await openAndClose(2 ** 23, 64);
  const before = threads();
  for (let count = 0; count < 3; count++) await expectRejected(openDevice(taken), 'EADDRINUSE');
  await openAndClose(2 ** 23, 64);
  assert.is(threads(), before);
});

test.run();
