/**
 * A link over WebRTC data channels: in a page, in a page's Worker, and in Node by node-datachannel.
 * Any number of peers, each by a connection of its own; the address is that of our certificate
 * (rtc/fingerprint.ts).
 */
import { checkWhole, mustBe } from '../../errors/check-whole.js';
import { checkKeys } from '../../base/options.js';
import { checkMillis, timerMillis } from '../../base/timer.js';
import { LinkError, MisuseError } from '../../errors/errors.js';
import { ChannelLink, RECEIVE_BYTES, packetSizeOf } from './channel-link.js';
import { HEADER_BYTES, LENGTH_BYTES, ORDER_BYTES } from './channel-frame.js';
import type { DatagramChannel } from './datagram-channel.js';
import type { Endpoint, Gid } from '../endpoint.js';
import { BundleConnector } from '../rtc/bundle.js';
import {
  CONNECTIONS_MAX,
  RTC_OPTIONS,
  type Description,
  type RtcConnection,
  type RtcConnector,
  type RtcOptions,
} from '../rtc/connection.js';
import { defaultConnector } from '../rtc/default.js';
import { checkDescription, gidOfDescription } from '../rtc/fingerprint.js';
import { PROGRAM_OPTIONS, pacedConnector } from '../rtc/paced.js';
import { judgeOffer } from '../rtc/session.js';
import { HttpSignalling } from '../signalling/http.js';
import type { Signalling, SignallingListener, SignallingRoom } from '../signalling/signalling.js';

/** How a data channel link behaves. */
export interface DataChannelOptions extends RtcOptions {
  /**
   * 256, 512, 1024, 2048 or 4096. Default 1024: a packet fits into one datagram of the network.
   * 4096 is faster where nothing is lost, and is lost four times as often where something is.
   */
  readonly pathMtuBytes?: number;
  /** Bytes under way on one connection. Default 64 KiB: more than that drowns the channel. */
  readonly windowBytes?: number;
  /**
   * Connections to one peer, 1 to 8, that carry side by side; as many as both sides allow. Where
   * packets get lost several carry more than one. Default 1.
   */
  readonly connections?: number;
  /** Bytes that wait for that window, for one peer; beyond, packets are lost. Default 1 MiB. */
  readonly queueBytes?: number;
  /** Default 256. */
  readonly peersMax?: number;
  /** How long a connection may take until packets travel. Default 15 s. */
  readonly openMillis?: number;
  /**
   * Timeout of an interrupted peer; the side that connected retries through the same signalling
   * meanwhile. Default 10 s.
   */
  readonly returnMillis?: number;
  /**
   * In programs: bytes per second of the messages of one peer, and of those to it, at least
   * 131,072. Others wait: a peer that READs or WRITEs all it can leaves processor and network to
   * the others. Default: no limit.
   */
  readonly peerBytesPerSecond?: number;
  /** Default: what there is where this runs. Two links never have the same. */
  readonly connector?: RtcConnector;
}

export interface ConnectOptions {
  /** How long signalling may take. Default 10 s. */
  readonly timeoutMillis?: number;
}

/** Payload of one datagram below DTLS and SCTP, in Chromium and in libdatachannel. */
const MESSAGE_BYTES = 1150;
/**
 * A reliable channel repeats each lost datagram of a message by itself, so a message has as many
 * packets as leave eight messages in the window. 32 KiB cost a tenth less processor time than 16.
 */
const RELIABLE_MESSAGE_BYTES_MIN = 16_384;
const RELIABLE_MESSAGE_BYTES_MAX = 32_768;
const MESSAGES_PER_WINDOW = 8;
const WINDOW_BYTES = 65536;
const QUEUE_BYTES = 2 ** 20;
const BUFFERED_BYTES_MAX = 2 ** 20;
const PEERS_MAX = 256;
const OPEN_MILLIS = 15_000;
const SIGNALLING_MILLIS = 10_000;
const RETURN_MILLIS = 10_000;
/** Well below what a queue pair's retries last. */
const ASK_MILLIS = 100;
/** Between attempts to find a peer again, and before the first. */
const SEEK_MILLIS = 1000;
/** One side may see seconds before the other that nothing travels. */
const NOTICE_MILLIS = 4000;
const NOTICE_PAUSE_MILLIS = 100;
/** How long a connection may look for another way before it is replaced. */
const RESTART_MILLIS = 5000;

/**
 * A connection that closes before it opens is made anew: when both ends are quick, libdatachannel
 * may see the other's certificate before it has its fingerprint.
 */
const ATTEMPTS = 3;

