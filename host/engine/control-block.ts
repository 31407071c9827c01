/**
 * State that the application's thread and the engine's thread share besides the engine's memory:
 * 64 bytes.
 * ```
 *  0      4          8       12       16     20     24      28    32        36        40      44
 *  | lock | sleeping | kicks | events | stop | turn | until | led | touched | waiters | peers |
 *  44         48      52        56       60
 *  | filtered | turns | pollers | strays | groups |
 * ```
 * The lock is held for the length of one call of an export: so control verbs run in the
 * application's thread, on the same state, between two calls of the other one.
 *
 * The turn is held by the thread that moves packets; a second thread leaves the work to the holder.
 * Times are the low 32 bits of microseconds, never 0.
 */
import type { EngineExports } from './load.js';
import type { EngineMemory } from './memory.js';

export const CONTROL_BLOCK_BYTES = 64;
/** Offsets of what another process that posts has to know (host/bridge). */
export const CONTROL_LOCK = 0;
export const CONTROL_SLEEPING = 4;
export const CONTROL_KICKS = 8;
export const CONTROL_EVENTS = 12;
export const CONTROL_STOP = 16;
export const CONTROL_TURN = 20;
export const CONTROL_UNTIL = 24;
export const CONTROL_LED = 28;
export const CONTROL_TOUCHED = 32;
export const CONTROL_WAITERS = 36;
export const CONTROL_STRAYS = 56;
/** A native thread has found packets of groups, which the application's thread receives. */
export const CONTROL_GROUPS = 60;
export const CONTROL_TURNS = 48;
export const CONTROL_POLLERS = 52;

type Export = (...numbers: number[]) => number | void;

const UNLOCKED = 0;
const LOCKED = 1;
/** Locked, and a thread sleeps until it is unlocked. */
const CONTENDED = 2;
/**
 * Locked by the process that the device is lent to (host/bridge/turns.c). It cannot wake threads of
 * this one, so these look again by and by; and it may end at any instruction.
 */
export const CONTROL_LENT = 3;
/** Locked by a native thread of this process (host/bridge/device-thread.c): it wakes no thread. */
export const CONTROL_NATIVE = 4;
/** Values of `stop`: a thread is stopping the engine, and has finished. */
const STOPPING = 1;
const STOPPED = 2;
/** Looks at the lock before a thread goes to sleep over it. */
const SPINS = 200;
/** Between two looks at a lock whose holder cannot wake this thread. */
const LENT_MILLIS = 0.1;
/** Looks between two checks whether that process has ended. */
const LENT_LOOKS = 20;
/** Longest time that `yieldToWaiters` waits: a waiter may have been terminated. */
const YIELD_MILLIS = 10;

function moment(micros: number): number {
  return (micros % 2 ** 32) | 0 || 1;
}

export class ControlBlock {
  readonly address: number;
  readonly #words: Int32Array;
  readonly #lock: number;
  readonly #sleeping: number;
  readonly #kicks: number;
  readonly #events: number;
  readonly #stop: number;
  readonly #turn: number;
  readonly #until: number;
  readonly #led: number;
  readonly #touched: number;
  readonly #waiters: number;
  readonly #peers: number;
  readonly #filtered: number;
  readonly #turns: number;
  readonly #pollers: number;

  readonly #isGone: () => boolean;

  /** `isGone`: has the process that the device is lent to ended? */
  constructor(memory: EngineMemory, address: number, isGone = (): boolean => false) {
    this.address = address;
    this.#isGone = isGone;
    this.#words = new Int32Array(memory.buffer);
    const at = address >>> 2;
    this.#lock = at + (CONTROL_LOCK >>> 2);
    this.#sleeping = at + (CONTROL_SLEEPING >>> 2);
    this.#kicks = at + (CONTROL_KICKS >>> 2);
    this.#events = at + (CONTROL_EVENTS >>> 2);
    this.#stop = at + (CONTROL_STOP >>> 2);
    this.#turn = at + (CONTROL_TURN >>> 2);
    this.#until = at + (CONTROL_UNTIL >>> 2);
    this.#led = at + (CONTROL_LED >>> 2);
    this.#touched = at + (CONTROL_TOUCHED >>> 2);
    this.#waiters = at + (CONTROL_WAITERS >>> 2);
    this.#peers = at + 10;
    this.#filtered = at + 11;
    this.#turns = at + (CONTROL_TURNS >>> 2);
    this.#pollers = at + (CONTROL_POLLERS >>> 2);
  }

