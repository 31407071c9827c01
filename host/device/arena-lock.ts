/**
 * The lock of the tables that processes share. The kernel keeps it, so it ends with its holder; the
 * word beside it says who that was, so that the next one knows what may be half done. The engine
 * finds the word and leaves the lock to us (assembly/memory/arena.ts `lockArena`).
 */
import { RefusalError } from '../errors/errors.js';
import type { EngineExports } from '../engine/load.js';
import type { EngineMemory } from '../engine/memory.js';
import type { DeviceFile } from './device-file.js';

/** Control verbs that look at or change what processes share. */
const LOCKED = [
  'allocPd',
  'attachPd',
  'deallocPd',
  'detachPd',
  'regMr',
  'killMr',
  'reregMr',
  'createQp',
  'destroyQp',
  'createSrq',
  'destroySrq',
  'createAh',
  'destroyAh',
  'arenaBytesFree',
  'allocBlock',
  'attachBlock',
  'deallocBlock',
  'allocShpd',
  'attachShpd',
  'arenaReap',
  'poolOpen',
  'poolClose',
  'poolAddUser',
  'poolRemoveUser',
] as const;

/** The same, asked again and again until others have left what they are doing. */
const ASKED = ['mrReleased', 'mrReregistered'] as const;

const SPINS = 50;
const NAP_MILLIS = 0.2;
/** Nobody has it for longer than a few milliseconds, unless it is stopped. */
const WAIT_MILLIS_MAX = 20_000;

type Export = (...numbers: number[]) => number;

export class ArenaLock {
  readonly #file: DeviceFile;
  readonly #words: Int32Array;
  readonly #word: number;
  readonly #holder: number;
  readonly #pillow = new Int32Array(new SharedArrayBuffer(4));
  /** Called with the lock taken: its last holder died with it. */
  readonly #repair: () => void;
  /** Called without: a release waits for others, who may be dead. */
  readonly #look: () => void;
  #depth = 0;
  #waited = 0;

  /** `word`: address of the lock in `memory`; `holder`: what stands there while it is ours. */
  constructor(
    file: DeviceFile,
    memory: EngineMemory,
    word: number,
    holder: number,
    on: { readonly repair: () => void; readonly look: () => void },
  ) {
    this.#file = file;
    this.#words = new Int32Array(memory.buffer);
    this.#word = word >> 2;
    this.#holder = holder;
    this.#repair = on.repair;
    this.#look = on.look;
  }

  /**
   * Works with the tables to itself. Throws RefusalError EBUSY when another process does not give
   * them back, ENOLCK when the kernel gives no locks.
   */
  run<Result>(work: () => Result): Result {
    this.#take();
    try {
      return work();
    } finally {
      this.#giveBack();
    }
  }

  /** The same exports: those that touch what is shared, under the lock. */
  guard(exports: EngineExports): EngineExports {
    const guarded: Record<string, Export> = {};
    for (const name of LOCKED) {
      const call = exports[name] as Export;
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
    let end = 0;
    for (let turn = 0; !this.#file.tryLockTables(); turn++) {
      if (turn < SPINS) continue;
      const now = performance.now();
      if (end === 0) end = now + WAIT_MILLIS_MAX;
      if (now > end) {
        throw new RefusalError(
          'EBUSY',
          'another process holds the tables of the device: is it stopped?',
        );
      }
      Atomics.wait(this.#pillow, 0, 0, NAP_MILLIS);
    }
    this.#depth = 1;
    const before = Atomics.exchange(this.#words, this.#word, this.#holder);
    if (before !== 0) this.#repair();
  }

  #giveBack(): void {
    if (--this.#depth > 0) return;
    Atomics.store(this.#words, this.#word, 0);
    this.#file.unlockTables();
  }

  /** Whoever asks does so at once again: others get time, and who is dead is noticed. */
  #ask(question: () => number): number {
    const answer = question();
    if (answer === 1) {
      this.#waited = 0;
      return answer;
    }
    if (++this.#waited < SPINS) return answer;
    if (this.#waited * NAP_MILLIS > WAIT_MILLIS_MAX) {
      this.#waited = 0;
      throw new RefusalError('EBUSY', 'another process does not leave the memory: is it stopped?');
    }
    if (this.#waited % SPINS === 0) this.#look();
    Atomics.wait(this.#pillow, 0, 0, NAP_MILLIS);
    return answer;
  }
}
