/** `connect`: a client of a server that was opened by `share`. */
import { timerMillis } from '../base/timer.js';
import { copyOptions } from '../base/copy-options.js';
import { checkObject } from '../base/options.js';
import type { WaitLimits } from '../base/wait-limits.js';
import { lookUp } from '../cm/address-info.js';
import { checkKeepAlive } from '../cm/agreement.js';
import { copyAuth, type AuthOptions } from '../cm/auth-option.js';
import { ConnectError } from '../cm/connect-error.js';
import { RejectReason } from '../cm/enums.js';
import {
  connect as connectQueuePair,
  type ConnectOptions,
  type Prepare,
  type RdmaConnection,
  type Target,
} from '../cm/connect.js';
import { checkWhole } from '../errors/check-whole.js';
import { checkUnicast } from '../link/interface.js';
import { makePlace } from './client-places.js';
import { fullError, useDevice, type DeviceChoice, type DeviceUse } from './devices.js';
import { speaksProtocol, type Hello } from './hello.js';
import { LocalRegions, checkName, regionBytes, type Regions } from './local-regions.js';
import { Inbox, Messages } from './messages.js';
import { checkCall } from './operation.js';
import { checkReconnect } from './region-rules.js';
import { After, RemoteError, abortReason, protocolError, timeoutError } from './remote-error.js';
import { Remote } from './remote.js';
import { RequestQueue } from './request-queue.js';
import { randomId } from '../verbs/refuse.js';
import { wrongLevel } from './wrong-level.js';
import { QUEUE_PAIR, RNR_RETRY_COUNT, Session, type Queues } from './session.js';
import { formatUrl, isRdmaUrl, parseUrl, type Place, type RdmaUrl } from '../cm/url.js';

/**
 * Effects of a lost connection. Calls in flight reject: the server executed each once at most.
 * Calls that were not sent wait, and are executed in order over the next connection. Regions keep
 * their names; the server must share each one with at least the same length. Memory of `ask` is
 * new, and zero. The contents of a server that restarted are what it says they are.
 */
export interface ReconnectOptions {
  /** Attempts after each loss. Default: no limit. */
  readonly attempts?: number;
  /** Milliseconds before the second attempt; doubles up to `delayMaxMillis`. Default 100. */
  readonly delayMillis?: number;
  /** Milliseconds, `delayMillis` or more. Default 2000, or `delayMillis` if that is longer. */
  readonly delayMaxMillis?: number;
  /**
   * Called when the connection is there again. An error that it throws is an uncaught exception:
   * catch those that the program survives.
   */
  readonly onReconnect?: () => void;
}

/** Options of both sides. */
export interface CommonOptions extends DeviceChoice {
  /**
   * Milliseconds without a sign of life after which a peer counts as dead (100 to 86,400,000; 0:
   * never). Default 4000: `closed` resolves at most 5 s after a kill or a partition.
   */
  readonly keepAliveMillis?: number;
  /** The longest message that this side accepts, in bytes. Default 16 MiB. */
  readonly messageBytesMax?: number;
  /** Authenticates and optionally encrypts: both sides have it, or none. Default: none. */
  readonly auth?: AuthOptions;
}

/** Options of `connect` to a URL. */
export interface RemoteOptions<Shared extends Regions = Regions> extends CommonOptions, WaitLimits {
  /**
   * Milliseconds that the server may take until the connection is there, from the first message to
   * it: the name's lookup and the start of a device come before. Default 3000.
   */
  readonly timeout?: number;
  /** Memory that this client lets the server access: `remote.shared` here, `client.memory` there. */
  readonly share?: Shared;
  /** Memory of the server for this client alone, in bytes by name; `lendBytes` there limits it. */
  readonly ask?: Readonly<Record<string, number>>;
  /** Connects again after a loss. Default false. */
  readonly reconnect?: boolean | ReconnectOptions;
}

const TIMEOUT_MILLIS = 3000;
export const KEEP_ALIVE_MILLIS = 4000;
export const MESSAGE_BYTES_MAX = 16 * 2 ** 20;
/** 4.096 us * 2^16: a lost message of the handshake is sent again after 268 ms. */
export const CM_RESPONSE_TIMEOUT = 16;
const CM_RESPONSE_MILLIS = 268;
/** A DREQ to a dead peer ends after 2 s. */
export const CM_RETRIES = 7;
const RETRIES_MAX = 15;
const COMMON = 'context pd device keepAliveMillis messageBytesMax auth';

/** Throws MisuseError. */
export function checkCommon({ messageBytesMax, keepAliveMillis }: CommonOptions): void {
  if (keepAliveMillis !== undefined) checkKeepAlive(keepAliveMillis);
  if (messageBytesMax !== undefined) checkWhole('messageBytesMax', messageBytesMax, 1, 2 ** 31);
}

