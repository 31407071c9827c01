/**
 * The signalling server of rooms (room.ts), attached to a server of node:http. One process has
 * 1,000 sessions by default; several processes share their rooms through a bus (`redisBus`).
 */
import { checkMember } from '../../errors/check-member.js';
import { checkFunction, mustBe } from '../../errors/check-whole.js';
import { createHash } from 'node:crypto';
import type { IncomingMessage, Server } from 'node:http';
import type { Duplex } from 'node:stream';
import type { WebSocket, WebSocketServer } from 'ws';
import { checkKeys } from '../../base/options.js';
import { checkMillis, timerMillis } from '../../base/timer.js';
import {
  checkSite,
  onUpgrade,
  refusalOfRequest,
  refuseUpgrade,
  type SiteOptions,
} from '../channel/http-site.js';
import { load } from '../channel/websocket-class.js';
import { randomGid } from '../random-address.js';
import { SourceShares } from '../source-shares.js';
import { AbsentMembers } from './absent-members.js';
import { RoomMembers, type MemberSocket } from './room-members.js';
import {
  MESSAGE_LENGTH_MAX,
  parseMemberMessage,
  type JoinMessage,
  type ServerMessage,
} from './room-protocol.js';
import { guardBus, RareWarning, type GuardedBus } from './guarded-bus.js';
import type { SignallingBus } from './signalling-bus.js';

/** Which members a signalling server takes, and how many. */
export interface SignallingServerOptions extends SiteOptions {
  /** Path of the WebSockets. Default `/rooms`. */
  readonly path?: string;
  /** WebSockets at once. Default 1000. */
  readonly sessionsMax?: number;
  /**
   * WebSockets at once of one IPv4 address, or one IPv6 network of 64 bits; as many members again
   * may be without a WebSocket. Default 64.
   */
  readonly sessionsPerSource?: number;
  /** Members of one room, in all processes. Default 64. */
  readonly membersPerRoom?: number;
  /** Messages that one member may send in a second, on average; 8 seconds' worth at once. Default 32. */
  readonly messagesPerSecond?: number;
  /** A WebSocket that answers no ping for so long is ended. Default 20 s. */
  readonly aliveMillis?: number;
  /** How long a member whose WebSocket was lost stays in its room. Default 10 s. */
  readonly returnMillis?: number;
  /**
   * Decides on each join, also asynchronously. False refuses it. After an error the WebSocket is
   * closed with code 1013, and the member tries again. Default: all.
   */
  readonly authorize?: (
    request: IncomingMessage,
    join: { readonly room: string; readonly name: string },
  ) => boolean | Promise<boolean>;
  /** Shares rooms with other processes. Its owner closes it. Default: none. */
  readonly bus?: SignallingBus;
}

/** Counters of a signalling server. */
export interface SignallingCounters {
  /** Members that entered a room. */
  joined: number;
  /** Offers, answers and refusals that were passed on. */
  passed: number;
  /** WebSockets and joins that were refused. */
  refused: number;
  /** Sessions that were ended for invalid messages, or too many of them. */
  ended: number;
}

const LIMITS = { sessionsMax: 1000, sessionsPerSource: 64, membersPerRoom: 64 };
const MESSAGES_PER_SECOND = 32;
const BURST_SECONDS = 8;
const ALIVE_MILLIS = 20_000;
const RETURN_MILLIS = 10_000;
/** Messages between processes in that time. */
const HEARTBEATS = 4;
/** A WebSocket that has not joined a room by then is ended. */
const JOIN_MILLIS = 5000;
/** Unsent bytes to a member that does not read. */
const BUFFERED_BYTES_MAX = 2 ** 20;
/** Of a page that is closed, left or killed (RFC 6455 7.4.1), and of proxies that end. */
const GOING_AWAY = 1001;
const POLICY_VIOLATION = 1008;
const TRY_AGAIN_LATER = 1013;

type Limits = Required<Omit<SignallingServerOptions, keyof Admission>>;

