/**
 * The short forms: `await connect(address)` is a connected queue pair, `await listen(address)` gives
 * requests to accept. What librdmacm does in a dozen calls (cm-id.ts), with its defaults.
 */
import { checkKeys } from '../base/options.js';
import { checkLimits, checkWait, withinLimits, type WaitLimits } from '../base/wait-limits.js';
import { checkFunction, checkWhole, shown } from '../errors/check-whole.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { checkUnicast } from '../link/interface.js';
import type { Context } from '../verbs/context.js';
import type { UdpOpenOptions } from '../verbs/open-device.js';
import type { CompletionQueue } from '../verbs/queues/completion-queue.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { QpInitAttributes, QueuePair } from '../verbs/queues/queue-pair.js';
import { formatUrl, type RdmaUrl } from './url.js';
import { SourceCounts } from './source-counts.js';
import { lookUp } from './address-info.js';
import type { CmAddress } from './address.js';
import { CM_OPTIONS, CONN_PARAM, type CmOptions } from './agreement.js';
import { copyAuth, type AuthOptions } from './auth-option.js';
import type { CmId } from './cm-id.js';
import { checkEndOptions, deviceAt, deviceTowards } from './connection-device.js';
import { ConnectError, connectErrorOf } from './connect-error.js';
import { createEp } from './create-ep.js';
import type { EpInitAttributes } from './end-point.js';
import { CmEventType, PortSpace, RejectReason } from './enums.js';
import { EventChannel, createEventChannel } from './event-channel.js';
import type { CmEvent } from './event-channel.js';
import type { ConnParam } from './event-details.js';

/** Options of the connection's queue pair; absent completion queues are created. */
export interface EndOptions extends ConnParam, Omit<CmOptions, 'auth'> {
  readonly qp?: Partial<QpInitAttributes>;
  readonly pd?: ProtectionDomain;
  /** Entries of the completion queues that are made. Default: as many as requests. */
  readonly cqe?: number;
}

/**
 * How `connect` connects. `timeout` limits the wait for the peer's answer, in milliseconds. Default:
 * an absent peer is reported after 3 s (6 transmissions, one each 0.54 s).
 */
export interface ConnectOptions extends EndOptions, WaitLimits {
  /** Default: a context of the device that this process has in common at the local address. */
  readonly context?: Context;
  /** Opens a device for this connection alone, which ends with it; its address is found. */
  readonly device?: UdpOpenOptions;
  /** The UDP port of the device there. Default 4791. */
  readonly udpPort?: number;
  /** Authenticates the connection: required then, without a fallback. Default: none. */
  readonly auth?: AuthOptions;
}

/** Options of `request.accept`; `timeout` limits the wait for the RTU, in milliseconds. */
export interface AcceptOptions extends EndOptions, WaitLimits {}

/** How `listen` listens. */
export interface ListenOptions {
  /** Default: a context of the device that this process has in common at the address, port 4791. */
  readonly context?: Context;
  /** Opens a device for this listener alone, which ends with it. */
  readonly device?: UdpOpenOptions;
  /** Requests that may wait. Default 1024. */
  readonly backlog?: number;
  /** Takes authenticated connections only. Default: none is. */
  readonly auth?: AuthOptions;
}

/** Options of `listener.connections`. */
export interface ConnectionsOptions extends EndOptions {
  /** Called with the error of each request that could not be accepted. */
  readonly onFailed?: (error: Error, request: RdmaRequest) => void;
  /**
   * Connections of one address at a time, from 1 on; those being accepted count. A request beyond
   * is rejected (NO_RESOURCES) and counts as failed. Default: no limit but the device's queue pairs.
   */
  readonly connectionsPerSource?: number;
}

const NOTHING = new Uint8Array(0);
const CONNECTIONS_MAX = 65536;

/**
 * Called with the queue pair before it is connected: the place to post receives. An error, also of
 * its promise, ends the attempt.
 */
export type Prepare = (qp: QueuePair) => void | Promise<void>;

