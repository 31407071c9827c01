/**
 * The server's side of one connection: the request for a file, a region that the client writes
 * pieces into, and the part file that they go to from there. A slot of the region is the client's
 * again when its piece is written.
 */
import { RefusalError, VerbenaError } from '../errors/errors.js';
import { AccessFlag } from '../verbs/enums.js';
import { hexOf } from './bytes.js';
import { ConnectionLost, type Channel } from './channel.js';
import {
  SLOTS_MAX,
  failedMessage,
  type Message,
  type PieceMessage,
  type PutMessage,
} from './messages.js';
import { crc32 } from './crc32.js';
import { failureOf } from './failure.js';
import { PIECE_BYTES_MAX, PIECE_BYTES_MIN } from './piece-bytes.js';
import type { FileVersion } from './journal.js';
import type { FileStore } from './file-store.js';
import type { PartFile } from './part-file.js';
import { unref } from './pause.js';

/** With pieces of 1 MiB a file of 4 TiB. */
const PIECE_COUNT_MAX = 2 ** 22;
/** A client that sends no message for so long is gone, whatever its transport answers. */
const IDLE_MILLIS_MAX = 60_000;
/** How long the first message after READY may take: a client that reads its file says ALIVE. */
const FIRST_MILLIS_MAX = 15_000;
/** How long the request may take. */
const REQUEST_MILLIS_MAX = 5000;
/** How long a client may take to hear that it is done, or failed. */
const FAREWELL_MILLIS_MAX = 5000;
const ABANDONED = 'the file changed while it was sent; what was there is discarded';

export interface PutRequest extends FileVersion {
  /** Hexadecimal: the same in every connection of one run of `put`. */
  readonly transfer: string;
}

/** Answers a request with READY or DONE. Rejects with RefusalError. */
export type Admit = (session: Session, request: PutRequest) => Promise<Message>;

/** How a session ended. */
export type SessionEnd =
  | { kind: 'finished'; sha256: string; seconds: number; piecesReceived: number }
  /** The client is gone; what is synced stays. */
  | { kind: 'lost'; reason: string; piecesSynced: number; pieceCount: number }
  | { kind: 'failed'; error: RefusalError; piecesSynced: number; pieceCount: number };

export class Session {
  readonly remoteAddress: string;
  /** Undefined until it arrives. */
  request: PutRequest | undefined;
  /** Resolves when all resources of the session are released. */
  readonly ended: Promise<void>;
  readonly #channel: Channel;
  readonly #admit: Admit;
  readonly #arrived: ((request: PutRequest, pieces: number) => void) | undefined;
  readonly #startMillis = performance.now();
  #lastHeardMillis = performance.now();
  #progressMillis = performance.now();
  #isHeard = false;
  #part: PartFile | undefined;
  #slots: Uint8Array[] = [];
  readonly #busySlots = new Set<number>();
  /** Writes of pieces, and the end: all must be over before memory is freed. */
  readonly #working = new Set<Promise<void>>();
  #piecesReceived = 0;
  #sha256: Uint8Array | undefined;
  #abandoned = false;
  #ending = false;
  #failure: RefusalError | undefined;
  #stopped: string | undefined;
  #resolveEnded: () => void = () => undefined;

  /** `arrived` is called with the number of pieces that have arrived in all connections. */
  constructor(
    channel: Channel,
    remoteAddress: string,
    admit: Admit,
    arrived?: (request: PutRequest, pieces: number) => void,
  ) {
    this.#arrived = arrived;
    this.#channel = channel;
    this.remoteAddress = remoteAddress;
    this.#admit = admit;
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
  }

