/** Connections of a page: RTCPeerConnection, which Workers do not have. */
import { checkKeys } from '../../base/options.js';
import { LinkError } from '../../errors/errors.js';
import type { Gid } from '../endpoint.js';
import {
  CHANNEL_LABEL,
  ICE_GATHERING_MILLIS_MAX,
  type Description,
  type RtcConnection,
  NETWORK_GONE,
  RTC_OPTIONS,
  channelOptions,
  type RtcConnector,
  type RtcOptions,
} from './connection.js';
import { checkDescription, gidOfDescription } from './fingerprint.js';
import { RtcChannel, type RtcDataChannel } from './rtc-channel.js';

/** Part of RTCPeerConnection that is used; the DOM's types are not here. */
export interface RtcPeerConnection {
  readonly connectionState: string;
  readonly localDescription: { readonly sdp: string } | null;
  onconnectionstatechange: (() => void) | null;
  onicecandidate: ((event: { readonly candidate: object | null }) => void) | null;
  createDataChannel(label: string, options: object): RtcDataChannel;
  createOffer(): Promise<{ readonly sdp?: string }>;
  setLocalDescription(): Promise<void>;
  setRemoteDescription(description: Description): Promise<void>;
  restartIce(): void;
  close(): void;
}

interface Scope {
  addEventListener?(kind: 'pagehide', listener: typeof closeAll): void;
}

interface RtcPeerConnectionClass {
  new (options: object): RtcPeerConnection;
  generateCertificate(algorithm: object): Promise<object>;
}

/** A peer connection with its channel, before anything was said. */
export interface PageConnection {
  readonly connection: RtcPeerConnection;
  readonly channel: RtcDataChannel;
}

function peerConnectionClass(): RtcPeerConnectionClass {
  const scope = globalThis as { RTCPeerConnection?: RtcPeerConnectionClass };
  if (scope.RTCPeerConnection) return scope.RTCPeerConnection;
  throw new LinkError(
    'EOPNOTSUPP',
    'connect: WebRTC is missing in this browser, or disabled; use a WebSocketLink',
  );
}

export class PageConnector implements RtcConnector {
  readonly #options: RtcOptions;
  #certificate: Promise<{ certificate: object; gid: Gid }> | undefined;

  constructor(options: RtcOptions = {}) {
    checkKeys('RtcConnector', options, RTC_OPTIONS);
    this.#options = options;
  }