/** Throws MisuseError. */
function limitsOf(options: SignallingServerOptions): Limits {
  checkKeys(
    'createSignallingServer',
    options,
    'hosts origins path sessionsMax sessionsPerSource membersPerRoom messagesPerSecond aliveMillis returnMillis authorize bus',
  );
  const limits = {
    path: '/rooms',
    ...LIMITS,
    messagesPerSecond: MESSAGES_PER_SECOND,
    aliveMillis: ALIVE_MILLIS,
    returnMillis: RETURN_MILLIS,
    ...(Object.fromEntries(
      Object.entries(options).filter(([, value]) => value !== undefined),
    ) as object),
  } as Limits;
  for (const name of [...Object.keys(LIMITS), 'messagesPerSecond'] as (keyof Limits)[]) {
    const value = limits[name];
    if (!Number.isInteger(value) || (value as number) < 1) {
      throw mustBe(name, 'a whole number above 0', value);
    }
  }
  checkMillis('aliveMillis', limits.aliveMillis, 1);
  checkMillis('returnMillis', limits.returnMillis);
  if (typeof limits.path !== 'string' || !limits.path.startsWith('/')) {
    throw mustBe('path', 'a text that begins with /', limits.path);
  }
  return limits;
}

/** Which members enter, and the bus. */
type Admission = Pick<SignallingServerOptions, 'hosts' | 'origins' | 'authorize' | 'bus'>;

/** A copy. Throws MisuseError. */
function admissionOf(options: SignallingServerOptions): Admission {
  const { authorize, bus } = options;
  checkFunction('authorize', authorize);
  if (bus !== undefined) {
    for (const method of ['publish', 'subscribe'])
      checkMember('bus', bus, method, 'a SignallingBus, as redisBus makes');
  }
  const site = checkSite('createSignallingServer', options);
  return { ...site, ...(authorize && { authorize }), ...(bus && { bus }) };
}

/** A signalling server: `createSignallingServer`. */
export class SignallingServer {
  readonly counters: SignallingCounters = { joined: 0, passed: 0, refused: 0, ended: 0 };
  readonly #admission: Admission;
  readonly #limits: Limits;
  readonly #removeUpgrade: () => void;
  readonly #sockets: WebSocketServer;
  readonly #shares: SourceShares;
  /** A place of its own: members that come back need theirs of the WebSockets. */
  readonly #absent: AbsentMembers;
  /** Of this process, for the bus. */
  readonly #id = `${randomGid()}`;
  readonly #bus: GuardedBus | undefined;
  readonly #authorizeWarning = new RareWarning();
  readonly #rooms = new Map<string, RoomMembers>();
  readonly #sessions = new Set<Session>();

  /** @internal Use `createSignallingServer`. */
  constructor(server: Server, sockets: WebSocketServer, limits: Limits, admission: Admission) {
    this.#sockets = sockets;
    this.#limits = limits;
    this.#admission = admission;
    this.#bus = admission.bus && guardBus(admission.bus);
    const { sessionsMax, sessionsPerSource } = limits;
    this.#shares = new SourceShares(sessionsMax, sessionsPerSource);
    this.#absent = new AbsentMembers(sessionsMax, sessionsPerSource);
    this.#removeUpgrade = onUpgrade(server, this.#limits.path, this.#upgrade);
  }

  /** WebSockets at the moment. */
  get sessions(): number {
    return this.#sessions.size;
  }

  /** Rooms with members of this process. */
  get rooms(): number {
    return this.#rooms.size;
  }