/** A connection, and what the other side said in it last. */
interface Made {
  readonly connection: RtcConnection;
  readonly heard: Description;
}

/** Whose address is in use. */
const taken = new WeakSet<RtcConnector>();

function reliableMessageBytes(windowBytes: number): number {
  const some = Math.floor(windowBytes / MESSAGES_PER_WINDOW);
  return Math.max(RELIABLE_MESSAGE_BYTES_MIN, Math.min(some, RELIABLE_MESSAGE_BYTES_MAX));
}

/** A link over WebRTC data channels, in pages, their Workers, and Node with node-datachannel. */
export class DataChannelLink extends ChannelLink {
  /** Whose certificate is our address; what makes the connections of one peer with it. */
  readonly #connector: RtcConnector;
  readonly #bundler: RtcConnector;
  readonly #peersMax: number;
  readonly #noticeMillis: number;
  readonly #listening = new Set<() => void>();
  /** The signalling through which each peer was connected. */
  readonly #ways = new WeakMap<Endpoint, Signalling>();
  readonly #made = new WeakMap<DatagramChannel, Made>();
  /** Peers that are being reconnected; peers with an outstanding offer of a restart. */
  readonly #sought = new Set<Endpoint>();
  readonly #offered = new Set<string>();
  readonly #policy: RtcOptions['iceTransportPolicy'];
  #answering = 0;

