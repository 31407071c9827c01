/** `share`: a server whose memory clients read and write without code of the server. */
import { copyOptions } from '../base/copy-options.js';
import { warn } from '../base/warning.js';
import { lookUp } from '../cm/address-info.js';
import { copyAuth } from '../cm/auth-option.js';
import { SourceCounts } from '../cm/source-counts.js';
import { listen, type RdmaConnection, type RdmaListener, type RdmaRequest } from '../cm/connect.js';
import { RejectReason } from '../cm/enums.js';
import { randomId } from '../verbs/refuse.js';
import type { QueuePair } from '../verbs/queues/queue-pair.js';
import {
  CM_RESPONSE_TIMEOUT,
  CM_RETRIES,
  KEEP_ALIVE_MILLIS,
  MESSAGE_BYTES_MAX,
  checkCommon,
  type CommonOptions,
} from './connect.js';
import { ClientPlaces } from './client-places.js';
import { fullError, useDevice, type DeviceUse } from './devices.js';
import { PROTOCOL, speaksProtocol, type Hello } from './hello.js';
import { LocalRegions, regionBytes, type MemoryByName, type Regions } from './local-regions.js';
import { Inbox, Messages } from './messages.js';
import { checkNoLimits, checkServerOptions } from './region-rules.js';
import { After, endedError, timeoutError, type RemoteError } from './remote-error.js';
import { Remote } from './remote.js';
import { RequestQueue } from './request-queue.js';
import { QUEUE_PAIR, RNR_RETRY_COUNT, Session } from './session.js';
import { formatUrl, parseUrl, type RdmaUrl } from '../cm/url.js';

/** Options of `share`. */
export interface ServerOptions extends CommonOptions {
  /** Called with each client. An error that it throws, or rejects with, ends that client only. */
  readonly onClient?: (client: Remote) => void | Promise<void>;
  /** Called with errors of clients: of a failed handshake, and of `onClient`. */
  readonly onError?: (error: Error) => void;
  /** Bytes of memory that each client may ask for. Default 0: none. */
  readonly lendBytes?: number;
  /** Clients at a time; others are refused. Default 256. */
  readonly clientsMax?: number;
  /** Clients of one address at a time. Default: `clientsMax`. */
  readonly clientsPerSource?: number;
}

const CLIENTS_MAX = 256;
/** A client that does not describe itself this soon is disconnected. */
const HANDSHAKE_MILLIS = 5000;
const COMMON = 'context pd device keepAliveMillis messageBytesMax auth';

/**
 * A server (`share`). `for await (const client of server)` yields each client once it is connected,
 * until the server is closed.
 */
export class RemoteServer<Named = Readonly<Record<string, unknown>>> {
  /** The shared memory by name: clients read and write it at any time. */
  readonly memory: MemoryByName<Named>;
  /** The address that clients connect to, with the UDP port if that is not 4791. */
  readonly url: RdmaUrl;
  /** Connected clients. */
  readonly clients: ReadonlySet<Remote>;
  readonly #clients = new Set<Remote>();
  readonly #options: ServerOptions;
  readonly #listener: RdmaListener;
  readonly #device: DeviceUse;
  readonly #regions: LocalRegions;
  readonly #id = randomId();
  /** @internal How many clients there may be at the moment. */
  clientsMax: () => number;
  readonly #fresh: Remote[] = [];
  readonly #waiting: (() => void)[] = [];
  readonly #admitting = new Set<Promise<void>>();
  /** Clients, and those being admitted, by address. */
  readonly #sources = new SourceCounts();
  readonly #places = new ClientPlaces();
  /** Ends handshakes when the server is closed. */
  readonly #stop = new AbortController();
  /** Clients whose queue pairs and buffers are not released yet. */
  readonly #ending = new Set<Promise<unknown>>();
  #isIterated = false;
  #closing: Promise<void> | undefined;

  /** @internal Use `share`. */
  constructor(
    listener: RdmaListener,
    address: string,
    device: DeviceUse,
    regions: LocalRegions,
    options: ServerOptions,
  ) {
    this.#listener = listener;
    this.#device = device;
    this.#regions = regions;
    this.#options = options;
    const { clientsMax = CLIENTS_MAX } = options;
    this.clientsMax = () => clientsMax;
    this.clients = this.#clients;
    this.memory = regions.memory as MemoryByName<Named>;
    const udpPort = device.context.local.port;
    this.url = formatUrl({ address, port: listener.port, udpPort });
    void this.#accept();
  }

