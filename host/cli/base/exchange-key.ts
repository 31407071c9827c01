/**
 * A pre-shared key of two sides that introduce their queue pairs over TCP (`pingpong`,
 * `perf --exchange tcp`): each proves to the other that it has the key, for this
 * connection and each message; the key itself is not sent. Packet keys come from the same nonces,
 * as those of the connection manager (host/cm/auth-session.ts). README.md describes the messages.
 * ```
 *  client                                            server
 *    key id, wish to encrypt, nonce A  ------------------->
 *    <-------------------------  wish to encrypt, nonce B
 *    its message, tag  ------------------------------------>
 *    <-----------------------------------  its message, tag
 * ```
 */
import { randomBytes } from 'node:crypto';
import type { PacketKeys } from '../../index.js';
import {
  checkAuth,
  type AuthOptions,
  type AuthRule,
  type PreSharedKey,
} from '../../cm/auth-option.js';
import { RefusalError } from '../../errors/errors.js';
import { Gid } from '../../link/endpoint.js';
import { messageKeysOf, packetKeysOf, type Exchange, type Role } from '../../cm/auth-session.js';
import { hmac, isEqual } from '../../cm/primitives.js';

const NONCE_BYTES = 32;
/** Bytes of a tag. */
export const TAG_BYTES = 32;
const LABELS = { messages: 'verbena exchange 1 messages', packets: 'verbena exchange 1 packets' };

/** The first message of each side, before its proof: JSON with hexadecimal fields. */
export interface Hello {
  /** Of the client: the first bytes of a hash of the key. */
  readonly keyId?: string;
  readonly encrypt: boolean;
  readonly nonce: string;
}

/** One side of the exchange, until the hello of the other side arrives. */
export class ExchangeAuth {
  readonly #rule: AuthRule;
  readonly #nonce = randomBytes(NONCE_BYTES);

  /** `auth`: one of `readAuth`. */
  constructor(auth: AuthOptions) {
    this.#rule = checkAuth(auth);
  }

  /** Of the client. */
  get request(): Hello {
    return { keyId: idOf(this.#rule.keys[0]!), ...this.answer };
  }

  /** Of the server. */
  get answer(): Hello {
    return { encrypt: this.#rule.encrypts, nonce: this.#nonce.toString('hex') };
  }

  /** The client's session. Throws RefusalError EPROTO. */
  active(answer: unknown): ExchangeSession {
    return this.#session('active', this.#rule.keys[0]!, answer);
  }

  /** The server's. Throws RefusalError EACCES: no such key, or none; EPROTO. */
  passive(request: unknown): ExchangeSession {
    const id = (request as Partial<Hello> | null)?.keyId;
    if (id === undefined) throw new RefusalError('EACCES', WANTS_KEY);
    const key = this.#rule.keys.find((one) => idOf(one) === id);
    if (!key) throw new RefusalError('EACCES', OTHER_KEY);
    return this.#session('passive', key, request);
  }

  #session(role: Role, key: PreSharedKey, said: unknown): ExchangeSession {
    const { nonce, encrypt } = (said ?? {}) as Partial<Hello>;
    if (typeof nonce !== 'string' || !NONCE.test(nonce) || typeof encrypt !== 'boolean') {
      const sentence = 'the other side has an older exchange of keys, or is no verbena: update it';
      throw new RefusalError('EPROTO', sentence);
    }
    const theirs = Buffer.from(nonce, 'hex');
    const isActive = role === 'active';
    return new ExchangeSession(isActive, {
      key,
      encrypts: encrypt || this.#rule.encrypts,
      // The sides exchange their addresses later: `packetKeys` binds the keys to them.
      active: NO_GID,
      passive: NO_GID,
      nonceA: isActive ? this.#nonce : theirs,
      nonceB: isActive ? theirs : this.#nonce,
    });
  }
}

const NONCE = /^[0-9a-f]{64}$/;
const NO_GID = Gid.parse('::');
const WANTS_KEY = 'the server wants its key: use --psk-file as it does';
const OTHER_KEY = 'the client has another key (--psk-file): use a key that the server has';

/** Messages with tags, and keys of packets. */
export class ExchangeSession {
  readonly #isActive: boolean;
  readonly #exchange: Exchange;
  readonly #sendKey: Uint8Array;
  readonly #receiveKey: Uint8Array;

  constructor(isActive: boolean, exchange: Exchange) {
    this.#isActive = isActive;
    this.#exchange = exchange;
    const { ofActive, ofPassive } = messageKeysOf(LABELS.messages, exchange);
    this.#sendKey = isActive ? ofActive : ofPassive;
    this.#receiveKey = isActive ? ofPassive : ofActive;
  }

  /** The tag of the `number`-th message that this side sends. */
  tag(number: number, message: Uint8Array): Uint8Array {
    return tagOf(this.#sendKey, number, message);
  }

  /** Does the tag fit the `number`-th message of the other side? */
  verify(number: number, message: Uint8Array, tag: Uint8Array): boolean {
    return isEqual(tagOf(this.#receiveKey, number, message), tag);
  }

  /** For `qp.setPacketKeys`, before RTR. `gids`: of the devices of both sides. */
  packetKeys(
    localQpn: number,
    remoteQpn: number,
    { local, remote }: { readonly local: Gid; readonly remote: Gid },
  ): PacketKeys {
    const isActive = this.#isActive;
    const { nonceA, nonceB } = this.#exchange;
    const [active, passive] = isActive ? [local, remote] : [remote, local];
    const salt = Buffer.concat([nonceA, nonceB]);
    const exchange = { ...this.#exchange, active, passive };
    return packetKeysOf(LABELS.packets, exchange, salt, isActive, [localQpn, remoteQpn]);
  }
}

function tagOf(key: Uint8Array, number: number, message: Uint8Array): Uint8Array {
  const head = Buffer.alloc(8);
  head.writeBigUInt64BE(BigInt(number));
  return hmac(key, head, message);
}

function idOf({ id }: PreSharedKey): string {
  return id.toString(16).padStart(16, '0');
}
