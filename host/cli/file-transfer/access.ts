/**
 * The key of `serve` and `put`: from `--psk-file`, or `--token` and `--token-file`. Either is a
 * pre-shared key: it authenticates the connection and all packets.
 */
import { randomBytes } from 'node:crypto';
import { MisuseError, RefusalError, type AuthOptions } from '../../index.js';
import { readPrivateFile } from '../base/private-file.js';
import { readAuth, type PskOptions } from '../base/psk-file.js';

/** An overheard proof must not be worth guessing at. */
const KEY_LENGTH_MIN = 16;
const KEY_LENGTH_MAX = 256;
const KEY_BYTES = 18;

export interface AccessOptions extends PskOptions {
  /** The key; false: no key, at any address. */
  readonly token?: string | false;
  readonly tokenFile?: string;
}

/** The key of the options; undefined without one. Rejects as `readAuth` and `readKey`. */
export async function readAccess(options: AccessOptions): Promise<AuthOptions | undefined> {
  const { pskFile, encrypt = false } = options;
  if (pskFile !== undefined) {
    if (options.token === undefined && options.tokenFile === undefined) return readAuth(options);
    const rule = '--psk-file, --token, --token-file and --no-token exclude each other; use one';
    throw new RefusalError('EINVAL', `serve, put: ${rule}`);
  }
  const key = await readKey(options);
  if (key !== undefined) return authOf(key, encrypt);
  if (encrypt && options.token === false) {
    throw new MisuseError('--encrypt', 'requires a key: omit --no-token');
  }
  return undefined;
}

/** Access control of a server. `made`: a generated key, which the server prints for its clients. */
export interface ServerAccess {
  readonly auth: AuthOptions | undefined;
  readonly made: string | undefined;
}

/** An address other than loopback requires a key: without an option, it is generated. */
export async function serverAccess(
  options: AccessOptions & { readonly bind: string },
): Promise<ServerAccess> {
  const given = await readAccess(options);
  if (given || options.token === false) return { auth: given, made: undefined };
  const { bind, encrypt = false } = options;
  if (isLoopback(bind) && !encrypt) return { auth: undefined, made: undefined };
  const made = makeKey();
  return { auth: authOf(made, encrypt), made };
}

/** The key of a client. Rejects with MisuseError for `--encrypt` without a key. */
export async function clientAccess(options: AccessOptions): Promise<AuthOptions | undefined> {
  const auth = await readAccess(options);
  if (auth || !options.encrypt) return auth;
  throw new MisuseError('--encrypt', 'requires a key: --psk-file, --token or --token-file');
}

/** A key of 144 random bits. */
function makeKey(): string {
  return randomBytes(KEY_BYTES).toString('base64url');
}

/** The key of `--token` or `--token-file`; undefined: no option. Rejects with RefusalError. */
async function readKey({ token, tokenFile }: AccessOptions): Promise<string | undefined> {
  if (typeof token === 'string' && tokenFile !== undefined) {
    const rule = '--token and --token-file exclude each other; use one of them';
    throw new RefusalError('EINVAL', `serve, put: ${rule}`);
  }
  const key =
    tokenFile === undefined ? token || undefined : (await readPrivateFile(tokenFile, 'key')).trim();
  if (key === undefined || (key.length >= KEY_LENGTH_MIN && key.length <= KEY_LENGTH_MAX)) {
    return key;
  }
  const rule = `a key has ${KEY_LENGTH_MIN} to ${KEY_LENGTH_MAX} characters, not ${key.length}`;
  throw new RefusalError('EINVAL', `${rule}: openssl rand -base64 18`);
}

function authOf(key: string, encrypt: boolean): AuthOptions {
  return { psk: new TextEncoder().encode(key), encrypt };
}

function isLoopback(address: string): boolean {
  return /^127\./.test(address) || address === '::1';
}