/** A host and a port as text (`host:port`, `[address]:port`), or apart. */
export type Target = string | { readonly address: string; readonly port: number };

/** A connection with all that it needs, and that goes with it. */
export class RdmaConnection {
  readonly id: CmId;
  readonly context: Context;
  readonly pd: ProtectionDomain;
  readonly qp: QueuePair;
  readonly sendCq: CompletionQueue;
  readonly recvCq: CompletionQueue;
  /** Private data and resources that the other side sent. */
  readonly param: ConnParam;
  /** Resolves when the connection has ended, on either side's initiative. */
  readonly disconnected: Promise<void>;
  readonly #channel: EventChannel;
  readonly #ownsContext: boolean;
  #isOver = false;
  #isClosed = false;

  /** @internal Use `connect`, or `request.accept`. */
  constructor(id: CmId, param: ConnParam, ownsContext: boolean) {
    const qp = id.qp!;
    this.id = id;
    this.qp = qp;
    this.context = id.context;
    this.pd = qp.pd;
    this.sendCq = qp.sendCq;
    this.recvCq = qp.recvCq;
    this.param = param;
    this.#channel = id.channel;
    this.#ownsContext = ownsContext;
    this.disconnected = this.#end();
  }

  /** Private data of the other application (`ConnParam.privateData` has their length). */
  get privateData(): Uint8Array {
    return this.param.privateData ?? NOTHING;
  }

