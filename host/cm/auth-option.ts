/** The option `auth` of connections and listeners: pre-shared keys. */
import { checkKeys } from '../base/options.js';
import { isBytes } from '../errors/type-tag.js';
import { shown } from '../errors/check-whole.js';
import { MisuseError } from '../errors/errors.js';
import { hkdf } from './primitives.js';

/** Fewer bytes could be found by trying. */
const PSK_BYTES_MIN = 16;
const PSK_BYTES_MAX = 1024;
const KEY_ID_BYTES = 8;
const KEY_ID = new TextEncoder().encode('verbena auth 1 key id');
const NO_SALT = new Uint8Array(0);

/** Both sides prove that they have the same key; then all packets and messages are authentic. */
export interface AuthOptions {
  /**
   * The pre-shared key: 16 to 1,024 bytes from a generator (a password can be found by trying). A
   * list: a listener accepts each of them, and `connect` uses the first, so that a key can be
   * replaced without a pause. Keys are copied: the caller may overwrite its own after the call.
   */
  readonly psk: Uint8Array | readonly Uint8Array[];
  /** Encrypts what is behind the base transport header. Default: if the peer asks for it. */
  readonly encrypt?: boolean;
}

/** One key, and the name that it has on the wire. */
export interface PreSharedKey {
  readonly id: bigint;
  readonly bytes: Uint8Array;
}

/** The option, checked. */
export interface AuthRule {
  readonly keys: readonly PreSharedKey[];
  readonly encrypts: boolean;
}

/** Throws MisuseError; RefusalError EOPNOTSUPP in a browser. */
export function checkAuth(auth: AuthOptions): AuthRule {
  if (typeof auth !== 'object' || auth === null) {
    throw new MisuseError('auth', `must be { psk }, got ${typeof auth}`);
  }
  checkKeys('auth', auth, 'psk encrypt');
  const { psk, encrypt = false } = auth;
  if (typeof encrypt !== 'boolean') {
    throw new MisuseError('auth.encrypt', `must be true or false, got ${shown(encrypt)}`);
  }
  const list: readonly unknown[] = Array.isArray(psk) ? psk : [psk];
  if (list.length === 0)
    throw new MisuseError('auth.psk', `must have at least one key, got ${list.length}`);
  return { keys: list.map(keyOf), encrypts: encrypt };
}

/** Copies the option with its keys: the caller may overwrite its own. Throws as `checkAuth`. */
export function copyAuth(auth: AuthOptions | undefined): AuthOptions | undefined {
  if (auth === undefined) return undefined;
  const copies = checkAuth(auth).keys.map(({ bytes }) => bytes);
  return { ...auth, psk: Array.isArray(auth.psk) ? copies : copies[0]! };
}

function keyOf(psk: unknown): PreSharedKey {
  const isKey = isBytes(psk);
  if (!isKey || psk.length < PSK_BYTES_MIN || psk.length > PSK_BYTES_MAX) {
    // The key itself is not shown: errors are logged.
    const got = isKey ? `${psk.length} bytes` : typeof psk;
    const rule = `must be ${PSK_BYTES_MIN} to ${PSK_BYTES_MAX} bytes (a Uint8Array), got ${got}`;
    throw new MisuseError('auth.psk', rule);
  }
  // Not slice(): that of a Buffer, which readFileSync returns, shares its memory.
  const bytes = Uint8Array.from(psk);
  const id = hkdf(bytes, NO_SALT, KEY_ID, KEY_ID_BYTES);
  return { id: new DataView(id.buffer).getBigUint64(0), bytes };
}
