/**
 * The server's side of one transfer: a region that the client writes pieces into, and the part file
 * that they go to from there. A slot of the region is the client's again when its piece is written.
 */
import { crc32 } from 'node:zlib';
import { AccessFlag, RefusalError, VerbenaError, type Context } from '../../index.js';
import { Channel, ConnectionLost, REORDER_PACKETS, mtuFor } from '../file-transfer/channel.js';
import {
  SLOTS_MAX,
  type PutReply,
  type PutRequest,
  type Standing,
} from '../file-transfer/exchange.js';
import { PartFile } from './part-file.js';
import type { Message } from '../file-transfer/messages.js';

/** A client that says nothing for so long is gone, whatever its TCP connection says. */
const IDLE_MILLIS_MAX = 60_000;
/** How long the first message may take: a client that reads its file says ALIVE after 10 s. */
const FIRST_MILLIS_MAX = 15_000;
/** How long a client may take to hear that it is done, or failed. */
const FAREWELL_MILLIS_MAX = 5000;
/** Messages besides those about pieces. */
const EXTRA_MESSAGES = 8;
const ABANDONED = 'the file changed while it was sent; what was there is discarded';

export interface SessionOptions {
  readonly directory: string;
  /** Bytes of the region that a client writes into. */
  readonly windowBytes: number;
}

/** How a session ended. */
export type SessionEnd =
  | { kind: 'finished'; sha256: string; seconds: number; piecesReceived: number }
  /** The client is gone; what is synced stays. */
  | { kind: 'lost'; reason: string; piecesSynced: number; pieceCount: number }
  | { kind: 'failed'; error: VerbenaError; piecesSynced: number; pieceCount: number };

export class Session {
  readonly request: PutRequest;
  /** Resolves when all resources of the session are released. */
  readonly ended: Promise<void>;
  readonly #context: Context;
  readonly #standing: Standing;
  readonly #startMillis = performance.now();
  #lastHeardMillis = performance.now();
  #progressMillis = performance.now();
  #isHeard = false;
  #channel: Channel | undefined;
  #part: PartFile | undefined;
  #slots: Uint8Array[] = [];
  readonly #busySlots = new Set<number>();
  /** Writes of pieces, and the end: all must be over before memory is freed. */
  readonly #working = new Set<Promise<void>>();
  #piecesReceived = 0;
  #sha256: Uint8Array | undefined;
  #abandoned = false;
  #ending = false;
  #failure: VerbenaError | undefined;
  #stopped: string | undefined;
  #resolveEnded: () => void = () => undefined;

  constructor(context: Context, request: PutRequest, standing: Standing) {
    this.#context = context;
    this.request = request;
    this.#standing = standing;
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
  }

