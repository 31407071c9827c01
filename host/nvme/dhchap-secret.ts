/**
 * Secrets of DH-HMAC-CHAP in the representation that nvme-cli and nvmetcli use (Base 2.1 section
 * 8.3.5.5.7): `DHHC-1:hh:base64(key | CRC-32 of the key):`. `hh` selects the transform: 00 none,
 * 01 SHA-256, 02 SHA-384, 03 SHA-512.
 */
import { mustBe } from '../errors/check-whole.js';
import { createHmac } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { MisuseError } from '../errors/errors.js';
import { randomOf } from './dhchap-random.js';

/** Hash functions of DH-HMAC-CHAP. */
export type DhchapHash = 'sha256' | 'sha384' | 'sha512';

/** By identifier (Base 2.1 section 8.3.5.5.2), with the bytes of a digest. */
export const DHCHAP_HASHES: ReadonlyMap<number, { name: DhchapHash; bytes: number }> = new Map([
  [1, { name: 'sha256', bytes: 32 }],
  [2, { name: 'sha384', bytes: 48 }],
  [3, { name: 'sha512', bytes: 64 }],
]);
const KEY_BYTES: readonly number[] = [32, 48, 64];
const CRC_BYTES = 4;
const FORM = /^DHHC-1:(0[0-3]):([A-Za-z0-9+/]+={0,2}):$/;
/** Text that the transform appends to the name (Base 2.1 section 8.3.5.5.7). */
const TRANSFORM_LABEL = 'NVMe-over-Fabrics';

/** A secret whose representation was checked. */
export interface DhchapSecret {
  /** 0: the key is used as it is; 1 to 3: an identifier of DHCHAP_HASHES. */
  readonly transform: number;
  readonly key: Uint8Array;
}

/** Throws MisuseError, which names `argument` and never the secret. */
export function parseDhchapSecret(text: string, argument: string): DhchapSecret {
  const refuse = (rule: string): never => {
    throw new MisuseError(argument, `${rule}; "nvme gen-dhchap-key" makes a valid secret`);
  };
  const [, transform, base64] = FORM.exec(typeof text === 'string' ? text.trim() : '') ?? [];
  if (transform === undefined || base64 === undefined) {
    return refuse('must have the form DHHC-1:hh:base64: with hh from 00 to 03');
  }
  const bytes = Buffer.from(base64, 'base64');
  const key = bytes.subarray(0, -CRC_BYTES);
  if (bytes.toString('base64') !== base64 || !KEY_BYTES.includes(key.length)) {
    return refuse('must contain a key of 32, 48 or 64 bytes and 4 bytes of CRC-32 in base64');
  }
  if (bytes.readUInt32LE(key.length) !== crc32(key)) {
    return refuse('has a wrong CRC-32: at least one character differs from the original');
  }
  return { transform: Number(transform), key: new Uint8Array(key) };
}

/** The representation of a key of 32, 48 or 64 bytes. */
export function formatDhchapSecret({ transform, key }: DhchapSecret): string {
  const crc = Buffer.alloc(CRC_BYTES);
  crc.writeUInt32LE(crc32(key));
  return `DHHC-1:0${transform}:${Buffer.concat([key, crc]).toString('base64')}:`;
}

/**
 * A new random secret, as `nvme gen-dhchap-key` makes it: 32 bytes for no transform ('none') and
 * SHA-256, 48 for SHA-384, 64 for SHA-512.
 */
export function makeDhchapSecret(transform: DhchapHash | 'none' = 'sha256'): string {
  for (const [id, { name, bytes }] of DHCHAP_HASHES) {
    if (name === transform) return formatDhchapSecret({ transform: id, key: randomOf(bytes) });
  }
  if (transform === 'none') return formatDhchapSecret({ transform: 0, key: randomOf(32) });
  throw mustBe('transform', 'one of none, sha256, sha384 or sha512', transform);
}

/** The key of responses: bound to the name of the host or subsystem that has the secret. */
export function transformedKey({ transform, key }: DhchapSecret, nqn: string): Uint8Array {
  const hash = DHCHAP_HASHES.get(transform);
  if (!hash) return key;
  return createHmac(hash.name, key).update(nqn).update(TRANSFORM_LABEL).digest();
}
