/** The header of a persistent region, whole, torn and foreign. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { RefusalError } from '../../../host/errors/errors.js';
import {
  DATA_OFFSET,
  HEADER_BYTES,
  decodeHeader,
  encodeHeader,
} from '../../../host/pmem/header.js';

const FIRST = {
  version: 2,
  generation: 0,
  id: 0x1122334455667788n,
  dataOffset: DATA_OFFSET,
  length: 8192,
};
const SECOND = { ...FIRST, generation: 1, length: 16384 };
const WHOLE = DATA_OFFSET + SECOND.length;

function beginning(...headers: (typeof FIRST)[]): Uint8Array {
  const bytes = new Uint8Array(HEADER_BYTES);
  for (const header of headers) {
    const copy = encodeHeader(header);
    bytes.set(copy.bytes, copy.offset);
  }
  return bytes;
}

function refused(bytes: Uint8Array, fileBytes = WHOLE): string {
  try {
    decodeHeader(bytes, fileBytes, 'x.pmem');
  } catch (error) {
    assert.instance(error, RefusalError);
    return (error as RefusalError).code;
  }
  return 'none';
}

test('a written header is read back, and of two copies the newer one', () => {
  assert.equal(decodeHeader(beginning(FIRST), WHOLE, 'x'), FIRST);
  assert.equal(decodeHeader(beginning(FIRST, SECOND), WHOLE, 'x'), SECOND);
  assert.equal(
    decodeHeader(beginning(SECOND, { ...FIRST, generation: 2 }), WHOLE, 'x').length,
    8192,
  );
});

test('a copy that was torn while it was written does not count', () => {
  const { bytes, offset } = encodeHeader(SECOND);
  for (let written = 0; written < bytes.length; written++) {
    const torn = beginning(FIRST);
    torn.set(bytes.subarray(0, written), offset);
    assert.equal(decodeHeader(torn, WHOLE, 'x'), FIRST, `${written} bytes`);
  }
});

test('a foreign file, another version, damage and truncation have different errors', () => {
  assert.is(refused(new Uint8Array(HEADER_BYTES).fill(1)), 'EINVAL');
  assert.is(refused(new Uint8Array(7)), 'EINVAL');
  const newer = encodeHeader({ ...FIRST, version: 3 }).bytes;
  assert.is(refused(newer), 'EPROTO');
  const damaged = beginning(FIRST);
  damaged[20]! ^= 1;
  assert.is(refused(damaged), 'EIO');
  assert.is(refused(beginning(FIRST), DATA_OFFSET + FIRST.length - 1), 'EIO');
  assert.is(refused(beginning({ ...FIRST, length: 0 })), 'EIO');
  assert.is(refused(beginning({ ...FIRST, dataOffset: 4096 })), 'EIO');
});

test('a flipped bit anywhere is noticed', () => {
  for (let bit = 0; bit < 48 * 8; bit++) {
    const bytes = beginning(FIRST);
    bytes[bit >> 3]! ^= 1 << (bit & 7);
    assert.ok(refused(bytes) !== 'none', `bit ${bit}`);
  }
});

test.run();
