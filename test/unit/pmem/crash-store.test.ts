/** The model of a power cut: what may be lost, and what never is. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { CrashStore } from '../../../host/pmem/crash-store.js';
import { Random } from '../../simulation/random.js';

const LINE = 64;

function storeOf(memory: Uint8Array, seed: number, more = {}): CrashStore {
  const random = new Random(seed);
  return new CrashStore(memory, { random: () => random.u32() / 2 ** 32, ...more });
}

test('flushed bytes survive every cut', async () => {
  for (let seed = 1; seed < 50; seed++) {
    const memory = new Uint8Array(8 * LINE);
    const store = storeOf(memory, seed);
    memory.fill(1, 100, 300);
    await store.flush([{ offset: 100, length: 200 }]);
    memory.fill(2, 300);
    const found = store.cut();
    assert.ok(found.subarray(100, 300).every((byte) => byte === 1));
  }
});

test('unflushed bytes are lost in the memory of a Buffer as well', () => {
  const memory = Buffer.alloc(LINE);
  const store = storeOf(memory, 3);
  memory.fill(9);
  const cuts = Array.from({ length: 20 }, () => store.cut()[0]);
  assert.equal([...new Set(cuts)].sort(), [0, 9]);
});

test('unflushed bytes are lost in every subset of their lines, and a line as a whole', () => {
  const memory = new Uint8Array(3 * LINE);
  const seen = new Set<string>();
  const store = storeOf(memory, 7);
  memory.fill(9);
  for (let cut = 0; cut < 200; cut++) {
    const found = store.cut();
    const lines = [0, 1, 2].map((line) => found.subarray(line * LINE, (line + 1) * LINE));
    for (const line of lines) assert.ok(line.every((byte) => byte === line[0]));
    seen.add(lines.map((line) => line[0]).join());
  }
  assert.is(seen.size, 8);
});

test('by words, an aligned word is old or new', () => {
  const memory = new Uint8Array(LINE);
  const store = storeOf(memory, 3, { granularity: 8 });
  new BigUint64Array(memory.buffer).fill(0x0102030405060708n);
  const found = new BigUint64Array(store.cut().buffer);
  assert.ok(found.every((word) => word === 0n || word === 0x0102030405060708n));
  assert.ok(new Set(found).size === 2);
});

test('a flush that has not ended protects nothing, and one that ends what it began with', async () => {
  const memory = new Uint8Array(LINE);
  const store = storeOf(memory, 1, { isManual: true });
  memory.fill(1);
  const flushed = store.flush([{ offset: 0, length: LINE }]);
  const lost = Array.from({ length: 40 }, () => store.cut()[0]);
  assert.ok(lost.includes(0));
  memory.fill(2);
  store.complete();
  await flushed;
  const kept = Array.from({ length: 40 }, () => store.cut()[0]);
  assert.not.ok(kept.includes(0));
});

test('bytes written back early stay, though they were overwritten', () => {
  const memory = new Uint8Array(2 * LINE);
  const store = storeOf(memory, 5);
  memory.fill(1);
  store.evict(1);
  memory.fill(2);
  const found = Array.from({ length: 40 }, () => store.cut()[0]);
  assert.equal([...new Set(found)].sort(), [1, 2]);
});

test('a medium that failed flushes nothing any more', async () => {
  const memory = new Uint8Array(LINE);
  const store = storeOf(memory, 1, { isManual: true });
  const flushed = store.flush([{ offset: 0, length: 1 }]);
  store.fail(new Error('EIO'));
  const ends = await Promise.allSettled([flushed, store.flush([{ offset: 0, length: 1 }])]);
  assert.equal(
    ends.map((end) => end.status),
    ['rejected', 'rejected'],
  );
});

test.run();
