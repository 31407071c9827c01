/** PEs of one process that agree on the survivors while others die within any of their accesses. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  Agreement,
  NO_NUMBER,
  recordWords,
  type AgreementStore,
  type Decision,
} from '../../../host/shmem/agreement.js';
import { sample } from '../../support/sample.js';

const test = suite('unit/shmem/agreement');
/** Steps in which PEs that live reach a decision. */
const STEPS_MAX = 20_000;

class Death extends Error {}

/** Repeatable numbers from 0 to 1. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x6d2b79f5) | 0;
    const mixed = Math.imul(state ^ (state >>> 12), 0x297a2d39);
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32;
  };
}

interface Pe {
  readonly words: Int32Array;
  readonly agreement: Agreement;
  readonly outcomes: Decision[];
  isDead: boolean;
  isRunning: boolean;
  /** Others report its death from then on. */
  isReported: boolean;
}

/**
 * A job whose PEs take steps in any order, also within the accesses of another PE's step. `deaths`
 * PEs die, each within an access of its own.
 */
class Job {
  readonly pes: Pe[];
  readonly #random: () => number;
  readonly #deathRate: number;
  readonly #reportRate: number;
  /** How often another PE takes a step within an access. */
  readonly #nestRate: number;
  #deaths: number;

  constructor(size: number, deaths: number, random: () => number) {
    this.#random = random;
    this.#deaths = deaths;
    // Soon after the begin, and late.
    this.#deathRate = [0.003, 0.01, 0.03, 0.1][Math.floor(random() * 4)]!;
    this.#reportRate = [0.01, 0.1, 0.5][Math.floor(random() * 3)]!;
    this.#nestRate = [0, 0.1, 0.3][Math.floor(random() * 3)]!;
    this.pes = Array.from({ length: size }, (_, pe) => ({
      words: new Int32Array(recordWords(size)),
      agreement: new Agreement(this.#store(pe), pe, size, size),
      outcomes: [],
      isDead: false,
      isRunning: false,
      isReported: false,
    }));
  }

  arrive(pe: number, used = 0b11n, turnMax = pe): void {
    this.#run(pe, (one) => one.agreement.arrive({ used, turnMax }));
  }

  step(pe: number, round = 0): void {
    this.#run(pe, (one) => {
      if (one.outcomes.length > round) return;
      const decision = one.agreement.step(() => undefined);
      if (decision) one.outcomes.push(decision);
    });
  }

  /** A PE that has returned with the decision dies before the others have read it. */
  mayDie(pe: number): void {
    if (this.#deaths === 0 || this.pes[pe]!.isDead || this.#random() > 0.05) return;
    this.#deaths--;
    this.pes[pe]!.isDead = true;
  }

  get reported(): number[] {
    return this.pes.flatMap(({ isReported }, pe) => (isReported ? [pe] : []));
  }

  get live(): number[] {
    return this.pes.flatMap(({ isDead }, pe) => (isDead ? [] : [pe]));
  }

  #run(pe: number, work: (one: Pe) => void): void {
    const one = this.pes[pe]!;
    if (one.isDead || one.isRunning) return;
    one.isRunning = true;
    try {
      work(one);
    } catch (error) {
      if (!(error instanceof Death)) throw error;
    }
    one.isRunning = false;
  }

  /** Before an access of `pe`: another one takes a step, or this one dies. */
  #access(pe: number): void {
    if (this.#deaths > 0 && this.#random() < this.#deathRate) {
      this.#deaths--;
      this.pes[pe]!.isDead = true;
      throw new Death();
    }
    const { outcomes } = this.pes[pe]!;
    if (this.#random() < this.#nestRate) this.step(this.#any(), outcomes.length);
  }

  #any(): number {
    return Math.floor(this.#random() * this.pes.length);
  }

  #store(pe: number): AgreementStore {
    return {
      load: (other, word) => {
        this.#access(pe);
        return this.pes[other]!.words[word];
      },
      read: (other, word, count) => {
        this.#access(pe);
        const words = new Int32Array(count);
        for (let index = 0; index < count; index++) {
          words[index] = this.pes[other]!.words[word + index]!;
          if (index === count >> 1) this.#access(pe);
        }
        return words;
      },
      store: (word, value) => {
        this.#access(pe);
        this.pes[pe]!.words[word] = value;
      },
      hasFailed: (other) => {
        const one = this.pes[other]!;
        // A death is reported some time after it.
        if (one.isDead && this.#random() < this.#reportRate) one.isReported = true;
        return one.isReported;
      },
      isDone: () => false,
      wake: () => undefined,
    };
  }
}

