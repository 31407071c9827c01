/**
 * The client's side of one connection: asks the server what it has, writes the pieces that it has
 * not, and waits until it says that the file is there.
 */
import { AccessFlag, RefusalError } from '../../index.js';
import type { AuthOptions, Context, ErrnoName } from '../../index.js';
import { Channel, ConnectionLost, REORDER_PACKETS, mtuFor } from '../file-transfer/channel.js';
import { askServer, type PutReply, type Standing } from '../file-transfer/exchange.js';
import { PieceSet } from '../file-transfer/piece-set.js';
import { Interrupted } from '../base/report.js';
import { formatServerAddress, type ServerAddress } from '../base/server-address.js';
import { FileChanged, type SourceFile } from './source-file.js';
import type { Message } from '../file-transfer/messages.js';

/** Pieces under way, at most; the server may have room for fewer. */
export const SLOTS_IN_USE = 8;
/** Messages besides those about pieces. */
const EXTRA_MESSAGES = 8;
/** While we read what the server has already, it hears from us so often. */
const ALIVE_MILLIS = 10_000;
/** How long the server may take to throw away what it should not keep. */
const ABANDON_MILLIS_MAX = 2000;

export interface AttemptEvents {
  /** Asked and answered: the server has these pieces. */
  connected(have: PieceSet, note: string): void;
  /** Piece `index` is in the server's file. */
  written(index: number): void;
  /** All pieces are; the server reads them back. */
  verifying(): void;
}

export interface AttemptOptions {
  readonly context: Context;
  readonly file: SourceFile;
  /** Numeric. */
  readonly server: ServerAddress;
  readonly localAddress: string;
  /** The same for every attempt of a transfer. */
  readonly transfer: string;
  /** Client and server prove to each other that they have the first key. */
  readonly auth?: AuthOptions | undefined;
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
  #done: Uint8Array | undefined;
  #failure: Error | undefined;
  #wake: () => void = () => undefined;

  private constructor(options: AttemptOptions, events: AttemptEvents) {
    this.#options = options;
    this.#events = events;
    const messages = SLOTS_IN_USE + EXTRA_MESSAGES;
    this.#channel = new Channel(options.context, { receives: messages, sends: messages });
  }

  /**
   * Resolves when the server has the whole file. Rejects with ConnectionLost, RefusalError (the
   * server's, or of the file, FileChanged among them), Interrupted.
   */
  static async run(options: AttemptOptions, events: AttemptEvents): Promise<void> {
    const attempt = new Attempt(options, events);
    const channel = attempt.#channel;
    const abort = (): void => attempt.#fail(new Interrupted('interrupted'));
    options.signal.addEventListener('abort', abort);
    let standing: Standing | undefined;
    let running: Promise<void> | undefined;
    const alive = setInterval(() => {
      if (running) channel.send({ kind: 'ALIVE' });
    }, ALIVE_MILLIS);
    try {
      const asked = await attempt.#ask();
      standing = asked.standing;
      if ('done' in asked.reply) {
        attempt.#compare(asked.reply.sha256);
        return;
      }
      attempt.#connect(asked.reply, standing);
      running = channel.run((message) => attempt.#receive(message));
      running.catch((error: Error) => attempt.#fail(error));
      void standing.ended.then(() =>
        attempt.#fail(new ConnectionLost('the server closed the connection')),
      );
      await attempt.#transfer(asked.reply, standing);
    } finally {
      clearInterval(alive);
      options.signal.removeEventListener('abort', abort);
      standing?.end();
      channel.break();
      await running?.catch(() => undefined);
      channel.close();
    }
  }

  #ask(): ReturnType<typeof askServer> {
    const { context, file, server, localAddress, transfer, signal, auth } = this.#options;
    const { info } = context.device;
    if (signal.aborted) throw new Interrupted('interrupted');
    const request = {
      transfer,
      name: file.name,
      size: file.size,
      mtimeNs: file.mtimeNs,
      pieceBytes: file.pieceBytes,
      qpn: this.#channel.qpn,
      psn: this.#channel.psn,
      port: info.local.port,
      packetSizeMax: info.packetSizeMax,
      receiveBufferBytes: info.receiveBufferBytes,
      reorderPackets: REORDER_PACKETS,
    };
    const text = formatServerAddress(server);
    const to = { ...server, text };
    return askServer(to, localAddress, request, signal, auth).catch((error: unknown) => {
      throw signal.aborted ? new Interrupted('interrupted') : error;
    });
  }

  #connect(reply: PutReply, { session }: Standing): void {
    const { context, file, server } = this.#options;
    if (reply.mtuBytes > mtuFor(context.device.info.packetSizeMax)) {
      throw new RefusalError(
        'EPROTO',
        `the server requires a path MTU of ${reply.mtuBytes} bytes, which this side does not support`,
      );
    }
    this.#channel.connect({ address: server.host, session, ...reply });
    if (file.size === 0) return;
    const count = Math.min(reply.slots, SLOTS_IN_USE, file.pieceCount);
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
    this.#freeSlots.push(...this.#slots);
  }

