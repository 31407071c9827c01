/**
 * The event loops of simulated processes. Each continuation of a promise, microtask, turn, timer,
 * arrival and action is a step, and the seed selects the next step. The guarantees of Node hold:
 * continuations of one process run in the order in which they became ready, and its turns and
 * timers wait until none is left. Arrivals and actions may occur between any two of them, as other
 * packets of the same read and other continuations of the application do.
 */
import type { Random } from '../random.js';
import { Violation } from '../violation.js';

type Task = () => void;

interface Timer {
  readonly at: number;
  readonly order: number;
  readonly process: Turns;
  readonly task: Task;
  /** An arrival or an action: may occur between two continuations. */
  readonly between: boolean;
}

/** Virtual time, and the choice of the next step. */
export class Schedule {
  /** Microseconds. */
  now = 1_000_000;
  steps = 0;
  hash = 0;
  readonly random: Random;
  /** Probability that a ready continuation is the next step; 1: always, as in Node. */
  readonly #eager: number;
  readonly #processes: Turns[] = [];
  #timers: Timer[] = [];
  #order = 0;

  constructor(random: Random, eager: number) {
    this.random = random;
    this.#eager = eager;
  }

  add(process: Turns): void {
    this.#processes.push(process);
  }

  at(micros: number, process: Turns, task: Task, between: boolean): () => void {
    const timer = { at: micros, order: this.#order++, process, task, between };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  /** Number of pending timers of a process. */
  timersOf(process: Turns): number {
    return this.#timers.filter((timer) => timer.process === process && !timer.between).length;
  }

  /** Runs until `done`, or nothing is left. Throws a Violation after `micros`. */
  run(done: () => boolean, micros: number): void {
    const end = this.now + micros;
    const last = this.steps + STEPS_MAX;
    while (!done()) {
      if (this.now > end) throw new Violation(`no end in ${micros / 1e6} s of virtual time`);
      if (this.steps > last) throw new Violation(`no end in ${STEPS_MAX} steps`);
      if (!this.#step()) return;
    }
  }

  /** Runs the next step. False: no step is left. */
  #step(): boolean {
    this.#timers = this.#timers.filter(({ process }) => process.alive);
    const busy = this.#processes.filter((process) => process.alive && process.ready > 0);
    const due = this.#timers.filter((timer) => {
      return timer.at <= this.now && (timer.between || timer.process.ready === 0);
    });
    const continues = busy.length > 0 && (due.length === 0 || this.random.chance(this.#eager));
    if (continues) {
      const process = this.random.pick(busy);
      this.#note(this.#processes.indexOf(process));
      process.continue();
      return true;
    }
    if (due.length > 0) {
      this.#fire(this.random.pick(due));
      return true;
    }
    if (this.#timers.length === 0) return false;
    this.now = Math.max(this.now, Math.min(...this.#timers.map(({ at }) => at)));
    return true;
  }

  #fire(timer: Timer): void {
    this.#timers = this.#timers.filter((other) => other !== timer);
    this.#note(64 + this.#processes.indexOf(timer.process));
    timer.task();
    timer.process.settled();
  }

  #note(what: number): void {
    this.steps++;
    this.hash = Math.imul(this.hash ^ what ^ Math.floor(this.now), 0x9e3779b1);
  }
}

/** Limit of steps of one run: more indicate a loop. */
const STEPS_MAX = 200_000;

type State = 'PENDING' | 'FULFILLED' | 'REJECTED';
type Reaction = (state: State, value: unknown) => void;

/** The continuations of one process, and the globals that replace those of the event loop. */
export class Turns {
  alive = true;
  readonly name: string;
  readonly schedule: Schedule;
  readonly #tasks: Task[] = [];
  readonly #ends: (() => void)[] = [];
  /** Rejected promises without a handler. */
  readonly #unhandled = new Map<object, unknown>();
  readonly globals: Readonly<Record<string, unknown>>;

  constructor(schedule: Schedule, name: string) {
    this.schedule = schedule;
    this.name = name;
    schedule.add(this);
    this.globals = this.#makeGlobals();
  }

  /** To be called when the process is killed. */
  onKill(end: () => void): void {
    this.#ends.push(end);
  }

  /** Stops the process: none of its code runs any more. */
  kill(): void {
    this.alive = false;
    this.#tasks.length = 0;
    for (const end of this.#ends.splice(0)) end();
  }

  /** Number of ready continuations. */
  get ready(): number {
    return this.#tasks.length;
  }

  /** Runs the oldest continuation. */
  continue(): void {
    this.#tasks.shift()!();
    this.settled();
  }

  /** Called between two turns: Node ends a process that has an unhandled rejection. */
  settled(): void {
    if (this.#tasks.length > 0 || !this.alive) return;
    for (const reason of this.#unhandled.values()) {
      const text = reason instanceof Error ? (reason.stack ?? reason.message) : String(reason);
      throw new Violation(`${this.name}: an unhandled rejection: ${text}`);
    }
  }

  #makeGlobals(): Record<string, unknown> {
    const { schedule } = this;
    const enqueue = (task: Task): void => void this.#tasks.push(task);
    const after = (millis: number, task: Task): { cancel: () => void } => {
      return { cancel: schedule.at(schedule.now + millis * 1000, this, task, false) };
    };
    const timeout = (task: (...args: unknown[]) => void, millis = 1, ...args: unknown[]) => {
      const timer = after(Math.max(1, millis), () => task(...args));
      return handle(timer);
    };
    const interval = (task: (...args: unknown[]) => void, millis = 1, ...args: unknown[]) => {
      const timer = { cancel: () => {} };
      const again = (): void => {
        timer.cancel = after(Math.max(1, millis), () => {
          again();
          task(...args);
        }).cancel;
      };
      again();
      return handle(timer);
    };
    const handle = (timer: { cancel: () => void }) => ({
      ref: () => timer,
      unref: () => timer,
      cancel: () => timer.cancel(),
    });
    const clear = (timer?: { cancel: () => void }): void => timer?.cancel();
    return {
      Promise: makePromise(enqueue, this.#unhandled),
      queueMicrotask: enqueue,
      setTimeout: timeout,
      setInterval: interval,
      setImmediate: (task: (...args: unknown[]) => void, ...args: unknown[]) => {
        return handle(after(0, () => task(...args)));
      },
      clearTimeout: clear,
      clearInterval: clear,
      clearImmediate: clear,
    };
  }
}

/** Promises with continuations in the queue of their process. */
function makePromise(enqueue: (task: Task) => void, unhandled: Map<object, unknown>): unknown {
  class StepPromise {
    #state: State = 'PENDING';
    #value: unknown;
    #isResolved = false;
    #reactions: Reaction[] = [];
    #isHandled = false;

    constructor(run: (resolve: (value?: unknown) => void, reject: (why: unknown) => void) => void) {
      const reject = (reason: unknown): void => {
        if (this.#isResolved) return;
        this.#isResolved = true;
        this.#settle('REJECTED', reason);
      };
      try {
        run((value) => this.#resolve(value), reject);
      } catch (error) {
        reject(error);
      }
    }

    then(fulfilled?: unknown, rejected?: unknown): StepPromise {
      this.#isHandled = true;
      unhandled.delete(this);
      return new StepPromise((resolve, reject) => {
        const react: Reaction = (state, value) => {
          enqueue(() => {
            const handler = state === 'FULFILLED' ? fulfilled : rejected;
            if (typeof handler !== 'function') {
              if (state === 'FULFILLED') resolve(value);
              else reject(value);
              return;
            }
            try {
              resolve((handler as (value: unknown) => unknown)(value));
            } catch (error) {
              reject(error);
            }
          });
        };
        if (this.#state === 'PENDING') this.#reactions.push(react);
        else react(this.#state, this.#value);
      });
    }

    catch(rejected: unknown): StepPromise {
      return this.then(undefined, rejected);
    }

    finally(end: () => unknown): StepPromise {
      const after = (): StepPromise => StepPromise.resolve(end());
      return this.then(
        (value: unknown) => after().then(() => value),
        (reason: unknown) => after().then(() => StepPromise.reject(reason)),
      );
    }

    static resolve(value?: unknown): StepPromise {
      return value instanceof StepPromise ? value : new StepPromise((resolve) => resolve(value));
    }

    static reject(reason: unknown): StepPromise {
      return new StepPromise((_, reject) => reject(reason));
    }

    static all(values: Iterable<unknown>): StepPromise {
      return StepPromise.#gather(values, (one) => one);
    }

    static allSettled(values: Iterable<unknown>): StepPromise {
      return StepPromise.#gather(values, (one) =>
        one.then(
          (value: unknown) => ({ status: 'fulfilled', value }),
          (reason: unknown) => ({ status: 'rejected', reason }),
        ),
      );
    }

    static race(values: Iterable<unknown>): StepPromise {
      return new StepPromise((resolve, reject) => {
        for (const value of values) StepPromise.resolve(value).then(resolve, reject);
      });
    }

    static withResolvers(): unknown {
      let resolve: unknown;
      let reject: unknown;
      const promise = new StepPromise((one, other) => {
        resolve = one;
        reject = other;
      });
      return { promise, resolve, reject };
    }

    static #gather(values: Iterable<unknown>, map: (one: StepPromise) => StepPromise): StepPromise {
      return new StepPromise((resolve, reject) => {
        const all = [...values].map((value) => map(StepPromise.resolve(value)));
        const results: unknown[] = [];
        let left = all.length;
        if (left === 0) resolve(results);
        all.forEach((one, index) => {
          one.then((value: unknown) => {
            results[index] = value;
            if (--left === 0) resolve(results);
          }, reject);
        });
      });
    }

    #resolve(value: unknown): void {
      if (this.#isResolved) return;
      this.#isResolved = true;
      const then = (value as { then?: unknown } | null | undefined)?.then;
      if (typeof then !== 'function') return this.#settle('FULFILLED', value);
      const adopt = then as (resolve: unknown, reject: unknown) => void;
      enqueue(() => {
        adopt.call(
          value,
          (one: unknown) => this.#adopt(one),
          (reason: unknown) => this.#settle('REJECTED', reason),
        );
      });
    }

    #adopt(value: unknown): void {
      this.#isResolved = false;
      this.#resolve(value);
    }

    #settle(state: State, value: unknown): void {
      this.#state = state;
      this.#value = value;
      if (state === 'REJECTED' && !this.#isHandled) unhandled.set(this, value);
      for (const react of this.#reactions.splice(0)) react(state, value);
    }
  }
  return StepPromise;
}
