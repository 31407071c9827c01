/**
 * The client's side of one connection: asks the server what it has, writes the pieces that it has
 * not, and waits until it says that the file is there.
 */
import type { AuthOptions } from '../cm/auth-option.js';
import { ConnectError } from '../cm/connect-error.js';
import { RefusalError } from '../errors/errors.js';
import type { Context } from '../verbs/context.js';
import { AccessFlag } from '../verbs/enums.js';
import type { PathState } from '../verbs/queues/path-state.js';
import { areEqual } from './bytes.js';
import { Channel, EARLY_BYTES } from './channel.js';
import { SLOTS_MAX, refusalOfText, type Message, type ReadyMessage } from './messages.js';
import { PieceSet } from './piece-set.js';
import { pause } from './pause.js';
import type { ServerAddress } from './server-address.js';
import { FileChanged, type Source } from './source.js';

/** How long the server may take to answer the request. */
const REPLY_MILLIS_MAX = 12_000;
/**
 * Interval of ALIVE messages while the client reads the bitmap of the server's pieces
 * (file-receiver.ts).
 */
const ALIVE_MILLIS = 2000;
/** How long the server may take to throw away what it should not keep. */
const ABANDON_MILLIS_MAX = 2000;

export interface AttemptEvents {
  /** Asked and answered: the server has these pieces. */
  connected(have: PieceSet, note: string): void;
  /** Piece `index` is in the server's file. */
  written(index: number): void;
  /** All pieces are; the server reads them back. `path`: how they came there. */
  verifying(path: PathState | undefined): void;
}

export interface AttemptOptions {
  readonly context: Context;
  readonly file: Source;
  /** Numeric. */
  readonly server: ServerAddress;
  /** 16 bytes, the same for every attempt of a transfer. */
  readonly transfer: Uint8Array;
  /** An earlier attempt of the transfer has sent pieces. */
  readonly resumes: boolean;
  /** Client and server prove to each other that they have the first key. */
  readonly auth?: AuthOptions | undefined;
  /** The error to report for a connection that is not made. */
  readonly explain: (error: ConnectError, server: ServerAddress) => unknown;
  /** Its reason is what `run` rejects with. */
  readonly signal: AbortSignal;
}

interface Slot {
  readonly index: number;
  readonly bytes: Uint8Array;
  readonly addr: bigint;
}

export class Attempt {
  readonly #options: AttemptOptions;
  readonly #events: AttemptEvents;
  readonly #channel: Channel;
  readonly #freeSlots: Slot[] = [];
  readonly #slots: Slot[] = [];
  #lkey = 0;
  /** Piece 0 is in slot 0, and its first bytes are on their way to the early region. */
  #early: { readonly bytes: number; readonly crc: number } | undefined;
  #ready: ReadyMessage | undefined;
  #done: Uint8Array | undefined;
  #failure: Error | undefined;
  #wake: () => void = () => undefined;

  private constructor(options: AttemptOptions, events: AttemptEvents, channel: Channel) {
    this.#options = options;
    this.#events = events;
    this.#channel = channel;
  }