/** Each PE goes through the rounds at its own pace; decisions of PEs that died later count too. */
function run(seed: number, size: number, deaths: number, rounds: number): void {
  const random = randomOf(seed);
  const job = new Job(size, deaths, random);
  const text = `seed ${seed}, ${size} PEs, ${deaths} deaths`;
  const roundOf = (pe: number): number => job.pes[pe]!.outcomes.length;
  const reported: number[][] = [];
  let steps = 0;
  while (job.live.some((pe) => roundOf(pe) < rounds)) {
    assert.ok(++steps < STEPS_MAX, `${text}: no decision`);
    const pe = Math.floor(random() * size);
    const round = roundOf(pe);
    if (round > 0) job.mayDie(pe);
    if (round === rounds) continue;
    // The dead of earlier rounds, as all know them, are in no team.
    reported[round] ??= job.reported;
    job.arrive(pe, 0b11n, 10 * round + pe);
    job.step(pe, round);
  }
  for (let round = 0; round < rounds; round++) {
    const outcomes = job.pes.flatMap(({ outcomes: all }) => all.slice(round, round + 1));
    for (const one of outcomes) assert.equal(one, outcomes[0], `${text}, round ${round}`);
    if (outcomes.length === 0) continue;
    const { members, turn, number } = outcomes[0]!;
    for (const pe of job.live) assert.ok(members.includes(pe), `${text}: PE ${pe} is missing`);
    for (const pe of reported[round]!)
      assert.not(members.includes(pe), `${text}: PE ${pe} is dead`);
    assert.is(turn, 10 * round + Math.max(...members), text);
    assert.is(number, 63, text);
  }
}

test('PEs that die at any instant leave one outcome for all survivors', () => {
  for (let seed = 1; seed <= sample(6000, 100_000); seed++) {
    run(seed, 2 + (seed % 5), seed % 4, 4);
  }
});

test('a coordinator that dies at each of its accesses leaves one outcome', () => {
  for (let size = 2; size <= 4; size++) {
    for (let seed = 1; seed <= sample(60, 600); seed++) run(7919 * seed, size, size - 1, 1);
  }
});

test('the number of the new team is free in all its PEs, and the last turn is the highest', () => {
  const job = new Job(3, 0, () => 0.999);
  const top = 1n << 63n;
  job.arrive(0, 0b11n | top, 4);
  job.arrive(1, 0b11n | (1n << 62n), 900);
  job.arrive(2, 0b11n | (1n << 3n), 5);
  for (let turn = 0; turn < 9; turn++) job.step(turn % 3);
  for (const { outcomes } of job.pes) {
    assert.equal(outcomes, [{ number: 61, turn: 900, members: [0, 1, 2] }]);
  }
});

test('PEs that have all teams get the decision that no number is free', () => {
  const job = new Job(2, 0, () => 0.999);
  job.arrive(0, 0xffff_ffffn, 0);
  job.arrive(1, 0xffff_ffff_0000_0000n, 0);
  for (let turn = 0; turn < 8; turn++) job.step(turn % 2);
  for (const { outcomes } of job.pes) assert.is(outcomes[0]!.number, NO_NUMBER);
});

test('no PE decides before all that live have arrived', () => {
  const job = new Job(3, 0, () => 0.999);
  job.arrive(0);
  job.arrive(1);
  for (let turn = 0; turn < 20; turn++) job.step(turn % 2);
  assert.equal(
    job.pes.map(({ outcomes }) => outcomes.length),
    [0, 0, 0],
  );
});

/** PE 1 of two reads the proposal of PE 0, which `change` then writes; the stores of PE 1. */
function follow(change: (words: Int32Array, status: number) => void): number[][] {
  const words = [0, 1].map(() => new Int32Array(recordWords(2)));
  const stores: number[][] = [];
  const storeOf = (me: number): AgreementStore => ({
    load: (pe, word) => words[pe]![word],
    read: (pe, word, count) => {
      const found = words[pe]!.slice(word, word + count);
      if (me === 1) change(words[pe]!, word - 1);
      return found;
    },
    store: (word, value) => {
      words[me]![word] = value;
      if (me === 1) stores.push([word, value]);
    },
    hasFailed: () => false,
    isDone: () => false,
    wake: () => undefined,
  });
  const pes = [0, 1].map((pe) => new Agreement(storeOf(pe), pe, 2, 2));
  for (const pe of pes) pe.arrive({ used: 0b11n, turnMax: 0 });
  stores.length = 0;
  for (const pe of pes) pe.step(() => undefined);
  return stores;
}

test('a proposal that changes while it is read is not adopted', () => {
  const marked = follow((words, status) => (words[status] = -1));
  assert.equal(marked, []);
});

test('a record has a mark while its proposal is written', () => {
  const stores = follow(() => undefined);
  const [first, last] = [stores[0]!, stores.at(-1)!];
  assert.equal(first, [last[0], -1]);
  assert.is(stores.filter(([word]) => word === first[0]).length, 2);
});

test.run();