  /** Throws MisuseError for options out of range. */
  constructor(options: DataChannelOptions = {}) {
    const numbers =
      'pathMtuBytes windowBytes connections queueBytes peersMax openMillis returnMillis';
    checkKeys('DataChannelLink', options, `${PROGRAM_OPTIONS} ${RTC_OPTIONS} ${numbers}` as const);
    const packetSizeMax = packetSizeOf(options.pathMtuBytes ?? 1024);
    const peersMax = options.peersMax ?? PEERS_MAX;
    const limits = {
      windowBytes: options.windowBytes ?? WINDOW_BYTES,
      queueBytes: options.queueBytes ?? QUEUE_BYTES,
      peersMax,
      openMillis: options.openMillis ?? OPEN_MILLIS,
      returnMillis: options.returnMillis ?? RETURN_MILLIS,
    };
    for (const [name, value] of Object.entries(limits)) {
      checkWhole(name, value, 1);
    }
    checkMillis('openMillis', limits.openMillis);
    checkMillis('returnMillis', limits.returnMillis);
    const { connections = 1 } = options;
    checkWhole('connections', connections, 1, CONNECTIONS_MAX);
    const most = options.reliable ? reliableMessageBytes(limits.windowBytes) : MESSAGE_BYTES;
    const messageBytes = connections > 1 ? most - ORDER_BYTES : most;
    const all = {
      ...limits,
      messageBytes: Math.max(messageBytes, HEADER_BYTES + LENGTH_BYTES + packetSizeMax),
      receiveBytes: Math.max(RECEIVE_BYTES, RELIABLE_MESSAGE_BYTES_MAX),
      bufferedBytesMax: BUFFERED_BYTES_MAX,
      askMillis: ASK_MILLIS,
    };
    // DTLS checks each byte; of an application's own connections that is not known.
    super('data-channel', packetSizeMax, all, options.connector ? undefined : 'link');
    this.#peersMax = peersMax;
    this.#noticeMillis = Math.min(NOTICE_MILLIS, limits.returnMillis);
    const { iceServers, iceTransportPolicy, reliable } = options;
    const own = { iceServers, iceTransportPolicy, reliable } as RtcOptions;
    checkPolicy(iceTransportPolicy);
    this.#policy = iceTransportPolicy;
    this.#connector = options.connector ?? defaultConnector(own);
    const paced = pacedConnector(this.#connector, options, this.counters);
    this.#bundler = connections > 1 ? new BundleConnector(paced, connections) : paced;
  }

  /**
   * Offers a connection through `signalling` (a URL: by HTTP). Resolves with the peer's address
   * when packets travel. A new connection to the same certificate replaces the old one, and its
   * queue pairs retransmit what was lost. Rejects with LinkError: ETIMEDOUT (no answer, or no
   * working candidate pair), ECONNREFUSED, EPROTO, EOPNOTSUPP, EACCES, ENOSPC.
   */
  async connect(signalling: Signalling | string, options: ConnectOptions = {}): Promise<Endpoint> {
    checkKeys('connect', options, 'timeoutMillis');
    if (!this.isOpen) throw new MisuseError('link', 'is not open: openDevice opens it');
    if (options.timeoutMillis !== undefined) checkMillis('timeoutMillis', options.timeoutMillis, 1);
    const by = typeof signalling === 'string' ? new HttpSignalling(signalling) : signalling;
    for (let attempt = 1; ; attempt++) {
      const connection = await this.#bundler.offer();
      checkRelay(this.#policy, connection);
      const { description, channel } = connection;
      let answer: Description;
      let gid: Gid;
      try {
        answer = checkDescription(await exchange(by, description, options), 'answer');
        gid = gidOfDescription(answer);
      } catch (error) {
        channel.close();
        throw error;
      }
      try {
        const peer = await this.addPeer(gid, channel, () => connection.accept(answer));
        this.#ways.set(peer, by);
        this.#made.set(channel, { connection, heard: answer });
        return peer;
      } catch (error) {
        const isReset = error instanceof LinkError && error.code === 'ECONNRESET';
        if (!isReset || attempt === ATTEMPTS || !this.isOpen) throw error;
      }
    }
  }

  /**
   * Answers an offer that came by any way, of any shape. Rejects with LinkError EPROTO (none, or
   * one that came before), ENOSPC; of an ICE restart EBUSY (it works), EOPNOTSUPP (none here).
   */
  readonly answer = async (offer: unknown): Promise<Description> => {
    if (!this.isOpen) throw new LinkError('ECONNRESET', 'answer: the link is not open; open it');
    if (this.#answering >= this.#peersMax) {
      throw new LinkError(
        'ENOSPC',
        `answer: ${this.#peersMax} offers are being answered; try again`,
      );
    }
    const checked = checkDescription(offer, 'offer');
    const gid = gidOfDescription(checked);
    const channel = this.channelOf(gid);
    const made = channel && this.#made.get(channel);
    const kind = made ? judgeOffer(made.heard, checked) : 'other';
    if (kind === 'old')
      throw new LinkError('EPROTO', 'answer: the offer was received before; connect again');
    if (kind === 'other') this.checkRoom(gid);
    this.#answering++;
    let answered: { description: Description };
    try {
      if (kind === 'restart') return await this.#answerRestart(gid, channel!, made!, checked);
      const connection = await this.#bundler.answer(checked);
      checkRelay(this.#policy, connection);
      answered = connection;
      this.#made.set(connection.channel, { connection, heard: checked });
      // peerEvents reports the connection; a failure has no other effect here.
      this.addPeer(gid, connection.channel).catch(() => undefined);
    } finally {
      this.#answering--;
    }
    return answered.description;
  };

  /**
   * Answers all offers of `signalling`, until the link is closed or the returned function is
   * called.
   */
  listen(signalling: SignallingListener): () => void {
    return this.#attend(signalling.listen(this.answer));
  }

  /** Connects to every peer that joins the same room (see `peerEvents`). Ends as `listen`. */
  meet(room: SignallingRoom): () => void {
    const name = this.info.local.gid.toString();
    // In a busy browser signalling may exceed its timeout; a peer that left does not answer.
    const greet = (newcomer: Signalling, attempts = ATTEMPTS): void => {
      this.connect(newcomer).catch(async () => {
        await pause(SEEK_MILLIS);
        if (attempts > 1 && this.#listening.has(stop)) greet(newcomer, attempts - 1);
      });
    };
    const events = { away: (id: string) => this.probe(id) };
    const stop = room.join(name, this.answer, (newcomer) => greet(newcomer), events);
    return this.#attend(stop);
  }

  #attend(stop: () => void): () => void {
    this.#listening.add(stop);
    return () => {
      if (this.#listening.delete(stop)) stop();
    };
  }

  protected async takeAddress(): Promise<Gid> {
    const gid = await this.#connector.address();
    if (taken.has(this.#connector)) {
      throw new LinkError(
        'EADDRINUSE',
        `open: [${gid}]:4791 is the address of another link; close it`,
      );
    }
    taken.add(this.#connector);
    return gid;
  }

  protected seekAgain(peer: Endpoint): void {
    const way = this.#ways.get(peer);
    if (!way || this.#sought.has(peer)) return;
    this.#sought.add(peer);
    // Once: every restart puts off the moment when the library itself gives the connection up.
    let mayRestart = true;
    const seek = async (): Promise<void> => {
      // The peer is restored, or its timeout has expired.
      while (this.isInterrupted(peer)) {
        if (!mayRestart) await this.connect(way, { timeoutMillis: SEEK_MILLIS }).catch(() => {});
        else await this.#restart(peer, way).catch(() => {});
        mayRestart = false;
        await pause(SEEK_MILLIS);
      }
      this.#sought.delete(peer);
    };
    void pause(SEEK_MILLIS).then(seek);
  }

  /** ICE restart. `isInterrupted` shows whether it worked. */
  async #restart(peer: Endpoint, way: Signalling): Promise<void> {
    const channel = this.channelOf(peer.gid);
    const made = channel && this.#made.get(channel);
    if (!made?.connection.restart) return;
    const key = peer.gid.toString();
    this.#offered.add(key);
    try {
      const offer = await made.connection.restart.offer();
      const timeoutMillis = NOTICE_MILLIS + SEEK_MILLIS;
      const answer = checkDescription(await exchange(way, offer, { timeoutMillis }), 'answer');
      // Another certificate would end the connection; another session belongs to another
      // connection.
      if (!gidOfDescription(answer).equals(peer.gid)) return;
      if (judgeOffer(made.heard, answer) !== 'restart') return;
      // An offer of the other side was answered meanwhile.
      if (!this.#offered.has(key)) return;
      await made.connection.accept(answer);
      this.#made.set(channel!, { ...made, heard: answer });
    } finally {
      this.#offered.delete(key);
    }
    await this.#until(RESTART_MILLIS, () => !this.isInterrupted(peer));
  }

  /**
   * Accepts an ICE restart only while no packet travels on the connection here: otherwise an
   * attacker that reads the signalling could interrupt a working connection.
   */
  async #answerRestart(
    gid: Gid,
    channel: DatagramChannel,
    made: Made,
    offer: Description,
  ): Promise<Description> {
    const { restart } = made.connection;
    if (!restart) throw new LinkError('EOPNOTSUPP', 'ICE restart is not available: connect anew');
    const key = gid.toString();
    if (this.#offered.has(key) && `${this.info.local.gid}` > key) {
      throw new LinkError('EBUSY', 'restart: that of this side has priority; await it');
    }
    const isInterrupted = (): boolean =>
      this.peers.some((peer) => peer.gid.equals(gid) && this.isInterrupted(peer));
    if (!(await this.#until(this.#noticeMillis, isInterrupted))) {
      throw new LinkError('EBUSY', 'restart: the connection works; await it');
    }
    // Of two that came meanwhile the later one counts.
    const now = this.#made.get(channel);
    if (this.channelOf(gid) !== channel || judgeOffer(now!.heard, offer) !== 'restart') {
      throw new LinkError('EPROTO', 'answer: the offer was received before; connect again');
    }
    this.#offered.delete(key);
    this.#made.set(channel, { ...made, heard: offer });
    return restart.answer(offer);
  }

  /** False: it has not come true in time, or the link is closed. */
  async #until(millis: number, isTrue: () => boolean): Promise<boolean> {
    for (let waited = 0; this.isOpen; waited += NOTICE_PAUSE_MILLIS) {
      if (isTrue()) return true;
      if (waited >= millis) return false;
      await pause(NOTICE_PAUSE_MILLIS);
    }
    return false;
  }

  protected releaseAddress(): void {
    taken.delete(this.#connector);
    for (const stop of this.#listening) stop();
    this.#listening.clear();
  }
}

/** Throws MisuseError. */
function checkPolicy(policy: RtcOptions['iceTransportPolicy']): void {
  if (policy === undefined || policy === 'all' || policy === 'relay') return;
  throw mustBe('iceTransportPolicy', 'all or relay', policy);
}

/** Throws LinkError ECONNREFUSED if no TURN server has a candidate for this side. */
function checkRelay(policy: RtcOptions['iceTransportPolicy'], made: RtcConnection): void {
  if (policy !== 'relay' || made.description.sdp.includes('a=candidate')) return;
  made.channel.close();
  const rule = 'iceServers: no TURN server relays; check its URL and credentials';
  throw new LinkError('ECONNREFUSED', rule);
}

function pause(millis: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, timerMillis(millis)));
}

/** Rejects with LinkError ETIMEDOUT without an answer. */
async function exchange(
  by: Signalling,
  offer: Description,
  { timeoutMillis = SIGNALLING_MILLIS }: ConnectOptions,
): Promise<unknown> {
  const limit = new AbortController();
  const gaveUp = new Promise<never>((_resolve, reject) => {
    limit.signal.addEventListener('abort', () => reject(limit.signal.reason as Error));
  });
  const seconds = timeoutMillis / 1000;
  const timeout = new LinkError(
    'ETIMEDOUT',
    `connect: no peer answered through ${by.name} within ${seconds} s; check that it is open`,
  );
  const timer = setTimeout(() => limit.abort(timeout), timerMillis(timeoutMillis));
  try {
    return await Promise.race([by.exchange(offer, limit.signal), gaveUp]);
  } finally {
    clearTimeout(timer);
  }
}
