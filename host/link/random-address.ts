/** A unique local IPv6 address of 120 random bits (RFC 4193). */
import { Gid } from './endpoint.js';

const UNIQUE_LOCAL = 0xfd;

export function randomGid(): Gid {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[0] = UNIQUE_LOCAL;
  return new Gid(bytes);
}
