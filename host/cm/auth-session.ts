/**
 * One authenticated connection: what both sides derive from the pre-shared key and their nonces,
 * and the tags of their messages.
 * ```
 *  active                                                        passive
 *    AUTH_REQ  key id, wish to encrypt, nonce A  ------------------->
 *    <-------------------  AUTH_REP  nonce A, nonce B (computed, nothing is kept)
 *    REQ  key id, wish, nonces A and B, tag  ---------------------->
 *    <-------------------------------------------  REP  nonce C, tag
 *    RTU  tag  ---------------------------------------------------->
 * ```
 * Message keys come from the pre-shared key and nonces A and B, packet keys from all three nonces,
 * both GIDs and both queue pair numbers, one for each direction.
 */
import type { Gid } from '../link/endpoint.js';
import type { PacketKeys } from '../verbs/queues/packet-keys.js';
import { PACKET_KEY_BYTES } from '../verbs/queues/packet-keys.js';
import type { PreSharedKey } from './auth-option.js';
import { MAD_BYTES } from './mad.js';
import { hkdf, hmac, isEqual } from './primitives.js';

export const NONCE_BYTES = 32;
const TAG_BYTES = 16;
const KEY_BYTES = 32;
const HEAD_BYTES = 16;
const WISH = 8;
/** Trailer of a REQ, after its datagram: key id, encryption flag, two nonces, tag. */
const REQUEST_TRAILER = HEAD_BYTES + 2 * NONCE_BYTES + TAG_BYTES;
const REPLY_TRAILER = NONCE_BYTES + TAG_BYTES;
const LABELS = {
  messages: 'verbena auth 1 messages',
  packets: 'verbena auth 1 packets',
};

export type Role = 'active' | 'passive';

/** Nonces of an exchange, and what its keys are bound to besides. */
export interface Exchange {
  readonly key: PreSharedKey;
  readonly encrypts: boolean;
  readonly active: Gid;
  readonly passive: Gid;
  readonly nonceA: Uint8Array;
  readonly nonceB: Uint8Array;
}

function text(label: string): Uint8Array {
  return new TextEncoder().encode(label);
}

function join(...parts: readonly Uint8Array[]): Uint8Array {
  const joined = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

function numbers(...values: readonly number[]): Uint8Array {
  const bytes = new Uint8Array(values.length * 4);
  const view = new DataView(bytes.buffer);
  for (const [index, value] of values.entries()) view.setUint32(index * 4, value);
  return bytes;
}

/** Exchange that the trailer of a REQ announces, not verified yet. */
export interface Claim {
  readonly keyId: bigint;
  readonly encrypts: boolean;
  readonly nonceA: Uint8Array;
  readonly nonceB: Uint8Array;
}

/** Undefined: the datagram is not a REQ with a trailer. */
export function claimOf(datagram: Uint8Array): Claim | undefined {
  if (datagram.length !== MAD_BYTES + REQUEST_TRAILER) return undefined;
  const trailer = datagram.slice(MAD_BYTES);
  const nonces = trailer.subarray(HEAD_BYTES);
  return {
    keyId: new DataView(trailer.buffer).getBigUint64(0),
    encrypts: (trailer[WISH]! & 1) === 1,
    nonceA: nonces.subarray(0, NONCE_BYTES),
    nonceB: nonces.subarray(NONCE_BYTES, 2 * NONCE_BYTES),
  };
}

/** Keys of messages, one for each direction. `label`: of this exchange and of no other. */
export function messageKeysOf(
  label: string,
  { key, nonceA, nonceB, active, passive, encrypts }: Exchange,
): { readonly ofActive: Uint8Array; readonly ofPassive: Uint8Array } {
  const info = join(text(label), numbers(encrypts ? 1 : 0), active.bytes, passive.bytes);
  const both = hkdf(key.bytes, join(nonceA, nonceB), info, 2 * KEY_BYTES);
  return { ofActive: both.subarray(0, KEY_BYTES), ofPassive: both.subarray(KEY_BYTES) };
}

/** Keys of the packets of one queue pair; `salt`: all nonces of the exchange. */
export function packetKeysOf(
  label: string,
  { key, active, passive, encrypts }: Exchange,
  salt: Uint8Array,
  isActive: boolean,
  [localQpn, remoteQpn]: readonly [number, number],
): PacketKeys {
  const pair = isActive ? [localQpn, remoteQpn] : [remoteQpn, localQpn];
  const info = join(text(label), numbers(encrypts ? 1 : 0, ...pair), active.bytes, passive.bytes);
  const both = hkdf(key.bytes, salt, info, 2 * PACKET_KEY_BYTES);
  const ofActive = both.subarray(0, PACKET_KEY_BYTES);
  const ofPassive = both.subarray(PACKET_KEY_BYTES);
  return {
    sendKey: isActive ? ofActive : ofPassive,
    recvKey: isActive ? ofPassive : ofActive,
    encrypt: encrypts,
  };
}

export class AuthSession {
  readonly #role: Role;
  readonly #exchange: Exchange;
  readonly #sendKey: Uint8Array;
  readonly #receiveKey: Uint8Array;
  /** Of the passive side: drawn for the REP, so that a repeated REQ leads to other keys. */
  #nonceC: Uint8Array | undefined;

  constructor(role: Role, exchange: Exchange, nonceC?: Uint8Array) {
    this.#role = role;
    this.#exchange = exchange;
    this.#nonceC = nonceC;
    const { ofActive, ofPassive } = messageKeysOf(LABELS.messages, exchange);
    this.#sendKey = role === 'active' ? ofActive : ofPassive;
    this.#receiveKey = role === 'active' ? ofPassive : ofActive;
  }

  /** The datagram of a message: REQ and REP carry nonces, all carry a tag. */
  seal(name: string, mad: Uint8Array): Uint8Array {
    const nonces = this.#noncesOf(name);
    const tag = hmac(this.#sendKey, mad, nonces).subarray(0, TAG_BYTES);
    return join(mad, nonces, tag);
  }

  /** Is this datagram the peer's? Of an authentic REP the nonce is kept. */
  verify(name: string, datagram: Uint8Array): boolean {
    const length = name === 'REQ' ? REQUEST_TRAILER : name === 'REP' ? REPLY_TRAILER : TAG_BYTES;
    if (datagram.length !== MAD_BYTES + length) return false;
    const end = datagram.length - TAG_BYTES;
    const tag = hmac(this.#receiveKey, datagram.subarray(0, end)).subarray(0, TAG_BYTES);
    if (!isEqual(tag, datagram.subarray(end))) return false;
    if (name === 'REP') this.#nonceC = datagram.slice(MAD_BYTES, end);
    return true;
  }

  #noncesOf(name: string): Uint8Array {
    if (name === 'REP') return this.#nonceC!;
    if (name !== 'REQ') return new Uint8Array(0);
    const { key, encrypts, nonceA, nonceB } = this.#exchange;
    const head = new Uint8Array(HEAD_BYTES);
    new DataView(head.buffer).setBigUint64(0, key.id);
    head[WISH] = encrypts ? 1 : 0;
    return join(head, nonceA, nonceB);
  }

  /** Once both queue pair numbers are known from REQ and REP. */
  packetKeys(localQpn: number, remoteQpn: number): PacketKeys {
    const { nonceA, nonceB } = this.#exchange;
    const salt = join(nonceA, nonceB, this.#nonceC!);
    const isActive = this.#role === 'active';
    return packetKeysOf(LABELS.packets, this.#exchange, salt, isActive, [localQpn, remoteQpn]);
  }
}
