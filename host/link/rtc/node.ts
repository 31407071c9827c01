/** Connections in Node: libdatachannel, by node-datachannel, an optional package. */
import type { DataChannel, PeerConnection, RelayType } from 'node-datachannel';
import { checkKeys } from '../../base/options.js';
import { shown } from '../../errors/check-whole.js';
import { LinkError, MisuseError } from '../../errors/errors.js';
import type { ChannelReceiver, DatagramChannel } from '../channel/datagram-channel.js';
import type { Gid } from '../endpoint.js';
import { makeCertificate, type Certificate } from './certificate.js';
import {
  CHANNEL_LABEL,
  ICE_GATHERING_MILLIS_MAX,
  type Description,
  type IceServer,
  type RtcConnection,
  NETWORK_GONE,
  RTC_OPTIONS,
  channelOptions,
  type RtcConnector,
  type RtcOptions,
} from './connection.js';
import { checkDescription, gidOfFingerprint } from './fingerprint.js';

type Library = typeof import('node-datachannel');

async function load(): Promise<Library> {
  try {
    return await import('node-datachannel');
  } catch (error) {
    throw new LinkError(
      'EOPNOTSUPP',
      'connect: data channels in Node need the package node-datachannel; npm ' +
        'install node-datachannel',
      { cause: error },
    );
  }
}

export class NodeConnector implements RtcConnector {
  readonly #options: RtcOptions;
  #certificate: Certificate | undefined;

  constructor(options: RtcOptions = {}) {
    checkKeys('RtcConnector', options, RTC_OPTIONS);
    this.#options = options;
  }

