/** Teams of PEs, and what a team does together (OpenSHMEM 1.5, 9.4 and 9.9). */
import { checkWait, type WaitLimits } from '../base/wait-limits.js';
import { checkWhole, mustBe, shown } from '../errors/check-whole.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { reducers, type Reducer } from './reduce.js';
import { bytesOf, copyOf, offsetOf, type Element, type SymmetricArray } from './symmetric.js';
import { AGREEMENT_OFFSET, ARRIVED_OFFSET, TEAMS_MAX, TEAM_BYTES } from './offsets.js';
import type { World } from './world.js';

/** A rank that has no place in a team. */
const NO_PE = -1;
/** Up to this size PEs of one machine look at the words of all others; larger teams take rounds. */
const FLAT_PES_MAX = 64;

/**
 * Each PE of a team calls its collectives, in the same order. They reject with RefusalError
 * ECONNRESET if a PE of the team fails; `survivors` is the team of the others.
 */
export class ShmemTeam {
  /** This PE's number in the team. */
  readonly myPe: number;
  /** Number of PEs of the team. */
  readonly nPes: number;
  readonly #world: World;
  readonly #ranks: readonly number[];
  readonly #number: number;
  readonly #teams: Map<number, ShmemTeam>;
  /** Words in which the PEs of a team of one machine say how many syncs they have come to. */
  readonly #arrivals: readonly number[] | undefined;
  #turn: number;

  /** @internal Use `shmem.world` and `splitStrided`. `ranks`: of the team, in its order. */
  constructor(
    world: World,
    ranks: readonly number[],
    number: number,
    teams: Map<number, ShmemTeam>,
  ) {
    this.#world = world;
    this.#ranks = ranks;
    this.#number = number;
    this.#teams = teams;
    this.myPe = ranks.indexOf(world.rank);
    this.nPes = ranks.length;
    // A team that had the number before has left its flags.
    this.#turn = world.turns.get(number) ?? 0;
    this.#arrivals = arrivalsOf(world, ranks, number);
    teams.set(number, this);
  }

  /** `shmem_team_translate_pe`: the number of this team's PE in another team; -1: not in it. */
  translatePe(pe: number, team: ShmemTeam): number {
    return team.#ranks.indexOf(this.#rank(pe));
  }

  /** The PEs of the team that have not failed, in its order. */
  get livePes(): number[] {
    const failed = this.#world.findFailed();
    return this.#ranks.flatMap((rank, pe) => (failed.has(rank) ? [] : [pe]));
  }

  /**
   * `shmem_team_sync`: resolves when all PEs of the team have called it. A call that ends by its
   * timeout or signal counts as made. Rejects with MisuseError; RefusalError ETIMEDOUT, ECONNRESET
   * (a PE of the team has failed); the reason of the signal.
   */
  async sync(limits?: WaitLimits): Promise<void> {
    this.#world.checkOpen();
    // Before this PE counts as arrived.
    if (limits !== undefined) checkWait('sync', limits);
    const turn = ++this.#turn;
    if (this.#arrivals) return this.#meet(this.#arrivals, turn, limits);
    const { nPes } = this;
    const flags = this.#flags();
    for (let round = 0, distance = 1; distance < nPes; round++, distance *= 2) {
      this.#flag(this.#ranks[(this.myPe + distance) % nPes]!, round, turn);
      if (Atomics.load(flags, round) - turn >= 0) continue;
      const arrived = (): boolean => Atomics.load(flags, round) - turn >= 0;
      await this.#world.until('sync', arrived, limits, this.#ranks);
    }
  }

  /**
   * On one machine a PE stores its arrival and looks at those of all others: each PE waits once.
   * The rounds of a dissemination barrier would need the processor once per round, which is what
   * time goes to if PEs outnumber processors.
   */
  async #meet(arrivals: readonly number[], turn: number, limits?: WaitLimits): Promise<void> {
    const { words } = this.#world.node;
    let next = 0;
    const complete = (): boolean => {
      while (next < arrivals.length && Atomics.load(words, arrivals[next]!) - turn >= 0) next++;
      return next === arrivals.length;
    };
    Atomics.store(words, arrivals[this.myPe]!, turn);
    if (!complete()) return this.#world.until('sync', complete, limits, this.#ranks);
    // The last PE wakes those that sleep.
    for (const rank of this.#ranks) this.#world.wake(rank);
  }

  /** `shmem_broadcast`: `source` of the PE `root` goes to `dest` of all. */
  async broadcast<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    root: number,
  ): Promise<void> {
    const rank = this.#rank(root);
    checkLength('dest', dest, source.length);
    await this.#begin();
    this.#world.peers[rank]!.get(offsetOf(this.#world.range, source, 'source'), bytesOf(dest));
    await this.#finish();
  }

