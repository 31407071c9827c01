/**
 * The TCP exchange of `pingpong` and `perf --exchange tcp` with a pre-shared key: a hello of fixed
 * length each way, then a tag before each message. Only for Verbena peers: the programs of
 * rdma-core and perftest have no key.
 */
import type { AuthOptions } from '../../cm/auth-option.js';
import { RefusalError } from '../../errors/errors.js';
import { ExchangeAuth, TAG_BYTES, type ExchangeSession } from './exchange-key.js';

/** The connection of the exchange. */
export interface Conversation {
  send(bytes: Uint8Array): Promise<void>;
  /** Reads exactly `bytes` bytes. */
  receive(length: number): Promise<Buffer>;
}

/** The connection of the hellos. */
export interface Introducible extends Conversation {
  /** Bytes of the longest first message of a server without a key: its client reads a refusal. */
  readonly firstBytes: number;
}

const HELLO_BYTES = 192;
const BRACE = 0x7b;
const VERSION = 1;
const REMEDY = 'start both sides with the same --psk-file';

/** Is this the hello of a side with a key? For sides without one, which expect other bytes. */
export function checkNoHello(bytes: Uint8Array): void {
  if (bytes[0] !== BRACE) return;
  throw new RefusalError(
    'EACCES',
    `the peer requires a pre-shared key, and this side has none: ${REMEDY}`,
  );
}

/**
 * Hellos of both sides, the client's first. Rejects with RefusalError EACCES: another key, or none
 * there; EPROTO; as `talk.receive`.
 */
export async function agreeOnKeys(
  auth: AuthOptions,
  isClient: boolean,
  talk: Introducible,
): Promise<ExchangeSession> {
  const own = new ExchangeAuth(auth);
  if (isClient) {
    await talk.send(helloOf(own.request, HELLO_BYTES));
    return own.active(await receiveHello(talk));
  }
  let session: ExchangeSession;
  try {
    session = own.passive(await receiveHello(talk));
  } catch (error) {
    const { code, message: sentence } = error as RefusalError;
    if (code === 'EACCES')
      await talk.send(helloOf({ refused: true }, Math.max(HELLO_BYTES, talk.firstBytes)));
    throw code === 'EACCES' ? new RefusalError(code, plain(sentence), { cause: error }) : error;
  }
  await talk.send(helloOf(own.answer, HELLO_BYTES));
  return session;
}

/** The message without the error code, which the new error appends. */
function plain(sentence: string): string {
  return sentence.replace(/ \(EACCES\)$/, '');
}

function helloOf(fields: object, length: number): Buffer {
  return Buffer.from(JSON.stringify({ verbena: VERSION, ...fields }).padEnd(length));
}

async function receiveHello(talk: Conversation): Promise<unknown> {
  let text: Buffer;
  try {
    const first = await talk.receive(1);
    const none = `the peer has no pre-shared key, or is another program: ${REMEDY}`;
    if (first[0] !== BRACE) throw new RefusalError('EACCES', none);
    text = Buffer.concat([first, await talk.receive(HELLO_BYTES - 1)]);
  } catch (error) {
    if ((error as Partial<RefusalError>).code !== 'ECONNRESET') throw error;
    const sentence = 'the peer closed the connection during the key exchange';
    throw new RefusalError('EACCES', `${sentence}: ${REMEDY}`, { cause: error });
  }
  let hello: { readonly verbena?: unknown; readonly refused?: unknown } | null;
  try {
    hello = JSON.parse(text.toString()) as typeof hello;
  } catch {
    hello = null;
  }
  if (hello?.verbena !== VERSION) {
    throw new RefusalError('EPROTO', 'invalid hello: the peer is not this version of verbena');
  }
  if (hello.refused === true) {
    throw new RefusalError(
      'EACCES',
      `the peer does not have the first key of --psk-file: ${REMEDY}`,
    );
  }
  return hello;
}

/** A conversation whose messages have tags. */
export class KeyedConversation implements Conversation {
  readonly session: ExchangeSession;
  readonly #inner: Conversation;
  #sent = 0;
  #received = 0;

  constructor(session: ExchangeSession, inner: Conversation) {
    this.session = session;
    this.#inner = inner;
  }

  send(bytes: Uint8Array): Promise<void> {
    return this.#inner.send(Buffer.concat([this.session.tag(this.#sent++, bytes), bytes]));
  }

  /** Rejects with RefusalError EACCES if the tag does not fit the next message. */
  async receive(length: number): Promise<Buffer> {
    const bytes = await this.#inner.receive(TAG_BYTES + length);
    const message = bytes.subarray(TAG_BYTES);
    if (this.session.verify(this.#received++, message, bytes.subarray(0, TAG_BYTES))) {
      return message;
    }
    throw new RefusalError('EACCES', `the peer did not prove the key: ${REMEDY}`);
  }
}
