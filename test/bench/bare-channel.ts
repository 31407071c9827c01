/**
 * A data channel by itself, with a window of its own: the yardstick of links over channels. Runs in
 * Node and, fetched as it is built, in a browser's Worker: it imports nothing.
 *
 * A message begins with what it is: data, data that asks how much came, the answer, a ping, a pong.
 */
import type { DatagramChannel } from '../../host/link/channel/datagram-channel.js';

const DATA = 1;
const ASKING = 2;
const SEEN = 3;
const PING = 4;
const PONG = 5;
/** Nothing seen for so long: what is under way is lost. */
const LIMIT_MILLIS = 50;

export interface FloodResult {
  /** Messages that the other side has seen. */
  readonly messages: number;
  readonly seconds: number;
}

export class BareChannel {
  /** Resolved when messages travel. */
  readonly open: Promise<void>;
  readonly #channel: DatagramChannel;
  #received = 0;
  #seen = 0;
  #woken: (() => void) | undefined;

  constructor(channel: DatagramChannel) {
    this.#channel = channel;
    this.open = new Promise((resolve) => {
      channel.start({
        opened: resolve,
        message: (bytes) => this.#message(bytes),
        interrupted: () => {},
        closed: () => {},
      });
    });
  }

  /** Sends messages for so long, with at most `windowBytes` under way. */
  async flood(bytes: number, windowBytes: number, millis: number): Promise<FloodResult> {
    const message = new Uint8Array(bytes);
    const window = Math.floor(windowBytes / bytes);
    const start = performance.now();
    const before = this.#seen;
    let sent = this.#seen;
    let lost = 0;
    while (performance.now() - start < millis) {
      while (sent - lost - this.#seen < window) {
        // As often as a link asks: four times a window, and where it closes.
        message[0] =
          sent % (window >> 2) === 0 || sent + 1 - lost - this.#seen >= window ? ASKING : DATA;
        this.#channel.send(message);
        sent++;
      }
      if (!(await this.#change())) lost = sent - this.#seen;
    }
    const seconds = (performance.now() - start) / 1000;
    return { messages: this.#seen - before, seconds };
  }

  /** Round trips one after the other, in milliseconds, unsorted; a lost one counts `limitMillis`. */
  async ping(bytes: number, count: number, limitMillis: number): Promise<number[]> {
    const message = new Uint8Array(bytes);
    message[0] = PING;
    const trips: number[] = [];
    for (let index = 0; index < count; index++) {
      const start = performance.now();
      this.#channel.send(message);
      await this.#change(limitMillis);
      trips.push(performance.now() - start);
    }
    return trips;
  }

  /** True: the other side said something; false: not in time. */
  #change(limitMillis = LIMIT_MILLIS): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), limitMillis);
      this.#woken = () => {
        clearTimeout(timer);
        resolve(true);
      };
    });
  }

  #message(bytes: Uint8Array): void {
    switch (bytes[0]) {
      case DATA:
        this.#received++;
        return;
      case ASKING: {
        this.#received++;
        const answer = new Uint8Array(5);
        answer[0] = SEEN;
        new DataView(answer.buffer).setUint32(1, this.#received);
        this.#channel.send(answer);
        return;
      }
      case SEEN: {
        const view = new DataView(bytes.buffer, bytes.byteOffset);
        this.#seen = Math.max(this.#seen, view.getUint32(1));
        break;
      }
      case PING: {
        const answer = bytes.slice();
        answer[0] = PONG;
        this.#channel.send(answer);
        return;
      }
    }
    this.#woken?.();
    this.#woken = undefined;
  }
}