  /** Clients from the first call on, and those that connected before it and are still there. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Remote, void, undefined> {
    if (!this.#isIterated) this.#fresh.push(...this.#clients);
    this.#isIterated = true;
    for (;;) {
      const client = this.#fresh.shift();
      if (client) yield client;
      else if (this.#closing) return;
      else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  /** Refuses further clients, closes each one, ends the memory. */
  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    await this.#listener.close();
    this.#stop.abort(endedError('accept', 'the server was closed', After.CLOSED));
    this.#wake();
    await Promise.all(this.#admitting);
    await Promise.all([...this.#clients].map((client) => client.close()));
    await Promise.all(this.#ending);
    if (!this.#device.context.device.closed) await this.#regions.close();
    await this.#device.release();
  }

  async #accept(): Promise<void> {
    for await (const request of this.#listener) {
      const work = this.#admit(request).catch((error: Error) => this.#tell(error));
      this.#admitting.add(work);
      void work.finally(() => this.#admitting.delete(work));
    }
  }

  /** @internal Clients, and those that are being admitted. */
  get admitted(): number {
    return this.#clients.size + this.#admitting.size;
  }

  async #admit(request: RdmaRequest): Promise<void> {
    const clientsMax = this.clientsMax();
    const { clientsPerSource = clientsMax } = this.#options;
    const { address } = request.peer;
    if (!speaksProtocol(request.privateData)) {
      return request.reject(PROTOCOL, RejectReason.CONSUMER_DEFINED);
    }
    const isFull = this.admitted >= clientsMax || this.#sources.of(address) >= clientsPerSource;
    if (isFull && !this.#places.claim(request.privateData)) {
      return request.reject(undefined, RejectReason.NO_RESOURCES);
    }
    this.#sources.add(address);
    try {
      const client = await this.#establish(request);
      void client.closed.then(() => this.#sources.remove(address));
    } catch (error) {
      this.#sources.remove(address);
      throw error;
    } finally {
      if (isFull) this.#places.unclaim(request.privateData);
    }
  }

  async #establish(request: RdmaRequest): Promise<Remote> {
    const inbox = this.#makeInbox(request);
    let connection: RdmaConnection;
    try {
      connection = await request.accept(this.#endOptions(), (qp: QueuePair) => inbox.postAll(qp));
    } catch (error) {
      inbox.close();
      throw error;
    }
    return this.#serve(connection, inbox);
  }

  /** A device without memory refuses the client. */
  #makeInbox(request: RdmaRequest): Inbox {
    try {
      return new Inbox(this.#device.pd);
    } catch (error) {
      request.reject(undefined, RejectReason.NO_RESOURCES);
      throw error;
    }
  }

  /** The handshake. */
  async #serve(connection: RdmaConnection, inbox: Inbox): Promise<Remote> {
    const { messageBytesMax = MESSAGE_BYTES_MAX } = this.#options;
    const requests = new RequestQueue(this.#device.pd, this.#device.local, After.SERVE);
    const messages = new Messages(requests, messageBytesMax);
    const session = new Session(connection, inbox, { requests, messages });
    let lent: LocalRegions | undefined;
    try {
      const late = (): Error =>
        timeoutError('accept', HANDSHAKE_MILLIS, 'the client must be opened by connect');
      const limits = { timeout: HANDSHAKE_MILLIS, signal: this.#stop.signal };
      const hello = await session.greeted('accept', limits, late);
      lent = await this.#lend(session, hello);
      const own = lent;
      return await this.#places.take(connection.privateData, hello.secret, () => {
        session.greet(this.#hello(own));
        return this.#add(session, hello, { requests, messages }, own);
      });
    } catch (error) {
      session.end(error as RemoteError);
      await session.closed;
      requests.detach(error as RemoteError, false);
      messages.detach(error as RemoteError, false);
      requests.close();
      await lent?.close();
      throw error;
    }
  }

  #endOptions() {
    const { keepAliveMillis = KEEP_ALIVE_MILLIS } = this.#options;
    return {
      pd: this.#device.pd,
      qp: QUEUE_PAIR,
      privateData: PROTOCOL,
      keepAliveMillis,
      rnrRetryCount: RNR_RETRY_COUNT,
      cmResponseTimeout: CM_RESPONSE_TIMEOUT,
      signal: this.#stop.signal,
      maxCmRetries: CM_RETRIES,
    };
  }

  #hello(lent: LocalRegions | undefined, refusal?: string): Hello {
    const { messageBytesMax = MESSAGE_BYTES_MAX } = this.#options;
    const own = refusal === undefined ? this.#regions.descriptions : [];
    const regions = [...own, ...(lent?.descriptions ?? [])];
    return { id: this.#id, messageBytesMax, regions, wanted: [], refusal };
  }

  /** Memory that the client asks for. */
  async #lend(session: Session, { wanted }: Hello): Promise<LocalRegions> {
    const { lendBytes = 0 } = this.#options;
    const total = wanted.reduce((sum, [, bytes]) => sum + bytes, 0);
    const taken = wanted.find(([name]) => Object.hasOwn(this.#regions.memory, name));
    let why: string | undefined;
    if (total > lendBytes) why = `${total} bytes asked for, lendBytes is ${lendBytes}`;
    else if (taken) why = `a region ${taken[0]} is shared with all clients already`;
    if (why === undefined) {
      const regions = Object.fromEntries(wanted);
      const { pd, local } = this.#device;
      try {
        return await LocalRegions.open('accept', pd, local, regions);
      } catch (error) {
        why = (error as Error).message;
      }
    }
    session.greet(this.#hello(undefined, why));
    await session.sent();
    throw endedError('accept', `the client was refused: ${why}`, After.SERVE);
  }

  #add(
    session: Session,
    hello: Hello,
    queues: { readonly requests: RequestQueue; readonly messages: Messages },
    lent: LocalRegions,
  ): Remote {
    const release = async (): Promise<void> => {};
    const parts = { device: this.#device, queues, shared: lent, release };
    const client: Remote = new Remote(parts, session, hello);
    this.#clients.add(client);
    void client.closed.then(() => {
      this.#clients.delete(client);
      const at = this.#fresh.indexOf(client);
      if (at >= 0) this.#fresh.splice(at, 1);
      const ending = client.close().catch((error: Error) => this.#tell(error));
      this.#ending.add(ending);
      void ending.then(() => this.#ending.delete(ending));
    });
    if (this.#isIterated) this.#fresh.push(client);
    this.#wake();
    if (this.#options.onClient) void this.#run(client, this.#options.onClient);
    return client;
  }

  async #run(client: Remote, onClient: NonNullable<ServerOptions['onClient']>): Promise<void> {
    try {
      await onClient(client);
    } catch (error) {
      await client.destroy();
      this.#tell(error as Error);
    }
  }

  /** An exception of the application's listener becomes a warning: the other clients go on. */
  #tell(error: Error): void {
    try {
      this.#options.onError?.(error);
    } catch (thrown) {
      warn(`share: onError threw ${String(thrown)}`);
    }
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}

/**
 * Shares memory at a URL, port 0 for any: `memory.NAME` here, `remote.memory.NAME` at clients
 * (`connect`). A region is a size in bytes, a typed array whose contents are copied, or
 * RegionOptions. Rejects with MisuseError; RefusalError EADDRINUSE (the port is taken),
 * EADDRNOTAVAIL, ENOENT (no such host), EAGAIN (the resolver does not answer now), ENOMEM, and
 * those of `context.openPmem`.
 */
export async function share<const Named extends Regions>(
  url: RdmaUrl | URL,
  regions: Named,
  options: ServerOptions = {},
): Promise<RemoteServer<Named>> {
  const place = parseUrl('share', url);
  checkNoLimits(options);
  const own = copyOptions(
    'share',
    options,
    `onClient onError lendBytes clientsMax clientsPerSource ${COMMON}` as const,
  );
  checkCommon(own);
  const auth = copyAuth(own.auth);
  checkServerOptions(own);
  const bytes = regionBytes('share', regions);
  const address = await lookUp(place.address);
  const udpPort = place.udpPort === undefined ? {} : { udpPort: place.udpPort };
  const use = await useDevice({ local: address, ...udpPort }, bytes, own);
  let shared: LocalRegions | undefined;
  try {
    shared = await LocalRegions.open('share', use.pd, use.local, regions);
    const how = { context: use.context, ...(auth !== undefined && { auth }) };
    const listener = await listen({ address, port: place.port }, how);
    return new RemoteServer<Named>(listener, address, use, shared, own);
  } catch (error) {
    await shared?.close();
    await use.release();
    throw fullError('share', error, use);
  }
}
