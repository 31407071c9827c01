/** Receives files over a device of any link: a listener, and the admission of clients. */
import type { AuthOptions } from '../cm/auth-option.js';
import { listen, type RdmaListener, type RdmaRequest } from '../cm/connect.js';
import { RefusalError } from '../errors/errors.js';
import { SourceShares, sourceOf } from '../link/source-shares.js';
import type { Context } from '../verbs/context.js';
import { bytesOfHex } from './bytes.js';
import { Channel, ConnectionLost, FILE_SERVICE, refuse } from './channel.js';
import { checkFileName } from './file-name.js';
import type { FileStore } from './file-store.js';
import type { Message } from './messages.js';
import { pause, unref } from './pause.js';
import { Session, type Admit, type PutRequest, type SessionEnd } from './session.js';

export interface FileReceiverOptions {
  readonly context: Context;
  readonly store: FileStore;
  readonly clientsMax: number;
  /** Bytes of memory that each client may write into. */
  readonly windowBytes: number;
  /**
   * Keys, of which each client must prove one; its packets carry tags then. Default: the receiver
   * accepts clients without a key.
   */
  readonly auth?: AuthOptions | undefined;
}

/** Events for a log. `refused`: also a connection that ended without a request. */
export interface FileReceiverEvents {
  started(request: PutRequest, remote: string, piecesKnown: number, note: string): void;
  /** Another piece: `pieces` have arrived, in all connections. */
  arrived?(request: PutRequest, pieces: number): void;
  ended(request: PutRequest, remote: string, end: SessionEnd): void;
  refused(remote: string, error: unknown): void;
}

/** Connections without an admitted request: one more ends the oldest of them. */
export const WAITING_MAX = 64;
/** The same of one source: one more is refused. */
const WAITING_PER_SOURCE = 16;
/** A queue pair, messages, and the early region. */
export const CONNECTION_BYTES = 448 * 2 ** 10;
/** Of each client besides the window: the connection, and a bit for each piece. */
export const MEMORY_CLIENT_BYTES = 2 ** 20;
const CONNECTIONS_MAX = 2 ** 16;
const EXPIRE_LOOK_MILLIS = 600_000;
/** A client without progress for so long gives its place to one of a source that has fewer. */
const IDLE_MILLIS = 2000;
/** A message that is handled so long after a request was sent after it by a client that lives. */
const ALIVE_MILLIS = 100;
/**
 * A client that is silent for so long is gone: it sends a message every 2 s. The keep-alive of 3 s
 * is faster, but not where messages to the client are under way over a data channel: 17 s.
 */
const NOTICED_MILLIS = 6000;
/** Transfers whose clients may not have heard that they are done. */
const FINISHED_KEPT = 64;

export class FileReceiver {
  readonly context: Context;
  readonly #options: FileReceiverOptions;
  readonly #events: FileReceiverEvents;
  /** By file name. */
  readonly #sessions = new Map<string, Session>();
  /** SHA-256 by transfer, oldest first. */
  readonly #finished = new Map<string, Uint8Array>();
  /** Of all connections, oldest first. */
  readonly #connected = new Set<Session>();
  /** Of connections without an admitted request. */
  readonly #shares = new SourceShares(CONNECTIONS_MAX, WAITING_PER_SOURCE);
  #listener: RdmaListener | undefined;
  /** Requests open their parts one after the other: each counts what the one before takes. */
  #turn: Promise<unknown> = Promise.resolve();
  #expiring: ReturnType<typeof setInterval> | undefined;
  #closing = false;

  private constructor(options: FileReceiverOptions, events: FileReceiverEvents) {
    this.context = options.context;
    this.#options = options;
    this.#events = events;
  }