/** A copy. Throws MisuseError. */
function checkOptions(given: RemoteOptions): RemoteOptions {
  const options = copyOptions(
    'connect',
    given,
    `timeout signal share ask reconnect ${COMMON}` as const,
  );
  checkCommon(options);
  const { ask = {} } = options;
  checkObject('connect', ask, 'ask');
  for (const [name, bytes] of Object.entries(ask)) {
    checkName('connect', 'ask', name);
    checkWhole(`ask.${name}`, bytes, 1, 2 ** 32 - 2 ** 16);
  }
  const auth = copyAuth(options.auth);
  const own: RemoteOptions = { ...options, ...(auth && { auth }) };
  const { reconnect } = own;
  if (reconnect === undefined || typeof reconnect === 'boolean') return own;
  checkReconnect(reconnect);
  return { ...own, reconnect: { ...reconnect }, ask: { ...ask } };
}

/** Creates a client: the first connection, and further ones. */
class Connector {
  readonly #server: Place;
  readonly #address: string;
  readonly #options: RemoteOptions;
  readonly #device: DeviceUse;
  readonly #shared: LocalRegions;
  readonly #queues: Queues;
  readonly #id = randomId();
  readonly #place = makePlace();

  constructor(
    place: Place,
    address: string,
    options: RemoteOptions,
    device: DeviceUse,
    shared: LocalRegions,
  ) {
    this.#server = place;
    this.#address = address;
    this.#options = options;
    this.#device = device;
    this.#shared = shared;
    // The first attempt is not repeated.
    const requests = new RequestQueue(device.pd, device.local, After.CLOSED);
    const messages = new Messages(requests, options.messageBytesMax ?? MESSAGE_BYTES_MAX);
    this.#queues = { requests, messages };
  }

