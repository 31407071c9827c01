/** The other side of a connection: its memory, and messages both ways. */
import { AccessFlag } from '#build/abi.js';
import { settled } from '../base/wait-limits.js';
import type { RdmaConnection } from '../cm/connect.js';
import type { DeviceUse } from './devices.js';
import type { Hello } from './hello.js';
import type { LocalRegions, MemoryByName } from './local-regions.js';
import { checkCall } from './operation.js';
import { After, endedError, protocolError, type RemoteError } from './remote-error.js';
import {
  RemoteRegion,
  bytesOf,
  parseHandle,
  staleError,
  type RequestOptions,
} from './remote-region.js';
import type { RequestQueue } from './request-queue.js';
import type { Queues, Session } from './session.js';

/** How long `close` waits until the peer takes a message, and until it has its goodbye. */
const BYE_MILLIS = 500;

/** Parts of a remote. */
export interface RemoteParts {
  readonly device: DeviceUse;
  readonly queues: Queues;
  /** Memory that this side shares with this peer. */
  readonly shared: LocalRegions;
  /** Opens another connection after the end of one; undefined: the end is final. */
  readonly reconnect?: (signal: AbortSignal) => Promise<readonly [Session, Hello]>;
  /** Called when another connection is in use. */
  readonly onReconnect?: () => void;
  /** Called when everything has ended. */
  readonly release: () => Promise<void>;
}

/**
 * A connected peer: of a client the server (`connect`), of a server each of its clients (`share`).
 * `for await (const message of remote)` yields the messages of the peer until the connection ends.
 */
export class Remote<Shared = Readonly<Record<string, unknown>>> {
  /** The regions of the peer, by name; undefined where it shares none of that name. */
  readonly memory: Readonly<Record<string, RemoteRegion>>;
  /** The memory that this side shares with this peer, by name. */
  readonly shared: MemoryByName<Shared>;
  /**
   * Resolves, and never rejects, when the connection has ended on either side's initiative: with the
   * reason, or with undefined after an orderly `close` of either side. With `reconnect`: when no
   * further attempt is made.
   */
  readonly closed: Promise<RemoteError | undefined>;
  readonly #parts: RemoteParts;
  readonly #regions: Record<string, RemoteRegion> = Object.create(null) as never;
  /** Regions by handle. */
  readonly #byHandle = new Map<string, RemoteRegion>();
  readonly #allocated: (() => void)[] = [];
  readonly #stop = new AbortController();
  #session: Session;
  #hello: Hello;
  #isClosing = false;
  /** This side has closed the connection on purpose. */
  #isOrderly = false;
  #cleanUp: Promise<void> | undefined;
  #closedWith: (reason: RemoteError | undefined) => void = () => {};

  /** @internal Use `connect`, or the clients of `share`. */
  constructor(parts: RemoteParts, session: Session, hello: Hello) {
    this.#parts = parts;
    this.#session = session;
    this.#hello = hello;
    this.memory = this.#regions;
    this.shared = parts.shared.memory as MemoryByName<Shared>;
    this.closed = new Promise((resolve) => (this.#closedWith = resolve));
    this.#adopt(session, hello);
  }

  /** The level below: id, queue pair, completion queues. A new one after each reconnect. */
  get connection(): RdmaConnection {
    return this.#session.connection;
  }

  /**
   * The region of a handle (`region.handle`) of the same server. Throws MisuseError for a string
   * that is no handle, and for a handle of another server.
   */
  region(handle: string): RemoteRegion {
    const known = this.#byHandle.get(handle);
    if (known) return known;
    const parsed = parseHandle(handle);
    if (parsed.id !== this.#hello.id) {
      throw staleError('region');
    }
    const region = new RemoteRegion(this.requests, parsed);
    this.#byHandle.set(handle, region);
    return region;
  }

  /** @internal */
  get requests(): RequestQueue {
    return this.#parts.queues.requests;
  }

  /** The error of calls after this side has closed, or destroyed, the connection. */
  #endedHere(how: string): RemoteError {
    const { after } = this.requests;
    const remedy = after === After.JOIN ? after : After.CLOSED;
    return endedError('connection', `the connection was ${how}`, remedy);
  }

  /**
   * `length` zero bytes of the device's memory, registered for this connection: requests use them in
   * place, without a copy. They end with the connection. Throws RefusalError ENOMEM, RemoteError
   * after the end.
   */
  alloc(length: number): Uint8Array {
    if (this.#isClosing) throw this.#endedHere('closed').ofCall('alloc');
    const { context, pd, local } = this.#parts.device;
    const bytes = context.alloc(length);
    const mr = pd.regMr(bytes, AccessFlag.LOCAL_WRITE);
    local.add(bytes, mr.lkey);
    this.#allocated.push(() => {
      local.remove(mr.lkey);
      mr.dereg();
      context.free(bytes);
    });
    return bytes;
  }

