/**
 * A room of a signalling server (room-server.ts): each member finds all others, on any machine.
 * Pages, Workers and Node. The WebSocket to the server is opened again after a loss; connections
 * between members do not depend on it.
 */
import { checkKeys } from '../../base/options.js';
import { checkMillis, timerMillis } from '../../base/timer.js';
import { shown } from '../../errors/check-whole.js';
import { LinkError, MisuseError } from '../../errors/errors.js';
import type { Socket } from '../channel/websocket-channel.js';
import { absoluteUrl, isRefusal, openSocket } from '../channel/websocket-class.js';
import { randomGid } from '../random-address.js';
import type { Description } from '../rtc/connection.js';
import {
  isRoomName,
  NAME_LENGTH_MAX,
  parseServerMessage,
  type ExchangeMessage,
  type MemberMessage,
  type ServerMessage,
} from './room-protocol.js';
import type { Answerer, RoomEvents, Signalling, SignallingRoom } from './signalling.js';

/** How a member keeps its WebSocket. */
export interface RoomOptions {
  /** Milliseconds between messages that check the server. Default 15 s. */
  readonly pingMillis?: number;
  /** Longest pause between attempts to reach the server, in milliseconds. Default 5 s. */
  readonly retryMillisMax?: number;
  /** Called when the server is not reached, or the WebSocket is lost; attempts follow. */
  readonly onLost?: (error: LinkError) => void;
  /**
   * Called when the server refuses this member (limits, authorization); no attempt follows. If the
   * member was in the room before, `onLost` is called instead.
   */
  readonly onRefused?: (error: LinkError) => void;
}

const PING_MILLIS = 15_000;
const RETRY_MILLIS = 250;
const RETRY_MILLIS_MAX = 5000;
/** Members of a server that restarted return within that time, each at its own moment. */
const RETURN_MILLIS = 10_000;
/** The server answers a ping within that time, or the WebSocket is replaced. */
const PONG_MILLIS = 10_000;
const OPEN = 1;

/** A room of a signalling server at a ws: or wss: URL. */
export class RoomSignalling implements SignallingRoom {
  readonly name: string;
  readonly reportsJoin = true;
  readonly #url: URL;
  readonly #room: string;
  readonly #options: RoomOptions;

  /**
   * `url` is that of `createSignallingServer`, in a page also relative. Throws MisuseError for a
   * URL that is not ws: or wss:, and for a room name that is empty, has more than 128 characters or
   * a lone surrogate.
   */
  constructor(url: string | URL, room: string, options: RoomOptions = {}) {
    checkKeys('RoomSignalling', options, 'pingMillis retryMillisMax onLost onRefused');
    if (!isRoomName(room)) {
      const rule = `joinMesh and RoomSignalling take text of 1 to ${NAME_LENGTH_MAX} characters`;
      throw new MisuseError('room', `${rule}, valid, got ${shown(room)}`);
    }
    const { pingMillis = PING_MILLIS, retryMillisMax = RETRY_MILLIS_MAX } = options;
    checkMillis('pingMillis', pingMillis, 1);
    checkMillis('retryMillisMax', retryMillisMax, 1);
    this.#url = webSocketUrl(url);
    this.#room = room;
    this.#options = options;
    this.name = `the room "${room}" at ${String(url)}`;
  }

  join(
    name: string,
    answer: Answerer,
    newcomer: (signalling: Signalling, name?: string) => void,
    events: RoomEvents = {},
  ): () => void {
    const what = { ...events, answer, newcomer };
    const member = new Member(this.#url, this.#room, name, this.#options, what);
    member.open();
    return () => member.close();
  }

  listen(answer: Answerer): () => void {
    return this.join(`${randomGid()}`, answer, () => {});
  }
}

/** Throws MisuseError. In a page, a URL is relative to that of the page, and http: becomes ws:. */
function webSocketUrl(given: string | URL): URL {
  try {
    const url = absoluteUrl(given);
    if (/^wss?:$/.test(url.protocol) && !url.hash) return url;
  } catch {
    // Said below.
  }
  throw new MisuseError('url', `must be a ws:// or wss:// URL, got ${String(given)}`);
}

interface Exchange {
  readonly to: string;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: Error) => void;
}

