/** A channel without verbs on which messages go to and fro: what ours are compared with. */
import { timerMillis } from '../base/timer.js';
import { LinkError } from '../errors/errors.js';
import type { DatagramChannel } from '../link/channel/datagram-channel.js';

const MESSAGE_BYTES = 64;
/** Longer messages are pieces of a frame. */
const ECHO_BYTES_MAX = 4096;
/** A frame travels in messages of this size, which every browser takes. */
export const PIECE_BYTES = 16384;
const BUFFERED_BYTES_MAX = 2 ** 20;
/** Round trips that may be under way at once. */
const UNDER_WAY_MAX = 1024;

/** Timeout for the opening of a channel. */
const OPEN_MILLIS = 10_000;

/** Echoes each message until the other side closes the channel; then calls `closed`. */
export function echo(channel: DatagramChannel, closed: () => void): void {
  const end = (): void => {
    clearTimeout(timer);
    channel.close();
    closed();
  };
  const timer = setTimeout(end, OPEN_MILLIS);
  channel.start({
    opened: () => clearTimeout(timer),
    message: (bytes) => {
      // A peer that reads nothing back is sent nothing more.
      const isRead = channel.bufferedBytes < BUFFERED_BYTES_MAX;
      const reply = replyTo(bytes);
      if (isRead && reply) channel.send(reply);
    },
    interrupted: () => {},
    closed: end,
  });
}

/**
 * A short message is echoed. Of a frame, whose pieces arrive in order, the last piece has a number
 * and is acknowledged by its first bytes; the other pieces have the number 0 and no reply.
 */
export function replyTo(message: Uint8Array): Uint8Array | undefined {
  if (message.length <= ECHO_BYTES_MAX) return message;
  return numberOf(message) === 0 ? undefined : message.slice(0, MESSAGE_BYTES);
}

function numberOf(message: Uint8Array): number {
  return new DataView(message.buffer, message.byteOffset).getUint32(0);
}

/** The side that asks. A message is a number, and zeros up to 64 bytes. */
export class EchoChannel {
  /** Messages without an echo yet: when each was sent, and its promise. */
  readonly #underWay = new Map<number, { start: number; resolve: (millis: number) => void }>();
  readonly #send: (message: Uint8Array<ArrayBuffer>) => void;
  readonly #close: () => void;
  #count = 0;

  constructor(send: (message: Uint8Array<ArrayBuffer>) => void, close: () => void) {
    this.#send = send;
    this.#close = close;
  }

  /** Resolves when `channel` is open; `closed` is called when it ends. Rejects with LinkError. */
  static over(channel: DatagramChannel, closed: () => void): Promise<EchoChannel> {
    return new Promise((resolve, reject) => {
      const made = new EchoChannel(
        (message) => channel.send(message),
        () => channel.close(),
      );
      const timer = setTimeout(() => {
        channel.close();
        closed();
        reject(
          new LinkError(
            'ETIMEDOUT',
            `open bare channel: no way to the peer was found within ${OPEN_MILLIS / 1000} s; ` +
              'check the network',
          ),
        );
      }, OPEN_MILLIS);
      channel.start({
        opened: () => {
          clearTimeout(timer);
          resolve(made);
        },
        message: (bytes) => made.receive(bytes),
        interrupted: () => {},
        closed: (reason) => {
          clearTimeout(timer);
          channel.close();
          closed();
          reject(new LinkError('ECONNRESET', `the bare channel: ${reason}`));
        },
      });
    });
  }

  /** Milliseconds of one message there and back; Infinity: it was not back after `limitMillis`. */
  trip(limitMillis: number): Promise<number> {
    return this.#ask(new Uint8Array(MESSAGE_BYTES), limitMillis);
  }

  /**
   * Sends `bytes` bytes (whole pieces) on a channel that keeps the order. Milliseconds until the
   * other side has acknowledged all of them; Infinity: it has not after `limitMillis`.
   */
  frame(bytes: number, limitMillis: number): Promise<number> {
    const piece = new Uint8Array(PIECE_BYTES);
    const start = performance.now();
    for (let sent = PIECE_BYTES; sent < bytes; sent += PIECE_BYTES) this.#send(piece);
    const posted = performance.now() - start;
    return this.#ask(piece, limitMillis).then((millis) => millis + posted);
  }

  #ask(message: Uint8Array<ArrayBuffer>, limitMillis: number): Promise<number> {
    if (this.#underWay.size >= UNDER_WAY_MAX) return Promise.resolve(Infinity);
    const number = ++this.#count;
    new DataView(message.buffer).setUint32(0, number);
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.#underWay.delete(number);
        resolve(Infinity);
      }, timerMillis(limitMillis));
      const back = (millis: number): void => {
        clearTimeout(timer);
        resolve(millis);
      };
      this.#underWay.set(number, { start: performance.now(), resolve: back });
      this.#send(message);
    });
  }

  /** Handler of a received message. */
  receive(bytes: Uint8Array): void {
    if (bytes.length !== MESSAGE_BYTES) return;
    const number = numberOf(bytes);
    const asked = this.#underWay.get(number);
    if (!asked) return;
    this.#underWay.delete(number);
    asked.resolve(performance.now() - asked.start);
  }

  close(): void {
    this.#close();
  }
}
