/** The file server: a device, a TCP port, and the admission of clients. */
import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { MisuseError, RefusalError, type AuthOptions } from '../../index.js';
import type { Context, CounterValues } from '../../index.js';
import {
  ExchangeServer,
  type DoneReply,
  type PutReply,
  type PutRequest,
  type Standing,
} from '../file-transfer/exchange.js';
import { checkFileName } from '../file-transfer/file-name.js';
import { fileRefusal } from '../../errors/file-refusal.js';
import { openLocalDevice, type DeviceOptions } from '../base/open-device.js';
import { checkQuota, removeUnfinished } from './served-directory.js';
import { Session, type SessionEnd } from './session.js';
import { sourceOf } from '../../link/source-shares.js';

export interface FileServerOptions extends DeviceOptions {
  /** Where files go. */
  readonly directory: string;
  readonly clientsMax: number;
  /** Bytes of memory that each client may write into. */
  readonly windowBytes: number;
  /**
   * Keys, of which each client must prove one; its packets carry tags then. Default: the server
   * accepts clients without a key.
   */
  readonly auth?: AuthOptions | undefined;
  /** Bytes of all files in the directory, finished or not. Default: what the disk has. */
  readonly quotaBytes?: number | undefined;
  /** Unfinished files that nothing was written to for so long are removed. Default 7 days. */
  readonly expireMillis?: number | undefined;
}

/** What happens, for a log. */
export interface FileServerEvents {
  started(request: PutRequest, remote: string, piecesKnown: number, note: string): void;
  ended(request: PutRequest, remote: string, end: SessionEnd): void;
  refused(remote: string, error: unknown): void;
}

/** Device memory besides the windows: tables, queues, messages. */
const MEMORY_BASE_BYTES = 16 * 2 ** 20;
const MEMORY_CLIENT_BYTES = 768 * 2 ** 10;
/** With a port that is free for UDP and taken for TCP, another one is tried. */
const FREE_PORT_ATTEMPTS = 16;
const EXPIRE_MILLIS = 7 * 24 * 3_600_000;
const EXPIRE_LOOK_MILLIS = 600_000;
/** A client without progress for so long gives its place to one of a source that has fewer. */
const IDLE_MILLIS = 2000;
/** Transfers whose clients may not have heard that they are done. */
const FINISHED_KEPT = 64;

export class FileServer {
  readonly context: Context;
  readonly directory: string;
  readonly #options: FileServerOptions;
  readonly #events: FileServerEvents;
  /** By file name. */
  readonly #sessions = new Map<string, Session>();
  /** SHA-256 by transfer, oldest first. */
  readonly #finished = new Map<string, string>();
  #exchange: ExchangeServer | undefined;
  /** Requests look at the directory one after the other: each counts what the one before takes. */
  #turn: Promise<unknown> = Promise.resolve();
  #expiring: ReturnType<typeof setInterval> | undefined;
  #closing = false;

  private constructor(context: Context, options: FileServerOptions, events: FileServerEvents) {
    this.context = context;
    this.directory = resolve(options.directory);
    this.#options = options;
    this.#events = events;
  }