interface MemberEvents extends RoomEvents {
  readonly answer: Answerer;
  readonly newcomer: (signalling: Signalling, name?: string) => void;
}

/** One member, and its WebSocket. */
class Member {
  readonly #url: URL;
  readonly #room: string;
  readonly #name: string;
  readonly #options: RoomOptions;
  readonly #events: MemberEvents;
  /** Proves to the server, after a loss, that this is the member of that name. */
  readonly #key = `${randomGid()}`;
  readonly #known = new Set<string>();
  /** Of these, those that were not there after a loss: each may return until its timer fires. */
  readonly #absent = new Map<string, ReturnType<typeof setTimeout>>();
  readonly #exchanges = new Map<string, Exchange>();
  /** Offers that wait for the WebSocket, or for a member to return. */
  readonly #waiting = new Map<string, MemberMessage & { readonly kind: 'offer' }>();
  #count = 0;
  #socket: Socket | undefined;
  #isJoined = false;
  #wasJoined = false;
  #isOver = false;
  #retryMillis = RETRY_MILLIS;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(url: URL, room: string, name: string, options: RoomOptions, events: MemberEvents) {
    this.#events = events;
    this.#url = url;
    this.#room = room;
    this.#name = name;
    this.#options = options;
  }

  open(): void {
    void openSocket(this.#url).then(
      (socket) => this.#use(socket),
      (error: unknown) => this.#refused(error as LinkError),
    );
  }

  close(): void {
    if (this.#isOver) return;
    this.#say({ kind: 'leave' });
    this.#end(new LinkError('ECONNRESET', `room: "${this.#room}" was left; join again`));
  }

  #use(socket: Socket): void {
    if (this.#isOver) {
      // ws reports a connection that is closed before it is established as an error.
      socket.onerror = () => undefined;
      return socket.close();
    }
    this.#socket = socket;
    const lost = ({ message }: { readonly message?: string }): void => {
      // Without a text: in browsers, and where several addresses were tried.
      if (this.#socket === socket) this.#lost(message || undefined);
    };
    const join = (): void => {
      const said = { kind: 'join', room: this.#room, name: this.#name, key: this.#key };
      socket.send(JSON.stringify(said));
    };
    socket.onclose = lost;
    socket.onerror = lost;
    socket.onmessage = ({ data }: { readonly data: unknown }) => {
      const message = parseServerMessage(data);
      if (message && this.#socket === socket) this.#receive(message);
    };
    if (socket.readyState === OPEN) join();
    else socket.onopen = join;
    this.#watch(PONG_MILLIS);
  }

  /** The server must send a message within that time. */
  #watch(millis: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#lost('no response'), timerMillis(millis));
  }

  #heard(): void {
    clearTimeout(this.#timer);
    const { pingMillis = PING_MILLIS } = this.#options;
    this.#timer = setTimeout(() => {
      this.#say({ kind: 'ping' });
      this.#watch(PONG_MILLIS);
    }, timerMillis(pingMillis));
  }

  #lost(why = 'no WebSocket', isRefused = isRefusal(why)): void {
    const socket = this.#socket;
    this.#socket = undefined;
    this.#isJoined = false;
    socket?.close();
    clearTimeout(this.#timer);
    if (this.#isOver) return;
    const rule = `join: the server at ${this.#url.href}: ${why}`;
    const remedy = 'check that it runs and admits this member';
    const error = new LinkError('ECONNREFUSED', `${rule}; ${remedy}`);
    if (isRefused && !this.#wasJoined) return this.#refused(error);
    this.#events.failed?.(error);
    this.#options.onLost?.(error);
    const { retryMillisMax = RETRY_MILLIS_MAX } = this.#options;
    const millis = isRefused ? retryMillisMax : this.#retryMillis;
    // A server that restarts does not have all its members at the same moment.
    const part = 0.5 + randomGid().bytes[15]! / 512;
    this.#timer = setTimeout(() => this.open(), timerMillis(part * millis));
    this.#retryMillis = Math.min(2 * millis, retryMillisMax);
  }

  #refused(error: LinkError): void {
    this.#end(error);
    this.#events.refused?.(error);
    this.#options.onRefused?.(error);
  }

  #end(error: LinkError): void {
    this.#isOver = true;
    for (const timer of [...this.#absent.values(), this.#timer]) clearTimeout(timer);
    this.#socket?.close();
    this.#socket = undefined;
    for (const { reject } of this.#exchanges.values()) reject(error);
    this.#exchanges.clear();
    this.#waiting.clear();
  }

  #say(message: MemberMessage): boolean {
    if (!this.#socket || !this.#isJoined || this.#socket.readyState !== OPEN) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  #receive(message: ServerMessage): void {
    this.#heard();
    switch (message.kind) {
      case 'welcome':
        return this.#welcome(message.members);
      case 'joined':
        return this.#meet(message.name, this.#events.newcomer);
      case 'present':
        return this.#meet(message.name, this.#events.present);
      case 'away':
        return this.#events.away?.(message.name);
      case 'left':
        if (this.#known.delete(message.name)) this.#events.left?.(message.name);
        return;
      case 'offer':
        return void this.#answerOffer(message);
      case 'answer':
      case 'refusal':
        return this.#answered(message);
      case 'absent':
        return this.#fail(message.id, `${message.to} is not in the room`);
      case 'refused':
        return this.#lost(`refused: ${message.reason}`, true);
      case 'pong':
    }
  }

  #welcome(members: readonly string[]): void {
    this.#isJoined = true;
    this.#wasJoined = true;
    this.#retryMillis = RETRY_MILLIS;
    // Members may have left while the WebSocket was lost, or have yet to return themselves. One
    // that is absent already has no more time: this WebSocket may be lost again and again.
    for (const name of this.#known) {
      if (this.#absent.has(name)) continue;
      const forget = (): void => {
        this.#absent.delete(name);
        if (this.#known.delete(name)) this.#events.left?.(name);
        this.#sendWaiting();
      };
      this.#absent.set(name, setTimeout(forget, timerMillis(RETURN_MILLIS)));
    }
    for (const name of members) this.#meet(name, this.#events.present);
    this.#sendWaiting();
    this.#events.joined?.();
  }

  #sendWaiting(): void {
    for (const [id, message] of this.#waiting) {
      if (!this.#absent.has(message.to!) && this.#say(message)) this.#waiting.delete(id);
    }
  }

  #meet(name: string, report?: (signalling: Signalling, name: string) => void): void {
    clearTimeout(this.#absent.get(name));
    if (this.#absent.delete(name)) this.#sendWaiting();
    if (name === this.#name || this.#known.has(name)) return;
    this.#known.add(name);
    const signalling: Signalling = {
      name: `the room "${this.#room}"`,
      exchange: (offer, signal) => this.#exchange(name, offer, signal),
    };
    report?.(signalling, name);
  }

  #exchange(to: string, offer: Description, signal: AbortSignal): Promise<unknown> {
    const id = `${++this.#count}`;
    return new Promise((resolve, reject) => {
      if (this.#isOver) {
        reject(new LinkError('ECONNRESET', `room: "${this.#room}" was left; join again`));
        return;
      }
      this.#exchanges.set(id, { to, resolve, reject });
      signal.addEventListener('abort', () => {
        this.#waiting.delete(id);
        if (this.#exchanges.delete(id)) reject(signal.reason as Error);
      });
      this.#waiting.set(id, { kind: 'offer', to, id, description: offer });
      this.#sendWaiting();
    });
  }

  #answered({ kind, from, id, description, reason }: ExchangeMessage): void {
    const exchange = this.#exchanges.get(id);
    // Another member cannot answer in its place: the server names the sender.
    if (exchange?.to !== from) return;
    if (kind === 'refusal') return this.#fail(id, `the peer refuses: ${reason}`);
    this.#exchanges.delete(id);
    exchange!.resolve(description);
  }

  #fail(id: string, why: string): void {
    this.#exchanges.get(id)?.reject(new LinkError('ECONNREFUSED', why));
    this.#exchanges.delete(id);
  }

  async #answerOffer({ from, id, description }: ExchangeMessage): Promise<void> {
    const to = from!;
    try {
      const answer = await this.#events.answer(description, to);
      this.#say({ kind: 'answer', to, id, description: answer });
    } catch (error) {
      this.#say({ kind: 'refusal', to, id, reason: (error as Error).message });
    }
  }
}
