/**
 * The future: a heap of events, and the clocks of devices on top. Packets, timers and
 * everything that a scenario plans are in this one queue; there is no other time.
 */
import type { CancelTimer, Clock } from '../../host/device/clock.js';

/** Kind of an event; the meaning of its argument depends on it. */
export const EventKind = {
  /** A task of the world; the argument is its number. */
  TASK: 0,
  /** A packet arrives; the argument is its slot. */
  PACKET: 1,
  /** A device's clock may have a timer due; the argument is the clock's index. */
  TIMER: 2,
  /** A device's application has its turn; the argument is the device's index. */
  APPLICATION: 3,
  /** A device looks for messages of other contexts; the argument is the device's index. */
  MESSAGES: 4,
} as const;

const START_CAPACITY = 1024;

/** Events by time; those of the same time in the order they were put in. */
export class EventQueue {
  /** Microseconds. */
  now: number;
  /** Events taken out so far. */
  taken = 0;
  #size = 0;
  #order = 0;
  #times = new Float64Array(START_CAPACITY);
  #orders = new Float64Array(START_CAPACITY);
  #kinds = new Int32Array(START_CAPACITY);
  #arguments = new Int32Array(START_CAPACITY);
  /** Kind of the event that `take` took last. */
  kind = 0;
  argument = 0;
  readonly #tasks = new Map<number, () => void | Promise<void>>();
  #taskCount = 0;

  constructor(startMicros: number) {
    this.now = startMicros;
  }

  get size(): number {
    return this.#size;
  }

  put(micros: number, kind: number, argument: number): void {
    if (this.#size === this.#times.length) this.#grow();
    const time = micros < this.now ? this.now : micros;
    const order = this.#order++;
    let at = this.#size++;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      // An event put in later never passes one of the same time.
      if (this.#times[parent]! <= time) break;
      this.#move(parent, at);
      at = parent;
    }
    this.#store(at, time, order, kind, argument);
  }

  /** Runs `task` in its time. */
  plan(micros: number, task: () => void | Promise<void>): void {
    const number = this.#taskCount++;
    this.#tasks.set(number, task);
    this.put(micros, EventKind.TASK, number);
  }

  /** The task of a TASK event, once. */
  task(argument: number): () => void | Promise<void> {
    const task = this.#tasks.get(argument)!;
    this.#tasks.delete(argument);
    return task;
  }

  /** Is the next event this one, now? */
  nextIs(kind: number): boolean {
    return this.#size > 0 && this.#times[0] === this.now && this.#kinds[0] === kind;
  }

  /** Argument of the next event. */
  get nextArgument(): number {
    return this.#arguments[0]!;
  }

  /** Takes the next event out: sets `kind`, `argument` and `now`. False: the queue is empty. */
  take(): boolean {
    if (this.#size === 0) return false;
    this.now = this.#times[0]!;
    this.kind = this.#kinds[0]!;
    this.argument = this.#arguments[0]!;
    this.taken++;
    const last = --this.#size;
    if (last > 0) this.#sink(last);
    return true;
  }

  /** Puts what lies at index `last` to its place, from the root down. */
  #sink(last: number): void {
    const time = this.#times[last]!;
    const order = this.#orders[last]!;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= last) break;
      if (child + 1 < last && this.#earlier(child + 1, child)) child++;
      const childTime = this.#times[child]!;
      if (time < childTime || (time === childTime && order < this.#orders[child]!)) break;
      this.#move(child, at);
      at = child;
    }
    this.#store(at, time, order, this.#kinds[last]!, this.#arguments[last]!);
  }

  #earlier(one: number, other: number): boolean {
    const difference = this.#times[one]! - this.#times[other]!;
    return difference < 0 || (difference === 0 && this.#orders[one]! < this.#orders[other]!);
  }

  #move(from: number, to: number): void {
    this.#times[to] = this.#times[from]!;
    this.#orders[to] = this.#orders[from]!;
    this.#kinds[to] = this.#kinds[from]!;
    this.#arguments[to] = this.#arguments[from]!;
  }

  #store(at: number, time: number, order: number, kind: number, argument: number): void {
    this.#times[at] = time;
    this.#orders[at] = order;
    this.#kinds[at] = kind;
    this.#arguments[at] = argument;
  }

  #grow(): void {
    const grown = <A extends Float64Array | Int32Array>(old: A, fresh: A): A => {
      fresh.set(old);
      return fresh;
    };
    const length = this.#times.length * 2;
    this.#times = grown(this.#times, new Float64Array(length));
    this.#orders = grown(this.#orders, new Float64Array(length));
    this.#kinds = grown(this.#kinds, new Int32Array(length));
    this.#arguments = grown(this.#arguments, new Int32Array(length));
  }
}

/**
 * The clock of one device. A device has one timer at a time, and another one that may be late; it
 * moves them with every packet. So a queued event is left where it lies when a timer moves on, and
 * put back when it comes up.
 */
export class DeviceClock implements Clock {
  readonly #queue: EventQueue;
  readonly #index: number;
  /** How far this clock has leapt ahead of the world's. */
  #ahead = 0;
  /** Timers: the exact one, and the one that may be late. */
  readonly #timers: [Alarm?, Alarm?] = [];
  /** World time of the earliest event that is queued for it; Infinity: none. */
  #queuedAt = Infinity;

  constructor(queue: EventQueue, index: number) {
    this.#queue = queue;
    this.#index = index;
  }

  now(): number {
    return Math.floor(this.#queue.now) + this.#ahead;
  }

  at(micros: number, fire: () => void, mayBeLate = false): CancelTimer {
    const place = mayBeLate ? 1 : 0;
    if (this.#timers[place]) throw new Error('a device has one timer of a kind');
    const alarm = { micros, fire };
    this.#timers[place] = alarm;
    this.#enqueue();
    return () => {
      if (this.#timers[place] === alarm) this.#timers[place] = undefined;
    };
  }

  /** Leaps ahead: whatever is due by then fires next. */
  leap(micros: number): void {
    this.#ahead += micros;
    this.#enqueue();
  }

  /** A queued event has come up. True when a timer fired. */
  due(): boolean {
    if (this.#queue.now >= this.#queuedAt) this.#queuedAt = Infinity;
    const first = this.#first();
    if (first < 0) return false;
    const { micros, fire } = this.#timers[first]!;
    const fires = this.now() >= micros;
    if (fires) this.#timers[first] = undefined;
    this.#enqueue();
    if (fires) fire();
    return fires;
  }

  /** The slot of the timer that is due first; -1: no timer is armed. */
  #first(): number {
    const [exact, patient] = this.#timers;
    if (!exact) return patient ? 1 : -1;
    return patient && patient.micros < exact.micros ? 1 : 0;
  }

  #enqueue(): void {
    const first = this.#first();
    if (first < 0) return;
    const micros = this.#timers[first]!.micros - this.#ahead;
    if (micros >= this.#queuedAt) return;
    this.#queuedAt = micros;
    this.#queue.put(micros, EventKind.TIMER, this.#index);
  }
}

interface Alarm {
  readonly micros: number;
  readonly fire: () => void;
}