  async remote<Shared>(signal: AbortSignal): Promise<Remote<Shared>> {
    const [session, hello] = await this.attempt(signal);
    const { reconnect = false } = this.#options;
    this.#queues.requests.after = reconnect ? After.RECONNECT : After.CONNECT;
    const how = reconnect === true ? {} : reconnect;
    const parts = {
      device: this.#device,
      queues: this.#queues,
      shared: this.#shared,
      release: () => this.#device.release(),
      ...(how && { reconnect: (stop: AbortSignal) => this.#again(how, stop) }),
      ...(how && how.onReconnect && { onReconnect: how.onReconnect }),
    };
    return new Remote<Shared>(parts, session, hello);
  }

  /** One connection with its handshake. Rejects with RemoteError, or the reason of `signal`. */
  async attempt(signal: AbortSignal): Promise<readonly [Session, Hello]> {
    const inbox = new Inbox(this.#device.pd);
    let session: Session | undefined;
    let connection: RdmaConnection | undefined;
    try {
      connection = await this.#connect(signal, (qp) => inbox.postAll(qp));
      if (!speaksProtocol(connection.privateData)) {
        throw protocolError('connect', 'the listener there was not opened by share');
      }
      session = new Session(connection, inbox, this.#queues);
      session.greet(this.#hello());
      const hello = await session.greeted('connect', { signal }, () => new Error());
      if (hello.refusal !== undefined) throw refusedError(hello.refusal);
      return [session, hello];
    } catch (error) {
      if (session) {
        session.end(error as RemoteError);
        await session.closed;
      } else {
        await connection?.close();
        inbox.close();
      }
      throw error;
    }
  }

  #hello(): Hello {
    const { messageBytesMax = MESSAGE_BYTES_MAX, ask = {} } = this.#options;
    const regions = this.#shared.descriptions;
    const own = { id: this.#id, secret: this.#place.secret, messageBytesMax, regions };
    return { ...own, wanted: Object.entries(ask) };
  }

  #connect(signal: AbortSignal, prepare: Prepare): Promise<RdmaConnection> {
    const { udpPort, port } = this.#server;
    const { auth, keepAliveMillis = KEEP_ALIVE_MILLIS, timeout = TIMEOUT_MILLIS } = this.#options;
    const retries = Math.ceil(timeout / CM_RESPONSE_MILLIS);
    const options: ConnectOptions = {
      context: this.#device.context,
      pd: this.#device.pd,
      qp: QUEUE_PAIR,
      privateData: this.#place.requestData,
      keepAliveMillis,
      rnrRetryCount: RNR_RETRY_COUNT,
      cmResponseTimeout: CM_RESPONSE_TIMEOUT,
      maxCmRetries: Math.min(RETRIES_MAX, Math.max(CM_RETRIES, retries)),
      signal,
      ...(udpPort !== undefined && { udpPort }),
      ...(auth !== undefined && { auth }),
    };
    return connectQueuePair({ address: this.#address, port }, options, prepare);
  }

  async #again(how: ReconnectOptions, stop: AbortSignal): Promise<readonly [Session, Hello]> {
    const {
      attempts = Infinity,
      delayMillis = 100,
      delayMaxMillis = Math.max(2000, delayMillis),
    } = how;
    const { timeout = TIMEOUT_MILLIS } = this.#options;
    let delay = delayMillis;
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#device.follow?.();
        return await withDeadline(timeout, stop, (signal) => this.attempt(signal));
      } catch (error) {
        const { code = '' } = error as Partial<RemoteError>;
        if (stop.aborted || attempt >= attempts || !PASSING.has(code))
          throw remoteErrorOf(error, this.#server);
      }
      await pause(Math.min(delay, delayMaxMillis), stop);
      delay *= 2;
    }
  }
}

function pause(millis: number, stop: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      stop.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, timerMillis(millis));
    stop.addEventListener('abort', end);
  });
}

/** Errors of an attempt after which another one may succeed. */
const PASSING: ReadonlySet<string> = new Set(['ECONNREFUSED', 'ECONNRESET', 'ETIMEDOUT']);
const REMEDY = 'check that a process shares memory there, and its address, port and UDP port';

/** `work` with a signal that a timeout or `outer` aborts. */
async function withDeadline<T>(
  timeout: number,
  outer: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  const stop = (): void => controller.abort(abortReason('connect', outer!.reason));
  const timer = setTimeout(() => {
    controller.abort(timeoutError('connect', timeout, REMEDY));
  }, timerMillis(timeout));
  outer?.addEventListener('abort', stop);
  try {
    if (outer?.aborted) stop();
    return await work(controller.signal);
  } finally {
    clearTimeout(timer);
    outer?.removeEventListener('abort', stop);
  }
}

function refusedError(refusal: string): RemoteError {
  const remedy = 'ask for less, or raise lendBytes there';
  const rule = `the server refuses: ${refusal}`;
  return new RemoteError('connect', { code: 'EACCES', rule, remedy });
}

/** The error of a failed attempt as one of this level. */
function remoteErrorOf(error: unknown, place: Place): unknown {
  if (!(error instanceof ConnectError)) return error;
  if (error.reason === RejectReason.NO_RESOURCES) {
    const full = `the server at ${formatUrl(place)} has as many clients as it accepts`;
    const later = 'try again later, or raise clientsMax or clientsPerSource there';
    return new RemoteError('connect', { code: error.code, rule: full, remedy: later });
  }
  // Without the operation and the code of the level below: this error has its own.
  const text = error.message.replace(/^connect: | \([A-Z]+\)$/g, '');
  const [cause, remedy = REMEDY] = text.split('; ');
  const rule = `${formatUrl(place)} cannot be reached: ${cause}`;
  return new RemoteError('connect', { code: error.code, rule, remedy }, { cause: error });
}

async function connectUrl<Shared extends Regions>(
  url: RdmaUrl | URL,
  options: RemoteOptions<Shared> = {},
): Promise<Remote<Shared>> {
  const place = parseUrl('connect', url);
  const own = checkOptions(options);
  const { timeout = TIMEOUT_MILLIS, signal, share = {} } = own;
  const bytes = regionBytes('connect', share);
  checkCall('connect', { timeout, signal } as WaitLimits);
  const address = await lookUp(place.address);
  checkUnicast('url', address);
  const use = await useDevice({ remote: address }, bytes, own);
  let shared: LocalRegions | undefined;
  try {
    shared = await LocalRegions.open('connect', use.pd, use.local, share);
    const connector = new Connector(place, address, own, use, shared);
    // The start of this process's own device does not count as silence of the server.
    return await withDeadline(timeout, signal, (deadline) => connector.remote<Shared>(deadline));
  } catch (error) {
    await shared?.close();
    await use.release();
    throw fullError('connect', remoteErrorOf(error, place), use);
  }
}

/**
 * Connects to the server at a URL (`share`): its memory by name, and messages. Rejects with
 * MisuseError; RemoteError ETIMEDOUT (no answer), ECONNREFUSED, EACCES (`auth`, or `ask` is more
 * than the server lends), EPROTO (the listener there was not opened by `share`); RefusalError
 * ENOENT (no such host), EAGAIN (the resolver does not answer now), ENOMEM; the reason of `signal`.
 */
export function connect<Shared extends Regions = Record<never, never>>(
  url: RdmaUrl | URL,
  options?: RemoteOptions<Shared>,
): Promise<Remote<Shared>>;
/**
 * A connected queue pair at `host:port`, for the verbs. `prepare` is called with the queue pair
 * before the request is sent: it posts the receives for a peer that sends first. Throws
 * MisuseError; RefusalError ENOENT (no such host), EAGAIN (the resolver does not answer now),
 * ECONNREFUSED (see `reason` and `privateData`), EACCES (`auth`: different keys, or keys on one
 * side only), ETIMEDOUT (no answer), ENOMEM; LinkError; the reason of `signal`.
 */
export function connect(
  target: Target,
  options?: ConnectOptions,
  prepare?: Prepare,
): Promise<RdmaConnection>;
export function connect(
  target: RdmaUrl | URL | Target,
  options?: RemoteOptions | ConnectOptions,
  prepare?: Prepare,
): Promise<Remote<Regions> | RdmaConnection> {
  if (isRdmaUrl(target)) return connectUrl(target, options as RemoteOptions);
  return connectQueuePair(target as Target, options as ConnectOptions, prepare).catch((error) => {
    throw wrongLevel(error) ?? error;
  });
}
