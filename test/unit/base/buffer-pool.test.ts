/** Memory of messages that wait. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { giveBuffer, takeBuffer } from '../../../host/base/buffer-pool.js';

const LENGTHS = [0, 1, 255, 256, 257, 8192, 65_527];

test('memory has the wanted length, and no two have the same', () => {
  const taken = LENGTHS.flatMap((length) => [takeBuffer(length), takeBuffer(length)]);
  assert.equal(
    taken.map(({ length }) => length),
    LENGTHS.flatMap((length) => [length, length]),
  );
  assert.is(new Set(taken.map(({ buffer }) => buffer)).size, taken.length);
  for (const one of taken) giveBuffer(one);
});

test('memory that came back is used again, once', () => {
  const first = takeBuffer(5000);
  giveBuffer(first);
  const [second, third] = [takeBuffer(7000), takeBuffer(7000)];
  assert.is(second.buffer, first.buffer);
  assert.is(second.length, 7000);
  assert.is.not(third.buffer, first.buffer);
});

test('at most 4 MiB are kept', () => {
  const taken = Array.from({ length: 70 }, () => takeBuffer(65_536));
  for (const one of taken) giveBuffer(one);
  const before = new Set(taken.map(({ buffer }) => buffer));
  const again = taken.map(() => takeBuffer(65_536));
  const found = again.filter(({ buffer }) => before.has(buffer)).length;
  assert.ok(found >= 60 && found <= 64, `${found} of 70`);
});

test.run();