  /**
   * Sends a message of any length up to the peer's `messageBytesMax`. Resolves when the peer's
   * device has it; the peer's application reads it in order. Waits while the peer has 16 unread
   * frames of 8 KiB. Writes that were made before it are placed before it is read. Rejects with
   * MisuseError, RemoteError, and the reason of `signal`.
   */
  async send(
    message: ArrayBufferView | ArrayBufferLike,
    options: RequestOptions = {},
  ): Promise<void> {
    checkCall('send', options);
    if (this.#isClosing) throw this.#endedHere('closed').ofCall('send');
    return this.#parts.queues.messages.send(bytesOf('send', 'message', message), options);
  }

  /**
   * The next message of the peer; undefined: the connection has ended. Shares the messages with
   * `for await`. A message that comes after a limit goes to the next reader. Rejects with
   * MisuseError, RemoteError ETIMEDOUT (`timeout`, in milliseconds), the reason of `signal`.
   */
  async receive(options: RequestOptions = {}): Promise<Uint8Array | undefined> {
    checkCall('receive', options);
    return this.#parts.queues.messages.next(options);
  }

  /** Messages of the peer, in order, until the connection ends; several readers share them. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    const { messages } = this.#parts.queues;
    for (let next = await messages.next(); next; next = await messages.next()) yield next;
  }

  /**
   * Waits for the calls that were made, then ends the connection and gives everything back.
   * Messages that have not left when the peer has made no room for 0.5 s reject.
   */
  async close(): Promise<void> {
    if (!this.#isClosing) {
      this.#isClosing = true;
      this.#stop.abort();
      const session = this.#session;
      const { requests, messages } = this.#parts.queues;
      const reason = this.#endedHere('closed');
      requests.stop(reason);
      await messages.finish(session.ended, BYE_MILLIS);
      if (!session.closed) {
        await requests.idle();
        messages.sendBye();
        // A peer that died acknowledges nothing; the keep-alive would notice that seconds later.
        await settled([requests.idle(), session.ended], BYE_MILLIS);
      }
      this.#isOrderly = true;
      session.end(reason);
    }
    await this.closed;
    await this.#cleanUp;
  }

  /** Ends the connection at once: calls that wait reject. */
  destroy(): Promise<void> {
    return this.fail(this.#endedHere('destroyed'));
  }

  /** @internal The same, for this reason. */
  async fail(reason: RemoteError): Promise<void> {
    this.#isClosing = true;
    this.#stop.abort(reason);
    this.#session.end(reason);
    await this.closed;
    await this.#cleanUp;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Uses the regions of a new connection, and waits for its end. */
  #adopt(session: Session, hello: Hello): void {
    this.#session = session;
    this.#endStale(this.#hello, hello);
    this.#hello = hello;
    for (const description of hello.regions) {
      const handle = { id: hello.id, description };
      const known = this.#regions[description.name];
      if (known) known.rebind(handle);
      else this.#regions[description.name] = new RemoteRegion(this.requests, handle);
    }
    this.requests.start();
    void session.ended.then((reason) => this.#sessionEnded(session, reason));
  }

  /** Ends regions of handles that the peer had, and has no more. */
  #endStale(before: Hello, { id, regions }: Hello): void {
    const isThere = (list: Hello['regions'], { rkey }: RemoteRegion): boolean =>
      list.some((one) => one.rkey === rkey);
    for (const [handle, region] of this.#byHandle) {
      const isGone = isThere(before.regions, region) && !isThere(regions, region);
      if (before.id === id && !isGone) continue;
      region.end();
      this.#byHandle.delete(handle);
    }
  }

  async #sessionEnded(session: Session, reason: RemoteError): Promise<void> {
    const { queues, reconnect } = this.#parts;
    const goesOn = reconnect !== undefined && !this.#isClosing;
    const isOrderly = this.#isOrderly || queues.messages.hasPeerClosed;
    queues.requests.detach(reason, goesOn);
    queues.messages.detach(reason, goesOn);
    if (!goesOn) return this.#end(session, isOrderly ? undefined : reason);
    try {
      await session.closed;
      const [next, hello] = await reconnect(this.#stop.signal);
      if (this.#isClosing) next.end(this.#endedHere('closed'));
      const missing = Object.values(this.#regions).find((one) => !offers(hello, one));
      if (!missing) {
        this.#adopt(next, hello);
        // An error that it throws is the application's own.
        if (this.#parts.onReconnect) queueMicrotask(this.#parts.onReconnect);
        return;
      }
      const rule = `the server shares no region ${missing.name} of ${missing.length} bytes any more`;
      const error = protocolError('reconnect', rule, 'share it again');
      next.end(error);
      this.#end(next, error);
    } catch (error) {
      this.#end(session, this.#isOrderly ? undefined : (error as RemoteError));
    }
  }

  #end(session: Session, reason: RemoteError | undefined): void {
    this.#isClosing = true;
    const { requests, messages } = this.#parts.queues;
    const error = reason ?? this.#endedHere('closed');
    requests.detach(error, false);
    messages.detach(error, false);
    this.#cleanUp = this.#release(session);
    // `close` rejects with its error: memory of `alloc` that the application has registered.
    this.#cleanUp.catch(() => {});
    this.#closedWith(reason);
  }

  async #release(session: Session): Promise<void> {
    await session.closed;
    if (!this.#parts.device.context.device.closed) {
      this.#parts.queues.requests.close();
      for (const free of this.#allocated.splice(0)) free();
      await this.#parts.shared.close();
    }
    await this.#parts.release();
  }
}

/** Is the region there, as large as it was? */
function offers({ regions }: Hello, { name, length }: RemoteRegion): boolean {
  return regions.some((one) => one.name === name && one.length >= length);
}
