/**
 * Publish and subscribe by Redis (also Valkey, KeyDB), in its protocol RESP 2: two connections,
 * since a subscribed connection takes no other commands. Messages during an outage are lost, which
 * the heartbeats of the rooms and repeated offers make up for.
 */
import { shown } from '../../errors/check-whole.js';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { checkKeys } from '../../base/options.js';
import { timerMillis } from '../../base/timer.js';
import { MisuseError } from '../../errors/errors.js';
import { warn } from '../../base/warning.js';
import type { SignallingBus } from './signalling-bus.js';

/** How a process reaches Redis. */
export interface RedisOptions {
  /** Prefix of all channels; servers with the same one share rooms. Default `verbena:`. */
  readonly prefix?: string;
}

const PORT = 6379;
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

/** A reply: text, a number, null, or a list. */
type Reply = string | number | null | readonly Reply[];

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
      case '-':
        return { value: text, end };
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

/** One connection, opened again after a loss. */
class RedisConnection {
  readonly #open: () => Socket;
  readonly #greeting: () => string;
  readonly #reply: (value: Reply) => void;
  #socket: Socket | undefined;
  #isConnected = false;
  #isClosed = false;
  #retryMillis = RETRY_MILLIS;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** `greeting`: the first commands of each connection. */
  constructor(open: () => Socket, greeting: () => string, reply: (value: Reply) => void) {
    this.#open = open;
    this.#greeting = greeting;
    this.#reply = reply;
    this.#connect();
  }

  send(text: string): void {
    if (!this.#isConnected || this.#socket!.writableLength > BUFFERED_BYTES_MAX) return;
    this.#socket!.write(text);
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#socket?.destroy();
  }

  #connect(): void {
    const socket = this.#open();
    const reader = new ReplyReader();
    this.#socket = socket;
    socket.setNoDelay();
    socket.setKeepAlive(true, 10_000);
    const ready = (): void => {
      this.#isConnected = true;
      this.#retryMillis = RETRY_MILLIS;
      const greeting = this.#greeting();
      if (greeting !== '') socket.write(greeting);
    };
    socket.on('connect', () => {
      if (!('encrypted' in socket)) ready();
    });
    socket.on('secureConnect', ready);
    socket.on('data', (chunk) => {
      try {
        reader.read(chunk, this.#reply);
      } catch (error) {
        socket.destroy(error as Error);
      }
    });
    socket.on('error', (error) => {
      if (this.#isConnected) warn(`redisBus: the connection to Redis failed: ${error.message}`);
    });
    socket.on('close', () => {
      this.#isConnected = false;
      if (this.#isClosed) return;
      this.#timer = setTimeout(() => this.#connect(), timerMillis(this.#retryMillis));
      this.#timer.unref();
      this.#retryMillis = Math.min(2 * this.#retryMillis, RETRY_MILLIS_MAX);
    });
  }
}

/** Throws MisuseError. */
function placeOf(url: string | URL): { readonly open: () => Socket; readonly login: string } {
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
  return { open, login: database ? login + command('SELECT', database) : login };
}

/**
 * A bus by the Redis server at `redis://[user:password@]host[:port][/database]`, or `rediss:` for
 * TLS. Connects again by itself. Throws MisuseError.
 */
export function redisBus(url: string | URL, options: RedisOptions = {}): SignallingBus {
  checkKeys('redisBus', options, 'prefix');
  const { prefix = 'verbena:' } = options;
  const { open, login } = placeOf(url);
  const listeners = new Map<string, Set<(message: string) => void>>();
  /** Resolve when the subscription of a channel is confirmed. */
  const confirmed = new Map<string, (() => void)[]>();
  const publisher = new RedisConnection(
    open,
    () => login,
    () => {},
  );
  const subscriber = new RedisConnection(
    open,
    () => login + (listeners.size > 0 ? command('SUBSCRIBE', ...listeners.keys()) : ''),
    (reply) => {
      if (!Array.isArray(reply)) return;
      const [kind, name, text] = (reply as readonly Reply[]).map(String);
      if (kind === 'message') for (const listener of listeners.get(name!) ?? []) listener(text!);
      if (kind !== 'subscribe') return;
      for (const resolve of confirmed.get(name!) ?? []) resolve();
      confirmed.delete(name!);
    },
  );
  return {
    publish: (channel, message) => publisher.send(command('PUBLISH', prefix + channel, message)),
    async subscribe(channel, listener) {
      const name = prefix + channel;
      const others = listeners.get(name);
      if (others) others.add(listener);
      else listeners.set(name, new Set([listener]));
      if (!others || confirmed.has(name)) {
        await new Promise<void>((resolve) => {
          confirmed.set(name, [...(confirmed.get(name) ?? []), resolve]);
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
