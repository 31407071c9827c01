/** Responses of DH-HMAC-CHAP, which prove that a peer has a secret (Base 2.1 section 8.3.5.5.5). */
import { createHash, createHmac } from 'node:crypto';
import { DHCHAP_HASHES } from './dhchap-secret.js';

/** Which side proves that it has its secret. */
export type DhchapSide = 'host' | 'controller';

/** The text in a response: a response of one side is never one of the other side. */
const LABELS: Readonly<Record<DhchapSide, string>> = { host: 'HostHost', controller: 'Controller' };

export interface ResponseFields {
  readonly side: DhchapSide;
  /** An identifier of DHCHAP_HASHES. */
  readonly hash: number;
  /** Transformed with the name of the side. */
  readonly key: Uint8Array;
  readonly challenge: Uint8Array;
  /** Of Diffie-Hellman; undefined with the group `null`. */
  readonly shared: Uint8Array | undefined;
  readonly sequence: number;
  readonly transaction: number;
  readonly hostNqn: string;
  readonly subNqn: string;
}

/** HMAC(key, Ca | S | T | SC_C | label | own name | 0 | name of the peer); 32, 48 or 64 bytes. */
export function responseOf(fields: ResponseFields): Uint8Array {
  const { side, key, challenge, shared, sequence, transaction, hostNqn, subNqn } = fields;
  const { name } = DHCHAP_HASHES.get(fields.hash)!;
  // Ca, the augmented challenge: bound to the exchange of keys.
  const augmented = shared
    ? createHmac(name, createHash(name).update(shared).digest()).update(challenge).digest()
    : challenge;
  const numbers = Buffer.alloc(7);
  numbers.writeUInt32LE(sequence, 0);
  numbers.writeUInt16LE(transaction, 4);
  const [own, peer] = side === 'host' ? [hostNqn, subNqn] : [subNqn, hostNqn];
  return createHmac(name, key)
    .update(augmented)
    .update(numbers)
    .update(`${LABELS[side]}${own}\0${peer}`)
    .digest();
}
