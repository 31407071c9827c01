/**
 * The engine's AEAD_CHACHA20_POLY1305 against node:crypto (OpenSSL), over packets of all lengths.
 * The vectors of RFC 8439 are in assembly/selftest/crypto.ts.
 */
import { createCipheriv } from 'node:crypto';
import * as assert from 'uvu/assert';
import { splitmix32 } from '../../../host/link/faults/fault.js';
import { Aead } from '../../support/aead.js';
import { test } from '../../support/suite.js';

const LENGTH_MAX = 4224;
const BTH = 12;
const random = splitmix32(8439);

function randomBytes(length: number): Uint8Array {
  return Uint8Array.from({ length }, () => random());
}

function randomNonce(): bigint {
  return (BigInt(random() >>> 0) << 32n) | BigInt(random() >>> 0);
}

/** By OpenSSL: ciphertext, and tag. */
function reference(key: Uint8Array, nonce: bigint, plain: Uint8Array, secret: Uint8Array) {
  const iv = Buffer.alloc(12);
  iv.writeBigUInt64LE(nonce, 4);
  const cipher = createCipheriv('chacha20-poly1305', key, iv, { authTagLength: 16 });
  cipher.setAAD(plain, { plaintextLength: secret.length });
  const bytes = Buffer.concat([plain, cipher.update(secret), cipher.final()]);
  return { bytes, tag: cipher.getAuthTag() };
}

for (const shared of [false, true]) {
  const aead = new Aead(shared);
  const memory = shared ? 'shared' : 'unshared';

  test(`tags and ciphertexts of all lengths agree with OpenSSL in ${memory} memory`, () => {
    for (let length = BTH; length <= LENGTH_MAX; length += length < 700 ? 1 : 61) {
      const key = randomBytes(32);
      const nonce = randomNonce();
      const data = randomBytes(length);
      for (const plain of [length, BTH]) {
        const wanted = reference(key, nonce, data.subarray(0, plain), data.subarray(plain));
        const got = aead.seal(key, nonce, data, plain);
        assert.is(Buffer.compare(got.bytes, wanted.bytes), 0, `${length}, ${plain}: bytes`);
        assert.is(Buffer.compare(got.tag, wanted.tag), 0, `${length}, ${plain}: tag`);
        const opened = aead.open(key, nonce, wanted.bytes, plain, wanted.tag);
        assert.is(Buffer.compare(opened!, data), 0, `${length}, ${plain}: opened`);
      }
    }
  });
}

const aead = new Aead(false);

test('a tag with any bit changed does not fit, and the bytes stay as they are', () => {
  const key = randomBytes(32);
  const sealed = aead.seal(key, 7n, randomBytes(100), BTH);
  for (let bit = 0; bit < 128; bit++) {
    const tag = Uint8Array.from(sealed.tag);
    tag[bit >> 3]! ^= 1 << (bit & 7);
    assert.is(aead.open(key, 7n, sealed.bytes, BTH, tag), undefined, `bit ${bit}`);
  }
  assert.ok(aead.open(key, 7n, sealed.bytes, BTH, sealed.tag));
});

test('a byte of data, of the key or of the nonce that changes, changes the tag', () => {
  const key = randomBytes(32);
  const data = randomBytes(64);
  const { tag } = aead.seal(key, 7n, data, 64);
  const differs = (...[k, n, d]: [Uint8Array, bigint, Uint8Array]): void => {
    assert.is(aead.open(k, n, d, 64, tag), undefined);
  };
  for (let index = 0; index < 64; index++) {
    const other = Uint8Array.from(data);
    other[index]! ^= 1;
    differs(key, 7n, other);
  }
  for (let index = 0; index < 32; index++) {
    const other = Uint8Array.from(key);
    other[index]! ^= 1;
    differs(other, 7n, data);
  }
  for (let bit = 0n; bit < 64n; bit++) differs(key, 7n ^ (1n << bit), data);
});
