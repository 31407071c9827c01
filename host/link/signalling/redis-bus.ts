/**
 * Publish and subscribe by Redis (also Valkey, KeyDB), in its protocol RESP 2: two connections,
 * since a subscribed connection takes no other commands. Messages during an outage are lost, which
 * the heartbeats of the rooms and repeated offers make up for.
 */
import { shown } from '../../errors/check-whole.js';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { checkKeys } from '../../base/options.js';
import { checkMillis, timerMillis } from '../../base/timer.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { RareWarning } from './guarded-bus.js';
import type { SignallingBus } from './signalling-bus.js';

/** How a process reaches Redis. */
export interface RedisOptions {
  /** Prefix of all channels; servers with the same one share rooms. Default `verbena:`. */
  readonly prefix?: string;
  /** A connection on which Redis answers no PING for so long is opened again. Default 10 s. */
  readonly aliveMillis?: number;
}

const PORT = 6379;
const ALIVE_MILLIS = 10_000;
const RETRY_MILLIS = 200;
const RETRY_MILLIS_MAX = 5000;
/** Unsent bytes beyond which messages are dropped. */
const BUFFERED_BYTES_MAX = 2 ** 22;
/** No command that is used has a longer reply. */
const REPLY_BYTES_MAX = 2 ** 20;

/** A length or a count of the protocol. Throws RangeError. */
function numberOf(text: string): number {
  if (/^(?:-1|\d{1,9})$/.test(text)) return Number(text);
  throw new RangeError('bytes are no reply of Redis');
}

/** A reply that begins with `-`: a code, and a sentence. */
class ErrorReply {
  constructor(readonly text: string) {}
}

/** A reply: text, an error, a number, null, or a list. */
type Reply = string | ErrorReply | number | null | readonly Reply[];

/** A command as an array of bulk strings. */
function command(...words: readonly string[]): string {
  const parts = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
  return `*${words.length}\r\n${parts.join('')}`;
}

/** Cuts a stream into replies. */
class ReplyReader {
  #bytes: Buffer = Buffer.alloc(0);

