/**
 * Identifiers of a subsystem, derived from its name: the same after a restart, and different for
 * another name. No chance is in it, so that a host that reconnects finds what it knew.
 */

const FNV_OFFSET = 0x6c62272e07bb014262b821756295c58dn;
const FNV_PRIME = 0x0000000001000000000000000000013bn;
const MASK = (1n << 128n) - 1n;

/** FNV-1a of 128 bits. */
function digest(words: string): Uint8Array {
  let hash = FNV_OFFSET;
  for (const character of words) {
    hash ^= BigInt(character.charCodeAt(0) & 255);
    hash = (hash * FNV_PRIME) & MASK;
  }
  return Uint8Array.from({ length: 16 }, (_, at) => Number((hash >> BigInt(8 * (15 - at))) & 255n));
}

export function namesOf(nqn: string): {
  readonly nguid: Uint8Array;
  readonly eui64: Uint8Array;
  readonly uuid: Uint8Array;
  readonly serial: string;
} {
  const nguid = digest(`${nqn} nguid`);
  const uuid = digest(`${nqn} uuid`);
  // Version 8: made in a way of its own (RFC 9562).
  uuid[6] = (uuid[6]! & 0x0f) | 0x80;
  uuid[8] = (uuid[8]! & 0x3f) | 0x80;
  const eui64 = digest(`${nqn} eui64`).slice(0, 8);
  // Locally administered.
  eui64[0] = (eui64[0]! & 0xfc) | 0x02;
  const serial = [...digest(`${nqn} serial`).subarray(0, 10)]
    .map((byte) => byte.toString(16).padStart(2, '0'))
    .join('');
  return { nguid, eui64, uuid, serial };
}
