/**
 * A disk whose power can be cut: an NBD server that keeps what is written in a cache, as drives do,
 * until a flush. A cut leaves of the unflushed sectors any subset.
 * (NBD: fixed newstyle handshake, simple replies; NetworkBlockDevice/nbd, doc/proto.md.)
 */
import { createServer, type Server, type Socket } from 'node:net';

const SECTOR = 512;

const NBD_MAGIC = 0x4e42444d41474943n;
const OPTION_MAGIC = 0x49484156454f5054n;
const OPTION_REPLY_MAGIC = 0x3e889045565a9n;
const REQUEST_MAGIC = 0x25609513;
const REPLY_MAGIC = 0x67446698;
/** Fixed newstyle, no zeroes at the end of the handshake. */
const HANDSHAKE_FLAGS = 3;
const NO_ZEROES = 2;
/** Has flags, FLUSH, FUA. */
const EXPORT_FLAGS = 1 | 4 | 8;
const [OPTION_EXPORT_NAME, OPTION_ABORT, OPTION_GO] = [1, 2, 7];
const [REPLY_ACK, REPLY_INFO, REPLY_UNSUPPORTED] = [1, 3, 0x80000001];
const [READ, WRITE, DISCONNECT, FLUSH] = [0, 1, 2, 3];
const FUA = 1;
const EINVAL = 22;
const OPTION_HEADER = 16;
const REQUEST_HEADER = 28;
const LENGTH_MAX = 64 * 2 ** 20;

export class VolatileDisk {
  /** The number of flushes. */
  flushes = 0;
  /** Contents after a loss of power, and contents that are read. */
  readonly #kept: Buffer;
  readonly #seen: Buffer;
  readonly #cached = new Set<number>();
  readonly #random: () => number;
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;
  #written: (() => void) | undefined;

  /** `random`: from 0 on, below 1; it decides what is lost. */
  constructor(contents: Uint8Array, random: () => number) {
    this.#kept = Buffer.from(contents);
    this.#seen = Buffer.from(contents);
    this.#random = random;
  }

  /** Sectors that a cut may lose. */
  get cached(): number {
    return this.#cached.size;
  }