  /** Throws RangeError for bytes that are no RESP. */
  read(chunk: Buffer, reply: (value: Reply) => void): void {
    this.#bytes = this.#bytes.length === 0 ? chunk : Buffer.concat([this.#bytes, chunk]);
    for (;;) {
      const found = this.#at(0);
      if (!found) break;
      this.#bytes = this.#bytes.subarray(found.end);
      reply(found.value);
    }
    if (this.#bytes.length > REPLY_BYTES_MAX) throw new RangeError('a reply exceeds 1 MiB');
  }

  /** Undefined: the reply is not complete yet. */
  #at(start: number): { readonly value: Reply; readonly end: number } | undefined {
    const line = this.#bytes.indexOf('\r\n', start);
    if (line < 0) return undefined;
    const text = this.#bytes.toString('utf8', start + 1, line);
    const end = line + 2;
    switch (String.fromCharCode(this.#bytes[start]!)) {
      case '+':
        return { value: text, end };
      case '-':
        return { value: new ErrorReply(text), end };
      case ':':
        return { value: Number(text), end };
      case '$': {
        const length = numberOf(text);
        if (length < 0) return { value: null, end };
        if (this.#bytes.length < end + length + 2) return undefined;
        return { value: this.#bytes.toString('utf8', end, end + length), end: end + length + 2 };
      }
      case '*':
        return this.#list(numberOf(text), end);
      default:
        throw new RangeError('bytes are no reply of Redis');
    }
  }

  #list(count: number, start: number): { value: Reply; end: number } | undefined {
    const value: Reply[] = [];
    let end = start;
    for (let index = 0; index < count; index++) {
      const item = this.#at(end);
      if (!item) return undefined;
      value.push(item.value);
      end = item.end;
    }
    return { value, end };
  }
}

/** Settings of both connections of a bus. */
interface Line {
  readonly open: () => Socket;
  /** AUTH and SELECT, as the URL requires them. */
  readonly login: string;
  /** The server, for warnings: without user and password. */
  readonly where: string;
  readonly aliveMillis: number;
  readonly warning: RareWarning;
}

/** Uses of a connection. */
interface LineEvents {
  /** Redis has taken the login: the first commands. */
  readonly ready: () => string;
  readonly reply: (value: Reply) => void;
  /** A command is refused. */
  readonly refused: (error: RefusalError) => void;
}

const PING = command('PING');

/** One connection, opened again after a loss. It is in use when Redis has answered a PING. */
class RedisConnection {
  readonly #line: Line;
  readonly #events: LineEvents;
  #socket: Socket | undefined;
  #isReady = false;
  #isClosed = false;
  #isHeard = false;
  #retryMillis = RETRY_MILLIS;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(line: Line, events: LineEvents) {
    this.#line = line;
    this.#events = events;
    this.#connect();
  }

  send(text: string): void {
    if (!this.#isReady || this.#socket!.writableLength > BUFFERED_BYTES_MAX) return;
    this.#socket!.write(text);
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#socket?.destroy();
  }

  #connect(): void {
    const socket = this.#line.open();
    const reader = new ReplyReader();
    let why = 'Redis has closed the connection';
    this.#socket = socket;
    socket.setNoDelay();
    socket.setKeepAlive(true, 10_000);
    socket.on('connect', () => {
      if (!('encrypted' in socket)) socket.write(this.#line.login + PING);
    });
    socket.on('secureConnect', () => socket.write(this.#line.login + PING));
    socket.on('data', (chunk) => {
      this.#isHeard = true;
      try {
        reader.read(chunk, (value) => this.#take(value));
      } catch (error) {
        socket.destroy(error as Error);
      }
    });
    socket.on('error', (error) => (why = error.message || String(error)));
    socket.on('close', () => {
      this.#isReady = false;
      clearTimeout(this.#timer);
      if (this.#isClosed) return;
      this.#warn(why);
      this.#timer = setTimeout(() => this.#connect(), timerMillis(this.#retryMillis));
      this.#timer.unref();
      this.#retryMillis = Math.min(2 * this.#retryMillis, RETRY_MILLIS_MAX);
    });
    this.#isHeard = true;
    this.#watch(socket);
  }

  /** Half of the time without a reply: a PING. Another half: the connection is replaced. */
  #watch(socket: Socket): void {
    const check = (): void => {
      if (socket.destroyed) return;
      const why = `no reply within ${this.#line.aliveMillis} ms`;
      if (!this.#isHeard) return void socket.destroy(new Error(why));
      this.#isHeard = false;
      if (this.#isReady) socket.write(PING);
      this.#watch(socket);
    };
    // Timers run before sockets are read: behind a pause of this process, replies are still unread.
    this.#timer = setTimeout(() => setImmediate(check), timerMillis(this.#line.aliveMillis / 2));
    this.#timer.unref();
  }

  #take(value: Reply): void {
    if (value instanceof ErrorReply) {
      // AUTH or SELECT was refused: no command that follows has its effect.
      if (!this.#isReady) throw new Error(value.text);
      this.#warn(value.text);
      const remedy = 'check the permissions of the user of the url';
      this.#events.refused(new RefusalError('EACCES', `redisBus: ${value.text}; ${remedy}`));
    } else if (!this.#isReady && value === 'PONG') {
      this.#isReady = true;
      this.#retryMillis = RETRY_MILLIS;
      this.send(this.#events.ready());
    } else {
      this.#events.reply(value);
    }
  }

  #warn(why: string): void {
    this.#line.warning.warn(
      `redisBus: ${this.#line.where}: ${why}; members of other processes are not reached until ` +
        'Redis takes the commands again: check that it runs, and the user, password and ' +
        'database of the url',
    );
  }
}

/** Throws MisuseError. */
function placeOf(url: string | URL): Pick<Line, 'open' | 'login' | 'where'> {
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    throw new MisuseError('url', `must be redis://HOST:PORT or rediss://HOST:PORT, got ${url}`);
  }
  const { protocol, hostname, port, username, password, pathname } = parsed;
  if (protocol !== 'redis:' && protocol !== 'rediss:') {
    throw new MisuseError('url', `must begin with redis:// or rediss://, got ${shown(protocol)}`);
  }
  const host = hostname.replace(/^\[|\]$/g, '') || '127.0.0.1';
  const place = { host, port: Number(port || PORT) };
  const open = (): Socket =>
    protocol === 'rediss:' ? connectTls({ ...place, servername: host }) : connect(place);
  const words = [username, password].filter((word) => word !== '').map(decodeURIComponent);
  const login = words.length > 0 ? command('AUTH', ...words) : '';
  const database = pathname.slice(1);
  const where = `${protocol}//${hostname || host}:${place.port}`;
  return { open, login: database ? login + command('SELECT', database) : login, where };
}

/** A subscription that Redis has not confirmed. */
interface Unconfirmed {
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/**
 * A bus by the Redis server at `redis://[user:password@]host[:port][/database]`, or `rediss:` for
 * TLS. Connects again by itself; what fails is a warning, at most one a minute. Throws MisuseError.
 */
export function redisBus(url: string | URL, options: RedisOptions = {}): SignallingBus {
  checkKeys('redisBus', options, 'prefix aliveMillis');
  const { prefix = 'verbena:', aliveMillis = ALIVE_MILLIS } = options;
  checkMillis('aliveMillis', aliveMillis, 1);
  const line = { ...placeOf(url), aliveMillis, warning: new RareWarning() };
  const listeners = new Map<string, Set<(message: string) => void>>();
  const unconfirmed = new Map<string, Unconfirmed[]>();
  const publisher = new RedisConnection(line, {
    ready: () => '',
    reply: () => {},
    refused: () => {},
  });
  const subscriber = new RedisConnection(line, {
    // Each by itself: a refused channel must not keep the others away.
    ready: () => [...listeners.keys()].map((name) => command('SUBSCRIBE', name)).join(''),
    reply: (reply) => {
      if (!Array.isArray(reply)) return;
      const [kind, name, text] = (reply as readonly Reply[]).map(String);
      if (kind === 'message') for (const listener of listeners.get(name!) ?? []) listener(text!);
      if (kind !== 'subscribe') return;
      for (const { resolve } of unconfirmed.get(name!) ?? []) resolve();
      unconfirmed.delete(name!);
    },
    refused: (error) => {
      // An error names no channel: callers of confirmed subscriptions are not affected.
      for (const [name, waiting] of unconfirmed) {
        listeners.delete(name);
        for (const { reject } of waiting) reject(error);
      }
      unconfirmed.clear();
    },
  });
  return {
    publish: (channel, message) => publisher.send(command('PUBLISH', prefix + channel, message)),
    async subscribe(channel, listener) {
      const name = prefix + channel;
      const others = listeners.get(name);
      if (others) others.add(listener);
      else listeners.set(name, new Set([listener]));
      if (!others || unconfirmed.has(name)) {
        await new Promise<void>((resolve, reject) => {
          unconfirmed.set(name, [...(unconfirmed.get(name) ?? []), { resolve, reject }]);
          if (!others) subscriber.send(command('SUBSCRIBE', name));
        });
      }
      return () => {
        const all = listeners.get(name);
        if (!all?.delete(listener) || all.size > 0) return;
        listeners.delete(name);
        subscriber.send(command('UNSUBSCRIBE', name));
      };
    },
    close() {
      publisher.close();
      subscriber.close();
      return Promise.resolve();
    },
  };
}