  /** Ends all sessions. The HTTP server and the bus stay open. */
  close(): Promise<void> {
    this.#removeUpgrade();
    for (const session of [...this.#sessions]) session.end();
    for (const room of [...this.#rooms.values()]) room.close();
    return new Promise((resolve) => this.#sockets.close(() => resolve()));
  }

  readonly #upgrade = (request: IncomingMessage, socket: Duplex, head: Buffer): void => {
    const refusal = refusalOfRequest(request, this.#admission);
    const giveBack = refusal ? undefined : this.#shares.take(request.socket.remoteAddress);
    if (!giveBack) {
      this.counters.refused++;
      const status = refusal?.status ?? 503;
      return refuseUpgrade(socket, status, refusal?.sentence ?? 'all sessions are in use');
    }
    socket.once('close', giveBack);
    this.#sockets.handleUpgrade(request, socket, head, (made) => this.#enter(made, request));
  };

  #enter(socket: WebSocket, request: IncomingMessage): void {
    const source = request.socket.remoteAddress;
    const session: Session = new Session(socket, source, this.#limits, {
      join: (join) => this.#join(session, join, request),
      ended: () => this.counters.ended++,
      refused: () => this.counters.refused++,
      closed: () => void this.#sessions.delete(session),
      passed: () => this.counters.passed++,
    });
    this.#sessions.add(session);
  }

  async #join(
    session: Session,
    { room: name, name: member, key }: JoinMessage,
    request: IncomingMessage,
  ): Promise<RoomMembers | undefined> {
    const isPermitted = await this.#isPermitted(name, member, request);
    if (session.isOver) return undefined;
    if (isPermitted === undefined) return session.postpone('authorize failed');
    if (!isPermitted) return session.refuse('not authorized');
    const room = this.#roomOf(name);
    room.pending++;
    const isReady = await room.ready;
    room.pending--;
    const proof = createHash('sha256').update(key).digest('base64');
    const isUsable = isReady && !session.isOver;
    const unable = isUsable ? room.enter(member, proof, session) : undefined;
    if (isUsable && !unable) {
      this.counters.joined++;
      return room;
    }
    room.closeIfEmpty();
    if (!isReady) return session.postpone('the bus failed');
    const { reason, isForNow } = unable ?? { reason: 'the WebSocket was closed', isForNow: false };
    return isForNow ? session.postpone(reason) : session.refuse(reason);
  }

  /** Undefined: `authorize` has failed. */
  async #isPermitted(
    room: string,
    name: string,
    request: IncomingMessage,
  ): Promise<boolean | undefined> {
    const { authorize = () => true } = this.#admission;
    try {
      return Boolean(await authorize(request, { room, name }));
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      this.#authorizeWarning.warn(
        `createSignallingServer: authorize failed: ${why}; the member tries again`,
      );
      return undefined;
    }
  }

