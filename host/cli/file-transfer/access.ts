/**
 * The key of `serve` and `put`: from `--psk-file`, or `--token` and `--token-file`. Either is a
 * pre-shared key: it authenticates the connection and all packets.
 */
import { randomBytes } from 'node:crypto';
import { Option, type Command } from 'commander';
import type { AuthOptions } from '../../cm/auth-option.js';
import { MisuseError } from '../../errors/errors.js';
import { readPrivateFile } from '../base/private-file.js';
import { readAuth, type PskOptions } from '../base/psk-file.js';

/** An overheard proof must not be worth guessing at. */
const KEY_LENGTH_MIN = 16;
const KEY_LENGTH_MAX = 256;
const KEY_BYTES = 18;

export interface AccessOptions extends PskOptions {
  /** The key. */
  readonly token?: string;
  readonly tokenFile?: string;
  /** No key, at any address. */
  readonly noToken?: boolean;
}

/** `--token` and `--token-file`; one option at most names the key. */
export function addTokenOptions(command: Command, description: string): Command {
  const [token, file] = [
    new Option('--token <key>', description),
    new Option('--token-file <file>', 'the same, from a file with mode 600'),
  ];
  return command
    .addOption(token.conflicts(['tokenFile', 'noToken', 'pskFile']))
    .addOption(file.conflicts(['noToken', 'pskFile']));
}

/** `--no-token`. As the negation of `--token`, the later one of the two would replace the other. */
export function addNoTokenOption(command: Command): Command {
  const option = new Option('--no-token', 'accept clients without a key, at any address');
  option.negate = false;
  option.attributeName = () => 'noToken';
  return command.addOption(option.conflicts(['pskFile', 'encrypt']));
}

/** The key of the options; undefined without one. Rejects as `readAuth`; MisuseError. */
async function readAccess(options: AccessOptions): Promise<AuthOptions | undefined> {
  const { token, tokenFile, pskFile, encrypt = false } = options;
  if (pskFile !== undefined) return readAuth(options);
  const isFile = tokenFile !== undefined;
  const key = isFile ? (await readPrivateFile(tokenFile, 'key')).trim() : token;
  if (key === undefined) return undefined;
  if (key.length < KEY_LENGTH_MIN || key.length > KEY_LENGTH_MAX) {
    const rule = `a key has ${KEY_LENGTH_MIN} to ${KEY_LENGTH_MAX} characters, not ${key.length}`;
    const option = isFile ? '--token-file' : '--token';
    throw new MisuseError(option, `${rule}; make a key by openssl rand -base64 18`);
  }
  return authOf(key, encrypt);
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
  if (given || options.noToken) return { auth: given, made: undefined };
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

function authOf(key: string, encrypt: boolean): AuthOptions {
  return { psk: new TextEncoder().encode(key), encrypt };
}

function isLoopback(address: string): boolean {
  return /^127\./.test(address) || address === '::1';
}
