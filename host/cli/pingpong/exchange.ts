/**
 * Exchange of ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong and ibv_srq_pingpong of rdma-core
 * over TCP before they start: each side sends its queue pairs as text of a fixed length with a NUL
 * (LID:QPN:PSN:GID, hexadecimal), the client first, which then sends "done".
 */
import type { AuthOptions } from '../../index.js';
import { Gid } from '../../link/endpoint.js';
import { RefusalError } from '../../errors/errors.js';
import type { ExchangeSession } from '../base/exchange-key.js';
import { checkNoHello } from '../base/keyed-exchange.js';
import type { ServerAddress } from '../base/server-address.js';
import { TcpControl, acceptTcp } from '../perf/control.js';

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
/** More than one side says: destinations, `DONE`, their tags. */
const ALL_BYTES = 2 * DESTINATIONS_MAX * DESTINATION_BYTES;
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
export interface PeerDestination {
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
): Promise<PeerDestination> {
  const command = 'verbena pingpong';
  const control = await TcpControl.connect(server, signal, command, undefined, ALL_BYTES);
  return converse(control, auth, async () => {
    await control.send(encodeDestinations(ours));
    const theirs = await receiveDestinations(control, ours.length);
    await control.send(Buffer.from(DONE));
    return { theirs, session: control.session };
  });
}

/** A client that has come. */
export interface Client {
  /**
   * Receives its `count` destinations, has `connect` tell ours, and returns what that makes.
   * Rejects as `askPeer`, and with what `connect` throws.
   */
  answer<T>(count: number, connect: Connector<T>, auth?: AuthOptions): Promise<T>;
}

/** Connects to the client; `localAddress` is the destination of the client's connection. */
export type Connector<T> = (
  client: PeerDestination,
  localAddress: string,
) => Promise<{ readonly ours: readonly Destination[]; readonly result: T }>;

/**
 * The server's part: waits for one client, at every address. `listening` is called when one may
 * come. Rejects with LinkError EADDRINUSE, EACCES.
 */
export async function awaitPeer(
  port: number,
  signal: AbortSignal,
  listening: () => Promise<void>,
): Promise<Client> {
  const socket = await acceptTcp(undefined, port, signal, listening);
  const localAddress = (socket.localAddress ?? '').replace(/^::ffff:/, '');
  const control = new TcpControl(socket, false, ALL_BYTES);
  return {
    answer: (count, connect, auth) =>
      converse(control, auth, async () => {
        const theirs = await receiveDestinations(control, count);
        const { ours, result } = await connect({ theirs, session: control.session }, localAddress);
        await control.send(encodeDestinations(ours));
        await control.receive(DONE.length, TIMEOUT_MILLIS);
        return result;
      }),
  };
}

async function receiveDestinations(control: TcpControl, count: number): Promise<Destination[]> {
  return decodeDestinations(await control.receive(count * DESTINATION_BYTES, TIMEOUT_MILLIS));
}

/** With a key, hellos come first. A failure ends the connection. */
async function converse<T>(
  control: TcpControl,
  auth: AuthOptions | undefined,
  talk: () => Promise<T>,
): Promise<T> {
  try {
    if (auth) await control.agree(auth, DESTINATIONS_MAX * DESTINATION_BYTES);
    const result = await talk();
    control.end();
    return result;
  } catch (error) {
    control.abandon();
    throw error;
  }
}
