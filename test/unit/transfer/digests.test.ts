/** CRC-32 and SHA-256 of a page, beside those of Node. */
import { createHash } from 'node:crypto';
import { crc32 as nodeCrc32 } from 'node:zlib';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { hexOf } from '../../../host/transfer/bytes.js';
import { crc32 } from '../../../host/transfer/crc32.browser.js';
import { Sha256 } from '../../../host/transfer/sha256.browser.js';
import { noise } from '../../support/processes.js';
import { sample } from '../../support/sample.js';

const content = noise(70_000);

test('CRC-32 of each length and alignment, and of a text, is that of zlib', () => {
  for (let length = 0; length < 40; length++) {
    const bytes = content.subarray(length, 2 * length);
    assert.is(crc32(bytes), nodeCrc32(bytes), `${length} bytes`);
  }
  assert.is(crc32(content), nodeCrc32(content));
  assert.is(crc32('größer 1'), nodeCrc32('größer 1'));
});

test('SHA-256 of each length around a block, in one piece or in many, is that of OpenSSL', () => {
  const digestOf = (bytes: Uint8Array, step: number): string => {
    const hash = new Sha256();
    for (let at = 0; at < bytes.length; at += step) hash.update(bytes.subarray(at, at + step));
    return hexOf(hash.digest());
  };
  for (const length of [0, 1, 54, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 129, 70_000]) {
    const bytes = content.subarray(0, length);
    const expected = createHash('sha256').update(bytes).digest('hex');
    for (const step of [1, 63, 64, 1000, 70_000]) {
      assert.is(digestOf(bytes, step), expected, `${length} bytes by ${step}`);
    }
  }
});

test('SHA-256 of many MiB is that of OpenSSL', () => {
  const mebibytes = sample(8, 513);
  const zeros = new Uint8Array(2 ** 20);
  const hash = new Sha256();
  const expected = createHash('sha256');
  // The length of 513 MiB is 4.3 * 10^9 bits: it does not fit into 32.
  for (let index = 0; index < mebibytes; index++) {
    hash.update(zeros);
    expected.update(zeros);
  }
  assert.is(hexOf(hash.digest()), expected.digest('hex'));
});

test.run();
