/**
 * What ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong and ibv_srq_pingpong of rdma-core say to
 * each other over TCP before they start: each side its queue pairs, as text of a fixed length with
 * a NUL (LID:QPN:PSN:GID, hexadecimal), the client first, which then says "done".
 */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { Gid, RefusalError, type AuthOptions } from '../../index.js';
import { connectRefusal, listenRefusal } from '../../link/tcp-refusal.js';
import type { ExchangeSession } from '../file-transfer/exchange-key.js';
import { KeyedConversation, agreeOnKeys, checkNoHello } from '../base/keyed-exchange.js';
import type { Conversation, Introducible } from '../base/keyed-exchange.js';
import { formatServerAddress, type ServerAddress } from '../base/server-address.js';

/** One end of one queue pair's connection. */
export interface Destination {
  readonly qpn: number;
  readonly psn: number;
  /** All zeros if the peer runs without `-g`: then it cannot be reached. */
  readonly gid: Gid;
}

const TEXT = '0000:000000:000000:00000000000000000000000000000000';
/** With its NUL. */
const DESTINATION_BYTES = TEXT.length + 1;
/** Of ibv_srq_pingpong. */
const DESTINATIONS_MAX = 256;
const DONE = 'done\0';
const TIMEOUT_MILLIS = 10_000;

/** The whole of what one side says. RoCE has no LID: 0. */
export function encodeDestinations(list: readonly Destination[]): Buffer {
  const hex = (value: number): string => value.toString(16).padStart(6, '0');
  const texts = list.map(
    ({ qpn, psn, gid }) =>
      `0000:${hex(qpn)}:${hex(psn)}:${Buffer.from(gid.bytes).toString('hex')}\0`,
  );
  return Buffer.from(texts.join(''), 'latin1');
}

/** Throws RefusalError EACCES for a hello (keyed-exchange.ts), EPROTO for anything else than `encodeDestinations` makes. */
export function decodeDestinations(bytes: Buffer): Destination[] {
  checkNoHello(bytes);
  const list: Destination[] = [];
  for (let start = 0; start < bytes.length; start += DESTINATION_BYTES) {
    const text = bytes.toString('latin1', start, start + DESTINATION_BYTES);
    const found = /^[\da-f]{4}:([\da-f]{6}):([\da-f]{6}):([\da-f]{32})\0$/i.exec(text);
    if (!found)
      throw new RefusalError('EPROTO', 'invalid message from peer: expected LID:QPN:PSN:GID');
    const [, qpn = '', psn = '', gid = ''] = found;
    list.push({
      qpn: parseInt(qpn, 16),
      psn: parseInt(psn, 16),
      gid: new Gid(Buffer.from(gid, 'hex')),
    });
  }
  return list;
}

/** The queue pairs of the other side and, with a key, the session that packet keys come from. */
export interface Introduction {
  readonly theirs: readonly Destination[];
  readonly session: ExchangeSession | undefined;
}

/**
 * The client's part. Rejects with RefusalError: ECONNREFUSED, ECONNRESET, ETIMEDOUT, EPROTO, EACCES.
 */
export async function askPeer(
  server: ServerAddress,
  ours: readonly Destination[],
  signal: AbortSignal,
  auth?: AuthOptions,
): Promise<Introduction> {
  const name = formatServerAddress(server);
  const socket = connect({ host: server.host, port: server.port, signal });
  return withSocket(socket, name, async () => {
    const { talk, session } = await converse(socket, true, auth);
    await talk.send(encodeDestinations(ours));
    const theirs = decodeDestinations(await talk.receive(ours.length * DESTINATION_BYTES));
    await talk.send(Buffer.from(DONE));
    return { theirs, session };
  });
}

/** A client that has come. */
export interface Client {
  /**
   * Hears its `count` destinations, has `connect` tell ours, and returns what that makes. Rejects as
   * `askPeer`, and with what `connect` throws.
   */
  answer<T>(count: number, connect: Connector<T>, auth?: AuthOptions): Promise<T>;
}

/** Connects to the client; `localAddress` is the destination of the client's connection. */
export type Connector<T> = (
  client: Introduction,
  localAddress: string,
) => Promise<{ readonly ours: readonly Destination[]; readonly result: T }>;

/**
 * The server's part: waits for one client, at every address. `listening` is called when one may
 * come. Rejects with LinkError EADDRINUSE, EACCES.
 */
export async function awaitPeer(
  port: number,
  signal: AbortSignal,
  listening: () => void,
): Promise<Client> {
  const server = createServer();
  try {
    server.listen({ port, exclusive: true, signal });
    await once(server, 'listening', { signal });
  } catch (error) {
    server.close();
    throw listenRefusal(error, { port, option: '-p' });
  }
  const coming = once(server, 'connection', { signal });
  listening();
  const [socket] = (await coming) as [Socket];
  server.close();
  const localAddress = (socket.localAddress ?? '').replace(/^::ffff:/, '');
  return {
    answer: (count, connect, auth) =>
      withSocket(socket, socket.remoteAddress ?? 'the client', async () => {
        const { talk, session } = await converse(socket, false, auth);
        const theirs = decodeDestinations(await talk.receive(count * DESTINATION_BYTES));
        const { ours, result } = await connect({ theirs, session }, localAddress);
        await talk.send(encodeDestinations(ours));
        await talk.receive(DONE.length);
        return result;
      }),
  };
}

/** With a key, hellos come first, and messages have tags. */
async function converse(
  socket: Socket,
  isClient: boolean,
  auth: AuthOptions | undefined,
): Promise<{ readonly talk: Conversation; readonly session: ExchangeSession | undefined }> {
  const plain: Introducible = {
    firstBytes: DESTINATIONS_MAX * DESTINATION_BYTES,
    send: (bytes) => {
      socket.write(bytes);
      return Promise.resolve();
    },
    receive: (length) => readBytes(socket, length),
  };
  if (!auth) return { talk: plain, session: undefined };
  const session = await agreeOnKeys(auth, isClient, plain);
  return { talk: new KeyedConversation(session, plain), session };
}

/** Everything that happens on a socket while `talk` runs ends it. */
async function withSocket<T>(socket: Socket, name: string, talk: () => Promise<T>): Promise<T> {
  socket.setTimeout(TIMEOUT_MILLIS, () => {
    const sentence = `${name} says nothing for ${TIMEOUT_MILLIS / 1000} s`;
    socket.destroy(new RefusalError('ETIMEDOUT', sentence));
  });
  try {
    const result = await talk();
    socket.end();
    return result;
  } catch (error) {
    socket.destroy();
    throw connectRefusal(error, name, 'verbena pingpong');
  } finally {
    socket.on('error', () => undefined);
  }
}

/** Reads exactly `size` bytes. */
function readBytes(socket: Socket, size: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const stop = (): void => void socket.off('readable', look).off('error', fail).off('close', end);
    const look = (): void => {
      const bytes = socket.read(size) as Buffer | null;
      if (!bytes) return;
      stop();
      if (bytes.length === size) resolve(bytes);
      else
        reject(
          new RefusalError(
            'ECONNRESET',
            'the peer closed the connection in the middle of a message',
          ),
        );
    };
    const fail = (error: Error): void => {
      stop();
      reject(error);
    };
    const end = (): void => fail(new RefusalError('ECONNRESET', 'the peer closed the connection'));
    socket.on('readable', look).on('error', fail).on('close', end);
    look();
  });
}
