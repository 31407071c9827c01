/**
 * Client and server of files exchange what their queue pairs need in one TCP connection to the same
 * port number. One line of JSON each way, bounded in size and time; then the connection only
 * stands, and its end tells either side that the other one is gone. README.md has the lines.
 */
import { connect, createServer, type Server, type Socket } from 'node:net';
import { RefusalError, type AuthOptions, type ErrnoName } from '../../index.js';
import { connectRefusal, listenRefusal } from '../../link/tcp-refusal.js';
import { SourceShares } from '../../link/source-shares.js';
import { isMtu } from './channel.js';
import { ExchangeAuth, type ExchangeSession } from './exchange-key.js';

/** Of the conversation, RDMA messages included. */
const VERSION = 1;
/** Milliseconds until the other side's line must be there. */
const LINE_MILLIS_MAX = 5000;
const REQUEST_BYTES_MAX = 8192;
/** A reply has a bit for every piece. */
const REPLY_BYTES_MAX = 2 ** 20;
/** TCP keep-alive: silence before the first probe. A dead machine sends no FIN. */
const KEEP_ALIVE_MILLIS = 5000;
/** Connections that have not sent their line: one more ends the oldest of them. */
const TALKING_MAX = 256;
/** The same of one source, besides the clients that are served: one more is refused. */
const TALKING_PER_SOURCE = 16;
const CONNECTIONS_MAX = 2 ** 16;
const MISUSE_CODE: ErrnoName = 'EPROTO';

export const PIECE_BYTES_MIN = 4096;
export const PIECE_BYTES_MAX = 16 * 2 ** 20;
/** With pieces of 1 MiB a file of 4 TiB. */
const PIECE_COUNT_MAX = 2 ** 22;
export const SLOTS_MAX = 1024;

/** What both sides tell of themselves. */
interface Side {
  /** Queue pair number and first PSN. */
  readonly qpn: number;
  readonly psn: number;
  /** UDP port. */
  readonly port: number;
  readonly receiveBufferBytes: number;
  /** Packets that are kept when they come ahead of a lost one. */
  readonly reorderPackets: number;
}

export interface PutRequest extends Side {
  /** Random: the same in every connection of one run of `put`. */
  readonly transfer: string;
  readonly name: string;
  /** Bytes of the file. */
  readonly size: number;
  /** Modification time in nanoseconds; with the size it identifies the file's version. */
  readonly mtimeNs: string;
  readonly pieceBytes: number;
  readonly packetSizeMax: number;
}

export interface PutReply extends Side {
  readonly mtuBytes: number;
  /** The region to write to: `slots` pieces. */
  readonly addr: bigint;
  readonly rkey: number;
  readonly slots: number;
  /** The pieces that the server has (PieceSet). */
  readonly have: string;
  /** Something that the user should know. */
  readonly note: string;
}

/** The whole file arrived over an earlier connection. */
export interface DoneReply {
  readonly done: true;
  /** Hexadecimal. */
  readonly sha256: string;
}

/** The connection that stands while a transfer runs. */
export interface Standing {
  /** The other side's address. */
  readonly remoteAddress: string;
  /** Resolves when the connection ended. */
  readonly ended: Promise<void>;
  /** With a key: of the exchange, for packets. */
  readonly session: ExchangeSession | undefined;
  end(): void;
}

export type Answer = (request: PutRequest, standing: Standing) => Promise<PutReply | DoneReply>;

/** Listens on TCP. Rejects with LinkError EADDRINUSE and the like. */
export class ExchangeServer {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Those that have not sent their line, oldest first. */
  readonly #talking = new Set<Socket>();

  private constructor(server: Server) {
    this.#server = server;
  }