  /** Listens on `context`, which stays open when the receiver is closed. Rejects as `listen` and the store. */
  static async open(
    options: FileReceiverOptions,
    events: FileReceiverEvents,
  ): Promise<FileReceiver> {
    const { context, auth } = options;
    const receiver = new FileReceiver(options, events);
    const place = { address: `${context.local.gid}`, port: FILE_SERVICE };
    receiver.#listener = await listen(place, { context, ...(auth !== undefined && { auth }) });
    try {
      await options.store.start?.();
    } catch (error) {
      await receiver.#listener.close();
      throw error;
    }
    await receiver.#expire();
    receiver.#expiring = setInterval(() => void receiver.#expire(), EXPIRE_LOOK_MILLIS);
    unref(receiver.#expiring);
    void receiver.#acceptAll(receiver.#listener);
    return receiver;
  }

  /** How many clients are being served. */
  get clientCount(): number {
    return this.#sessions.size;
  }

  /** Ends every transfer; what arrived is synced. */
  async close(): Promise<void> {
    if (this.#closing) return;
    this.#closing = true;
    clearInterval(this.#expiring);
    await this.#listener?.close();
    const sessions = [...this.#connected];
    for (const session of sessions) session.stop('the server is closing');
    await Promise.all(sessions.map((session) => session.ended));
    await this.#options.store.close?.();
  }

  async #acceptAll(listener: RdmaListener): Promise<void> {
    for await (const request of listener) void this.#accept(request);
  }

  /** Serves a connection to its end. Never rejects. */
  async #accept(request: RdmaRequest): Promise<void> {
    const remote = request.peer.address;
    const giveBack = this.#shares.take(remote);
    try {
      if (!giveBack) {
        const sentence = 'the server has enough connections of this source; try again later';
        return refuse(request, new RefusalError('EAGAIN', sentence));
      }
      const channel = await Channel.accept(request);
      const answer: Admit = async (session, asked) => {
        const message = await this.#answer(session, asked);
        // Another limit is for the clients that are served.
        if (this.#isAdmitted(session)) giveBack();
        return message;
      };
      const arrived = this.#events.arrived?.bind(this.#events);
      await this.#serve(new Session(channel, remote, answer, arrived));
    } catch (error) {
      this.#events.refused(remote, error);
    } finally {
      giveBack?.();
    }
  }

  /** Rejects with why a client is refused; ConnectionLost. */
  async #serve(session: Session): Promise<void> {
    this.#connected.add(session);
    const waiting = [...this.#connected].filter((each) => !this.#isAdmitted(each));
    // A client sends its request at once: the oldest connection without one is the slowest.
    if (waiting.length > WAITING_MAX) waiting[0]!.stop('another connection needs its place');
    if (this.#closing) session.stop('the server is closing');
    const end = await session.run();
    this.#connected.delete(session);
    const { request, remoteAddress } = session;
    if (!request || !this.#isAdmitted(session)) {
      if (end.kind === 'failed') throw end.error;
      if (end.kind === 'lost') throw new ConnectionLost(end.reason);
      return;
    }
    this.#sessions.delete(request.name);
    if (end.kind === 'finished') this.#remember(request.transfer, bytesOfHex(end.sha256));
    this.#events.ended(request, remoteAddress, end);
  }

  #isAdmitted(session: Session): boolean {
    return this.#sessions.get(session.request?.name ?? '') === session;
  }

  async #answer(session: Session, request: PutRequest): Promise<Message> {
    checkFileName(request.name);
    const { name, transfer } = request;
    await this.#freeName(request);
    const sha256 = this.#finished.get(transfer);
    if (sha256 !== undefined) return { kind: 'DONE', sha256 };
    if (this.#closing)
      throw new RefusalError('ECONNRESET', 'the server is closing; try again later');
    const { clientsMax } = this.#options;
    if (this.#sessions.size >= clientsMax) await this.#makeRoom(session.remoteAddress);
    if (this.#sessions.has(name) || this.#sessions.size >= clientsMax) {
      throw new RefusalError(
        'EAGAIN',
        `the server is full: it serves ${clientsMax} at once (option clientsMax; --max-clients); try again later`,
      );
    }
    // From here to the end of the session the name is taken.
    this.#sessions.set(name, session);
    try {
      const ready = await this.#open(session, request);
      this.#events.started(request, session.remoteAddress, session.piecesSynced, session.note);
      return ready;
    } catch (error) {
      this.#sessions.delete(name);
      throw error;
    }
  }

  /** Ends earlier connections of the transfer. Rejects while another client puts the name. */
  async #freeName({ name, transfer }: PutRequest): Promise<void> {
    for (let old = this.#sessions.get(name); old; old = this.#sessions.get(name)) {
      const isSame = old.request?.transfer === transfer;
      // The same client, and its old connection has not been missed yet.
      if (isSame) old.stop('it comes again');
      if (isSame) await old.ended;
      const isOver = isSame || (await endsSoon(old));
      // The code that started the session deletes it.
      await pause(0);
      if (isOver || this.#sessions.get(name) !== old) continue;
      throw new RefusalError('EBUSY', `another client is putting ${name} now; try again later`);
    }
  }

  /** Ends the client that waits longest, where its source has more places than this one. */
  async #makeRoom(remoteAddress: string): Promise<void> {
    const all = [...this.#sessions.values()];
    const placesOf = (address: string): number =>
      all.filter((other) => sourceOf(other.remoteAddress) === sourceOf(address)).length;
    const own = placesOf(remoteAddress);
    const [idlest] = all
      .filter((other) => other.idleMillis > IDLE_MILLIS && placesOf(other.remoteAddress) > own + 1)
      .sort((a, b) => b.idleMillis - a.idleMillis);
    if (!idlest) return;
    idlest.stop('it made no progress, and another client needs its place');
    await idlest.ended;
    await pause(0);
  }

  /** Never rejects: what cannot be removed stays. */
  async #expire(): Promise<void> {
    const inUse = (name: string): boolean => this.#sessions.has(name);
    await this.#options.store.expire(inUse).catch(() => undefined);
  }

  /** Opens a session that the store has room for. Rejects with RefusalError. */
  async #open(session: Session, request: PutRequest): Promise<Message> {
    const turn = this.#turn.then(async () => {
      const { store, windowBytes } = this.#options;
      await this.#expire();
      return session.open(store, windowBytes, request);
    });
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  #remember(transfer: string, sha256: Uint8Array): void {
    this.#finished.set(transfer, sha256);
    if (this.#finished.size <= FINISHED_KEPT) return;
    const [oldest] = this.#finished.keys();
    this.#finished.delete(oldest!);
  }
}

/**
 * Resolves to false if the session's client is alive: it sent a message after the call. Ends a
 * session whose client is silent. A message of a client that was
 * killed before the call is in the device's socket already and is handled within ALIVE_MILLIS.
 */
async function endsSoon(session: Session): Promise<boolean> {
  const start = performance.now();
  const ended = session.ended.then(() => true);
  for (;;) {
    if (await Promise.race([ended, pause(ALIVE_MILLIS).then(() => false)])) return true;
    if (session.heardMillis > start + ALIVE_MILLIS) return false;
    if (performance.now() < start + NOTICED_MILLIS) continue;
    session.stop('it is silent, and another client puts the same file');
    await ended;
    return true;
  }
}
