/** The brush, and the rows that a stroke changes. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { ERASER, TouchedRows, byteOf, paintLine } from '../../../host/demo/brush.js';
import { decodePrivateData, encodePrivateData } from '../../../host/demo/private-data.js';
import { Latencies } from '../../../host/demo/latencies.js';
import {
  COLUMN_BYTES,
  PICTURE_BYTES,
  SIDE,
  ENDPOINT_BYTES,
  columnOf,
} from '../../../host/demo/memory-layout.js';

test('the written columns are those painted, and few others', () => {
  const ours = new Uint8Array(PICTURE_BYTES);
  const theirs = new Uint8Array(PICTURE_BYTES);
  const touched = new TouchedRows();
  // Beyond the edges as well.
  for (const line of [
    [-5, -5, 40, 60],
    [250, 120, 300, 300],
    [0, 255, 255, 255],
  ] as const) {
    paintLine(ours, touched, line, 5);
  }
  let bytes = 0;
  for (let rows = touched.take(10); rows.length > 0; rows = touched.take(10)) {
    assert.ok(rows.length <= 10);
    for (const { at, length } of rows) {
      assert.is(Math.floor(at / SIDE), Math.floor((at + length - 1) / SIDE), 'within a row');
      theirs.set(ours.subarray(at, at + length), at);
      bytes += length;
    }
  }
  assert.ok(touched.isEmpty);
  assert.equal(theirs, ours);
  assert.ok(ours.some((byte) => byte === byteOf(5, 1)));
  assert.ok(bytes < PICTURE_BYTES / 4, `${bytes} bytes`);
});

test('a colour gets no darker, covers other colours, and is erased', () => {
  const picture = new Uint8Array(PICTURE_BYTES);
  const touched = new TouchedRows();
  const middle = 100 * SIDE + 100;
  paintLine(picture, touched, [100, 100, 100, 100], 2);
  paintLine(picture, touched, [104, 100, 104, 100], 2);
  assert.is(picture[middle], byteOf(2, 1));
  paintLine(picture, touched, [106, 100, 106, 100], 4);
  assert.is(picture[middle], byteOf(2, 1), 'the soft edge of another colour');
  paintLine(picture, touched, [100, 100, 100, 100], 4);
  assert.is(picture[middle], byteOf(4, 1));
  paintLine(picture, touched, [100, 100, 100, 100], ERASER);
  assert.is(picture[middle], 0);
});

test('a message of an unknown sender is processed only in the right format', () => {
  const told = {
    role: 2,
    kind: 'node',
    rkey: 0x12345678,
    addr: 1n << 40n,
    columnsKey: 0x9abcdef0,
  } as const;
  assert.equal(decodePrivateData(encodePrivateData(told)), told);
  assert.is(decodePrivateData(new Uint8Array(19)), undefined);
  assert.is(decodePrivateData(new Uint8Array(20).fill(9)), undefined);
});

test('a column is every sixteenth element of the picture', () => {
  const memory = Uint8Array.from({ length: ENDPOINT_BYTES }, (_, at) => at >> 3);
  const elements = Array.from({ length: 512 }, (_, row) => (row * 16 + 5) & 0xff);
  const bytes = columnOf(memory, 5);
  assert.is(bytes.length, COLUMN_BYTES);
  assert.ok(bytes.every((byte, at) => byte === elements[at >> 3]));
});

test('quantiles are of the newest', () => {
  const delays = new Latencies();
  assert.ok(Number.isNaN(delays.quantile(0.5)));
  for (let index = 0; index < 1000; index++) delays.add(index < 500 ? 1e6 : index % 100);
  assert.is(delays.quantile(0), 0);
  assert.ok(delays.quantile(0.99) < 100);
});

test.run();
