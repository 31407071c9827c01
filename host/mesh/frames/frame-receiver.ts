/**
 * The receiving side of frames: places slices, restores single losses from parity, reports what is
 * missing, and delivers whole frames. Knows no queue pair: `report` sends a state to the sender.
 */
import { timerMillis } from '../../base/timer.js';
import {
  MASK_FRAMES,
  POLL,
  ahead,
  lengthOfSlice,
  paritiesOf,
  xorInto,
  type SliceHeader,
  type State,
} from './frame-wire.js';

/** A frame that is whole. */
export interface ReceivedFrame {
  /** Valid until the next frame is taken. */
  readonly bytes: Uint8Array;
  /** 32 bits of the sender's choice. */
  readonly immediate: number;
  /** Counts the frames of the sender from 0 on. */
  readonly number: number;
}

export interface ReceiverOptions {
  readonly sliceBytes: number;
  readonly bytesMax: number;
  /** Frames that may be in flight, and wait for the application. */
  readonly frames: number;
  readonly isLatest: boolean;
}

/** Counters of a receiver of frames. */
export interface ReceiverCounters {
  frames: number;
  /** Slices that parity restored. */
  restored: number;
  /** Slices that came twice, or for a frame that is over. */
  duplicates: number;
  /** Reports of missing slices. */
  reports: number;
  /** Frames that a later one replaced before they were complete, or read. */
  skipped: number;
}

/** A frame in the making. */
interface Incoming {
  readonly number: number;
  readonly header: SliceHeader;
  readonly buffer: Uint8Array;
  readonly has: Uint8Array;
  readonly parity: (Uint8Array | undefined)[];
  /** Slices with data that are missing. */
  missing: number;
  lastMillis: number;
  /** Before that, no further report. */
  quietMillis: number;
}

/** Slices of one frame come by several connections: a pause that long means a loss. */
const STRAGGLER_MILLIS_MIN = 6;
const STRAGGLER_MILLIS_MAX = 25;
const REPORT_MILLIS_MIN = 30;
/**
 * A slice that comes twice after a report was late and not lost: the pause grows, so that repair
 * does not add load to a path, or a process, that is slow already.
 */
const LATE_GROWTH = 1.25;
const LATE_DECAY = 0.98;
const LATE_MAX = 8;
/** Frames whose reports are remembered. */
const REPORTED_MAX = 64;

export class FrameReceiver {
  readonly counters: ReceiverCounters = {
    frames: 0,
    restored: 0,
    duplicates: 0,
    reports: 0,
    skipped: 0,
  };
  readonly #options: ReceiverOptions;
  readonly #report: (state: State) => void;
  readonly #deliver: () => void;
  readonly #incoming = new Map<number, Incoming>();
  /** Whole frames behind one that is not. */
  readonly #complete = new Map<number, ReceivedFrame>();
  /** Whole frames for the application, in order. */
  readonly #ready: ReceivedFrame[] = [];
  readonly #free: Uint8Array[] = [];
  /** All frames before it are over. */
  #done = 0;
  /** Frames that the application has taken, or that were skipped. */
  #taken = 0;
  #rtt = 0;
  /** Grows with each report that was not needed. */
  #lateness = 1;
  readonly #reported = new Set<number>();
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** `deliver` is called when a frame is ready for `take`. */
  constructor(options: ReceiverOptions, report: (state: State) => void, deliver: () => void) {
    this.#options = options;
    this.#report = report;
    this.#deliver = deliver;
  }

  /** The next whole frame. */
  take(): ReceivedFrame | undefined {
    const frame = this.#ready.shift();
    if (!frame) return undefined;
    if (this.#options.isLatest) return frame;
    // The sender may wait for this.
    const isLow = ahead(this.#done, this.#taken) >= this.#options.frames / 2;
    this.#taken = (frame.number + 1) >>> 0;
    if (isLow) this.#report(this.#state());
    return frame;
  }

  /** The application has no more use for these bytes. */
  release({ bytes }: ReceivedFrame): void {
    this.#recycle(new Uint8Array(bytes.buffer));
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#incoming.clear();
    this.#complete.clear();
  }

  /** `data` is valid during the call only. */
  receive(header: SliceHeader, data: Uint8Array): void {
    const { number, flags } = header;
    this.#rtt = header.rtt;
    const at = ahead(number, this.#done);
    const isOver = at < 0 || this.#complete.has(number);
    if (isOver || at >= this.#options.frames) {
      this.#duplicate(number);
      if (flags & POLL) this.#report(this.#state());
      return;
    }
    const frame = this.#incoming.get(number) ?? this.#open(header);
    frame.lastMillis = performance.now();
    this.#place(frame, header, data);
    if (frame.missing > 0) this.#restore(frame);
    if (frame.missing === 0) return this.#finish(frame);
    if (flags & POLL) this.#reportMissing(frame, frame.lastMillis);
    this.#arm();
  }

  #duplicate(number: number): void {
    this.counters.duplicates++;
    if (this.#reported.delete(number)) {
      this.#lateness = Math.min(LATE_GROWTH * this.#lateness, LATE_MAX);
    }
  }

  #open(header: SliceHeader): Incoming {
    const { total, group, number } = header;
    const frame: Incoming = {
      number,
      header,
      buffer: this.#free.pop() ?? this.#allocate(),
      has: new Uint8Array(total),
      parity: new Array<Uint8Array | undefined>(paritiesOf(total, group)).fill(undefined),
      missing: total,
      lastMillis: 0,
      quietMillis: 0,
    };
    this.#incoming.set(number, frame);
    return frame;
  }

  #allocate(): Uint8Array {
    const { bytesMax, sliceBytes } = this.#options;
    return new Uint8Array(Math.max(1, Math.ceil(bytesMax / sliceBytes)) * sliceBytes);
  }

