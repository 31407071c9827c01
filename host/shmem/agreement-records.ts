/** The records of an agreement (agreement.ts) in the symmetric memory of a team's PEs. */
import { RefusalError } from '../errors/errors.js';
import { recordOffset, recordWords, type AgreementStore } from './agreement.js';
import { bytesOf } from './symmetric.js';
import type { World } from './world.js';

export class AgreementRecords implements AgreementStore {
  readonly #world: World;
  readonly #ranks: readonly number[];
  readonly #offset: number;
  readonly #own: Int32Array;

  constructor(world: World, ranks: readonly number[], number: number) {
    this.#world = world;
    this.#ranks = ranks;
    this.#offset = recordOffset(world.size, number);
    const { buffer, base } = world.range;
    this.#own = new Int32Array(buffer, base + this.#offset, recordWords(world.size));
  }

  load(pe: number, word: number): number | undefined {
    const { base } = this.#world.peers[this.#ranks[pe]!]!;
    if (base === undefined) return this.read(pe, word, 1)?.[0];
    return Atomics.load(this.#world.node.words, (base + this.#offset) / 4 + word);
  }

  read(pe: number, word: number, count: number): Int32Array | undefined {
    const words = new Int32Array(count);
    try {
      this.#world.peers[this.#ranks[pe]!]!.get(this.#offset + word * 4, bytesOf(words));
      return words;
    } catch (error) {
      // It is reported as failed.
      if (error instanceof RefusalError && error.code === 'ECONNRESET') return undefined;
      throw error;
    }
  }

  store(word: number, value: number): void {
    Atomics.store(this.#own, word, value);
  }

  hasFailed(pe: number): boolean {
    return this.#world.failed.has(this.#ranks[pe]!);
  }

  isDone(pe: number): boolean {
    return this.#world.isDone(this.#ranks[pe]!);
  }

  wake(): void {
    for (const rank of this.#ranks) this.#world.wake(rank);
  }

  /** The number is free: a later team finds an empty record. */
  clear(): void {
    this.#own.fill(0);
  }
}
