/** A channel without verbs on which messages go to and fro: what ours are compared with. */
import { timerMillis } from '../base/timer.js';
import { LinkError } from '../errors/errors.js';
import type { DatagramChannel } from '../link/channel/datagram-channel.js';

const MESSAGE_BYTES = 64;
/** Longer messages are not echoes of this side. */
const ECHO_BYTES_MAX = 4096;
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
      if (isRead && bytes.length <= ECHO_BYTES_MAX) channel.send(bytes);
    },
    interrupted: () => {},
    closed: end,
  });
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
        reject(new LinkError('ETIMEDOUT', 'no way to the peer was found for a bare channel'));
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
    const message = new Uint8Array(MESSAGE_BYTES);
    const number = ++this.#count;
    new DataView(message.buffer).setUint32(0, number);
    if (this.#underWay.size >= UNDER_WAY_MAX) return Promise.resolve(Infinity);
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

  /** What came. */
  receive(bytes: Uint8Array): void {
    if (bytes.length !== MESSAGE_BYTES) return;
    const number = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0);
    const asked = this.#underWay.get(number);
    if (!asked) return;
    this.#underWay.delete(number);
    asked.resolve(performance.now() - asked.start);
  }

  close(): void {
    this.#close();
  }
}