  /** Resolves once there are some; when none come for so long, too. */
  async caches(millis: number): Promise<void> {
    if (this.cached > 0) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, millis);
      this.#written = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#written = undefined;
  }

  /** Serves it at a Unix socket. */
  async listen(path: string): Promise<void> {
    const server = createServer((socket) => this.#serve(socket));
    this.#server = server;
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject).listen(path, resolve);
    });
  }

  /** Cuts the power, and kills the clients; returns the number of lost sectors. */
  cut(): number {
    for (const socket of this.#sockets) socket.destroy();
    let lost = 0;
    for (const sector of this.#cached) {
      const [from, to] = [sector * SECTOR, (sector + 1) * SECTOR];
      if (this.#random() < 0.5) this.#seen.copy(this.#kept, from, from, to);
      else {
        this.#kept.copy(this.#seen, from, from, to);
        lost++;
      }
    }
    this.#cached.clear();
    return lost;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server?.close(resolve) ?? resolve(undefined));
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    const session = new Session(this, socket);
    socket.on('data', (bytes) => session.take(bytes));
    socket.on('close', () => this.#sockets.delete(socket));
    // Its client is killed.
    socket.on('error', () => undefined);
  }

  /** @internal */
  get size(): number {
    return this.#seen.length;
  }

  /** @internal */
  read(offset: number, length: number): Buffer {
    return Buffer.from(this.#seen.subarray(offset, offset + length));
  }

  /** @internal */
  write(offset: number, bytes: Buffer, isForced: boolean): void {
    bytes.copy(this.#seen, offset);
    const end = offset + bytes.length;
    for (let at = Math.floor(offset / SECTOR); at * SECTOR < end; at++) {
      if (isForced) this.#keep(at);
      else this.#cached.add(at);
    }
    if (!isForced) this.#written?.();
  }

  /** @internal */
  flush(): void {
    this.flushes++;
    for (const sector of this.#cached) this.#keep(sector);
  }

  #keep(sector: number): void {
    this.#seen.copy(this.#kept, sector * SECTOR, sector * SECTOR, (sector + 1) * SECTOR);
    this.#cached.delete(sector);
  }
}

class Session {
  readonly #disk: VolatileDisk;
  readonly #socket: Socket;
  #waiting = Buffer.alloc(0);
  #state: 'flags' | 'options' | 'requests' = 'flags';
  #zeroes = 124;

  constructor(disk: VolatileDisk, socket: Socket) {
    this.#disk = disk;
    this.#socket = socket;
    const greeting = Buffer.alloc(18);
    greeting.writeBigUInt64BE(NBD_MAGIC, 0);
    greeting.writeBigUInt64BE(OPTION_MAGIC, 8);
    greeting.writeUInt16BE(HANDSHAKE_FLAGS, 16);
    socket.write(greeting);
  }

  take(bytes: Buffer): void {
    this.#waiting = Buffer.concat([this.#waiting, bytes]);
    for (let used = this.#step(); used > 0; used = this.#step()) {
      this.#waiting = this.#waiting.subarray(used);
    }
  }

  /** Works on one message. Returns its length; 0: it is not there yet. */
  #step(): number {
    const message = this.#waiting;
    if (this.#state === 'flags') {
      if (message.length < 4) return 0;
      if (message.readUInt32BE(0) & NO_ZEROES) this.#zeroes = 0;
      this.#state = 'options';
      return 4;
    }
    return this.#state === 'options' ? this.#option(message) : this.#request(message);
  }

  #option(message: Buffer): number {
    if (message.length < OPTION_HEADER) return 0;
    const length = message.readUInt32BE(12);
    if (message.readBigUInt64BE(0) !== OPTION_MAGIC || length > LENGTH_MAX) return this.#hangUp();
    if (message.length < OPTION_HEADER + length) return 0;
    const option = message.readUInt32BE(8);
    if (option === OPTION_EXPORT_NAME) {
      this.#socket.write(Buffer.concat([this.#geometry(), Buffer.alloc(this.#zeroes)]));
      this.#state = 'requests';
    } else if (option === OPTION_GO) {
      // Information of type 0: the export.
      this.#reply(option, REPLY_INFO, Buffer.concat([Buffer.alloc(2), this.#geometry()]));
      this.#reply(option, REPLY_ACK);
      this.#state = 'requests';
    } else if (option === OPTION_ABORT) return this.#hangUp();
    else this.#reply(option, REPLY_UNSUPPORTED);
    return OPTION_HEADER + length;
  }

  #geometry(): Buffer {
    const geometry = Buffer.alloc(10);
    geometry.writeBigUInt64BE(BigInt(this.#disk.size), 0);
    geometry.writeUInt16BE(EXPORT_FLAGS, 8);
    return geometry;
  }

  #reply(option: number, type: number, data = Buffer.alloc(0)): void {
    const header = Buffer.alloc(20);
    header.writeBigUInt64BE(OPTION_REPLY_MAGIC, 0);
    header.writeUInt32BE(option, 8);
    header.writeUInt32BE(type, 12);
    header.writeUInt32BE(data.length, 16);
    this.#socket.write(Buffer.concat([header, data]));
  }

  #request(message: Buffer): number {
    if (message.length < REQUEST_HEADER) return 0;
    const [flags, type] = [message.readUInt16BE(4), message.readUInt16BE(6)];
    const offset = Number(message.readBigUInt64BE(16));
    const length = message.readUInt32BE(24);
    const isWrite = type === WRITE;
    if (message.readUInt32BE(0) !== REQUEST_MAGIC || length > LENGTH_MAX) return this.#hangUp();
    const whole = REQUEST_HEADER + (isWrite ? length : 0);
    if (message.length < whole) return 0;
    if (type === DISCONNECT) return this.#hangUp();
    const fits = offset + length <= this.#disk.size;
    const isKnown = type === READ || isWrite || type === FLUSH;
    const header = Buffer.alloc(16);
    header.writeUInt32BE(REPLY_MAGIC, 0);
    header.writeUInt32BE(fits && isKnown ? 0 : EINVAL, 4);
    message.copy(header, 8, 8, 16);
    if (!fits || !isKnown) this.#socket.write(header);
    else if (type === READ) {
      this.#socket.write(Buffer.concat([header, this.#disk.read(offset, length)]));
    } else {
      const data = message.subarray(REQUEST_HEADER, whole);
      if (isWrite) this.#disk.write(offset, data, (flags & FUA) !== 0);
      else this.#disk.flush();
      this.#socket.write(header);
    }
    return whole;
  }

  #hangUp(): number {
    this.#socket.destroy();
    return 0;
  }
}
