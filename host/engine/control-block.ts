/**
 * What the application's thread and the thread that runs the engine share besides the engine's own
 * memory: 64 bytes of it.
 * ```
 *  0      4          8       12       16     20
 *  | lock | sleeping | kicks | events | stop | reserved |
 * ```
 * The lock is held for the length of one call of an export: so control verbs run in the
 * application's thread, on the same state, between two calls of the other one.
 */
import type { EngineExports } from './load.js';
import type { EngineMemory } from './memory.js';

export const CONTROL_BLOCK_BYTES = 64;

type Export = (...numbers: number[]) => number | void;

const UNLOCKED = 0;
const LOCKED = 1;
/** Locked, and somebody sleeps until it is not. */
const CONTENDED = 2;
/** Looks at the lock before a thread goes to sleep over it. */
const SPINS = 200;

export class ControlBlock {
  readonly #words: Int32Array;
  readonly #lock: number;
  readonly #sleeping: number;
  readonly #kicks: number;
  readonly #events: number;
  readonly #stop: number;

  constructor(memory: EngineMemory, address: number) {
    this.#words = new Int32Array(memory.buffer);
    const at = address >> 2;
    this.#lock = at;
    this.#sleeping = at + 1;
    this.#kicks = at + 2;
    this.#events = at + 3;
    this.#stop = at + 4;
  }

  lock(): void {
    const words = this.#words;
    const at = this.#lock;
    for (let spin = 0; spin < SPINS; spin++) {
      if (Atomics.compareExchange(words, at, UNLOCKED, LOCKED) === UNLOCKED) return;
    }
    while (Atomics.exchange(words, at, CONTENDED) !== UNLOCKED) Atomics.wait(words, at, CONTENDED);
  }

  unlock(): void {
    const words = this.#words;
    if (Atomics.exchange(words, this.#lock, UNLOCKED) === CONTENDED) {
      Atomics.notify(words, this.#lock, 1);
    }
  }

  /** The same exports, each under the lock. */
  guard(exports: EngineExports): EngineExports {
    const calls = Object.entries(exports).filter(([, call]) => typeof call === 'function');
    const guarded = calls.map(([name, call]) => [name, this.#guardOne(call as Export)]);
    return Object.fromEntries(guarded) as EngineExports;
  }

  /** With as many parameters as it has: those of the run loop are called all the time. */
  #guardOne(call: Export): Export {
    switch (call.length) {
      case 1:
        return (a) => {
          this.lock();
          try {
            return call(a!);
          } finally {
            this.unlock();
          }
        };
      case 2:
        return (a, b) => {
          this.lock();
          try {
            return call(a!, b!);
          } finally {
            this.unlock();
          }
        };
      case 3:
        return (a, b, c) => {
          this.lock();
          try {
            return call(a!, b!, c!);
          } finally {
            this.unlock();
          }
        };
      default:
        return (...numbers) => {
          this.lock();
          try {
            return call(...numbers);
          } finally {
            this.unlock();
          }
        };
    }
  }

  /** The application has something for the other thread. True: that one sleeps: wake it. */
  kick(): boolean {
    Atomics.add(this.#words, this.#kicks, 1);
    return Atomics.exchange(this.#words, this.#sleeping, 0) === 1;
  }

  get kicks(): number {
    return Atomics.load(this.#words, this.#kicks);
  }

  /** False, and nobody sleeps, when somebody kicked since `kicks` was read. */
  fallAsleep(kicks: number): boolean {
    Atomics.store(this.#words, this.#sleeping, 1);
    if (this.kicks === kicks && !this.stopped) return true;
    this.awake();
    return false;
  }

  awake(): void {
    Atomics.store(this.#words, this.#sleeping, 0);
  }

  /** There are events: calls the application. */
  call(): void {
    if (Atomics.exchange(this.#words, this.#events, 1) === 0) {
      Atomics.notify(this.#words, this.#events);
    }
  }

  /** Resolves when `call` was called; at once when it was before. */
  async called(): Promise<void> {
    const waiting = Atomics.waitAsync(this.#words, this.#events, 0);
    if (waiting.async) await waiting.value;
    Atomics.store(this.#words, this.#events, 0);
  }

  stop(): void {
    Atomics.store(this.#words, this.#stop, 1);
  }

  get stopped(): boolean {
    return Atomics.load(this.#words, this.#stop) === 1;
  }
}
