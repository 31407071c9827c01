/** HMAC, HKDF and comparison for authenticated connections: those of node:crypto (OpenSSL). */
import { createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';

/** HMAC-SHA-256 over the parts, one after the other. 32 bytes. */
export function hmac(key: Uint8Array, ...parts: readonly Uint8Array[]): Uint8Array {
  const computed = createHmac('sha256', key);
  for (const part of parts) computed.update(part);
  return computed.digest();
}

/** HKDF-SHA-256 (RFC 5869). */
export function hkdf(
  secret: Uint8Array,
  salt: Uint8Array,
  info: Uint8Array,
  length: number,
): Uint8Array {
  return new Uint8Array(hkdfSync('sha256', secret, salt, info, length));
}

/** In constant time; false for different lengths. */
export function isEqual(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && timingSafeEqual(one, other);
}
