/**
 * The sending side of frames: cuts each one into slices with parity, sends all of them at once, and
 * repairs what the receiver reports as missing. Knows no queue pair: `post` sends packets that lie
 * in its memory.
 */
import { timerMillis } from '../../base/timer.js';
import { shrunkError } from '../../remote/request-queue.js';
import {
  MASK_FRAMES,
  POLL,
  SLICE_HEADER,
  ahead,
  lengthOfSlice,
  paritiesOf,
  writeSliceHeader,
  xorInto,
  type State,
} from './frame-wire.js';

/** Where packets lie, and how they are sent. */
export interface SenderPort {
  /** Staging memory: `frames` places of `placeBytes`, and one packet. */
  readonly memory: Uint8Array;
  readonly placeBytes: number;
  /** Sends packets, each `[offset, length]` in `memory`. Returns how many were posted in all. */
  post(packets: readonly (readonly [offset: number, length: number])[]): number;
  /** How many were sent: their memory may change. */
  readonly completed: number;
}

export interface SenderOptions {
  readonly packetBytes: number;
  /** Slices to one parity slice; 0: none. */
  readonly group: number;
  /** Frames in flight. */
  readonly frames: number;
  readonly isLatest: boolean;
  readonly giveUpMillis: number;
}

interface Waiting {
  readonly bytes: Uint8Array;
  /** Of `bytes`, which has none once its buffer is transferred. */
  readonly length: number;
  readonly immediate: number;
  readonly sinceMillis: number;
  readonly resolve: (isDelivered: boolean) => void;
  readonly reject: (error: Error) => void;
}

interface Outgoing extends Omit<Waiting, 'bytes' | 'sinceMillis'> {
  readonly number: number;
  readonly place: number;
  readonly total: number;
  readonly count: number;
  readonly sentMillis: number;
  /** A round trip that includes a repair measures nothing. */
  isRepaired: boolean;
  /** When each slice was sent last. */
  readonly sliceMillis: Float64Array;
  timeoutMillis: number;
  dueMillis: number;
  /** Number of completed packets at which its own are sent. */
  posted: number;
}

/** Counters of a sender of frames. */
export interface SenderCounters {
  frames: number;
  packets: number;
  /** Slices that were sent again. */
  repaired: number;
  /** Timeouts without a state of the receiver. */
  timeouts: number;
  /** Frames that were replaced by a later one, or given up. */
  dropped: number;
}

const RTT_INITIAL_MILLIS = 200;
const TIMEOUT_MILLIS_MIN = 60;
const TIMEOUT_MILLIS_MAX = 2000;
/** The receiver waits for stragglers, and its process may be busy. */
const SLACK_MILLIS = 30;
/** Of the timeout, while round trips cannot be measured (RFC 6298 5.5, Karn). */
const BACKOFF_MAX = 8;
/** A slice is sent again only when the report can be about its last sending. */
const RTT_PART = 0.8;

export class FrameSender {
  readonly counters: SenderCounters = {
    frames: 0,
    packets: 0,
    repaired: 0,
    timeouts: 0,
    dropped: 0,
  };
  readonly #port: SenderPort;
  readonly #options: SenderOptions;
  readonly #view: DataView;
  readonly #waiting: Waiting[] = [];
  readonly #outgoing = new Map<number, Outgoing>();
  readonly #free: number[];
  /** Frames that are over, with packets that wait to be sent. */
  #leaving: Outgoing[] = [];
  /** Of the next frame. */
  #next = 0;
  /** The receiver takes frames before it. */
  #limit: number;
  #rtt = RTT_INITIAL_MILLIS;
  #deviation = RTT_INITIAL_MILLIS / 4;
  #isMeasured = false;
  #backoff = 1;
  /** When the last state of the receiver came. */
  #heardMillis = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #error: Error | undefined;
  readonly #lost: (error: Error) => void;
  readonly #silent: () => Error;

  /** `lost` is called when the receiver is silent for `giveUpMillis`, with `silent()`. */
  constructor(
    port: SenderPort,
    options: SenderOptions,
    silent: () => Error,
    lost: (error: Error) => void,
  ) {
    const { memory } = port;
    this.#port = port;
    this.#options = options;
    this.#view = new DataView(memory.buffer, memory.byteOffset, memory.length);
    this.#free = [...Array(options.frames).keys()];
    this.#limit = options.frames;
    this.#silent = silent;
    this.#lost = lost;
  }

  /** Smoothed round-trip time in milliseconds; undefined before the first acknowledgement. */
  get rttMillis(): number | undefined {
    return this.#isMeasured ? this.#rtt : undefined;
  }

