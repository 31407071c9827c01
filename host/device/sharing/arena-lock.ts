/**
 * The lock of the tables that processes or threads share. The host takes the lock; the engine only
 * checks its word (assembly/memory/arena.ts `lockArena`), since the engine cannot detect a dead
 * holder. The word names the holder's slot: the next holder knows that a change may be incomplete,
 * and a refusal can name the process or thread that holds the lock.
 */
import { LOCK_HOLDER } from '#build/abi.js';
import { RefusalError } from '../../errors/errors.js';
import type { EngineExports } from '../../engine/load.js';
import type { EngineMemory } from '../../engine/memory.js';
import { LockTimeout } from './lock-timeout.js';

/** Control verbs that read or change the shared tables: all that create or destroy an object. */
const LOCKED = new RegExp(
  '^((de)?alloc|(at|de)tach|create|destroy|(re)?reg|kill|keep|arena[BR]|' +
    'pool(Open|Close|AddU|RemoveU))',
);

/** Exports that are polled under the lock until other engines have left their calls. */
const ASKED = ['mrReleased', 'mrRevoked', 'mrReregistered', 'mrLayoutReleased'] as const;

const SPINS = 50;

type Export = (...numbers: number[]) => number;

/** One way to take the lock. */
export interface LockMethod {
  /**
   * Returns the previous value of the word: not 0 if the last holder died with the lock. undefined:
   * another process or thread holds the lock.
   */
  tryTake(): number | undefined;
  giveBack(): void;
  /** Milliseconds of waiting after which the holder counts as stopped. */
  readonly waitMillisMax: number;
}

/** The kernel's lock on a byte of a file: it ends when the process that holds it ends. */
export class FileLock implements LockMethod {
  readonly waitMillisMax = 20_000;
  readonly #file: { tryLockTables(): boolean; unlockTables(): void };
  readonly #words: Int32Array;
  readonly #word: number;
  readonly #holder: number;

  /** `word`: address of the lock in `memory`. */
  constructor(
    file: { tryLockTables(): boolean; unlockTables(): void },
    memory: EngineMemory,
    word: number,
    holder: number,
  ) {
    this.#file = file;
    this.#words = new Int32Array(memory.buffer);
    this.#word = word >>> 2;
    this.#holder = holder;
  }

  tryTake(): number | undefined {
    if (!this.#file.tryLockTables()) return undefined;
    return Atomics.exchange(this.#words, this.#word, this.#holder);
  }

  giveBack(): void {
    Atomics.store(this.#words, this.#word, 0);
    this.#file.unlockTables();
  }
}

/**
 * Between threads: the word without a kernel lock. A Worker that is terminated with the lock leaves
 * its slot in the word. Only `releaseFor` removes it, after the application states that the Worker
 * has ended.
 */
export class WordLock implements LockMethod {
  /** A running thread holds the lock for microseconds. */
  readonly waitMillisMax = 1000;
  readonly #words: Int32Array;
  readonly #word: number;
  readonly #holder: number;

  constructor(memory: EngineMemory, word: number, slot: number) {
    this.#words = new Int32Array(memory.buffer);
    this.#word = word >>> 2;
    this.#holder = holderOf(slot);
  }

  tryTake(): number | undefined {
    const before = Atomics.compareExchange(this.#words, this.#word, 0, this.#holder);
    return before === 0 ? 0 : undefined;
  }

  giveBack(): void {
    Atomics.store(this.#words, this.#word, 0);
  }

  /** Frees the lock of a thread that has ended. True: the thread of this slot held the lock. */
  releaseFor(slot: number): boolean {
    const holder = holderOf(slot);
    return Atomics.compareExchange(this.#words, this.#word, holder, 0) === holder;
  }
}

function holderOf(slot: number): number {
  return LOCK_HOLDER | (slot + 1);
}

export interface ArenaLockActions {
  /** Called with the lock: its last holder died and may have left a change incomplete. */
  readonly repair: () => void;
  /** Called without the lock: a release waits for other engines; checks for dead processes. */
  readonly look: () => void;
  /** Text of the refusal if the lock is held for too long. */
  readonly explainHeld: () => string;
  /** Text of the refusal if an engine does not leave its call. */
  readonly explainBusy: () => string;
}

export class ArenaLock {
  readonly #method: LockMethod;
  readonly #on: ArenaLockActions;
  readonly #askTimeout: LockTimeout;
  #depth = 0;
  #asked = 0;

  constructor(method: LockMethod, on: ArenaLockActions) {
    this.#method = method;
    this.#on = on;
    this.#askTimeout = new LockTimeout();
  }

  /**
   * Runs `work` under the lock. Throws RefusalError EBUSY if another process or thread does not
   * release the lock in time, ENOLCK if the kernel has no locks.
   */
  run<Result>(work: () => Result): Result {
    this.#take();
    try {
      return work();
    } finally {
      if (--this.#depth === 0) this.#method.giveBack();
    }
  }

  /** The same exports: those that touch what is shared, under the lock. */
  guard(exports: EngineExports): EngineExports {
    const guarded: Record<string, Export> = {};
    for (const [name, call] of Object.entries(exports) as [string, Export][]) {
      if (!LOCKED.test(name)) continue;
      guarded[name] = (...numbers) => this.run(() => call(...numbers));
    }
    for (const name of ASKED) {
      const call = exports[name] as Export;
      guarded[name] = (...numbers) => this.#ask(() => this.run(() => call(...numbers)));
    }
    return { ...exports, ...guarded };
  }

  #take(): void {
    if (this.#depth > 0) {
      this.#depth++;
      return;
    }
    let timeout: LockTimeout | undefined;
    let before = this.#method.tryTake();
    for (let turn = 0; before === undefined; turn++) {
      if (turn >= SPINS && !(timeout ??= new LockTimeout(this.#method.waitMillisMax)).nap()) {
        throw new RefusalError('EBUSY', this.#on.explainHeld());
      }
      before = this.#method.tryTake();
    }
    this.#depth = 1;
    if (before !== 0) this.#on.repair();
  }

  /** Sleeps between two polls of a caller, and checks for dead processes. */
  #ask(question: () => number): number {
    const answer = question();
    if (answer === 1) {
      this.#asked = 0;
      this.#askTimeout.renew();
      return answer;
    }
    if (++this.#asked < SPINS) return answer;
    if (this.#asked % SPINS === 0) this.#on.look();
    if (this.#askTimeout.nap()) return answer;
    this.#asked = 0;
    this.#askTimeout.renew();
    throw new RefusalError('EBUSY', this.#on.explainBusy());
  }
}