  /** Opens file and memory; the answer to the request. Throws RefusalError. */
  async open(store: FileStore, windowBytes: number, request: PutRequest): Promise<Message> {
    const { pieceBytes } = request;
    const room = Math.min(Math.floor(windowBytes / pieceBytes), SLOTS_MAX);
    if (room < 1) {
      throw new RefusalError(
        'EMSGSIZE',
        `pieces of ${pieceBytes} bytes do not fit into the server's window of ${windowBytes}: ` +
          'choose smaller ones (option pieceBytes; --piece-bytes)',
      );
    }
    const part = (this.#part = await store.open(request));
    try {
      return this.#ready(part, room);
    } catch (error) {
      // Another client may open it from now on.
      await part.close();
      throw error;
    }
  }

  #ready(part: PartFile, room: number): Message {
    const { pieceBytes } = part.version;
    const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ } = AccessFlag;
    // A file without a piece has a slot as well: the message has one form.
    const slots = Math.max(1, Math.min(room, part.pieceCount));
    const length = slots * pieceBytes;
    const [bytes, { addr, rkey }] = this.#channel.allocate(length, LOCAL_WRITE | REMOTE_WRITE);
    this.#slots = Array.from({ length: slots }, (_, slot) =>
      bytes.subarray(slot * pieceBytes, (slot + 1) * pieceBytes),
    );
    const { size: have, bits } = part.synced;
    const ready = { kind: 'READY', slots, addr, rkey, have, note: part.note } as const;
    if (have === 0) return { ...ready, bitsAddr: 0n, bitsRkey: 0 };
    const [copy, region] = this.#channel.allocate(bits.length, REMOTE_READ);
    copy.set(bits);
    return { ...ready, bitsAddr: region.addr, bitsRkey: region.rkey };
  }

  /** Note for the client's user. */
  get note(): string {
    return this.#part?.note ?? '';
  }

  /** How long nothing came of the file. 0: the server reads it back, or ends. */
  get idleMillis(): number {
    return this.#ending ? 0 : performance.now() - this.#progressMillis;
  }

  /** When the last message of the client was handled, by `performance.now()`. */
  get heardMillis(): number {
    return this.#lastHeardMillis;
  }

  /** Pieces that are on the disk. */
  get piecesSynced(): number {
    return this.#part?.synced.size ?? 0;
  }

  /** Serves the client until it is done or gone. Never rejects. */
  async run(): Promise<SessionEnd> {
    const channel = this.#channel;
    const idle = setInterval(() => this.#checkSilence(), 1000);
    let reason = '';
    try {
      await channel.run((message) => this.#receive(message));
    } catch (error) {
      // A client that is done may be gone before our last acknowledgement.
      if (error instanceof ConnectionLost) reason = error.message;
      else this.#failure ??= unexpected(error);
    }
    clearInterval(idle);
    channel.break();
    while (this.#working.size > 0) await Promise.all(this.#working);
    await this.#part?.close().catch((error: unknown) => (this.#failure ??= unexpected(error)));
    channel.close();
    this.#resolveEnded();
    return this.#end(this.piecesSynced, reason);
  }

  #checkSilence(): void {
    const silent = performance.now() - this.#lastHeardMillis;
    if (silent > IDLE_MILLIS_MAX) this.stop('it said nothing for a minute');
    else if (!this.request && silent > REQUEST_MILLIS_MAX) this.stop('it sent no request for 5 s');
    else if (!this.#isHeard && silent > FIRST_MILLIS_MAX) this.stop('it began with nothing');
  }

  /** Ends the session; `ended` says when it has. What is written is synced first. */
  stop(reason: string): void {
    this.#stopped ??= reason;
    this.#channel.break();
  }

  #end(piecesSynced: number, reason: string): SessionEnd {
    if (this.#sha256) {
      return {
        kind: 'finished',
        sha256: hexOf(this.#sha256),
        seconds: (performance.now() - this.#startMillis) / 1000,
        piecesReceived: this.#piecesReceived,
      };
    }
    const pieceCount = this.#part?.pieceCount ?? 0;
    if (this.#failure) return { kind: 'failed', error: this.#failure, piecesSynced, pieceCount };
    return { kind: 'lost', reason: this.#stopped ?? reason, piecesSynced, pieceCount };
  }

  #receive(message: Message): void {
    this.#lastHeardMillis = performance.now();
    if (message.kind !== 'ALIVE') this.#progressMillis = this.#lastHeardMillis;
    // After its failure a client may still have sent something.
    if (this.#failure || this.#sha256 || this.#abandoned) return;
    // A request comes once, and what is about the file after it; nothing changes it after END.
    const isAwaited = message.kind === 'PUT' ? !this.request : this.#slots.length > 0;
    if (message.kind !== 'ALIVE' && (this.#ending || !isAwaited)) {
      throw new RefusalError('EPROTO', `unexpected message from the client: ${message.kind}`);
    }
    this.#isHeard ||= message.kind !== 'PUT';
    switch (message.kind) {
      case 'PUT':
        this.#work(this.#begin(message));
        break;
      case 'PIECE':
        this.#work(this.#write(message));
        break;
      case 'END':
        this.#ending = true;
        this.#work(Promise.all(this.#working).then(() => this.#finish(message.sha256)));
        break;
      case 'ABANDON':
        this.#abandoned = true;
        this.#work(this.#part!.abandon().then(() => this.stop(ABANDONED)));
        break;
      case 'ALIVE':
        break;
      default:
        throw new RefusalError('EPROTO', `unexpected message from the client: ${message.kind}`);
    }
  }

  async #begin(message: PutMessage): Promise<void> {
    this.request = requestOf(message);
    const answer = await this.#admit(this, this.request);
    if (answer.kind !== 'DONE') return this.#channel.send(answer);
    this.#sha256 = answer.sha256;
    this.#farewell(answer);
  }

  #work(task: Promise<void>): void {
    const working = task
      .catch((error: unknown) => this.#fail(error))
      .finally(() => this.#working.delete(working));
    this.#working.add(working);
  }

  async #write({ slot, index, length, crc, early }: PieceMessage): Promise<void> {
    const part = this.#part!;
    const { earlyBytes } = this.#channel;
    const memory = this.#slots[slot];
    const isEarly = early <= Math.min(length, earlyBytes.length);
    if (!memory || index >= part.pieceCount || length !== part.lengthOf(index) || !isEarly) {
      throw new RefusalError(
        'EPROTO',
        `piece ${index} of ${length} bytes in slot ${slot} is out of range; check ` +
          'that both sides run the same version',
      );
    }
    if (this.#busySlots.has(slot)) {
      throw new RefusalError(
        'EPROTO',
        `slot ${slot} was written before it was free; check that both sides run the same version`,
      );
    }
    this.#busySlots.add(slot);
    const bytes = memory.subarray(0, length);
    bytes.set(earlyBytes.subarray(0, early));
    if (crc32(bytes) !== crc) {
      throw new RefusalError(
        'EIO',
        `the CRC-32 of piece ${index} differs from the client's; put the file again`,
      );
    }
    await part.write(index, bytes, crc);
    this.#piecesReceived++;
    this.#busySlots.delete(slot);
    this.#channel.send({ kind: 'WRITTEN', slot, index });
    this.#arrived?.(this.request!, part.writtenCount);
  }

  async #finish(sha256: Uint8Array): Promise<void> {
    // A piece could not be written.
    if (this.#failure) return;
    await this.#part!.finish(sha256);
    this.#sha256 = sha256;
    this.#farewell({ kind: 'DONE', sha256 });
  }

  #fail(error: unknown): void {
    if (this.#failure || this.#abandoned) return;
    this.#failure = unexpected(error);
    this.#farewell(failedMessage(this.#failure));
  }

  /** The client hangs up when it has the last message; it has a while to do so. */
  #farewell(message: Message): void {
    this.#channel.send(message);
    unref(setTimeout(() => this.stop('it does not hang up'), FAREWELL_MILLIS_MAX));
  }
}

/** Throws RefusalError for what no file has. The name is not checked here. */
function requestOf({ name, pieceBytes, transfer, ...message }: PutMessage): PutRequest {
  const size = Number(message.size);
  const isSize = Number.isSafeInteger(size) && size <= PIECE_COUNT_MAX * PIECE_BYTES_MAX;
  if (!isSize || pieceBytes < PIECE_BYTES_MIN || pieceBytes > PIECE_BYTES_MAX) {
    const range = `${PIECE_BYTES_MIN} to ${PIECE_BYTES_MAX}`;
    const rule = `pieces have ${range} bytes, and a file up to ${PIECE_COUNT_MAX} of them`;
    throw new RefusalError('EPROTO', `${size} bytes in pieces of ${pieceBytes}: ${rule}`);
  }
  if (Math.ceil(size / pieceBytes) > PIECE_COUNT_MAX) {
    throw new RefusalError(
      'EMSGSIZE',
      `${size} bytes in pieces of ${pieceBytes} are more than ${PIECE_COUNT_MAX} pieces: ` +
        'choose larger ones (option pieceBytes; --piece-bytes)',
    );
  }
  const mtimeNs = `${BigInt.asIntN(64, message.mtimeNs)}`;
  return { name, size, mtimeNs, pieceBytes, transfer: hexOf(transfer) };
}

function unexpected(error: unknown): RefusalError {
  if (error instanceof RefusalError) return error;
  if (!(error instanceof VerbenaError)) return failureOf(error);
  return new RefusalError('EIO', error.message, { cause: error });
}