  lock(): void {
    const words = this.#words;
    const at = this.#lock;
    for (let spin = 0; spin < SPINS; spin++) {
      if (Atomics.compareExchange(words, at, UNLOCKED, LOCKED) === UNLOCKED) return;
    }
    Atomics.add(words, this.#waiters, 1);
    for (let looks = 1; !this.#lockContended(); looks++) {
      const holder = Atomics.load(words, at);
      if (holder <= CONTENDED) Atomics.wait(words, at, CONTENDED);
      else {
        Atomics.wait(words, at, holder, LENT_MILLIS);
        if (looks % LENT_LOOKS === 0) this.#reclaim(at);
      }
    }
    Atomics.sub(words, this.#waiters, 1);
    Atomics.notify(words, this.#waiters);
  }

  /** Locks, or marks the lock as one that a thread sleeps over, unless another process holds it. */
  #lockContended(): boolean {
    const [words, at] = [this.#words, this.#lock];
    if (Atomics.compareExchange(words, at, UNLOCKED, CONTENDED) === UNLOCKED) return true;
    Atomics.compareExchange(words, at, LOCKED, CONTENDED);
    return false;
  }

  /** Unlocks what a process held that has ended. */
  #reclaim(at: number): void {
    if (Atomics.load(this.#words, at) !== CONTROL_LENT || !this.#isGone()) return;
    Atomics.compareExchange(this.#words, at, CONTROL_LENT, UNLOCKED);
  }

  /**
   * Lets a thread that waits for the lock or for the turn take it first. A thread under load takes
   * both again before a woken waiter runs: without this call control verbs waited 374 ms (p99,
   * `bench overload`).
   */
  yieldToWaiters(): void {
    const waiters = Atomics.load(this.#words, this.#waiters);
    if (waiters > 0) Atomics.wait(this.#words, this.#waiters, waiters, YIELD_MILLIS);
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

  /**
   * Prepares to sleep until `micros` (0: for ever). Returns false, and the thread must not sleep, if
   * a kick arrived since `kicks` was read. A post writes the entry, the ring's head and the
   * doorbell before it reads the flag, and this thread sets the flag before its last look: one of
   * the two sees the other.
   */
  fallAsleep(kicks: number, micros: number): boolean {
    Atomics.store(this.#words, this.#until, micros === 0 ? 0 : moment(micros));
    Atomics.store(this.#words, this.#sleeping, 1);
    if (this.kicks === kicks && !this.stopped) return true;
    this.awake();
    return false;
  }

  awake(): void {
    Atomics.store(this.#words, this.#sleeping, 0);
  }

  /** Does the other thread sleep, and wake by itself no later than at `micros`? */
  wakesBy(micros: number): boolean {
    if (Atomics.load(this.#words, this.#sleeping) === 0) return false;
    const until = Atomics.load(this.#words, this.#until);
    return until !== 0 && ((moment(micros) - until) | 0) >= 0;
  }

  /** False: another thread is at it. */
  takeTurn(): boolean {
    return Atomics.compareExchange(this.#words, this.#turn, UNLOCKED, LOCKED) === UNLOCKED;
  }

  endTurn(): void {
    if (Atomics.exchange(this.#words, this.#turn, UNLOCKED) === CONTENDED) {
      Atomics.notify(this.#words, this.#turn);
    }
  }

  /**
   * Sleeps until the turn that another thread has taken ends, but not longer than this. Without
   * sleeping, its holder might have no processor to end it on.
   */
  awaitTurn(timeoutMicros: number): void {
    const words = this.#words;
    const found = Atomics.compareExchange(words, this.#turn, LOCKED, CONTENDED);
    if (found === UNLOCKED) return;
    const value = found === LOCKED ? CONTENDED : found;
    const outcome = Atomics.wait(words, this.#turn, value, timeoutMicros / 1000);
    if (found === CONTROL_LENT && outcome === 'timed-out') this.#reclaim(this.#turn);
  }

  /**
   * As `takeTurn`, but waits for the end of the other thread's turn: `attempts` times for at most
   * `micros`. The other thread begins no further turn meanwhile (`yieldToWaiters`).
   */
  waitForTurn(attempts: number, micros: number): boolean {
    if (this.takeTurn()) return true;
    if (attempts === 0) return false;
    Atomics.add(this.#words, this.#waiters, 1);
    try {
      for (let attempt = 0; attempt < attempts; attempt++) {
        this.awaitTurn(micros);
        if (this.takeTurn()) return true;
      }
      return false;
    } finally {
      Atomics.sub(this.#words, this.#waiters, 1);
      Atomics.notify(this.#words, this.#waiters);
    }
  }

  /** The application takes the turns itself, as long as it says so again and again. */
  lead(micros: number): void {
    Atomics.store(this.#words, this.#led, moment(micros));
  }

  /** The application took a turn. */
  touch(micros: number): void {
    Atomics.store(this.#words, this.#touched, moment(micros));
  }

  /** Has it done so less than `age` microseconds ago? */
  isTouched(micros: number, age: number): boolean {
    const touched = Atomics.load(this.#words, this.#touched);
    return touched !== 0 && (moment(micros) - touched) >>> 0 < age;
  }

  /** It does not any more. */
  follow(): void {
    Atomics.store(this.#words, this.#led, 0);
  }

  /** Has it said so less than `age` microseconds ago? */
  isLed(micros: number, age: number): boolean {
    const led = Atomics.load(this.#words, this.#led);
    return led !== 0 && (moment(micros) - led) >>> 0 < age;
  }

  /** Changes when a queue pair gets a peer. */
  get peers(): number {
    return Atomics.load(this.#words, this.#peers);
  }

  /** Does the kernel drop datagrams of sources that are no peers (progress/flood-filter.ts)? */
  get isFiltered(): boolean {
    return Atomics.load(this.#words, this.#filtered) !== 0;
  }

  /** A queue pair has a new peer: a filter that does not know it is removed before this returns. */
  notePeer(remove: () => void): void {
    Atomics.add(this.#words, this.#peers, 1);
    this.setFiltered(false, remove);
  }

  /**
   * `change` attaches a filter for the peers as they were at `peers`, or removes one. Does nothing
   * if peers have changed, or without a filter to remove.
   */
  setFiltered(isFiltered: boolean, change: () => void, peers = this.peers): void {
    this.lock();
    try {
      if (peers !== this.peers || (!isFiltered && !this.isFiltered)) return;
      change();
      Atomics.store(this.#words, this.#filtered, Number(isFiltered));
    } finally {
      this.unlock();
    }
  }

  /**
   * A turn has done something: a process that polls and found nothing may find it now. `wake` wakes
   * its threads, which sleep on the word at `turnsAddress` (queues.c vb_poll_pause).
   */
  countTurn(wake: () => void): void {
    Atomics.add(this.#words, this.#turns, 1);
    if (Atomics.exchange(this.#words, this.#pollers, 0) !== 0) wake();
  }

  get turnsAddress(): number {
    return this.address + CONTROL_TURNS;
  }

  /** Address of device/progress/strays.ts; 0: no other process receives. */
  get strays(): number {
    return Atomics.load(this.#words, (this.address + CONTROL_STRAYS) >>> 2);
  }

  /** There are events: calls the application. */
  call(): void {
    if (Atomics.exchange(this.#words, this.#events, 1) === 0) {
      Atomics.notify(this.#words, this.#events);
    }
  }

  /** Of a native thread, which has called: it calls again. */
  takeCall(): void {
    Atomics.store(this.#words, this.#events, 0);
  }

  /** Has a native thread found packets of groups? It looks for no more until `takeGroups`. */
  get hasGroups(): boolean {
    return Atomics.load(this.#words, (this.address + CONTROL_GROUPS) >>> 2) !== 0;
  }

  takeGroups(): void {
    Atomics.store(this.#words, (this.address + CONTROL_GROUPS) >>> 2, 0);
  }

  /** Resolves when `call` was called; at once when it was before. */
  async called(): Promise<void> {
    const waiting = Atomics.waitAsync(this.#words, this.#events, 0);
    if (waiting.async) await waiting.value;
    Atomics.store(this.#words, this.#events, 0);
  }

  /** The other thread is to end; `wake` ends its sleep. */
  stop(wake: () => void): void {
    Atomics.store(this.#words, this.#stop, STOPPING);
    if (this.kick()) wake();
    Atomics.store(this.#words, this.#stop, STOPPED);
    Atomics.notify(this.#words, this.#stop);
  }

  get stopped(): boolean {
    return Atomics.load(this.#words, this.#stop) !== 0;
  }

  /** Waits for the thread that stops the engine, which may be about to wake this one. */
  awaitStop(): void {
    while (Atomics.load(this.#words, this.#stop) === STOPPING) {
      Atomics.wait(this.#words, this.#stop, STOPPING);
    }
  }
}