  /**
   * `rdma_disconnect`, and waits until the other side has heard, or does not answer. Nothing happens
   * when it is over already. Throws MisuseError for private data that is too long.
   */
  async disconnect(privateData?: Uint8Array): Promise<void> {
    if (!this.#isOver) this.id.disconnect(privateData);
    await this.disconnected;
  }

  /** Disconnects, and gives back everything that was made for the connection. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.disconnect();
    this.#channel.destroy();
    if (this.#ownsContext) await this.context.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #end(): Promise<void> {
    for await (const { event } of this.#channel) {
      if (event === CmEventType.DISCONNECTED || event === CmEventType.DEVICE_REMOVAL) break;
    }
    this.#isOver = true;
  }
}

function qpOf({ qp, cqe }: EndOptions): EpInitAttributes {
  return { ...qp, ...(cqe === undefined ? {} : { cqe }) };
}

const END_OPTIONS = `qp pd cqe ${CONN_PARAM} ${CM_OPTIONS}` as const;

/** The options with these names. */
function only(names: string, options: object): object {
  const isOne = ([name, value]: [string, unknown]): boolean =>
    names.split(' ').includes(name) && value !== undefined;
  return Object.fromEntries(Object.entries(options).filter(isOne));
}

/**
 * 6 transmissions, one each 0.54 s: an absent peer is reported after 3 s. A peer that answers late
 * sends an MRA. With a `timeout` the defaults of the connection manager apply, which take longer.
 */
function timesOf(options: ConnectOptions): CmOptions {
  return options.timeout === undefined ? { cmResponseTimeout: 17, maxCmRetries: 5 } : {};
}

/**
 * Connects to the listener at `target`. `prepare` is called with the queue pair before the request
 * is sent: it posts the receives for a peer that sends first. Throws MisuseError; RefusalError
 * ENOENT (no such host), EAGAIN (the resolver does not answer now), ECONNREFUSED (see `reason` and
 * `privateData`), EACCES (`auth`: different keys, or keys on one side only), ETIMEDOUT (no answer
 * within `timeout`; default: 3 s), ENOMEM; LinkError; the reason of `signal`.
 */
export async function connect(
  target: Target,
  options: ConnectOptions = {},
  prepare: Prepare = () => {},
): Promise<RdmaConnection> {
  checkKeys('connect', options, `auth context device udpPort timeout signal ${END_OPTIONS}`);
  checkLimits(options);
  options.signal?.throwIfAborted();
  const auth = copyAuth(options.auth);
  checkEndOptions('connect', options);
  checkFunction('prepare', prepare);
  const { address, port } = await resolve(target);
  checkUnicast('target', address);
  const context = options.context ?? (await deviceTowards(address, options.device));
  let channel: EventChannel | undefined;
  try {
    const udpPort = options.udpPort === undefined ? {} : { udpPort: options.udpPort };
    const dstAddr = { address, port, ...udpPort };
    const info = { flags: 0, portSpace: PortSpace.TCP, dstAddr };
    const id = await createEp(context, info, options.pd, qpOf(options));
    ({ channel } = id);
    id.setOption({ ...timesOf(options), ...only(CM_OPTIONS, options), ...(auth && { auth }) });
    await prepare(id.qp!);
    id.connect(only(CONN_PARAM, options));
    const { conn } = await expect('connect', channel, CmEventType.ESTABLISHED, options);
    return new RdmaConnection(id, conn ?? {}, !options.context);
  } catch (error) {
    channel?.destroy();
    if (!options.context) await context.close();
    throw error;
  }
}

/** The next event must be that one; otherwise it says why not. */
async function expect(
  verb: string,
  channel: EventChannel,
  wanted: number,
  limits: WaitLimits = {},
): Promise<CmEvent> {
  const event = await withinLimits(channel.getEvent(), limits, () =>
    lateError(verb, limits.timeout!),
  );
  if (event?.event === wanted) return event;
  throw connectErrorOf(verb, event);
}

function lateError(verb: string, timeout: number): ConnectError {
  const remedy =
    verb === 'accept'
      ? 'the peer has ended, or is slow: raise the timeout'
      : 'check that a device is open there, at that address and UDP port';
  const why = `no answer came from the peer within ${timeout} ms; ${remedy}`;
  return new ConnectError('ETIMEDOUT', `${verb}: ${why}`, undefined);
}

/** A connection request of a peer. */
export class RdmaRequest {
  readonly id: CmId;
  /** Private data and resources that the other side sent. */
  readonly param: ConnParam;

  /** @internal Use `listener.getRequest()`. */
  constructor(event: CmEvent) {
    this.id = event.id;
    this.param = event.conn ?? {};
  }

  /** The requesting peer. */
  get peer(): Required<CmAddress> {
    return this.id.getPeerAddr()!;
  }

  /** Private data of the other application (`ConnParam.privateData` has their length). */
  get privateData(): Uint8Array {
    return this.param.privateData ?? NOTHING;
  }

  /**
   * Makes a queue pair and connects it. `prepare` is called with it before the REQ is sent: the
   * place to post receives. Throws MisuseError; RefusalError ENOMEM, EINVAL (the peer gave up),
   * ECONNRESET, ETIMEDOUT; the reason of `signal`.
   */
  async accept(options: AcceptOptions = {}, prepare: Prepare = () => {}): Promise<RdmaConnection> {
    checkKeys('accept', options, `timeout signal ${END_OPTIONS}`);
    checkEndOptions('accept', options);
    checkFunction('prepare', prepare);
    checkLimits(options);
    options.signal?.throwIfAborted();
    const channel = createEventChannel(this.id.context);
    try {
      this.id.takeRequest(channel);
      await prepare(this.#createQp(options));
      this.id.setOption(only(CM_OPTIONS, options));
      this.id.accept(only(CONN_PARAM, options));
      await expect('accept', channel, CmEventType.ESTABLISHED, options);
    } catch (error) {
      channel.destroy();
      throw error;
    }
    return new RdmaConnection(this.id, this.param, false);
  }

  /** A device without a free queue pair says so to the peer, which may come back later. */
  #createQp(options: EndOptions): QueuePair {
    try {
      return this.id.createQp(qpOf(options), options.pd);
    } catch (error) {
      const isFull = error instanceof RefusalError && error.code === 'ENOMEM';
      if (isFull) this.id.reject(undefined, RejectReason.NO_QP);
      throw error;
    }
  }

  /**
   * Refuses. `reason`: a RejectReason, default CONSUMER_DEFINED. Throws MisuseError, which has no
   * effect; RefusalError EINVAL when the peer gave up.
   */
  reject(privateData?: Uint8Array, reason?: number): void {
    let isMisuse = false;
    try {
      this.id.reject(privateData, reason);
    } catch (error) {
      isMisuse = error instanceof MisuseError;
      throw error;
    } finally {
      // After misuse the request can still be answered.
      if (!isMisuse) this.id.destroy();
    }
  }
}

/** Requests that come to a port (`listen`). */
export class RdmaListener {
  readonly context: Context;
  readonly id: CmId;
  /** Requests that `connections` could not accept. */
  failed = 0;
  readonly #channel: EventChannel;
  /** Accepted connections, and those being accepted, by the peer's address. */
  readonly #accepted = new SourceCounts();
  readonly #ownsContext: boolean;
  /** Requests that callers no longer wait for: a loop that was left, a limit that was reached. */
  readonly #asked: Promise<RdmaRequest | undefined>[] = [];

  /** @internal Use `listen`. */
  constructor(channel: EventChannel, id: CmId, ownsContext: boolean) {
    this.#channel = channel;
    this.id = id;
    this.context = id.context;
    this.#ownsContext = ownsContext;
  }

  /** The port that it listens to. */
  get port(): number {
    return this.id.getSrcPort();
  }

  /** `rdma://host:port`, with the UDP port of the device (`?udp=`) if that is not 4791. */
  get url(): RdmaUrl {
    const { address, port, udpPort } = this.id.getLocalAddr();
    return formatUrl({ address, port, udpPort });
  }

  /**
   * `rdma_get_request`: the next one; undefined when the listener is closed. `timeout`:
   * milliseconds. Throws MisuseError; RefusalError ETIMEDOUT; the reason of `signal`. A request
   * that arrives later is returned by the next call.
   */
  async getRequest(limits: WaitLimits = {}): Promise<RdmaRequest | undefined> {
    checkWait('getRequest', limits);
    limits.signal?.throwIfAborted();
    const asked = this.#asked.shift() ?? this.#nextRequest();
    const late = (): Error =>
      new RefusalError(
        'ETIMEDOUT',
        `getRequest: no request came within ${limits.timeout} ms; raise timeout`,
      );
    try {
      return await withinLimits(asked, limits, late);
    } catch (error) {
      this.#asked.unshift(asked);
      throw error;
    }
  }

  async #nextRequest(): Promise<RdmaRequest | undefined> {
    for (;;) {
      const event = await this.#channel.getEvent();
      if (!event || event.event === CmEventType.DEVICE_REMOVAL) return undefined;
      // A request that was not accepted may have ended before it was answered.
      if (event.event === CmEventType.CONNECT_REQUEST) return new RdmaRequest(event);
      if (event.id !== this.id) event.id.destroy();
    }
  }

  /** Requests until the listener is closed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<RdmaRequest, void, undefined> {
    for (let next = await this.getRequest(); next; next = await this.getRequest()) yield next;
  }

  /**
   * Yields each connection once it is established. Requests are accepted in parallel: a peer that
   * sends a REQ and then stays silent does not delay other peers. `prepare`: see `request.accept`.
   * A failed request is counted (`failed`), and `onFailed` receives its error; the listener goes
   * on. Ends when the listener is closed. Throws MisuseError for options that are invalid for every
   * request.
   */
  async *connections(
    options: ConnectionsOptions = {},
    prepare?: Prepare,
  ): AsyncGenerator<RdmaConnection, void, undefined> {
    checkKeys('connections', options, `onFailed connectionsPerSource ${END_OPTIONS}`);
    checkEndOptions('connections', options);
    checkFunction('onFailed', options.onFailed);
    checkFunction('prepare', prepare);
    const { onFailed, connectionsPerSource = Infinity, ...how } = options;
    if (connectionsPerSource !== Infinity) {
      checkWhole('connectionsPerSource', connectionsPerSource, 1, CONNECTIONS_MAX);
    }
    const ready: RdmaConnection[] = [];
    let wake = (): void => {};
    let misuse: MisuseError | undefined;
    let isOver = false;
    const accept = async (request: RdmaRequest): Promise<void> => {
      try {
        const connection = await this.#admit(request, connectionsPerSource, how, prepare);
        if (isOver) await connection.close();
        else ready.push(connection);
      } catch (error) {
        if (error instanceof MisuseError) misuse = error;
        this.failed++;
        onFailed?.(error as Error, request);
      }
      wake();
    };
    let asking: Promise<RdmaRequest | undefined> | undefined;
    const ask = (): void => {
      asking = this.getRequest();
      void asking.then((request) => {
        if (isOver) return;
        if (request) {
          void accept(request);
          ask();
        } else isOver = true;
        wake();
      });
    };
    ask();
    try {
      while (!misuse) {
        const connection = ready.shift();
        if (connection) yield connection;
        else if (isOver) return;
        else await new Promise<void>((resolve) => (wake = resolve));
      }
      throw misuse;
    } finally {
      // The next reader of this listener receives the request that this loop still waits for.
      if (!isOver && asking) this.#asked.push(asking);
      isOver = true;
      for (const connection of ready) void connection.close();
    }
  }

  /** Accepts a request unless its address has as many connections as it may. */
  async #admit(
    request: RdmaRequest,
    most: number,
    how: EndOptions,
    prepare: Prepare | undefined,
  ): Promise<RdmaConnection> {
    const { address } = request.peer;
    if (this.#accepted.of(address) >= most) {
      request.reject(undefined, RejectReason.NO_RESOURCES);
      const why = `${address} has ${most} connections, as many as connectionsPerSource allows`;
      throw new RefusalError('EMFILE', `accept: ${why}; raise it`);
    }
    this.#accepted.add(address);
    try {
      const connection = await request.accept(how, prepare);
      void connection.disconnected.then(() => this.#accepted.remove(address));
      return connection;
    } catch (error) {
      this.#accepted.remove(address);
      throw error;
    }
  }

  /** Takes no more requests and refuses those that wait. Connections stay. */
  async close(): Promise<void> {
    this.#channel.destroy();
    if (this.#ownsContext) await this.context.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/**
 * Listens at a local address and a port (0: any, `listener.port`). Throws MisuseError; RefusalError
 * EADDRINUSE, ENOENT; LinkError.
 */
export async function listen(target: Target, options: ListenOptions = {}): Promise<RdmaListener> {
  checkKeys('listen', options, 'context device backlog auth');
  const auth = copyAuth(options.auth);
  checkEndOptions('listen', options);
  const { address, port } = await resolve(target);
  const context = options.context ?? (await deviceAt(address, options.device));
  let channel: EventChannel | undefined;
  try {
    channel = createEventChannel(context);
    const id = channel.createId();
    if (auth) id.setOption({ auth });
    id.bindAddr({ port, address });
    id.listen(options.backlog);
    return new RdmaListener(channel, id, !options.context);
  } catch (error) {
    // The next attempt uses another port, so that it does not meet this one's connection.
    channel?.destroy();
    if (!options.context) await context.close();
    throw error;
  }
}

async function resolve(target: Target): Promise<{ address: string; port: number }> {
  const { address, port } = parseTarget(target);
  const found = await lookUp(address);
  return { address: found, port };
}

function parseTarget(target: Target): { address: string; port: number } {
  if (typeof target === 'string') {
    const found = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(target);
    if (found) return { address: (found[1] ?? found[2])!, port: Number(found[3]) };
  } else if (target?.address && typeof target.address === 'string') return target;
  const rule = 'is not host:port or { address, port }';
  const remedy = 'write IPv6 as [address]:port, memory of `share` as rdma://host:port';
  throw new MisuseError('target', `${shown(target)} ${rule}; ${remedy}`);
}
