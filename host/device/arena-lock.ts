/**
 * The lock of the tables that processes share. The kernel keeps it, so it ends with its holder; the
 * word beside it says who that was, so that the next one knows what may be half done. The engine
 * finds the word and leaves the lock to us (assembly/memory/arena.ts `lockArena`).
 */
import { RefusalError } from '../errors/errors.js';
import type { EngineExports } from '../engine/load.js';
import type { EngineMemory } from '../engine/memory.js';
import type { DeviceFile } from './device-file.js';
import { Patience } from './patience.js';

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

type Export = (...numbers: number[]) => number;

export class ArenaLock {
  readonly #file: DeviceFile;
  readonly #words: Int32Array;
  readonly #word: number;
  readonly #holder: number;
  /** Called with the lock taken: its last holder died with it. */
  readonly #repair: () => void;
  /** Called without: a release waits for others, who may be dead. */
  readonly #look: () => void;
  #depth = 0;
  #asked = 0;
  readonly #patience = new Patience();

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
   * them back.
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
    if (this.#depth++ > 0) return;
    let patience: Patience | undefined;
    for (let turn = 0; !this.#file.tryLockTables(); turn++) {
      if (turn < SPINS || (patience ??= new Patience()).nap()) continue;
      this.#depth--;
      throw new RefusalError(
        'EBUSY',
        'another process holds the tables of the device: is it stopped?',
      );
    }
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
      this.#asked = 0;
      this.#patience.renew();
      return answer;
    }
    if (++this.#asked < SPINS) return answer;
    if (this.#asked % SPINS === 0) this.#look();
    if (this.#patience.nap()) return answer;
    this.#asked = 0;
    this.#patience.renew();
    throw new RefusalError('EBUSY', 'another process does not leave the memory: is it stopped?');
  }
}
