/**
 * Counter and tag of authenticated packets, by OpenSSL: the second opinion on
 * assembly/transport/shared/packet-auth.ts.
 */
import { createCipheriv, createDecipheriv } from 'node:crypto';

const ICRC = 4;
const TAG = 16;
const COUNTER = 8;
const BTH = 12;

/** BTH byte 4 counts as 0xff. */
function covered(bytes: Uint8Array): Uint8Array {
  const masked = Uint8Array.from(bytes);
  masked[4] = 0xff;
  return masked;
}

function nonceOf(counter: bigint): Buffer {
  const nonce = Buffer.alloc(12);
  nonce.writeBigUInt64LE(counter, 4);
  return nonce;
}

/** The key of the next generation: 32 bytes of a block that no packet uses. */
export function nextKey(key: Uint8Array): Uint8Array {
  // OpenSSL takes block counter and nonce together, little-endian.
  const iv = Buffer.concat([Buffer.alloc(4), Buffer.alloc(12, 0xff)]);
  return createCipheriv('chacha20', key, iv).update(new Uint8Array(32));
}

/** A packet with an ICRC becomes an authentic one; the last four bytes are for a new ICRC. */
export function sealPacket(
  key: Uint8Array,
  counter: bigint,
  packet: Uint8Array,
  isEncrypted = false,
): Uint8Array {
  const plain = packet.subarray(0, packet.length - ICRC);
  const split = isEncrypted ? BTH : plain.length;
  const options = { authTagLength: TAG } as const;
  const cipher = createCipheriv('chacha20-poly1305', key, nonceOf(counter), options);
  cipher.setAAD(covered(plain.subarray(0, split)), { plaintextLength: plain.length - split });
  const secret = Buffer.concat([cipher.update(plain.subarray(split)), cipher.final()]);
  const trailer = Buffer.alloc(COUNTER);
  trailer.writeBigUInt64LE(counter);
  return Buffer.concat([
    plain.subarray(0, split),
    secret,
    trailer,
    cipher.getAuthTag(),
    new Uint8Array(ICRC),
  ]);
}

/** Plaintext and counter of a packet that `sealPacket` sealed. Throws when the tag does not fit. */
export function openPacket(
  key: Uint8Array,
  packet: Uint8Array,
  isEncrypted = false,
): { readonly counter: bigint; readonly packet: Uint8Array } {
  const end = packet.length - ICRC - TAG - COUNTER;
  const counter = Buffer.from(packet).readBigUInt64LE(end);
  const split = isEncrypted ? BTH : end;
  const options = { authTagLength: TAG } as const;
  const decipher = createDecipheriv('chacha20-poly1305', key, nonceOf(counter), options);
  decipher.setAAD(covered(packet.subarray(0, split)), { plaintextLength: end - split });
  decipher.setAuthTag(packet.subarray(end + COUNTER, end + COUNTER + TAG));
  const plain = Buffer.concat([decipher.update(packet.subarray(split, end)), decipher.final()]);
  return {
    counter,
    packet: Buffer.concat([packet.subarray(0, split), plain, new Uint8Array(ICRC)]),
  };
}