  /** `shmem_collect`: the elements of all PEs, one after the other; the numbers may differ. */
  async collect<Elements extends SymmetricArray>(dest: Elements, source: Elements): Promise<void> {
    const counts = await this.#exchange(source.length);
    const total = counts.reduce((sum, count) => sum + count, 0);
    checkLength('dest', dest, total);
    const offset = offsetOf(this.#world.range, source, 'source');
    const all = copyOf(dest, total);
    let at = 0;
    for (const [pe, count] of counts.entries()) {
      this.#peer(pe).get(offset, bytesOf(all.subarray(at, at + count) as Elements));
      at += count;
    }
    await this.#finish();
    bytesOf(dest).set(bytesOf(all));
  }

  /** `shmem_fcollect`: the same number of elements of each PE. */
  async fcollect<Elements extends SymmetricArray>(dest: Elements, source: Elements): Promise<void> {
    checkLength('dest', dest, source.length * this.nPes);
    const offset = offsetOf(this.#world.range, source, 'source');
    await this.#begin();
    const all = copyOf(dest, source.length * this.nPes);
    for (let pe = 0; pe < this.nPes; pe++) {
      const part = all.subarray(pe * source.length, (pe + 1) * source.length) as Elements;
      this.#peer(pe).get(offset, bytesOf(part));
    }
    await this.#finish();
    bytesOf(dest).set(bytesOf(all));
  }

  /** `shmem_alltoall`: block `i` of `source` goes to PE `i`, `nelems` elements each. */
  alltoall<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    nelems: number,
  ): Promise<void> {
    return this.alltoalls(dest, source, 1, 1, nelems);
  }

  /** `shmem_alltoalls`: the same with strides in elements, `dst` in `dest`, `sst` in `source`. */
  async alltoalls<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    dst: number,
    sst: number,
    nelems: number,
  ): Promise<void> {
    checkWhole('nelems', nelems, 0, 2 ** 31);
    checkWhole('dst', dst, 1, 2 ** 31);
    checkWhole('sst', sst, 1, 2 ** 31);
    checkLength(
      'source',
      source,
      nelems * this.nPes === 0 ? 0 : (nelems * this.nPes - 1) * sst + 1,
    );
    checkLength('dest', dest, nelems * this.nPes === 0 ? 0 : (nelems * this.nPes - 1) * dst + 1);
    const width = source.BYTES_PER_ELEMENT;
    const offset = offsetOf(this.#world.range, source, 'source');
    await this.#begin();
    const span = nelems === 0 ? 0 : (nelems - 1) * sst + 1;
    const all = copyOf(dest, span * this.nPes);
    for (let pe = 0; pe < this.nPes && span > 0; pe++) {
      const block = all.subarray(pe * span, (pe + 1) * span) as Elements;
      this.#peer(pe).get(offset + this.myPe * nelems * sst * width, bytesOf(block));
    }
    await this.#finish();
    for (let pe = 0; pe < this.nPes; pe++) {
      for (let index = 0; index < nelems; index++) {
        dest[(pe * nelems + index) * dst] = all[pe * span + index * sst]!;
      }
    }
  }

  /** `shmem_and_reduce`: of whole numbers, element by element, over all PEs. */
  andReduce<Elements extends SymmetricArray>(dest: Elements, source: Elements): Promise<void> {
    return this.#reduce(dest, source, 'and');
  }

  /** `shmem_or_reduce`. */
  orReduce<Elements extends SymmetricArray>(dest: Elements, source: Elements): Promise<void> {
    return this.#reduce(dest, source, 'or');
  }

  /** `shmem_xor_reduce`. */
  xorReduce<Elements extends SymmetricArray>(dest: Elements, source: Elements): Promise<void> {
    return this.#reduce(dest, source, 'xor');
  }

  /** `shmem_max_reduce`. */
  maxReduce<Elements extends SymmetricArray>(dest: Elements, source: Elements): Promise<void> {
    return this.#reduce(dest, source, 'max');
  }

  /** `shmem_min_reduce`. */
  minReduce<Elements extends SymmetricArray>(dest: Elements, source: Elements): Promise<void> {
    return this.#reduce(dest, source, 'min');
  }

  /** `shmem_sum_reduce`. */
  sumReduce<Elements extends SymmetricArray>(dest: Elements, source: Elements): Promise<void> {
    return this.#reduce(dest, source, 'sum');
  }

  /** `shmem_prod_reduce`. */
  prodReduce<Elements extends SymmetricArray>(dest: Elements, source: Elements): Promise<void> {
    return this.#reduce(dest, source, 'prod');
  }

  /**
   * `shmem_team_split_strided`: a team of the PEs `start`, `start + stride`…, `size` of them. All
   * PEs of this team call it; undefined: this PE is not in the new one. Rejects with MisuseError;
   * RefusalError ENOMEM (64 teams exist).
   */
  splitStrided(start: number, stride: number, size: number): Promise<ShmemTeam | undefined> {
    checkWhole('start', start, 0, this.nPes - 1);
    checkWhole('size', size, 1, this.nPes);
    const pes = Array.from({ length: size }, (_, index) => start + index * stride);
    if (!Number.isInteger(stride) || pes.some((pe) => pe < 0 || pe >= this.nPes)) {
      throw new MisuseError(
        'stride',
        `must keep ${size} PEs from ${start} on in the team, got ${shown(stride)}`,
      );
    }
    return this.#split(pes);
  }

  /**
   * `shmem_team_split_2d`: teams of a grid whose rows have `xrange` PEs: the one of this PE's row,
   * and the one of its column.
   */
  async split2d(xrange: number): Promise<{ readonly x: ShmemTeam; readonly y: ShmemTeam }> {
    checkWhole('xrange', xrange, 1, this.nPes);
    const all = Array.from({ length: this.nPes }, (_, pe) => pe);
    const rows = Math.ceil(this.nPes / xrange);
    let [x, y]: (ShmemTeam | undefined)[] = [];
    for (let row = 0; row < rows; row++) {
      x = (await this.#split(all.filter((pe) => Math.floor(pe / xrange) === row))) ?? x;
    }
    for (let column = 0; column < xrange; column++) {
      y = (await this.#split(all.filter((pe) => pe % xrange === column))) ?? y;
    }
    return { x: x!, y: y! };
  }

  /**
   * The team of the PEs that have not failed: each of them calls it. Rejects with RefusalError
   * ENOMEM, ECONNRESET (another one failed meanwhile: call it again).
   */
  async survivors(): Promise<ShmemTeam> {
    const live = this.livePes.map((pe) => this.#ranks[pe]!);
    // A number that only these PEs draw: the highest ones are for that.
    let number = TEAMS_MAX - 1;
    while (this.#teams.has(number)) number--;
    const team = new ShmemTeam(this.#world, live, number, this.#teams);
    await team.sync();
    return team;
  }

  /** `shmem_team_destroy`: all PEs of the team call it. */
  async destroy(): Promise<void> {
    await this.sync();
    this.#teams.delete(this.#number);
    this.#world.turns.set(this.#number, this.#turn);
  }

  /** @internal Returns when all writes to PEs of the team are where they go. */
  quiet(): void {
    for (const rank of this.#ranks) this.#world.peers[rank]!.quiet();
  }

  async #split(pes: readonly number[]): Promise<ShmemTeam | undefined> {
    let used = 0n;
    for (const number of this.#teams.keys()) used |= 1n << BigInt(number);
    const words = await this.#exchange(used);
    const taken = words.reduce((all, one) => all | one, 0n);
    let number = 0;
    while ((taken >> BigInt(number)) & 1n) number++;
    if (number >= TEAMS_MAX) {
      throw new RefusalError('ENOMEM', `split: all ${TEAMS_MAX} teams are taken; destroy some`);
    }
    const ranks = pes.map((pe) => this.#ranks[pe]!);
    const isMember = ranks.includes(this.#world.rank);
    this.#world.turns.delete(number);
    if (isMember) this.#flags(number).fill(0);
    const team = isMember ? new ShmemTeam(this.#world, ranks, number, this.#teams) : undefined;
    // No flag of the new team is set before all its PEs have cleared theirs.
    await this.#finish();
    return team;
  }

  async #reduce<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    name: keyof typeof reducers,
  ): Promise<void> {
    checkLength('dest', dest, source.length);
    const apply = reducers[name] as Reducer<Element<Elements>>;
    const offset = offsetOf(this.#world.range, source, 'source');
    await this.#begin();
    const sum = copyOf(source, source.length);
    const part = copyOf(source, source.length);
    for (let pe = 0; pe < this.nPes; pe++) {
      this.#peer(pe).get(offset, bytesOf(pe === 0 ? sum : part));
      if (pe > 0) apply(sum, part);
    }
    await this.#finish();
    dest.set(sum as never);
  }

  /** A number of each PE, in the team's order; the caller ends with `#finish`. */
  async #exchange<Value extends number | bigint>(value: Value): Promise<Value[]> {
    const own = new BigUint64Array(this.#world.range.buffer, this.#agreement, 1);
    own[0] = BigInt(value);
    await this.#begin();
    const word = new BigUint64Array(1);
    return this.#ranks.map((_, pe) => {
      this.#peer(pe).get(AGREEMENT_OFFSET, bytesOf(word));
      return (typeof value === 'bigint' ? word[0]! : Number(word[0]!)) as Value;
    });
  }

  get #agreement(): number {
    return this.#world.range.base + AGREEMENT_OFFSET;
  }

  #begin(): Promise<void> {
    this.quiet();
    return this.sync();
  }

  /** All have read; their sources may change. */
  #finish(): Promise<void> {
    return this.sync();
  }

  #peer(pe: number): World['peers'][number] {
    return this.#world.peers[this.#ranks[pe]!]!;
  }

  #rank(pe: number): number {
    const rank = this.#ranks[pe] ?? NO_PE;
    if (rank === NO_PE) {
      throw mustBe('pe', `a number from 0 to ${this.nPes - 1}`, pe);
    }
    return rank;
  }

  #flags(number = this.#number): Int32Array {
    const { buffer, base } = this.#world.range;
    return new Int32Array(buffer, base + number * TEAM_BYTES, TEAM_BYTES / 4);
  }

  /** Signals to a PE that this one has arrived. */
  #flag(rank: number, round: number, turn: number): void {
    const offset = this.#number * TEAM_BYTES + round * 4;
    const peer = this.#world.peers[rank]!;
    if (peer.base === undefined) {
      peer.put(offset, bytesOf(Int32Array.of(turn)));
      return;
    }
    Atomics.store(this.#world.node.words, (peer.base + offset) >>> 2, turn);
    this.#world.wake(rank);
  }
}

/** Undefined: the team has PEs of other machines, or is large. */
function arrivalsOf(world: World, ranks: readonly number[], number: number): number[] | undefined {
  if (ranks.length > FLAT_PES_MAX) return undefined;
  const words: number[] = [];
  for (const rank of ranks) {
    const base = world.peers[rank]!.base;
    if (base === undefined) return undefined;
    words.push((base + number * TEAM_BYTES + ARRIVED_OFFSET) >>> 2);
  }
  return words;
}

function checkLength(name: string, array: SymmetricArray, length: number): void {
  if (array.length >= length) return;
  throw new MisuseError(name, `must have at least ${length} elements, got ${array.length}`);
}