  static async listen(
    address: string,
    port: number,
    clientsMax: number,
    answer: Answer,
    refused: (remote: string, error: unknown) => void,
    auth?: AuthOptions,
  ): Promise<ExchangeServer> {
    const server = createServer({ keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MILLIS });
    const exchange = new ExchangeServer(server);
    const shares = new SourceShares(CONNECTIONS_MAX, clientsMax + TALKING_PER_SOURCE);
    server.on('connection', (socket) => {
      const giveBack = shares.take(socket.remoteAddress);
      if (!giveBack) return socket.destroy();
      socket.once('close', giveBack);
      exchange.#enter(socket);
      const remote = socket.remoteAddress ?? '';
      const asked: Answer = (request, standing) => {
        exchange.#talking.delete(socket);
        return answer(request, standing);
      };
      const own = auth && { auth, local: address };
      talk(socket, asked, own).catch((error: unknown) => refused(remote, error));
    });
    await new Promise<void>((resolve, reject) => {
      server.once('error', (error) => reject(listenRefusal(error, { address, port }) as Error));
      server.listen({ host: address, port, exclusive: true }, resolve);
    });
    // Later errors are those of single connections that could not be accepted.
    server.on('error', () => undefined);
    return exchange;
  }

  #enter(socket: Socket): void {
    this.#sockets.add(socket);
    this.#talking.add(socket);
    socket.once('close', () => {
      this.#sockets.delete(socket);
      this.#talking.delete(socket);
    });
    // A client sends its line at once: the oldest connection without one is the slowest.
    const [oldest] = this.#talking;
    if (this.#talking.size > TALKING_MAX) oldest!.destroy();
  }

  /** Ends every connection. */
  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }
}

/** The server's keys, and the address of its device. */
interface OwnKeys {
  readonly auth: AuthOptions;
  readonly local: string;
}

/** The server's half of one conversation. Rejects with why it refused. */
async function talk(socket: Socket, answer: Answer, own: OwnKeys | undefined): Promise<void> {
  const ended = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  socket.on('error', () => socket.destroy());
  try {
    const { line, session } = await readRequest(socket, own);
    const request = parseRequest(line);
    const remoteAddress = socket.remoteAddress;
    if (remoteAddress === undefined) throw new RefusalError('ECONNRESET', 'the client is gone');
    const standing = { remoteAddress, ended, session, end: () => void socket.destroySoon() };
    const reply = await answer(request, standing);
    const addr = 'addr' in reply ? { addr: `${reply.addr}` } : {};
    const said = JSON.stringify({ verbena: VERSION, ...reply, ...addr });
    socket.write(`${session?.sign(said) ?? said}\n`);
    stand(socket);
  } catch (error) {
    const refusal =
      error instanceof RefusalError
        ? error
        : new RefusalError('EIO', `the server failed: ${(error as Error).message}`);
    const { code, message } = refusal;
    socket.end(`${JSON.stringify({ verbena: VERSION, refused: { code, message } })}\n`);
    socket.resume();
    // A client that does not close its end would hold the connection.
    setTimeout(() => socket.destroy(), LINE_MILLIS_MAX).unref();
    throw error;
  }
}

/** The line with the request, and the session of a client with a key. Rejects with RefusalError. */
async function readRequest(
  socket: Socket,
  own: OwnKeys | undefined,
): Promise<{ line: string; session: ExchangeSession | undefined }> {
  const first = await readLine(socket, REQUEST_BYTES_MAX, 'the client');
  const fields = parseLine(first);
  if (!own) {
    if (fields.get('nonce') === undefined) return { line: first, session: undefined };
    const remedy = 'put without --psk-file and --token, or give it one';
    throw new RefusalError('EACCES', `the server has no key: ${remedy}`);
  }
  const auth = new ExchangeAuth(own.auth);
  const { local } = own;
  const session = auth.passive(helloOf(fields), { local, remote: socket.remoteAddress ?? '' });
  socket.write(`${JSON.stringify({ verbena: VERSION, ...auth.answer })}\n`);
  const text = await readLine(socket, REQUEST_BYTES_MAX, 'the client');
  const line = session.verified(text);
  if (line !== undefined) return { line, session };
  throw new RefusalError('EACCES', 'the client did not prove the key (--token, --psk-file)');
}

function helloOf(fields: Fields): unknown {
  const [keyId, nonce, encrypt] = ['keyId', 'nonce', 'encrypt'].map((name) => fields.get(name));
  return { keyId, nonce, encrypt };
}

/** From now on the other side has nothing to say but goodbye. */
function stand(socket: Socket): void {
  socket.on('data', () => socket.destroy());
  socket.resume();
}

