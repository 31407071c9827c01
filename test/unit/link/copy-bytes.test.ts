/** Copies into shared memory: each alignment, lengths around that from which memmove is called. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { copyBytes, copyPieces } from '../../../host/link/copy-bytes.js';
import { loadPosix } from '../../../host/link/posix.js';

const test = suite('unit/link/copy-bytes');
// memmove, where it can be called.
await loadPosix();
const ROOM = 8192;
const LENGTHS = [0, 1, 63, 2047, 2048, 2049, 5000];

function pattern(length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, index) => (index * 37 + 11) & 0xff);
}

test('bytes arrive whole at each alignment, and no other byte changes', () => {
  const shared = new Uint8Array(new SharedArrayBuffer(ROOM));
  for (const length of LENGTHS) {
    for (let shift = 0; shift < 9; shift++) {
      const source = pattern(length + shift).subarray(shift);
      const expected = new Uint8Array(ROOM).fill(0xee);
      expected.set(source, 100 + shift);
      shared.fill(0xee);
      copyBytes(shared, source, 100 + shift);
      assert.ok(Buffer.compare(shared, expected) === 0, `${length} bytes at ${shift}`);
    }
  }
});

test('bytes come out of shared memory into private memory', () => {
  const shared = new Uint8Array(new SharedArrayBuffer(ROOM));
  shared.set(pattern(ROOM));
  for (const length of LENGTHS) {
    const target = new Uint8Array(length + 8);
    copyBytes(target, shared.subarray(3, 3 + length), 5);
    assert.equal(target.subarray(5, 5 + length), pattern(ROOM).slice(3, 3 + length));
    assert.equal([...target.subarray(0, 5), ...target.subarray(5 + length)], Array(8).fill(0));
  }
});

test('source and target may overlap', () => {
  for (const [from, to] of [
    [0, 1],
    [1, 0],
    [0, 4097],
  ] as const) {
    const shared = new Uint8Array(new SharedArrayBuffer(ROOM + 1000));
    shared.set(pattern(shared.length));
    const expected = shared.slice().copyWithin(to, from, from + 5000);
    copyBytes(shared, shared.subarray(from, from + 5000), to);
    assert.ok(Buffer.compare(shared, expected) === 0, `from ${from} to ${to}`);
  }
});

test('a source that does not fit is refused, and nothing is written', () => {
  const target = new Uint8Array(new SharedArrayBuffer(4096));
  for (const [length, at] of [
    [4097, 0],
    [4096, 1],
    [2048, 2049],
    [10, 4090],
  ] as const) {
    assert.throws(() => copyBytes(target, pattern(length), at), RangeError);
    assert.throws(() => copyBytes(target, pattern(2048), -1), RangeError);
  }
  assert.ok(target.every((byte) => byte === 0));
});

test('pieces are copied in order', () => {
  const target = new Uint8Array(4);
  copyPieces([Uint8Array.of(1), new Uint8Array(0), Uint8Array.of(2, 3)], target);
  assert.equal([...target], [1, 2, 3, 0]);
});

test.run();
