/** The few commands of a Redis server that the PEs of several machines exchange addresses with. */
import { connect, type Socket } from 'node:net';
import { timerMillis } from '../base/timer.js';
import { MisuseError, RefusalError } from '../errors/errors.js';

/** A bulk string that no honest server of ours sends. */
const REPLY_BYTES_MAX = 2 ** 20;

interface Waiting {
  readonly resolve: (reply: string | undefined) => void;
  readonly reject: (error: Error) => void;
}

export class RedisClient {
  readonly #socket: Socket;
  readonly #timeoutMillis: number;
  readonly #waiting: Waiting[] = [];
  #received = Buffer.alloc(0);
  #failure: Error | undefined;

  private constructor(socket: Socket, timeoutMillis: number) {
    this.#socket = socket;
    this.#timeoutMillis = timeoutMillis;
    socket.on('data', (bytes) => this.#receive(bytes));
    socket.on('error', (error) => this.#fail(error));
    socket.on('close', () => this.#fail(new Error('the server closed the connection')));
  }

  /** `url`: redis://[user:password@]host[:port]. Rejects with MisuseError, RefusalError. */
  static async open(url: string, timeoutMillis: number): Promise<RedisClient> {
    let parsed: URL;
    try {
      parsed = new URL(url);
    } catch {
      throw new MisuseError('redis', `must be a URL such as redis://host:6379, got "${url}"`);
    }
    if (parsed.protocol !== 'redis:') {
      throw new MisuseError('redis', `must begin with redis://, got "${parsed.protocol}//"`);
    }
    const port = parsed.port === '' ? 6379 : Number(parsed.port);
    const host = parsed.hostname === '' ? '127.0.0.1' : parsed.hostname.replace(/^\[|\]$/g, '');
    const socket = connect({ host, port, noDelay: true });
    const client = await new Promise<RedisClient>((resolve, reject) => {
      const refuse = (why: string): void => {
        socket.destroy();
        const server = `init: the Redis server ${host}:${port} ${why}`;
        const text = `${server}; start it, or pass another URL (redis)`;
        reject(new RefusalError('ECONNREFUSED', text));
      };
      const late = (): void => refuse(`does not answer in ${timeoutMillis} ms`);
      const timer = setTimeout(late, timerMillis(timeoutMillis));
      socket.once('error', ({ message }) => refuse(`is not reachable: ${message}`));
      socket.once('connect', () => resolve(new RedisClient(socket, timeoutMillis)));
      socket.once('close', () => clearTimeout(timer));
      socket.once('connect', () => clearTimeout(timer));
    });
    const { username, password } = parsed;
    if (password !== '') {
      const words = [username, password].filter((word) => word !== '').map(decodeURIComponent);
      try {
        await client.command('AUTH', ...words);
      } catch (error) {
        client.close();
        throw error;
      }
    }
    return client;
  }

  /** One command; undefined: the reply is nil. Rejects with RefusalError, also without a reply. */
  async command(...words: string[]): Promise<string | undefined> {
    if (this.#failure) throw this.#failure;
    const bulk = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
    const late = (): void => this.#fail(new Error(`no reply came in ${this.#timeoutMillis} ms`));
    const timer = setTimeout(late, timerMillis(this.#timeoutMillis));
    try {
      return await new Promise((resolve, reject) => {
        this.#waiting.push({ resolve, reject });
        this.#socket.write(`*${words.length}\r\n${bulk.join('')}`);
      });
    } finally {
      clearTimeout(timer);
    }
  }

  /** Keeps the process from ending no more. */
  close(): void {
    this.#socket.destroy();
  }

  #receive(bytes: Buffer): void {
    this.#received = Buffer.concat([this.#received, bytes]);
    for (;;) {
      const end = this.#received.indexOf('\r\n');
      if (end < 0) {
        if (this.#received.length > REPLY_BYTES_MAX) this.#fail(new Error('it sent no reply'));
        return;
      }
      const line = this.#received.toString('utf8', 1, end);
      const kind = String.fromCharCode(this.#received[0]!);
      if (kind !== '$') {
        this.#received = this.#received.subarray(end + 2);
        this.#answer(kind, line);
        continue;
      }
      const length = Number(line);
      if (!Number.isInteger(length) || length > REPLY_BYTES_MAX) {
        this.#fail(new Error(`it sent a reply of ${line} bytes`));
        return;
      }
      const start = end + 2;
      if (length >= 0 && this.#received.length < start + length + 2) return;
      const text = length < 0 ? undefined : this.#received.toString('utf8', start, start + length);
      this.#received = this.#received.subarray(length < 0 ? start : start + length + 2);
      this.#waiting.shift()?.resolve(text);
    }
  }

  #answer(kind: string, line: string): void {
    if (kind === '+' || kind === ':') this.#waiting.shift()?.resolve(line);
    else if (kind === '-') {
      this.#waiting.shift()?.reject(new RefusalError('EACCES', `init: the Redis server: ${line}`));
    } else this.#fail(new Error(`it sent "${kind}${line}", which is no reply`));
  }

  #fail({ message }: Error): void {
    const text = `init: the connection to the Redis server failed: ${message}`;
    this.#failure ??= new RefusalError('ECONNRESET', text);
    for (const { reject } of this.#waiting.splice(0)) reject(this.#failure);
    this.#socket.destroy();
  }
}