/** Asks `host` to take a file. Rejects with RefusalError: the server's, or our own. */
export async function askServer(
  server: { readonly host: string; readonly port: number; readonly text: string },
  localAddress: string,
  request: PutRequest,
  signal: AbortSignal,
  auth?: AuthOptions,
): Promise<{ reply: PutReply | DoneReply; standing: Standing }> {
  const socket = connect({
    host: server.host,
    port: server.port,
    localAddress,
    keepAlive: true,
    keepAliveInitialDelay: KEEP_ALIVE_MILLIS,
    noDelay: true,
  });
  const ended = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  const abort = (): void => void socket.destroy();
  signal.addEventListener('abort', abort);
  try {
    const asking = JSON.stringify({ verbena: VERSION, put: request });
    const own = auth && { auth, local: localAddress };
    const session = own && (await introduce(socket, server, own));
    socket.write(`${session?.sign(asking) ?? asking}\n`);
    const text = await readLine(socket, REPLY_BYTES_MAX, server.text);
    const line = session ? verifiedReply(session, text) : text;
    const reply = parseReply(line, Math.ceil(request.size / request.pieceBytes));
    socket.on('error', () => socket.destroy());
    stand(socket);
    const end = (): void => void socket.destroy();
    return { reply, standing: { remoteAddress: server.host, ended, session, end } };
  } catch (error) {
    socket.on('error', () => undefined);
    socket.destroy();
    throw connectRefusal(error, server.text, 'verbena serve');
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

async function introduce(
  socket: Socket,
  server: { readonly host: string; readonly text: string },
  own: OwnKeys,
): Promise<ExchangeSession> {
  const auth = new ExchangeAuth(own.auth);
  socket.write(`${JSON.stringify({ verbena: VERSION, ...auth.request })}\n`);
  const line = await readLine(socket, REPLY_BYTES_MAX, server.text);
  const fields = parseLine(line);
  // A refusal needs no proof: without one there is no transfer either.
  if (fields.get('refused') !== undefined) parseReply(line, 0);
  return auth.active(helloOf(fields), { local: own.local, remote: server.host });
}

function verifiedReply(session: ExchangeSession, text: string): string {
  const line = session.verified(text);
  if (line !== undefined) return line;
  if (parseLine(text).get('refused') !== undefined) return text;
  const sentence = 'the server did not prove the key (--psk-file, --token)';
  throw new RefusalError('EACCES', sentence);
}

/** The first line that arrives, without its end. Rejects when it is late, too long or missing. */
function readLine(socket: Socket, bytesMax: number, peer: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const finish = (settle: () => void): void => {
      clearTimeout(timer);
      socket.off('data', onData).off('close', onClose).off('error', onError);
      socket.pause();
      settle();
    };
    const fail = (code: ErrnoName, sentence: string): void =>
      finish(() => reject(new RefusalError(code, sentence)));
    const onError = (error: Error): void => finish(() => reject(error));
    const onClose = (): void => fail('ECONNRESET', `${peer} closed the connection without a line`);
    const onData = (chunk: Buffer): void => {
      const end = chunk.indexOf(0x0a);
      chunks.push(end < 0 ? chunk : chunk.subarray(0, end));
      size += end < 0 ? chunk.length : end;
      if (size > bytesMax) fail(MISUSE_CODE, `${peer} sends a line of more than ${bytesMax} bytes`);
      else if (end >= 0) finish(() => resolve(Buffer.concat(chunks).toString()));
    };
    const timer = setTimeout(
      () => fail('ETIMEDOUT', `${peer} sent no line for ${LINE_MILLIS_MAX / 1000} s`),
      LINE_MILLIS_MAX,
    );
    socket.on('data', onData).on('close', onClose).on('error', onError);
    socket.resume();
  });
}

/** Reads fields of hostile JSON; each is refused by name. */
class Fields {
  readonly #fields: Readonly<Record<string, unknown>>;