  /** Resolves when the receiver has the frame; with false if a later one took its place. */
  send(bytes: Uint8Array, immediate: number): Promise<boolean> {
    return new Promise((resolve, reject) => {
      if (this.#error) return reject(this.#error);
      if (this.#options.isLatest) {
        for (const { resolve: drop } of this.#waiting.splice(0)) {
          this.counters.dropped++;
          drop(false);
        }
      }
      const { length } = bytes;
      const sinceMillis = performance.now();
      this.#waiting.push({ bytes, length, immediate, sinceMillis, resolve, reject });
      this.#pump();
    });
  }

  close(error: Error): void {
    if (this.#error) return;
    this.#error = error;
    clearTimeout(this.#timer);
    for (const { reject } of this.#waiting.splice(0)) reject(error);
    for (const { reject } of this.#outgoing.values()) reject(error);
    this.#outgoing.clear();
  }

  /** A report of the receiver. */
  receive({ done, limit, mask, missing }: State): void {
    if (this.#error) return;
    // It cannot have frames that were not sent.
    if (ahead(done, this.#next) > 0) return;
    const now = (this.#heardMillis = performance.now());
    if (ahead(limit, this.#limit) > 0 && ahead(limit, this.#next) <= 2 * MASK_FRAMES) {
      this.#limit = limit;
    }
    for (const frame of [...this.#outgoing.values()]) {
      const at = ahead(frame.number, done);
      if (at < 0 || (at < MASK_FRAMES && (mask >>> at) & 1)) this.#delivered(frame, now);
    }
    if (missing) this.#repair(missing.number, missing.slices, now);
    this.#pump();
  }

  /** Packets were sent. */
  sent(): void {
    if (this.#leaving.length > 0) this.#pump();
  }

  #delivered(frame: Outgoing, now: number): void {
    this.#outgoing.delete(frame.number);
    this.#leaving.push(frame);
    frame.resolve(true);
    if (frame.isRepaired) return;
    this.#backoff = 1;
    const sample = now - frame.sentMillis;
    if (this.#isMeasured) {
      this.#deviation += (Math.abs(sample - this.#rtt) - this.#deviation) / 4;
      this.#rtt += (sample - this.#rtt) / 8;
    } else {
      this.#rtt = sample;
      this.#deviation = sample / 4;
      this.#isMeasured = true;
    }
  }

  #pump(): void {
    const { completed } = this.#port;
    this.#leaving = this.#leaving.filter(({ posted, place }) => {
      if (posted > completed) return true;
      this.#free.push(place);
      return false;
    });
    while (
      this.#waiting.length > 0 &&
      this.#free.length > 0 &&
      ahead(this.#next, this.#limit) < 0
    ) {
      this.#start(this.#waiting.shift()!);
    }
    this.#arm();
  }

  /** The receiver takes no frame, and nothing in flight will tell when it does. */
  get #isBlocked(): boolean {
    const isFull = ahead(this.#next, this.#limit) >= 0;
    return this.#waiting.length > 0 && this.#outgoing.size === 0 && isFull;
  }

  #start({ bytes, length, immediate, resolve, reject }: Waiting): void {
    if (bytes.length < length) return reject(shrunkError({ name: 'frames.send' }));
    const { packetBytes, group } = this.#options;
    const sliceBytes = packetBytes - SLICE_HEADER;
    const place = this.#free.pop()!;
    const number = this.#next;
    this.#next = (number + 1) >>> 0;
    const total = Math.max(1, Math.ceil(length / sliceBytes));
    const count = total + paritiesOf(total, group);
    const { memory, placeBytes } = this.#port;
    const start = place * placeBytes;
    const rtt = Math.round(this.#rtt);
    for (let index = 0; index < count; index++) {
      const at = start + index * packetBytes;
      const header = { flags: 0, index, number, length, immediate, total, group, rtt };
      writeSliceHeader(this.#view, at, header);
      const data = memory.subarray(at + SLICE_HEADER, at + packetBytes);
      if (index >= total) data.fill(0);
      else data.set(bytes.subarray(index * sliceBytes, (index + 1) * sliceBytes));
    }
    const now = performance.now();
    const frame: Outgoing = {
      number,
      place,
      total,
      count,
      length,
      immediate,
      resolve,
      reject,
      sentMillis: now,
      isRepaired: false,
      sliceMillis: new Float64Array(count).fill(now),
      timeoutMillis: this.#timeout(),
      dueMillis: 0,
      posted: 0,
    };
    frame.dueMillis = now + frame.timeoutMillis;
    this.#addParity(frame);
    this.#outgoing.set(number, frame);
    this.counters.frames++;
    this.#post(frame, [...Array(count).keys()]);
  }

  #addParity({ place, total, count, length }: Outgoing): void {
    const { packetBytes } = this.#options;
    const { memory, placeBytes } = this.#port;
    const parities = count - total;
    const dataOf = (index: number): Uint8Array => {
      const at = place * placeBytes + index * packetBytes + SLICE_HEADER;
      const bytes = lengthOfSlice({ index, length, total }, packetBytes - SLICE_HEADER);
      return memory.subarray(at, at + bytes);
    };
    if (parities === 0) return;
    for (let index = 0; index < total; index++) {
      xorInto(dataOf(total + (index % parities)), dataOf(index));
    }
  }

  #timeout(): number {
    const millis = (1.5 * this.#rtt + 4 * this.#deviation + SLACK_MILLIS) * this.#backoff;
    return Math.min(Math.max(millis, TIMEOUT_MILLIS_MIN), TIMEOUT_MILLIS_MAX);
  }

  #post(frame: Outgoing, indexes: readonly number[]): void {
    const { place, total, length } = frame;
    const { packetBytes } = this.#options;
    const start = place * this.#port.placeBytes;
    this.counters.packets += indexes.length;
    frame.posted = this.#port.post(
      indexes.map((index) => {
        const data = lengthOfSlice({ index, length, total }, packetBytes - SLICE_HEADER);
        return [start + index * packetBytes, SLICE_HEADER + data] as const;
      }),
    );
  }

  #repair(number: number, slices: readonly number[], now: number): void {
    const frame = this.#outgoing.get(number);
    if (!frame) return;
    frame.isRepaired = true;
    const oldest = now - RTT_PART * this.#rtt * this.#backoff;
    const due = slices.filter(
      (index) => index < frame.total && frame.sliceMillis[index]! <= oldest,
    );
    frame.dueMillis = now + this.#timeout();
    if (due.length === 0) return;
    for (const index of due) frame.sliceMillis[index] = now;
    this.counters.repaired += due.length;
    this.#post(frame, due);
  }

  #arm(): void {
    if (this.#timer || this.#error) return;
    let due = Infinity;
    for (const { dueMillis } of this.#outgoing.values()) due = Math.min(due, dueMillis);
    if (due === Infinity && !this.#isBlocked) return;
    const wait = due === Infinity ? this.#timeout() : due - performance.now();
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined;
        this.#check();
      },
      timerMillis(Math.max(wait, 1)),
    );
  }

  /** Frames without a report, and a receiver that has taken no frame for a while. */
  #check(): void {
    const now = performance.now();
    const { giveUpMillis } = this.#options;
    for (const frame of this.#outgoing.values()) {
      if (now < frame.dueMillis) continue;
      const sinceMillis = Math.max(this.#heardMillis, frame.sentMillis);
      if (now - sinceMillis > giveUpMillis) return this.#lost(this.#silent());
      frame.isRepaired = true;
      frame.timeoutMillis = Math.min(2 * frame.timeoutMillis, TIMEOUT_MILLIS_MAX);
      frame.dueMillis = now + frame.timeoutMillis;
      this.counters.timeouts++;
      this.#backoff = Math.min(2 * this.#backoff, BACKOFF_MAX);
      this.#poll(frame);
    }
    if (this.#isBlocked) {
      const sinceMillis = Math.max(this.#heardMillis, this.#waiting[0]!.sinceMillis);
      if (now - sinceMillis > giveUpMillis) return this.#lost(this.#silent());
      this.#pollLimit();
    }
    this.#arm();
  }

  /** An empty slice of a frame that is over: the answer is the receiver's state. */
  #pollLimit(): void {
    const { memory } = this.#port;
    const at = memory.length - SLICE_HEADER;
    const number = (this.#next - 1) >>> 0;
    const empty = { flags: POLL, index: 0, number, length: 0, immediate: 0, total: 1, group: 0 };
    writeSliceHeader(this.#view, at, { ...empty, rtt: Math.round(this.#rtt) });
    this.#port.post([[at, SLICE_HEADER]]);
  }

  /** The first slice, which the receiver answers with its state. */
  #poll(frame: Outgoing): void {
    const at = frame.place * this.#port.placeBytes;
    this.#view.setUint8(at + 1, POLL);
    frame.sliceMillis[0] = performance.now();
    this.#post(frame, [0]);
  }
}