  async address(): Promise<Gid> {
    await load();
    return gidOfFingerprint(this.#identity.fingerprint);
  }

  async offer(): Promise<RtcConnection> {
    const connection = await this.#connect();
    // Registers the callbacks first: creating the channel starts gathering the candidates.
    const offer = described(connection, 'offer');
    return connectionOf(
      connection,
      openChannel(connection, this.#options),
      offer.then(takeDtlsClient),
    );
  }

  async answer(offer: Description): Promise<RtcConnection> {
    const connection = await this.#connect();
    const answer = described(connection, 'answer');
    const [description, candidates] = takeCandidates(offer.sdp);
    try {
      connection.setRemoteDescription(description, 'offer');
    } catch (error) {
      connection.close();
      throw refusal('offer', error);
    }
    setTimeout(() => addCandidates(connection, candidates), OFFERER_FIRST_MILLIS).unref();
    return connectionOf(connection, openChannel(connection, this.#options), answer);
  }

  get #identity(): Certificate {
    return (this.#certificate ??= makeCertificate());
  }

  async #connect(): Promise<PeerConnection> {
    const { PeerConnection } = await load();
    const { certificatePem, keyPem } = this.#identity;
    const { iceTransportPolicy } = this.#options;
    return new PeerConnection(CHANNEL_LABEL, {
      ...(iceTransportPolicy && { iceTransportPolicy }),
      iceServers: (this.#options.iceServers ?? []).flatMap(nodeServers),
      certificatePemFile: certificatePem,
      keyPemFile: keyPem,
    });
  }
}

/** As libdatachannel names a server. */
interface NodeIceServer {
  readonly hostname: string;
  readonly port: number;
  readonly username?: string;
  readonly password?: string;
  readonly relayType?: RelayType;
}

const ICE_URL =
  /^(stun|turns?):(?:\[([^\]]+)\]|([^:?]+))(?::(\d{1,5}))?(?:\?transport=(udp|tcp))?$/i;
const PORTS = { plain: 3478, tls: 5349 };

/** Throws MisuseError. */
export function nodeServers(server: string | IceServer): (string | NodeIceServer)[] {
  if (typeof server === 'string') return [server];
  const { urls, username, credential } = server;
  return [urls].flat().map((url) => {
    const [, scheme, ipv6, host, port, transport] = ICE_URL.exec(String(url)) ?? [];
    if (scheme === undefined) {
      const rule = `must be stun:, turn: or turns: with a host, got ${shown(url)}`;
      throw new MisuseError('iceServers', rule);
    }
    const isTls = scheme.toLowerCase() === 'turns';
    const place = {
      hostname: ipv6 ?? host!,
      port: Number(port ?? (isTls ? PORTS.tls : PORTS.plain)),
    };
    if (scheme.toLowerCase() === 'stun') return place;
    const relayType: RelayType = isTls ? 'TurnTls' : transport === 'tcp' ? 'TurnTcp' : 'TurnUdp';
    return {
      ...place,
      relayType,
      ...(username !== undefined && { username }),
      ...(credential !== undefined && { password: credential }),
    };
  });
}

/**
 * The local side begins DTLS: with ICE the answering side is ready first, and libdatachannel drops
 * what arrives before it is ready, for a second.
 */
function takeDtlsClient({ type, sdp }: Description): Description {
  return { type, sdp: sdp.replace('a=setup:actpass', 'a=setup:active') };
}

/** How long the offering side may search for a candidate pair before the answering side does. */
const OFFERER_FIRST_MILLIS = 300;
/** The name of the one medium of a description (`a=mid:0`). */
const MEDIUM = '0';

/**
 * An offer without its candidates, and those. If we look for a way before our answer has arrived,
 * libdatachannel on the other side has one while it is still taking that answer in: on a busy
 * machine it then sees our certificate before it has the fingerprint, and refuses it.
 */
function takeCandidates(sdp: string): [description: string, candidates: string[]] {
  const lines = sdp.split(/\r\n|\r|\n/);
  const isCandidate = (line: string): boolean => line.startsWith('a=candidate:');
  const rest = lines.filter((line) => !isCandidate(line) && line !== 'a=end-of-candidates');
  const candidates = lines.filter(isCandidate).map((line) => line.slice('a='.length));
  return [rest.join('\r\n'), candidates];
}

function addCandidates(connection: PeerConnection, candidates: readonly string[]): void {
  for (const candidate of candidates) {
    try {
      connection.addRemoteCandidate(candidate, MEDIUM);
    } catch {
      // The candidate is invalid, or the connection is closed.
    }
  }
}

function openChannel(connection: PeerConnection, wanted: RtcOptions): NodeChannel {
  const { ordered, ...rest } = channelOptions(wanted);
  const options = { ...rest, unordered: !ordered };
  return new NodeChannel(connection, connection.createDataChannel(CHANNEL_LABEL, options));
}

async function connectionOf(
  connection: PeerConnection,
  channel: NodeChannel,
  description: Promise<Description>,
): Promise<RtcConnection> {
  return {
    description: await description,
    channel,
    async accept(answer) {
      const { sdp } = checkDescription(answer, 'answer');
      try {
        connection.setRemoteDescription(sdp, 'answer');
      } catch (error) {
        // It may have failed meanwhile, which the channel reports.
        if (connection.state() !== 'closed') throw refusal('answer', error);
      }
    },
  };
}

function refusal(type: Description['type'], error: unknown): LinkError {
  const { message } = error as Error;
  return new LinkError('EPROTO', `libdatachannel refuses the ${type}: ${message}`, {
    cause: error,
  });
}

function described(connection: PeerConnection, type: Description['type']): Promise<Description> {
  return new Promise((resolve) => {
    const say = (): void => {
      clearTimeout(timer);
      resolve({ type, sdp: connection.localDescription()?.sdp ?? '' });
    };
    const timer = setTimeout(say, ICE_GATHERING_MILLIS_MAX);
    connection.onGatheringStateChange((state) => {
      if (state === 'complete') say();
    });
  });
}

class NodeChannel implements DatagramChannel {
  readonly #connection: PeerConnection;
  readonly #channel: DataChannel;
  #receiver: ChannelReceiver | undefined;
  #isOpen = false;
  #isOver = false;
  #isClosed = false;
  #isInterrupted = false;

  constructor(connection: PeerConnection, channel: DataChannel) {
    this.#connection = connection;
    this.#channel = channel;
    // Registered at once: no later callback reports an earlier change, and a connection whose end
    // is not observed keeps the process alive.
    connection.onStateChange((state) => this.#changed(state));
    channel.onClosed(() => this.#end('the other side closed it', false));
  }

  get bufferedBytes(): number {
    return this.#isClosed ? 0 : this.#channel.bufferedAmount();
  }

  start(receiver: ChannelReceiver): void {
    queueMicrotask(() => {
      if (this.#isClosed) return;
      this.#receiver = receiver;
      try {
        if (!this.#isOver) this.#listen(receiver);
      } catch {
        // The connection has ended; a later turn reports it.
        this.#isOver = true;
      }
      if (this.#isOver) receiver.closed('it was closed before it was open', false);
    });
  }

  #listen(receiver: ChannelReceiver): void {
    const channel = this.#channel;
    const opened = (): void => {
      if (this.#isOpen || this.#isClosed) return;
      this.#isOpen = true;
      receiver.opened();
    };
    channel.onMessage((message) => {
      // Verbena sends no text messages.
      if (this.#isClosed || typeof message === 'string') return;
      opened();
      receiver.message(message instanceof Uint8Array ? message : new Uint8Array(message));
    });
    channel.onOpen(opened);
    if (channel.isOpen()) opened();
  }

  #changed(state: string): void {
    if (state === 'failed') this.#end(NETWORK_GONE, this.#isOpen);
    else if (state === 'closed') this.#end('the connection was closed', false);
    else if (state === (this.#isInterrupted ? 'connected' : 'disconnected')) {
      this.#isInterrupted = !this.#isInterrupted;
      if (!this.#isClosed) this.#receiver?.interrupted(this.#isInterrupted);
    }
  }

  #end(reason: string, isLost: boolean): void {
    if (this.#isOver || this.#isClosed) return;
    this.#isOver = true;
    this.#receiver?.closed(reason, isLost);
  }

  send(message: Uint8Array): boolean {
    if (this.#isClosed) return false;
    try {
      // False means that it waits in there, not that it was refused.
      this.#channel.sendMessageBinary(message);
      return true;
    } catch {
      return false;
    }
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#channel.close();
    this.#connection.close();
  }
}