  constructor(value: unknown, what: string) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw new RefusalError(MISUSE_CODE, `${what} is not a JSON object`);
    }
    this.#fields = value as Record<string, unknown>;
  }

  get(name: string): unknown {
    return Object.hasOwn(this.#fields, name) ? this.#fields[name] : undefined;
  }

  integer(name: string, least: number, most: number): number {
    const value = this.get(name);
    if (Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most) {
      return value as number;
    }
    const rule = `must be a whole number from ${least} to ${most}`;
    throw new RefusalError(MISUSE_CODE, `the field "${name}" ${rule}`);
  }

  text(name: string, pattern: RegExp): string {
    const value = this.get(name);
    if (typeof value === 'string' && pattern.test(value)) return value;
    throw new RefusalError(MISUSE_CODE, `the field "${name}" is invalid`);
  }

  side(): Side {
    return {
      qpn: this.integer('qpn', 2, 2 ** 24 - 1),
      psn: this.integer('psn', 0, 2 ** 24 - 1),
      port: this.integer('port', 1, 65535),
      receiveBufferBytes: this.integer('receiveBufferBytes', 1, 2 ** 31 - 1),
      reorderPackets: this.integer('reorderPackets', 0, 128),
    };
  }
}

function parseLine(line: string): Fields {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    value = undefined;
  }
  const fields = new Fields(value, 'the line that came');
  const version = fields.get('verbena');
  if (version === VERSION) return fields;
  throw new RefusalError(
    MISUSE_CODE,
    version === undefined
      ? 'what came is not from verbena'
      : `the other side speaks version ${JSON.stringify(version)}, this one ${VERSION}`,
  );
}

/** Throws RefusalError for anything that is no request in order. The name is not checked here. */
export function parseRequest(line: string): PutRequest {
  const fields = new Fields(parseLine(line).get('put'), 'the field "put"');
  const pieceBytes = fields.integer('pieceBytes', PIECE_BYTES_MIN, PIECE_BYTES_MAX);
  const size = fields.integer('size', 0, Number.MAX_SAFE_INTEGER);
  if (Math.ceil(size / pieceBytes) > PIECE_COUNT_MAX) {
    throw new RefusalError(
      'EMSGSIZE',
      `${size} bytes in pieces of ${pieceBytes} are more than ${PIECE_COUNT_MAX} pieces: ` +
        'choose larger ones (--piece-bytes)',
    );
  }
  return {
    ...fields.side(),
    transfer: fields.text('transfer', /^[0-9a-f]{32}$/),
    name: fields.text('name', /^[^]{0,1024}$/),
    size,
    mtimeNs: fields.text('mtimeNs', /^-?[0-9]{1,20}$/),
    pieceBytes,
    packetSizeMax: fields.integer('packetSizeMax', 1, 65535),
  };
}

/** Throws RefusalError: what the server refused with, or EPROTO for what is no reply in order. */
export function parseReply(line: string, pieceCount: number): PutReply | DoneReply {
  const fields = parseLine(line);
  const refused = fields.get('refused');
  if (refused !== undefined) {
    const refusal = new Fields(refused, 'the field "refused"');
    const code = refusal.text('code', /^E[A-Z]{1,20}$/) as ErrnoName;
    const message = refusal.text('message', /^[^]{0,2000}$/);
    throw new RefusalError(code, message.replace(` (${code})`, ''));
  }
  if (fields.get('done') === true) {
    return { done: true, sha256: fields.text('sha256', /^[0-9a-f]{64}$/) };
  }
  const mtuBytes = fields.integer('mtuBytes', 256, 4096);
  if (!isMtu(mtuBytes))
    throw new RefusalError(MISUSE_CODE, 'the field "mtuBytes" is not a path MTU');
  const base64Length = 4 * Math.ceil(Math.ceil(pieceCount / 8) / 3);
  return {
    ...fields.side(),
    mtuBytes,
    addr: BigInt(fields.text('addr', /^[0-9]{1,19}$/)),
    rkey: fields.integer('rkey', 0, 2 ** 32 - 1),
    slots: fields.integer('slots', 1, SLOTS_MAX),
    have: fields.text('have', new RegExp(`^(|[A-Za-z0-9+/=]{${base64Length}})$`)),
    note: fields.text('note', /^[^]{0,1000}$/),
  };
}