  async #transfer(reply: PutReply, standing: Standing): Promise<void> {
    const { file } = this.#options;
    const have = PieceSet.fromText(reply.have, file.pieceCount);
    if (!have)
      throw new RefusalError('EPROTO', 'the server reports pieces beyond the end of the file');
    this.#events.connected(have, reply.note);
    try {
      await this.#sendPieces(reply, have);
      await file.checkUnchanged();
    } catch (error) {
      if (!(error instanceof FileChanged)) throw error;
      // The server deletes the part and closes the connection afterwards.
      this.#channel.send({ kind: 'ABANDON' });
      const timeout = new Promise((resolve) => setTimeout(resolve, ABANDON_MILLIS_MAX).unref());
      await Promise.race([standing.ended, timeout]);
      throw error;
    }
    this.#events.verifying();
    this.#channel.send({ kind: 'END', sha256: file.digest() });
    await this.#until(() => this.#done !== undefined);
    this.#compare(Buffer.from(this.#done!).toString('hex'));
  }

  /** With the digest of what the server has. */
  #compare(sha256: string): void {
    const { file } = this.#options;
    if (!file.needs(file.pieceCount - 1) && file.digest().toString('hex') === sha256) return;
    throw new RefusalError(
      'EIO',
      `the SHA-256 of ${file.name} on the server differs from the local one; put the file again`,
    );
  }

  async #sendPieces(reply: PutReply, have: PieceSet): Promise<void> {
    const { file } = this.#options;
    const { pieceBytes } = file;
    const unsent = Buffer.alloc(have.size > 0 ? pieceBytes : 0);
    for (let index = 0; index < file.pieceCount; index++) {
      if (this.#failure) throw this.#failure;
      if (have.has(index)) {
        // The digest covers what the server has as well.
        if (file.needs(index)) await file.read(index, unsent);
        continue;
      }
      await this.#until(() => this.#freeSlots.length > 0);
      const slot = this.#freeSlots.shift()!;
      const crc = await file.read(index, slot.bytes);
      const length = file.lengthOf(index);
      const remoteAddr = reply.addr + BigInt(slot.index) * BigInt(pieceBytes);
      this.#channel.writeAndSend(
        { addr: slot.addr, length, lkey: this.#lkey },
        { remoteAddr, rkey: reply.rkey },
        { kind: 'PIECE', slot: slot.index, index, length, crc },
      );
    }
    await this.#until(() => this.#freeSlots.length === this.#slots.length);
  }

  #receive(message: Message): void {
    switch (message.kind) {
      case 'WRITTEN': {
        const slot = this.#slots[message.slot];
        if (!slot || this.#freeSlots.includes(slot)) {
          throw new RefusalError(
            'EPROTO',
            `the server frees slot ${message.slot}, which is not in use`,
          );
        }
        this.#freeSlots.push(slot);
        this.#events.written(message.index);
        break;
      }
      case 'DONE':
        this.#done = message.sha256;
        break;
      case 'FAILED':
        throw new RefusalError(message.code as ErrnoName, message.sentence);
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
