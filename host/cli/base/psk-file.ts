/**
 * The file of `--psk-file`: pre-shared keys, one a line, made by `openssl rand -base64 32`. The
 * bytes of a line, without its end, are the key. A client proves the first key; a server accepts
 * each of them, so that a key can be replaced.
 */
import { Option, type Command } from 'commander';
import { checkAuth, type AuthOptions } from '../../cm/auth-option.js';
import { ConnectError } from '../../cm/connect-error.js';
import { RejectReason } from '../../cm/enums.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { readPrivateFile } from './private-file.js';

export interface PskOptions {
  readonly pskFile?: string;
  readonly encrypt?: boolean;
}

const KEY_BYTES_MIN = 16;
const KEY_BYTES_MAX = 1024;
const REMEDY = 'openssl rand -base64 32';

/** `--psk-file` and `--encrypt`. */
export function addPskOptions(command: Command): Command {
  return command
    .option('--psk-file <file>', 'authenticate: pre-shared keys, one a line, mode 0600')
    .addOption(new Option('--encrypt', 'encrypt the packets as well, with --psk-file'));
}

/**
 * The `auth` of the options; undefined without `--psk-file`. Rejects with MisuseError, which names the
 * line and no key; RefusalError EACCES (other users may read the file), ENOENT.
 */
export async function readAuth({ pskFile, encrypt }: PskOptions): Promise<AuthOptions | undefined> {
  if (pskFile === undefined) {
    if (encrypt) throw new MisuseError('--encrypt', 'requires a key: --psk-file');
    return undefined;
  }
  const text = await readPrivateFile(pskFile, 'key');
  const refuse = (where: string, rule: string): never => {
    throw new MisuseError('--psk-file', `${pskFile}${where}: ${rule}; make a key by ${REMEDY}`);
  };
  const psk = text.split(/\r?\n/).flatMap((line, index) => {
    if (line === '') return [];
    const where = `, line ${index + 1}`;
    if (!/^[\x20-\x7e]*$/.test(line)) return refuse(where, 'must be printable ASCII');
    if (line.length < KEY_BYTES_MIN || line.length > KEY_BYTES_MAX) {
      const range = `${KEY_BYTES_MIN} to ${KEY_BYTES_MAX} bytes`;
      return refuse(where, `a key has ${range}, not ${line.length}`);
    }
    return [new TextEncoder().encode(line)];
  });
  if (psk.length === 0) refuse('', 'must have at least one key');
  const auth = { psk, encrypt: encrypt ?? false };
  checkAuth(auth);
  return auth;
}

/** `auth` as a property to spread into options; empty without a key. */
export function authOption(auth: AuthOptions | undefined): { readonly auth?: AuthOptions } {
  return auth ? { auth } : {};
}

const SENTENCES: ReadonlyMap<number, string> = new Map([
  [
    RejectReason.AUTH_REQUIRED,
    'wants a pre-shared key: use --psk-file with a key of that side (and --encrypt if it has it)',
  ],
  [RejectReason.AUTH_UNKNOWN_KEY, 'does not have the first key of --psk-file: use a key of both'],
  [RejectReason.AUTH_UNSUPPORTED, 'has no key: start it with --psk-file, or leave it out here'],
]);

/**
 * Rewords an EACCES of `auth` for the command line; returns other errors unchanged. `option`: where
 * the key comes from.
 */
export function pskRefusal(error: unknown, peer: string, option = '--psk-file'): unknown {
  if (!(error instanceof ConnectError)) return error;
  const sentence = SENTENCES.get(error.reason);
  if (sentence === undefined) return error;
  const text = sentence.replaceAll('--psk-file', option);
  return new RefusalError('EACCES', `${peer} ${text}`, { cause: error });
}

/** The same of a node of reliable datagrams, whose sends fail with EACCES. */
export function nodeRefusal(address: string, cause: unknown): RefusalError {
  const remedy = 'start both sides with the same --psk-file and --encrypt';
  const sentence = `the node at ${address} has another pre-shared key, or one side has none`;
  return new RefusalError('EACCES', `${sentence}: ${remedy}`, { cause });
}