  #roomOf(name: string): RoomMembers {
    let room = this.#rooms.get(name);
    if (room) return room;
    const { aliveMillis } = this.#limits;
    const limits = { ...this.#limits, heartbeatMillis: aliveMillis / HEARTBEATS };
    const own = { server: this.#id, bus: this.#bus, absent: this.#absent };
    room = new RoomMembers(name, own, limits, () => this.#rooms.delete(name));
    this.#rooms.set(name, room);
    return room;
  }
}

interface SessionEvents {
  readonly join: (join: JoinMessage) => Promise<RoomMembers | undefined>;
  readonly ended: () => void;
  readonly refused: () => void;
  readonly closed: () => void;
  readonly passed: () => void;
}

/** One WebSocket, hostile until proven otherwise. */
class Session implements MemberSocket {
  isOver = false;
  readonly #socket: WebSocket;
  readonly #limits: Limits;
  readonly #events: SessionEvents;
  readonly #ping: ReturnType<typeof setInterval>;
  readonly #joining: ReturnType<typeof setTimeout>;
  #room: RoomMembers | undefined;
  #name: string | undefined;
  #isHeard = true;
  #tokens: number;
  #countedMillis = performance.now();

  constructor(
    socket: WebSocket,
    readonly source: string | undefined,
    limits: Limits,
    events: SessionEvents,
  ) {
    this.#socket = socket;
    this.#limits = limits;
    this.#events = events;
    this.#tokens = limits.messagesPerSecond * BURST_SECONDS;
    // Timers run before sockets are read: behind a pause of this process, answers are still unread.
    const check = (): unknown => setImmediate(() => this.#check());
    this.#ping = setInterval(check, timerMillis(limits.aliveMillis / 2));
    this.#ping.unref();
    this.#joining = setTimeout(() => socket.terminate(), JOIN_MILLIS);
    this.#joining.unref();
    socket.on('pong', () => (this.#isHeard = true));
    socket.on('error', () => socket.terminate());
    socket.on('close', (code) => this.#closed(code));
    socket.on('message', (data: Buffer, isBinary: boolean) => {
      this.#isHeard = true;
      if (!this.isOver) this.#receive(isBinary ? undefined : data.toString());
    });
  }

  say(message: ServerMessage): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    if (this.#socket.bufferedAmount > BUFFERED_BYTES_MAX) return this.#socket.terminate();
    this.#socket.send(JSON.stringify(message));
  }

  refuse(reason: string): undefined {
    this.#events.refused();
    this.say({ kind: 'refused', reason });
    this.end();
  }

  /** A refusal for now: the member tries again. */
  postpone(reason: string): undefined {
    this.#events.refused();
    this.end(TRY_AGAIN_LATER, reason);
  }

  end(code?: number, reason?: string): void {
    this.isOver = true;
    this.#socket.close(code, reason);
    // A peer that does not answer the close frame is cut off by the next check.
    this.#isHeard = false;
  }

  #check(): void {
    if (!this.#isHeard) return this.#socket.terminate();
    this.#isHeard = false;
    this.#socket.ping();
  }

  #closed(code: number): void {
    this.isOver = true;
    clearInterval(this.#ping);
    clearTimeout(this.#joining);
    this.#room?.away(this.#name!, this, code === GOING_AWAY);
    this.#events.closed();
  }

  /** True if this message is within the rate. */
  #isWithinRate(): boolean {
    const { messagesPerSecond } = this.#limits;
    const now = performance.now();
    const gained = ((now - this.#countedMillis) / 1000) * messagesPerSecond;
    this.#countedMillis = now;
    this.#tokens = Math.min(this.#tokens + gained, messagesPerSecond * BURST_SECONDS) - 1;
    return this.#tokens >= 0;
  }

  #violation(reason: string): void {
    this.#events.ended();
    this.isOver = true;
    this.#socket.close(POLICY_VIOLATION, reason);
    this.#isHeard = false;
  }

  #receive(text: string | undefined): void {
    if (!this.#isWithinRate()) return this.#violation('too many messages');
    const message = parseMemberMessage(text);
    if (!message) return this.#violation('invalid message');
    switch (message.kind) {
      case 'join':
        if (this.#name !== undefined) return this.#violation('a session joins one room');
        this.#name = message.name;
        clearTimeout(this.#joining);
        void this.#events.join(message).then((room) => this.#joined(room));
        return;
      case 'ping':
        return this.say({ kind: 'pong' });
      case 'leave':
        this.#room?.leave(this.#name!, this);
        return this.end();
      default: {
        if (!this.#room) return this.#violation('join a room first');
        const { kind, to = '', id } = message;
        if (this.#room.pass(this.#name!, message)) this.#events.passed();
        // The id of an answer belongs to its addressee.
        else if (kind === 'offer') this.say({ kind: 'absent', to, id });
      }
    }
  }

  #joined(room: RoomMembers | undefined): void {
    this.#room = room;
    // The WebSocket may have been lost meanwhile.
    if (room && this.#socket.readyState !== this.#socket.OPEN) room.away(this.#name!, this);
  }
}

/**
 * Serves rooms at `options.path` (`/rooms`) of an HTTP server. Pages of other origins, and more
 * sessions than `options` permit, are refused with an HTTP status. Upgrades at other paths are for
 * other listeners. Throws MisuseError; rejects with LinkError EOPNOTSUPP (no ws).
 */
export async function createSignallingServer(
  server: Server,
  options: SignallingServerOptions = {},
): Promise<SignallingServer> {
  checkMember('server', server, 'on', 'a server of node:http');
  const limits = limitsOf(options);
  const admission = admissionOf(options);
  const { WebSocketServer } = await load();
  const sockets = new WebSocketServer({ noServer: true, maxPayload: 4 * MESSAGE_LENGTH_MAX });
  return new SignallingServer(server, sockets, limits, admission);
}