  /** Rejects with RefusalError: no such directory, no memory; LinkError: address or port taken. */
  static async open(options: FileServerOptions, events: FileServerEvents): Promise<FileServer> {
    await checkDirectory(options.directory);
    const clientBytes = options.windowBytes + MEMORY_CLIENT_BYTES;
    if (MEMORY_BASE_BYTES + options.clientsMax * clientBytes > 2 ** 32) {
      throw new MisuseError(
        'windowBytes',
        `${options.clientsMax} clients (--max-clients) with ${options.windowBytes} bytes each ` +
          '(--window-bytes) are more than the 4 GiB that a device has',
      );
    }
    for (let attempt = 1; ; attempt++) {
      const context = await openLocalDevice(options, {
        memoryBytes: MEMORY_BASE_BYTES + options.clientsMax * clientBytes,
      });
      const server = new FileServer(context, options, events);
      try {
        server.#exchange = await ExchangeServer.listen(
          options.address,
          context.local.port,
          options.clientsMax,
          (request, standing) => server.#answer(request, standing),
          (remote, error) => events.refused(remote, error),
          options.auth,
        );
        await server.#expire();
        server.#expiring = setInterval(() => void server.#expire(), EXPIRE_LOOK_MILLIS).unref();
        return server;
      } catch (error) {
        await context.close();
        const taken = error instanceof RefusalError && error.code === 'EADDRINUSE';
        if (options.port !== 0 || !taken || attempt === FREE_PORT_ATTEMPTS) throw error;
      }
    }
  }

  /** How many clients are being served. */
  get clientCount(): number {
    return this.#sessions.size;
  }

  get counters(): CounterValues {
    return this.context.counters();
  }

  /** Ends every transfer, what arrived is synced. Rejects where a capture could not be written. */
  async close(): Promise<void> {
    if (this.#closing) return;
    this.#closing = true;
    clearInterval(this.#expiring);
    const sessions = [...this.#sessions.values()];
    for (const session of sessions) session.stop('the server is closing');
    await Promise.all(sessions.map((session) => session.ended));
    await this.#exchange?.close();
    await this.context.close();
  }

  async #answer(request: PutRequest, standing: Standing): Promise<PutReply | DoneReply> {
    checkFileName(request.name);
    const { name, transfer } = request;
    for (let old = this.#sessions.get(name); old; old = this.#sessions.get(name)) {
      if (old.request.transfer !== transfer) {
        throw new RefusalError('EBUSY', `another client is putting ${name} now; try again later`);
      }
      // The same client, and its old connection has not been missed yet.
      old.stop('it comes again');
      await old.ended;
      // The session that the caller started reports its own end.
      await new Promise((resolve) => setImmediate(resolve));
    }
    const sha256 = this.#finished.get(transfer);
    if (sha256 !== undefined) return { done: true, sha256 };
    if (this.#closing) throw new RefusalError('ECONNRESET', 'the server is closing');
    const { clientsMax } = this.#options;
    if (this.#sessions.size >= clientsMax) await this.#makeRoom(standing.remoteAddress);
    if (this.#sessions.has(name) || this.#sessions.size >= clientsMax) {
      throw new RefusalError(
        'EAGAIN',
        `the server is full: it serves ${clientsMax} at once (--max-clients); try again later`,
      );
    }
    // From here to the end of the session the name is taken.
    const session = new Session(this.context, request, standing);
    this.#sessions.set(name, session);
    return this.#start(session, standing);
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
    await new Promise((resolve) => setImmediate(resolve));
  }

  /** Never rejects: what cannot be removed stays. */
  async #expire(): Promise<void> {
    const { expireMillis = EXPIRE_MILLIS } = this.#options;
    const inUse = (name: string): boolean => this.#sessions.has(name);
    await removeUnfinished(this.directory, expireMillis, inUse, Date.now()).catch(() => undefined);
  }

  /** What the directory has room for, the file itself included. Rejects with RefusalError. */
  async #reserve(session: Session, open: () => Promise<PutReply>): Promise<PutReply> {
    const turn = this.#turn.then(async () => {
      const { quotaBytes } = this.#options;
      await this.#expire();
      if (quotaBytes !== undefined) await checkQuota(this.directory, quotaBytes, session.request);
      return open();
    });
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  async #start(session: Session, standing: Standing): Promise<PutReply> {
    const { request } = session;
    const { directory } = this;
    const { windowBytes } = this.#options;
    let reply: PutReply;
    try {
      reply = await this.#reserve(session, () =>
        session.open({ directory, windowBytes }, this.#sessions.size),
      );
    } catch (error) {
      this.#sessions.delete(request.name);
      throw error;
    }
    const remote = standing.remoteAddress;
    const known = session.piecesSynced;
    this.#events.started(request, remote, known, reply.note);
    void session.run().then((end) => {
      this.#sessions.delete(request.name);
      if (end.kind === 'finished') this.#remember(request.transfer, end.sha256);
      this.#events.ended(request, remote, end);
    });
    return reply;
  }

  #remember(transfer: string, sha256: string): void {
    this.#finished.set(transfer, sha256);
    if (this.#finished.size <= FINISHED_KEPT) return;
    const [oldest] = this.#finished.keys();
    this.#finished.delete(oldest!);
  }
}

async function checkDirectory(directory: string): Promise<void> {
  const found = await stat(directory).catch((error: unknown) => {
    throw fileRefusal(`cannot serve ${directory}`, error);
  });
  if (found.isDirectory()) return;
  throw new RefusalError('ENOENT', `cannot serve ${directory}: not a directory`);
}