  /**
   * Resolves when the server has the whole file. Rejects with ConnectionLost, RefusalError (the
   * server's, or of the file, FileChanged among them), the reason of `signal`.
   */
  static async run(options: AttemptOptions, events: AttemptEvents): Promise<void> {
    const channel = await connectUnlessAborted(options);
    const attempt = new Attempt(options, events, channel);
    const abort = (): void => attempt.#fail(options.signal.reason as Error);
    options.signal.addEventListener('abort', abort);
    const running = channel.run((message) => attempt.#receive(message));
    running.catch((error: Error) => attempt.#fail(error));
    const alive = setInterval(() => channel.send({ kind: 'ALIVE' }), ALIVE_MILLIS);
    try {
      await attempt.#transfer();
    } finally {
      clearInterval(alive);
      options.signal.removeEventListener('abort', abort);
      channel.break();
      await running.catch(() => undefined);
      channel.close();
    }
  }

  /**
   * Sends the request, and the beginning of the file beside it: a round trip less. Resolves to
   * undefined if the server has the file.
   */
  async #ask(): Promise<ReadyMessage | undefined> {
    const { file, transfer } = this.#options;
    const { name, pieceBytes } = file;
    const version = { size: BigInt(file.size), mtimeNs: BigInt(file.mtimeNs), pieceBytes };
    this.#channel.send({ kind: 'PUT', transfer, name, ...version });
    const timer = setTimeout(() => {
      const sentence = `the server sent no reply for ${REPLY_MILLIS_MAX / 1000} s; check that it runs`;
      this.#fail(new RefusalError('ETIMEDOUT', sentence));
    }, REPLY_MILLIS_MAX);
    try {
      await this.#sendEarly();
      await this.#until(() => this.#ready !== undefined || this.#done !== undefined);
    } finally {
      clearTimeout(timer);
    }
    return this.#ready;
  }

  /** Of a transfer that goes on the server has the beginning. */
  async #sendEarly(): Promise<void> {
    const { file, resumes } = this.#options;
    const { early } = this.#channel;
    if (!early || resumes || file.pieceCount === 0) return;
    this.#makeSlots();
    const [{ addr, bytes }] = this.#slots as [Slot];
    const crc = await file.read(0, bytes);
    if (this.#ready || this.#done) return;
    const length = Math.min(file.lengthOf(0), EARLY_BYTES);
    this.#channel.writeAndSend({ addr, length, lkey: this.#lkey }, early);
    this.#early = { bytes: length, crc };
  }

  /** The pieces that the server has. */
  async #readBits({ have, bitsAddr, bitsRkey }: ReadyMessage): Promise<PieceSet> {
    const { pieceCount } = this.#options.file;
    if (have === 0) return new PieceSet(pieceCount);
    const length = Math.max(1, Math.ceil(pieceCount / 8));
    const [bits, { addr, lkey }] = this.#channel.allocate(length, AccessFlag.LOCAL_WRITE);
    let isRead = false;
    this.#channel.read({ remoteAddr: bitsAddr, rkey: bitsRkey }, { addr, length, lkey }, () => {
      isRead = true;
      this.#wake();
    });
    await this.#until(() => isRead);
    return PieceSet.of(bits, pieceCount);
  }

  #makeSlots(): void {
    const { file } = this.#options;
    const count = Math.min(SLOTS_MAX, file.pieceCount);
    if (count === 0 || this.#slots.length > 0) return;
    const { pieceBytes } = file;
    const [bytes, region] = this.#channel.allocate(count * pieceBytes, AccessFlag.LOCAL_WRITE);
    this.#lkey = region.lkey;
    for (let index = 0; index < count; index++) {
      const start = index * pieceBytes;
      this.#slots.push({
        index,
        bytes: bytes.subarray(start, start + pieceBytes),
        addr: region.addr + BigInt(start),
      });
    }
  }

  async #transfer(): Promise<void> {
    const { file } = this.#options;
    const ready = await this.#ask();
    if (!ready) return this.#compare();
    const have = await this.#readBits(ready);
    this.#makeSlots();
    // The server may have fewer.
    this.#slots.splice(ready.slots);
    this.#freeSlots.push(...this.#slots);
    this.#events.connected(have, ready.note);
    try {
      await this.#sendPieces(ready, have);
      await file.checkUnchanged();
      // The server waits for the last pieces itself: a round trip less.
      this.#channel.send({ kind: 'END', sha256: file.digest() });
    } catch (error) {
      if (!(error instanceof FileChanged)) throw error;
      // The server deletes the part and closes the connection afterwards.
      this.#channel.send({ kind: 'ABANDON' });
      await Promise.race([this.#channel.ended, pause(ABANDON_MILLIS_MAX)]);
      throw error;
    }
    await this.#until(() => this.#freeSlots.length === this.#slots.length);
    this.#events.verifying(this.#channel.pathState());
    await this.#until(() => this.#done !== undefined);
    this.#compare();
  }

  /** With the digest of what the server has. */
  #compare(): void {
    const { file } = this.#options;
    if (!file.needs(file.pieceCount - 1) && areEqual(file.digest(), this.#done!)) return;
    throw new RefusalError(
      'EIO',
      `the SHA-256 of ${file.name} on the server differs from the local one; put the file again`,
    );
  }

  async #sendPieces(ready: ReadyMessage, have: PieceSet): Promise<void> {
    const { file } = this.#options;
    const { pieceBytes } = file;
    const unsent = new Uint8Array(have.size > 0 ? pieceBytes : 0);
    for (let index = 0; index < file.pieceCount; index++) {
      if (this.#failure) throw this.#failure;
      if (have.has(index)) {
        // The digest covers what the server has as well.
        if (file.needs(index)) await file.read(index, unsent);
        continue;
      }
      await this.#until(() => this.#freeSlots.length > 0);
      const slot = this.#freeSlots.shift()!;
      // Slot 0 is the first that is taken.
      const isEarly = this.#early !== undefined && index === 0;
      const crc = isEarly ? this.#early!.crc : await file.read(index, slot.bytes);
      const early = isEarly ? this.#early!.bytes : 0;
      const length = file.lengthOf(index);
      const message = { kind: 'PIECE', slot: slot.index, index, length, crc, early } as const;
      const remoteAddr = ready.addr + BigInt(slot.index * pieceBytes + early);
      const addr = slot.addr + BigInt(early);
      if (length === early) this.#channel.send(message);
      else {
        const from = { addr, length: length - early, lkey: this.#lkey };
        this.#channel.writeAndSend(from, { remoteAddr, rkey: ready.rkey }, message);
      }
    }
  }

  #receive(message: Message): void {
    switch (message.kind) {
      case 'WRITTEN': {
        const slot = this.#slots[message.slot];
        if (!slot || this.#freeSlots.includes(slot)) {
          throw new RefusalError(
            'EPROTO',
            `the server frees slot ${message.slot}, which is not in use; check its version`,
          );
        }
        this.#freeSlots.push(slot);
        this.#events.written(message.index);
        break;
      }
      case 'READY':
        if (this.#ready || message.slots === 0)
          throw new RefusalError('EPROTO', 'unexpected message from the server: READY');
        this.#ready = message;
        break;
      case 'DONE':
        this.#done = message.sha256;
        break;
      case 'FAILED':
        throw refusalOfText(message.text);
      default:
        throw new RefusalError('EPROTO', `unexpected message from the server: ${message.kind}`);
    }
    this.#wake();
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    this.#wake();
  }

  /** Waits for what a message brings. Throws when the attempt has failed. */
  async #until(condition: () => boolean): Promise<void> {
    while (!condition()) {
      if (this.#failure) throw this.#failure;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}

/** Rejects with the reason of `signal` at once; the connection then ends as soon as it is made. */
async function connectUnlessAborted(options: AttemptOptions): Promise<Channel> {
  const { context, server, auth, explain, signal } = options;
  signal.throwIfAborted();
  const connecting = Channel.connect(context, server, auth);
  let abort = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => {
    abort = () => {
      connecting.then((channel) => channel.close()).catch(() => undefined);
      reject(signal.reason as Error);
    };
    signal.addEventListener('abort', abort);
  });
  try {
    return await Promise.race([connecting, aborted]);
  } catch (error) {
    throw error instanceof ConnectError ? explain(error, server) : error;
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
