/**
 * The lock of a heap's spans: a word with the slot and the incarnation of its holder. It is held
 * for microseconds, without a system call. If its holder died, the next process takes it over and
 * repairs what the holder left incomplete.
 */
import { LockTimeout } from '../../device/sharing/lock-timeout.js';
import { RefusalError } from '../../errors/errors.js';

const SPINS = 200;
const WAIT_MILLIS_MAX = 20_000;

/** Processes, or threads, that share the device, as a heap sees them. */
export interface HeapMembers {
  /** Our own. */
  readonly slot: number;
  readonly slotsMax: number;
  /** Counts the processes that have ended in the slot. */
  incarnation(slot: number): number;
  /** Reclaims the resources of dead processes, whose incarnation changes by that. */
  look(): void;
  /** Names the process of a slot: "process 4711 (slot 2)". */
  describe(slot: number): string;
}

export class HeapLock {
  readonly #words: Int32Array;
  readonly #word: number;
  readonly #members: HeapMembers;
  readonly #own: number;
  readonly #repair: () => void;
  #depth = 0;

  /** `word`: index of the lock. `repair` runs with the lock that a dead process had. */
  constructor(words: Int32Array, word: number, members: HeapMembers, repair: () => void) {
    this.#words = words;
    this.#word = word;
    this.#members = members;
    this.#own = holderWord(members.slot, members.incarnation(members.slot));
    this.#repair = repair;
  }

  /** Throws RefusalError EBUSY if a living process keeps the lock for 20 s. */
  run<Result>(work: () => Result): Result {
    if (this.#depth === 0) this.#take();
    this.#depth++;
    try {
      return work();
    } finally {
      if (--this.#depth === 0) Atomics.store(this.#words, this.#word, 0);
    }
  }

  /** The same if no living process has the lock now; undefined: one has, and nothing was done. */
  tryRun<Result>(work: () => Result): Result | undefined {
    if (this.#depth > 0) return this.run(work);
    for (let turn = 1; turn <= 2 * SPINS; turn++) {
      // A holder that died may not have been detected yet.
      if (turn === SPINS) this.#members.look();
      const found = Atomics.compareExchange(this.#words, this.#word, 0, this.#own);
      if (found !== 0 && !(this.#isDead(found) && this.#takeOver(found))) continue;
      this.#depth++;
      try {
        return work();
      } finally {
        this.#depth--;
        Atomics.store(this.#words, this.#word, 0);
      }
    }
    return undefined;
  }

  #take(): void {
    let timeout: LockTimeout | undefined;
    for (let turn = 1; ; turn++) {
      const found = Atomics.compareExchange(this.#words, this.#word, 0, this.#own);
      if (found === 0) return;
      if (turn % SPINS !== 0) continue;
      if (this.#isDead(found) && this.#takeOver(found)) return;
      this.#members.look();
      timeout ??= new LockTimeout(WAIT_MILLIS_MAX);
      if (!timeout.nap()) throw this.#refusal(found);
    }
  }

  /** Our own word: this process failed while it had the lock, and has it no more. */
  #isDead(holder: number): boolean {
    const slot = (holder & 0xffff) - 1;
    if (slot < 0 || slot >= this.#members.slotsMax || holder === this.#own) return true;
    return holderWord(slot, this.#members.incarnation(slot)) !== holder;
  }

  #takeOver(holder: number): boolean {
    if (Atomics.compareExchange(this.#words, this.#word, holder, this.#own) !== holder)
      return false;
    this.#repair();
    return true;
  }

  #refusal(holder: number): RefusalError {
    const name = this.#members.describe((holder & 0xffff) - 1);
    return new RefusalError(
      'EBUSY',
      `heap: ${name} has held the lock of the heap for ${WAIT_MILLIS_MAX / 1000} s; continue or ` +
        'end it',
    );
  }
}

function holderWord(slot: number, incarnation: number): number {
  return (slot + 1) | (incarnation << 16);
}
