/**
 * A pre-shared key of two sides that introduce their queue pairs over TCP (`serve` and `put`,
 * `pingpong`, `perf --exchange tcp`): each proves to the other that it has the key, for this
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
import { Gid, RefusalError, type AuthOptions, type PacketKeys } from '../../index.js';
import { checkAuth, type AuthRule, type PreSharedKey } from '../../cm/auth-option.js';
import { messageKeysOf, packetKeysOf, type Exchange, type Role } from '../../cm/auth-session.js';
import { hmac, isEqual } from '../../cm/primitives.js';
import { readPrivateFile } from '../base/private-file.js';

/** An overheard proof must not be worth guessing at. */
const KEY_LENGTH_MIN = 16;
const KEY_LENGTH_MAX = 256;
const KEY_BYTES = 18;
const NONCE_BYTES = 32;
/** Bytes of a tag. */
export const TAG_BYTES = 32;
const LABELS = { messages: 'verbena exchange 1 messages', packets: 'verbena exchange 1 packets' };

/** A key of 144 random bits. */
export function makeKey(): string {
  return randomBytes(KEY_BYTES).toString('base64url');
}

/** The key of `--token` or `--token-file`; undefined: no option. Rejects with RefusalError. */
export async function readKey(options: {
  readonly token?: string | false;
  readonly tokenFile?: string;
}): Promise<string | undefined> {
  const { token, tokenFile } = options;
  if (typeof token === 'string' && tokenFile !== undefined) {
    throw new RefusalError(
      'EINVAL',
      'serve, put: --token and --token-file exclude each other; use one of them',
    );
  }
  const key =
    tokenFile === undefined ? token || undefined : (await readPrivateFile(tokenFile, 'key')).trim();
  if (key === undefined || (key.length >= KEY_LENGTH_MIN && key.length <= KEY_LENGTH_MAX)) {
    return key;
  }
  const rule = `a key has ${KEY_LENGTH_MIN} to ${KEY_LENGTH_MAX} characters, not ${key.length}`;
  throw new RefusalError('EINVAL', `${rule}: openssl rand -base64 18`);
}

/** The first message of each side, before its proof: JSON with hexadecimal fields. */
export interface Hello {
  /** Of the client: the first bytes of a hash of the key. */
  readonly keyId?: string;
  readonly encrypt: boolean;
  readonly nonce: string;
}

/** Addresses of the devices of both sides, where both know them before the exchange. */
export interface Ends {
  readonly local: string;
  readonly remote: string;
}

/** The sides exchange their addresses later: `packetKeys` binds the keys to them. */
const NO_ENDS: Ends = { local: '::', remote: '::' };

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
  active(answer: unknown, ends = NO_ENDS): ExchangeSession {
    return this.#session('active', this.#rule.keys[0]!, answer, ends);
  }

  /** The server's. Throws RefusalError EACCES: no such key, or none; EPROTO. */
  passive(request: unknown, ends = NO_ENDS): ExchangeSession {
    const id = (request as Partial<Hello> | null)?.keyId;
    if (id === undefined) throw new RefusalError('EACCES', WANTS_KEY);
    const key = this.#rule.keys.find((one) => idOf(one) === id);
    if (!key) throw new RefusalError('EACCES', OTHER_KEY);
    return this.#session('passive', key, request, ends);
  }

  #session(role: Role, key: PreSharedKey, said: unknown, ends: Ends): ExchangeSession {
    const { nonce, encrypt } = (said ?? {}) as Partial<Hello>;
    if (typeof nonce !== 'string' || !NONCE.test(nonce) || typeof encrypt !== 'boolean') {
      const sentence = 'the other side has an older exchange of keys, or is no verbena: update it';
      throw new RefusalError('EPROTO', sentence);
    }
    const [local, remote] = [gidOf(ends.local), gidOf(ends.remote)];
    const theirs = Buffer.from(nonce, 'hex');
    const isActive = role === 'active';
    return new ExchangeSession(isActive, {
      key,
      encrypts: encrypt || this.#rule.encrypts,
      active: isActive ? local : remote,
      passive: isActive ? remote : local,
      nonceA: isActive ? this.#nonce : theirs,
      nonceB: isActive ? theirs : this.#nonce,
    });
  }
}

const NONCE = /^[0-9a-f]{64}$/;
const WANTS_KEY = 'the server wants its key: use --psk-file, --token or --token-file as it does';
const OTHER_KEY = 'the client has another key (--psk-file, --token): use a key that the server has';

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

  /** `line` with its tag; a side sends one line. */
  sign(line: string): string {
    return `${Buffer.from(this.tag(0, Buffer.from(line))).toString('hex')} ${line}`;
  }

  /** Removes the tag of `sign`; undefined if the tag does not fit. */
  verified(text: string): string | undefined {
    const [, tag, line] = /^([0-9a-f]{64}) ([^]*)$/.exec(text) ?? [];
    if (tag === undefined || line === undefined) return undefined;
    return this.verify(0, Buffer.from(line), Buffer.from(tag, 'hex')) ? line : undefined;
  }

  /** For `qp.setPacketKeys`, before RTR. `gids`: default: the ends of the exchange. */
  packetKeys(
    localQpn: number,
    remoteQpn: number,
    gids?: { readonly local: Gid; readonly remote: Gid },
  ): PacketKeys {
    const isActive = this.#isActive;
    const { nonceA, nonceB, active, passive } = this.#exchange;
    const ends = gids
      ? {
          active: isActive ? gids.local : gids.remote,
          passive: isActive ? gids.remote : gids.local,
        }
      : { active, passive };
    const salt = Buffer.concat([nonceA, nonceB]);
    const exchange = { ...this.#exchange, ...ends };
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

function gidOf(address: string): Gid {
  return Gid.parse(address.replace(/^::ffff:/, '').replace(/%.*$/, ''));
}