  async address(): Promise<Gid> {
    this.#certificate ??= this.#generate();
    return (await this.#certificate).gid;
  }

  offer(): Promise<RtcConnection> {
    return this.answer();
  }

  /** Without an offer of the peer it makes one. */
  async answer(offer?: Description): Promise<RtcConnection> {
    return connectionOf(await this.prepare(), offer);
  }

  /** `made` is called in the task that makes the channel. */
  async prepare(made: (connection: PageConnection) => void = () => {}): Promise<PageConnection> {
    await this.address();
    const { certificate } = await this.#certificate!;
    const connection = this.#make([certificate]);
    made(connection);
    return connection;
  }

  #make(certificates: object[]): PageConnection {
    const PeerConnection = peerConnectionClass();
    const { iceTransportPolicy = 'all' } = this.#options;
    const iceServers = (this.#options.iceServers ?? []).map((server) =>
      typeof server === 'string' ? { urls: server } : server,
    );
    let connection: RtcPeerConnection;
    try {
      connection = new PeerConnection({ iceServers, iceTransportPolicy, certificates });
    } catch (error) {
      const { name, message } = error as Error;
      if (name === 'SyntaxError' || name === 'InvalidAccessError') {
        const rule = `iceServers: ${message}; write stun:host:port, or turn: with credentials`;
        throw new LinkError('EINVAL', rule, { cause: error });
      }
      throw new LinkError(
        'EACCES',
        `connect: the browser does not allow the connection: ${message}`,
        {
          cause: error,
        },
      );
    }
    closeWithPage(connection);
    return {
      connection,
      channel: connection.createDataChannel(CHANNEL_LABEL, channelOptions(this.#options)),
    };
  }

  async #generate(): Promise<{ certificate: object; gid: Gid }> {
    const PeerConnection = peerConnectionClass();
    const certificate = await PeerConnection.generateCertificate({
      name: 'ECDSA',
      namedCurve: 'P-256',
    });
    // Not every browser exposes a certificate's fingerprint; an offer with it does.
    const { connection } = this.#make([certificate]);
    try {
      const { sdp = '' } = await connection.createOffer();
      return { certificate, gid: gidOfDescription({ type: 'offer', sdp }) };
    } finally {
      connection.close();
    }
  }
}

/** Connections of this page, and some that were closed. */
const made = new Set<RtcPeerConnection>();

const closeAll = ({ persisted }: { readonly persisted: boolean }): void => {
  if (!persisted) for (const connection of made) connection.close();
};

/** A browser ends a page without a word to its peers, which notice it by the silence of 15 s. */
function closeWithPage(connection: RtcPeerConnection): void {
  // Once: it is the same function each time.
  (globalThis as unknown as Scope).addEventListener?.('pagehide', closeAll);
  for (const each of made) if (each.connectionState === 'closed') made.delete(each);
  made.add(connection);
}

function wrap({ connection, channel }: PageConnection): RtcChannel {
  const wrapped = new RtcChannel(channel, () => connection.close());
  watch(connection, wrapped);
  return wrapped;
}

/** Reports the state changes of its connection to `channel`. */
export function watch(
  connection: RtcPeerConnection,
  channel: Pick<RtcChannel, 'interrupted' | 'end'>,
): void {
  let isInterrupted = false;
  connection.onconnectionstatechange = () => {
    const state = connection.connectionState;
    if (state === 'failed') channel.end(NETWORK_GONE, true);
    else if (state === 'closed') channel.end('the connection was closed', false);
    else if (state === (isInterrupted ? 'connected' : 'disconnected')) {
      isInterrupted = !isInterrupted;
      channel.interrupted(isInterrupted);
    }
  };
}

async function connectionOf(made: PageConnection, offer?: Description): Promise<RtcConnection> {
  const { connection } = made;
  const channel = wrap(made);
  try {
    return {
      description: await describe(connection, offer),
      channel,
      accept: (answer) => acceptAnswer(connection, answer),
      restart: {
        offer: () => describe(connection),
        answer: (offer) => describe(connection, offer),
      },
    };
  } catch (error) {
    channel.close();
    throw error;
  }
}

/**
 * Our answer to `offer`, or our offer, which restarts ICE if there is a connection already. Rejects
 * with LinkError EPROTO.
 */
export async function describe(
  connection: RtcPeerConnection,
  offer?: Description,
): Promise<Description> {
  if (offer) await setRemote(connection, offer);
  else connection.restartIce();
  // At a restart the connection's state says that the candidates of before are complete.
  const complete = new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ICE_GATHERING_MILLIS_MAX);
    connection.onicecandidate = ({ candidate }) => {
      if (candidate) return;
      clearTimeout(timer);
      resolve();
    };
  });
  await attempt(connection.setLocalDescription(), 'its own description');
  await complete;
  const { sdp } = connection.localDescription!;
  return { type: offer ? 'answer' : 'offer', sdp };
}

export async function acceptAnswer(
  connection: RtcPeerConnection,
  answer: Description,
): Promise<void> {
  await setRemote(connection, checkDescription(answer, 'answer'));
}

async function setRemote(connection: RtcPeerConnection, description: Description): Promise<void> {
  await attempt(connection.setRemoteDescription(description), `the ${description.type}`);
}

async function attempt(setting: Promise<void>, description: string): Promise<void> {
  try {
    await setting;
  } catch (cause) {
    const { message } = cause as Error;
    throw new LinkError('EPROTO', `the browser refuses ${description}: ${message}`, { cause });
  }
}