  /** Opens file, memory and queue pair. Throws RefusalError and then releases all of them. */
  async open(options: SessionOptions, sharers: number): Promise<PutReply> {
    const { request } = this;
    const slots = Math.min(Math.floor(options.windowBytes / request.pieceBytes), SLOTS_MAX);
    try {
      if (slots < 1) {
        throw new RefusalError(
          'EMSGSIZE',
          `pieces of ${request.pieceBytes} bytes do not fit into the server's window of ` +
            `${options.windowBytes}: choose smaller ones (--piece-bytes)`,
        );
      }
      this.#part = await PartFile.open(options.directory, request);
      const messages = slots + EXTRA_MESSAGES;
      const channel = new Channel(this.#context, { receives: messages, sends: messages });
      this.#channel = channel;
      return this.#connect(channel, this.#part, slots, sharers);
    } catch (error) {
      await this.#giveBack();
      throw error;
    }
  }

  #connect(channel: Channel, part: PartFile, slots: number, sharers: number): PutReply {
    const { request } = this;
    const { pieceBytes } = request;
    const [bytes, region] = channel.allocate(
      slots * pieceBytes,
      AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE,
    );
    this.#slots = Array.from({ length: slots }, (_, slot) =>
      bytes.subarray(slot * pieceBytes, (slot + 1) * pieceBytes),
    );
    const { info } = this.#context.device;
    const mtuBytes = mtuFor(Math.min(info.packetSizeMax, request.packetSizeMax));
    channel.connect({
      // The source address of the TCP connection: a client cannot direct packets to another host.
      address: this.#standing.remoteAddress,
      port: request.port,
      qpn: request.qpn,
      psn: request.psn,
      mtuBytes,
      receiveBufferBytes: request.receiveBufferBytes,
      reorderPackets: request.reorderPackets,
      session: this.#standing.session,
    });
    return {
      qpn: channel.qpn,
      psn: channel.psn,
      port: info.local.port,
      // Clients share the socket's buffer.
      receiveBufferBytes: Math.max(1, Math.floor(info.receiveBufferBytes / sharers)),
      reorderPackets: REORDER_PACKETS,
      mtuBytes,
      addr: region.addr,
      rkey: region.rkey,
      slots,
      have: part.synced.toText(),
      note: part.note,
    };
  }

  get remoteAddress(): string {
    return this.#standing.remoteAddress;
  }

  /** How long nothing came of the file. 0: the server reads it back, or ends. */
  get idleMillis(): number {
    return this.#ending ? 0 : performance.now() - this.#progressMillis;
  }

  /** Pieces that are on the disk. */
  get piecesSynced(): number {
    return this.#abandoned ? 0 : (this.#part?.synced.size ?? 0);
  }

  /** Serves the client until it is done or gone. Never rejects. */
  async run(): Promise<SessionEnd> {
    const channel = this.#channel!;
    const idle = setInterval(() => {
      const silent = performance.now() - this.#lastHeardMillis;
      if (silent > IDLE_MILLIS_MAX) this.stop('it said nothing for a minute');
      if (!this.#isHeard && silent > FIRST_MILLIS_MAX) this.stop('it began with nothing');
    }, 1000);
    void this.#standing.ended.then(() => this.stop('the client closed the connection'));
    let reason = '';
    // Stopped while it was being opened.
    if (this.#stopped !== undefined) channel.break();
    try {
      await channel.run((message) => this.#receive(message));
    } catch (error) {
      // A client that is done may be gone before our last acknowledgement.
      if (error instanceof ConnectionLost) reason = error.message;
      else this.#failure ??= error instanceof VerbenaError ? error : unexpected(error);
    }
    clearInterval(idle);
    channel.break();
    while (this.#working.size > 0) await Promise.all(this.#working);
    this.#standing.end();
    const synced = await this.#giveBack();
    return this.#end(synced, reason);
  }

  /** Ends the session; `ended` says when it has. What is written is synced first. */
  stop(reason: string): void {
    this.#stopped ??= reason;
    this.#channel?.break();
  }

  #end(piecesSynced: number, reason: string): SessionEnd {
    if (this.#sha256) {
      return {
        kind: 'finished',
        sha256: Buffer.from(this.#sha256).toString('hex'),
        seconds: (performance.now() - this.#startMillis) / 1000,
        piecesReceived: this.#piecesReceived,
      };
    }
    const pieceCount = this.#part?.pieceCount ?? 0;
    if (this.#failure) return { kind: 'failed', error: this.#failure, piecesSynced, pieceCount };
    return { kind: 'lost', reason: this.#stopped ?? reason, piecesSynced, pieceCount };
  }

  /** Returns how many pieces are synced. */
  async #giveBack(): Promise<number> {
    await this.#part?.close().catch((error: unknown) => (this.#failure ??= unexpected(error)));
    this.#channel?.close();
    this.#resolveEnded();
    return this.piecesSynced;
  }

  #receive(message: Message): void {
    this.#lastHeardMillis = performance.now();
    this.#isHeard = true;
    if (message.kind !== 'ALIVE') this.#progressMillis = this.#lastHeardMillis;
    // After its failure a client may still have sent something.
    if (this.#failure || this.#sha256 || this.#abandoned) return;
    // While the file is read back nothing may change it.
    if (this.#ending && message.kind !== 'ALIVE') {
      throw new RefusalError('EPROTO', `${message.kind} arrived after END`);
    }
    switch (message.kind) {
      case 'PIECE':
        this.#work(this.#write(message.slot, message.index, message.length, message.crc));
        break;
      case 'END':
        this.#ending = true;
        this.#work(this.#finish(message.sha256));
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

  #work(task: Promise<void>): void {
    const working = task
      .catch((error: unknown) => this.#fail(error))
      .finally(() => this.#working.delete(working));
    this.#working.add(working);
  }

  async #write(slot: number, index: number, length: number, crc: number): Promise<void> {
    const part = this.#part!;
    const memory = this.#slots[slot];
    if (!memory || index >= part.pieceCount || length !== part.lengthOf(index)) {
      throw new RefusalError(
        'EPROTO',
        `piece ${index} of ${length} bytes in slot ${slot} is out of range`,
      );
    }
    if (this.#busySlots.has(slot)) {
      throw new RefusalError('EPROTO', `slot ${slot} was written before it was free`);
    }
    this.#busySlots.add(slot);
    const bytes = memory.subarray(0, length);
    if (crc32(bytes) !== crc) {
      throw new RefusalError('EIO', `the CRC-32 of piece ${index} differs from the client's`);
    }
    await part.write(index, bytes, crc);
    this.#piecesReceived++;
    this.#busySlots.delete(slot);
    this.#channel!.send({ kind: 'WRITTEN', slot, index });
  }

  async #finish(sha256: Uint8Array): Promise<void> {
    if (this.#busySlots.size > 0) {
      throw new RefusalError('EPROTO', 'END arrived before all pieces were written');
    }
    await this.#part!.finish(sha256);
    this.#sha256 = sha256;
    this.#farewell({ kind: 'DONE', sha256 });
  }

  #fail(error: unknown): void {
    if (this.#failure || this.#abandoned) return;
    const failure = error instanceof VerbenaError ? error : unexpected(error);
    this.#failure = failure;
    const code = failure instanceof RefusalError ? failure.code : 'EIO';
    this.#farewell({ kind: 'FAILED', code, sentence: failure.message.replace(` (${code})`, '') });
  }

  /** The client hangs up when it has the last message; it has a while to do so. */
  #farewell(message: Message): void {
    this.#channel!.send(message);
    setTimeout(() => this.stop('it does not hang up'), FAREWELL_MILLIS_MAX).unref();
  }
}

function unexpected(error: unknown): VerbenaError {
  return new VerbenaError(`the server failed: ${String(error)}`, { cause: error });
}
