/**
 * A key that client and server of files share (`--token`): each proves to the other that it has the
 * key, for this connection and this line; the key itself is not sent. README.md has the lines.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { RefusalError } from '../index.js';
import { readPrivateFile } from './private-file.js';

/** An overheard proof must not be worth guessing at. */
const KEY_LENGTH_MIN = 16;
const KEY_LENGTH_MAX = 256;
const KEY_BYTES = 18;
const NONCE_BYTES = 16;
export const NONCE = /^[0-9a-f]{32}$/;

export function makeNonce(): string {
  return randomBytes(NONCE_BYTES).toString('hex');
}

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

/** Both sides of one connection. */
export interface Nonces {
  readonly client: string;
  readonly server: string;
}

/** `line` with the proof that its sender has the key; `side` sends it. */
export function proven(key: string, side: 'put' | 'serve', nonces: Nonces, line: string): string {
  return `${proofOf(key, side, nonces, line)} ${line}`;
}

/** The line in what `proven` made; undefined: its sender does not have the key. */
export function provenLine(
  key: string,
  side: 'put' | 'serve',
  nonces: Nonces,
  text: string,
): string | undefined {
  const [, proof, line] = /^([0-9a-f]{64}) ([^]*)$/.exec(text) ?? [];
  if (proof === undefined || line === undefined) return undefined;
  const wanted = Buffer.from(proofOf(key, side, nonces, line));
  return timingSafeEqual(wanted, Buffer.from(proof)) ? line : undefined;
}

function proofOf(key: string, side: string, { client, server }: Nonces, line: string): string {
  return createHmac('sha256', key)
    .update(`verbena ${side}\n${client}\n${server}\n${line}`)
    .digest('hex');
}