  #recycle(buffer: Uint8Array): void {
    if (this.#free.length < this.#options.frames) this.#free.push(buffer);
  }

  #place(frame: Incoming, { index, total }: SliceHeader, data: Uint8Array): void {
    if (index >= frame.header.total) {
      frame.parity[index - total] ??= data.slice();
      return;
    }
    if (frame.has[index]) return this.#duplicate(frame.number);
    frame.has[index] = 1;
    frame.missing--;
    frame.buffer.set(data, index * this.#options.sliceBytes);
  }

  /** Each group with one missing slice and its parity. */
  #restore(frame: Incoming): void {
    const { parity, has, header, buffer } = frame;
    const { sliceBytes } = this.#options;
    const count = parity.length;
    // Parity serves for the last few: before, the slices themselves may be on their way.
    if (frame.missing > count) return;
    for (const [group, known] of parity.entries()) {
      if (!known) continue;
      let lost = -1;
      let losses = 0;
      for (let index = group; index < header.total; index += count) {
        if (has[index]) continue;
        lost = index;
        losses++;
      }
      if (losses !== 1) continue;
      const sum = known.slice();
      for (let index = group; index < header.total; index += count) {
        if (index === lost) continue;
        const length = lengthOfSlice({ ...header, index }, sliceBytes);
        xorInto(sum, buffer.subarray(index * sliceBytes, index * sliceBytes + length));
      }
      const length = lengthOfSlice({ ...header, index: lost }, sliceBytes);
      buffer.set(sum.subarray(0, length), lost * sliceBytes);
      has[lost] = 1;
      frame.missing--;
      this.counters.restored++;
    }
  }

  #finish(frame: Incoming): void {
    const { number, header, buffer } = frame;
    this.#incoming.delete(number);
    this.counters.frames++;
    this.#lateness = Math.max(1, LATE_DECAY * this.#lateness);
    const bytes = buffer.subarray(0, header.length);
    const whole = { bytes, immediate: header.immediate, number };
    if (this.#options.isLatest) this.#finishLatest(whole);
    else {
      this.#complete.set(number, whole);
      for (let next = this.#complete.get(this.#done); next; next = this.#complete.get(this.#done)) {
        this.#complete.delete(this.#done);
        this.#done = (this.#done + 1) >>> 0;
        this.#ready.push(next);
      }
    }
    this.#report(this.#state());
    if (this.#ready.length > 0) this.#deliver();
  }

  /** Frames before it are of no use. */
  #finishLatest(whole: ReceivedFrame): void {
    const end = (whole.number + 1) >>> 0;
    for (const [number, frame] of this.#incoming) {
      if (ahead(number, end) >= 0) continue;
      this.#incoming.delete(number);
      this.#recycle(frame.buffer);
      this.counters.skipped++;
    }
    for (const unread of this.#ready.splice(0)) {
      this.release(unread);
      this.counters.skipped++;
    }
    this.#done = end;
    this.#taken = end;
    this.#ready.push(whole);
  }

  #state(): State {
    let mask = 0;
    for (const number of this.#complete.keys()) {
      const at = ahead(number, this.#done);
      if (at < MASK_FRAMES) mask |= 1 << at;
    }
    const limit = (this.#taken + this.#options.frames) >>> 0;
    return { done: this.#done, limit, mask: mask >>> 0 };
  }

  get #stragglerMillis(): number {
    const millis = Math.min(Math.max(this.#rtt / 8, STRAGGLER_MILLIS_MIN), STRAGGLER_MILLIS_MAX);
    return millis * this.#lateness;
  }

  #arm(): void {
    this.#timer ??= setTimeout(
      () => {
        this.#timer = undefined;
        this.#check();
      },
      timerMillis(this.#stragglerMillis / 2),
    );
  }

  #check(): void {
    const now = performance.now();
    for (const frame of this.#incoming.values()) {
      const isQuiet = now - frame.lastMillis >= this.#stragglerMillis;
      if (isQuiet && now >= frame.quietMillis) this.#reportMissing(frame, now);
    }
    if (this.#incoming.size > 0) this.#arm();
  }

  #reportMissing(frame: Incoming, now: number): void {
    const { number, has } = frame;
    const slices = [...has.keys()].filter((index) => !has[index]);
    frame.quietMillis = now + Math.max(1.25 * this.#rtt, REPORT_MILLIS_MIN);
    this.counters.reports++;
    this.#reported.add(number);
    const [oldest] = this.#reported;
    if (this.#reported.size > REPORTED_MAX) this.#reported.delete(oldest!);
    this.#report({ ...this.#state(), missing: { number, slices } });
  }
}
