/** Teams of PEs, and what a team does together (OpenSHMEM 1.5, 9.4 and 9.9). */
import type { WaitLimits } from '../base/wait-limits.js';
import { checkWhole, mustBe, shown } from '../errors/check-whole.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { Agreement, FIXED_TEAMS, NO_NUMBER } from './agreement.js';
import { AgreementRecords } from './agreement-records.js';
import { Collective } from './collective.js';
import { checkReduction, reducers, type Reducer } from './reduce.js';
import {
  bytesOf,
  checkType,
  copyOf,
  offsetOf,
  type Element,
  type SymmetricArray,
} from './symmetric.js';
import { AGREEMENT_OFFSET, ARRIVED_OFFSET, TEAMS_MAX, TEAM_BYTES } from './offsets.js';
import { finalizedEarly, type World } from './world.js';

/** A rank that has no place in a team. */
const NO_PE = -1;
/** Up to this size PEs of one machine look at the words of all others; larger teams take rounds. */
const FLAT_PES_MAX = 64;

/**
 * Each PE of a team calls its collectives, in the same order. They reject with MisuseError before
 * the PE takes part; with RefusalError ECONNRESET if a PE of the team fails: `survivors` is the
 * team of the others. `limits` of a collective: timeout (milliseconds) and signal, of all its waits
 * together. One that ends by them, by RefusalError ETIMEDOUT or the reason of the signal, leaves
 * the PE out of step with the others: `survivors` makes a team in which all are in step again.
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
  readonly #records: AgreementRecords;
  readonly #agreement: Agreement;
  #turn: number;
  #isDestroyed = false;

  /**
   * @internal Use `shmem.world` and `splitStrided`. `ranks`: of the team, in its order. `turn`: of
   * the last sync of teams that had the number, whose flags are still there.
   */
  constructor(
    world: World,
    ranks: readonly number[],
    number: number,
    teams: Map<number, ShmemTeam>,
    turn = 0,
  ) {
    this.#world = world;
    this.#ranks = ranks;
    this.#number = number;
    this.#teams = teams;
    this.myPe = ranks.indexOf(world.rank);
    this.nPes = ranks.length;
    this.#turn = turn;
    this.#arrivals = arrivalsOf(world, ranks, number);
    this.#records = new AgreementRecords(world, ranks, number);
    this.#agreement = new Agreement(this.#records, this.myPe, this.nPes, world.size);
    teams.set(number, this);
  }

  /** `shmem_team_translate_pe`: the number of this team's PE in another team; -1: not in it. */
  translatePe(pe: number, team: ShmemTeam): number {
    if (!(team instanceof ShmemTeam)) {
      throw mustBe('team', 'a team of this process (shmem.world, splitStrided)', team);
    }
    return team.#ranks.indexOf(this.#rank(pe));
  }

  /** The PEs of the team that have not failed, in its order. */
  get livePes(): number[] {
    this.#world.checkOpen();
    const failed = this.#world.findFailed();
    return this.#ranks.flatMap((rank, pe) => (failed.has(rank) ? [] : [pe]));
  }

  /**
   * `shmem_team_sync`: resolves when all PEs of the team have called it. A call that ends by its
   * timeout or signal counts as made. Rejects with MisuseError; RefusalError ETIMEDOUT, ECONNRESET
   * (a PE of the team has failed); the reason of the signal.
   */
  sync(limits?: WaitLimits): Promise<void> {
    return this.syncAs('sync', limits);
  }

  /** @internal A sync that is a collective of another name. */
  async syncAs(operation: string, limits?: WaitLimits): Promise<void> {
    return this.meet(new Collective(operation, limits));
  }

  /** @internal A sync as a part of a collective. */
  meet(collective: Collective): Promise<void> {
    this.#checkUsable();
    const turn = ++this.#turn;
    if (this.#arrivals) return this.#meet(this.#arrivals, turn, collective);
    return this.#meetInRounds(turn, collective);
  }

  async #meetInRounds(turn: number, collective: Collective): Promise<void> {
    const world = this.#world;
    const { nPes } = this;
    const flags = this.#flags();
    for (let round = 0, distance = 1; distance < nPes; round++, distance *= 2) {
      this.#flag(this.#ranks[(this.myPe + distance) % nPes]!, round, turn);
      if (Atomics.load(flags, round) - turn >= 0) continue;
      const arrived = (): boolean => Atomics.load(flags, round) - turn >= 0;
      const { operation, limits, timeout } = collective;
      await world.until(operation, arrived, limits, this.#ranks, timeout);
    }
    return world.afterEvents();
  }

  /**
   * On one machine a PE stores its arrival and looks at those of all others: each PE waits once.
   * The rounds of a dissemination barrier would need the processor once per round, which is what
   * time goes to if PEs outnumber processors.
   */
  async #meet(arrivals: readonly number[], turn: number, collective: Collective): Promise<void> {
    const { words } = this.#world.node;
    let next = 0;
    const complete = (): boolean => {
      while (next < arrivals.length && Atomics.load(words, arrivals[next]!) - turn >= 0) next++;
      return next === arrivals.length;
    };
    Atomics.store(words, arrivals[this.myPe]!, turn);
    if (!complete()) {
      const { operation, limits, timeout } = collective;
      return this.#world.until(operation, complete, limits, this.#ranks, timeout);
    }
    // The last PE wakes those that sleep.
    for (const rank of this.#ranks) this.#world.wake(rank);
    return this.#world.afterEvents();
  }

  /** `shmem_broadcast`: `source` of the PE `root` goes to `dest` of all. */
  async broadcast<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    root: number,
    limits?: WaitLimits,
  ): Promise<void> {
    const collective = new Collective('broadcast', limits);
    const rank = this.#rank(root, 'root');
    const offset = this.#sourceOf(dest, source);
    checkLength('dest', dest, source.length);
    await this.#begin(collective);
    this.#world.peers[rank]!.get(offset, bytesOf(dest.subarray(0, source.length) as Elements));
    await this.meet(collective);
  }

  /** `shmem_collect`: the elements of all PEs, one after the other; the numbers may differ. */
  async collect<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    limits?: WaitLimits,
  ): Promise<void> {
    const collective = new Collective('collect', limits);
    const offset = this.#sourceOf(dest, source);
    const counts = await this.#exchange(source.length, collective);
    const total = counts.reduce((sum, count) => sum + count, 0);
    // The others have that number only now as well: this PE stays in step with them.
    if (dest.length < total) await this.meet(collective);
    checkLength('dest', dest, total);
    const all = copyOf(dest, total);
    let at = 0;
    for (const [pe, count] of counts.entries()) {
      this.#peer(pe).get(offset, bytesOf(all.subarray(at, at + count) as Elements));
      at += count;
    }
    await this.meet(collective);
    bytesOf(dest).set(bytesOf(all));
  }

  /** `shmem_fcollect`: the same number of elements of each PE. */
  async fcollect<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    limits?: WaitLimits,
  ): Promise<void> {
    const collective = new Collective('fcollect', limits);
    const offset = this.#sourceOf(dest, source);
    checkLength('dest', dest, source.length * this.nPes);
    await this.#begin(collective);
    const all = copyOf(dest, source.length * this.nPes);
    for (let pe = 0; pe < this.nPes; pe++) {
      const part = all.subarray(pe * source.length, (pe + 1) * source.length) as Elements;
      this.#peer(pe).get(offset, bytesOf(part));
    }
    await this.meet(collective);
    bytesOf(dest).set(bytesOf(all));
  }

  /** `shmem_alltoall`: block `i` of `source` goes to PE `i`, `nelems` elements each. */
  async alltoall<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    nelems: number,
    limits?: WaitLimits,
  ): Promise<void> {
    return this.#alltoalls(new Collective('alltoall', limits), dest, source, 1, 1, nelems);
  }

  /** `shmem_alltoalls`: the same with strides in elements, `dst` in `dest`, `sst` in `source`. */
  async alltoalls<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    dst: number,
    sst: number,
    nelems: number,
    limits?: WaitLimits,
  ): Promise<void> {
    return this.#alltoalls(new Collective('alltoalls', limits), dest, source, dst, sst, nelems);
  }

  async #alltoalls<Elements extends SymmetricArray>(
    collective: Collective,
    dest: Elements,
    source: Elements,
    dst: number,
    sst: number,
    nelems: number,
  ): Promise<void> {
    const offset = this.#sourceOf(dest, source);
    checkWhole('nelems', nelems, 0, 2 ** 31);
    checkWhole('dst', dst, 1, 2 ** 31);
    checkWhole('sst', sst, 1, 2 ** 31);
    const last = nelems * this.nPes - 1;
    checkLength('source', source, last < 0 ? 0 : last * sst + 1);
    checkLength('dest', dest, last < 0 ? 0 : last * dst + 1);
    const width = source.BYTES_PER_ELEMENT;
    await this.#begin(collective);
    const span = nelems === 0 ? 0 : (nelems - 1) * sst + 1;
    const all = copyOf(dest, span * this.nPes);
    for (let pe = 0; pe < this.nPes && span > 0; pe++) {
      const block = all.subarray(pe * span, (pe + 1) * span) as Elements;
      this.#peer(pe).get(offset + this.myPe * nelems * sst * width, bytesOf(block));
    }
    await this.meet(collective);
    for (let pe = 0; pe < this.nPes; pe++) {
      for (let index = 0; index < nelems; index++) {
        dest[(pe * nelems + index) * dst] = all[pe * span + index * sst]!;
      }
    }
  }

  /** `shmem_and_reduce`: of whole numbers, element by element, over all PEs. */
  andReduce<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    limits?: WaitLimits,
  ): Promise<void> {
    return this.#reduce(dest, source, 'and', limits);
  }

  /** `shmem_or_reduce`. */
  orReduce<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    limits?: WaitLimits,
  ): Promise<void> {
    return this.#reduce(dest, source, 'or', limits);
  }

  /** `shmem_xor_reduce`. */
  xorReduce<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    limits?: WaitLimits,
  ): Promise<void> {
    return this.#reduce(dest, source, 'xor', limits);
  }

  /** `shmem_max_reduce`. */
  maxReduce<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    limits?: WaitLimits,
  ): Promise<void> {
    return this.#reduce(dest, source, 'max', limits);
  }

  /** `shmem_min_reduce`. */
  minReduce<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    limits?: WaitLimits,
  ): Promise<void> {
    return this.#reduce(dest, source, 'min', limits);
  }

  /** `shmem_sum_reduce`. */
  sumReduce<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    limits?: WaitLimits,
  ): Promise<void> {
    return this.#reduce(dest, source, 'sum', limits);
  }

  /** `shmem_prod_reduce`. */
  prodReduce<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    limits?: WaitLimits,
  ): Promise<void> {
    return this.#reduce(dest, source, 'prod', limits);
  }

  /**
   * `shmem_team_split_strided`: a team of the PEs `start`, `start + stride`…, `size` of them. All
   * PEs of this team call it; undefined: this PE is not in the new one. `stride` may be negative,
   * and 0 only for one PE: each PE is in the new team once. Rejects with MisuseError; RefusalError
   * ENOMEM (64 teams exist).
   */
  async splitStrided(
    start: number,
    stride: number,
    size: number,
    limits?: WaitLimits,
  ): Promise<ShmemTeam | undefined> {
    const collective = new Collective('splitStrided', limits);
    checkWhole('start', start, 0, this.nPes - 1);
    checkWhole('size', size, 1, this.nPes);
    const last = start + (size - 1) * stride;
    const isInside = Number.isInteger(stride) && last >= 0 && last < this.nPes;
    if (!isInside || (stride === 0 && size > 1)) {
      const rule = `must lead to ${size} different PEs of the team, from ${start} on`;
      throw new MisuseError('stride', `${rule} and below ${this.nPes}, got ${shown(stride)}`);
    }
    return this.#split(
      Array.from({ length: size }, (_, index) => start + index * stride),
      collective,
    );
  }

  /**
   * `shmem_team_split_2d`: teams of a grid whose rows have `xrange` PEs: the one of this PE's row,
   * and the one of its column. An `xrange` above the size of the team is that size.
   */
  async split2d(
    xrange: number,
    limits?: WaitLimits,
  ): Promise<{ readonly x: ShmemTeam; readonly y: ShmemTeam }> {
    const collective = new Collective('split2d', limits);
    checkWhole('xrange', xrange, 1, 2 ** 31 - 1);
    const all = Array.from({ length: this.nPes }, (_, pe) => pe);
    const width = Math.min(xrange, this.nPes);
    const rows = Math.ceil(this.nPes / width);
    let [x, y]: (ShmemTeam | undefined)[] = [];
    for (let row = 0; row < rows; row++) {
      const pes = all.filter((pe) => Math.floor(pe / width) === row);
      x = (await this.#split(pes, collective)) ?? x;
    }
    for (let column = 0; column < width; column++) {
      const pes = all.filter((pe) => pe % width === column);
      y = (await this.#split(pes, collective)) ?? y;
    }
    return { x: x!, y: y! };
  }

  /**
   * The team of the PEs that have not failed. Each of them calls it, and all get the same team, at
   * whatever instant others fail: a PE of the new team that fails is reported by the next
   * collective of that one. A call that ends by its limits has not ended for the others: call it
   * again. Rejects with MisuseError; RefusalError ENOMEM, ETIMEDOUT, ECONNRESET (a PE has
   * finalized); the reason of the signal.
   */
  async survivors(limits?: WaitLimits): Promise<ShmemTeam> {
    const collective = new Collective('survivors', limits);
    return this.agree(collective, (pe) => {
      throw finalizedEarly('survivors', this.#ranks[pe]!);
    });
  }

  /** @internal `finished`: called for a PE that has finalized without it. */
  async agree(collective: Collective, finished: (pe: number) => void): Promise<ShmemTeam> {
    const world = this.#world;
    this.#checkUsable();
    world.findFailed();
    world.checkMember(collective.operation);
    let team: ShmemTeam | undefined;
    const look = (): boolean => {
      this.#agreement.arrive({ used: this.#usedNumbers, turnMax: world.turnMax });
      const decision = this.#agreement.step(finished);
      if (!decision) return false;
      const { number, turn, members } = decision;
      if (number === NO_NUMBER) throw noTeam(collective.operation);
      const ranks = members.map((pe) => this.#ranks[pe]!);
      // It may have been stopped since the others decided.
      world.checkMember(collective.operation);
      team = new ShmemTeam(world, ranks, number, this.#teams, turn);
      return true;
    };
    const { operation, limits, timeout } = collective;
    await world.until(operation, look, limits, [], timeout);
    return team!;
  }

  /**
   * `shmem_team_destroy`: all PEs of the team call it, which then has no collectives any more.
   * `shmem.world` and `shmem.shared` stay.
   */
  async destroy(limits?: WaitLimits): Promise<void> {
    const collective = new Collective('destroy', limits);
    if (this.#number < FIXED_TEAMS) {
      const name = this.#number === 0 ? 'shmem.world' : 'shmem.shared';
      throw new MisuseError('team', `must be of splitStrided, split2d or survivors, got ${name}`);
    }
    await this.meet(collective);
    this.#isDestroyed = true;
    this.#teams.delete(this.#number);
    this.#world.turnMax = Math.max(this.#world.turnMax, this.#turn);
    this.#records.clear();
  }

  /** @internal Returns when all writes to PEs of the team are where they go. */
  quiet(): void {
    for (const rank of this.#ranks) this.#world.peers[rank]!.quiet();
  }

  /** A bit for each team of this PE. */
  get #usedNumbers(): bigint {
    return [...this.#teams.keys()].reduce((used, number) => used | (1n << BigInt(number)), 0n);
  }

  async #split(pes: readonly number[], collective: Collective): Promise<ShmemTeam | undefined> {
    const words = await this.#exchange(this.#usedNumbers, collective);
    const taken = words.reduce((all, one) => all | one, 0n);
    let number = 0;
    while ((taken >> BigInt(number)) & 1n) number++;
    if (number >= TEAMS_MAX) throw noTeam(collective.operation);
    const ranks = pes.map((pe) => this.#ranks[pe]!);
    const isMember = ranks.includes(this.#world.rank);
    if (isMember) this.#flags(number).fill(0);
    const team = isMember ? new ShmemTeam(this.#world, ranks, number, this.#teams) : undefined;
    // No flag of the new team is set before all its PEs have cleared theirs.
    await this.meet(collective);
    return team;
  }

  async #reduce<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    name: keyof typeof reducers,
    limits?: WaitLimits,
  ): Promise<void> {
    const collective = new Collective(`${name}Reduce`, limits);
    const offset = this.#sourceOf(dest, source);
    checkLength('dest', dest, source.length);
    checkReduction(name, source);
    const apply = reducers[name] as Reducer<Element<Elements>>;
    await this.#begin(collective);
    const sum = copyOf(source, source.length);
    const part = copyOf(source, source.length);
    for (let pe = 0; pe < this.nPes; pe++) {
      this.#peer(pe).get(offset, bytesOf(pe === 0 ? sum : part));
      if (pe > 0) apply(sum, part);
    }
    await this.meet(collective);
    dest.set(sum as never);
  }

  /** Another team may have the number of one that is destroyed. */
  #checkUsable(): void {
    this.#world.checkOpen();
    if (!this.#isDestroyed) return;
    throw new MisuseError('team', 'is destroyed; use another team, or destroy this one later');
  }

  /** Offset of the source of a collective, whose elements have the type of `dest`. */
  #sourceOf(dest: SymmetricArray, source: SymmetricArray): number {
    this.#checkUsable();
    checkType('source', source, 'dest', dest);
    return offsetOf(this.#world.range, source, 'source');
  }

  /** A number of each PE, in the team's order; the caller ends with `meet`. */
  async #exchange<Value extends number | bigint>(
    value: Value,
    collective: Collective,
  ): Promise<Value[]> {
    const at = this.#world.range.base + AGREEMENT_OFFSET;
    new BigUint64Array(this.#world.range.buffer, at, 1)[0] = BigInt(value);
    await this.#begin(collective);
    const word = new BigUint64Array(1);
    return this.#ranks.map((_, pe) => {
      this.#peer(pe).get(AGREEMENT_OFFSET, bytesOf(word));
      return (typeof value === 'bigint' ? word[0]! : Number(word[0]!)) as Value;
    });
  }

  /** A `meet` at the end of the collective follows: all have read, their sources may change. */
  async #begin(collective: Collective): Promise<void> {
    this.quiet();
    return this.meet(collective);
  }

  #peer(pe: number): World['peers'][number] {
    return this.#world.peers[this.#ranks[pe]!]!;
  }

  #rank(pe: number, name = 'pe'): number {
    const rank = this.#ranks[pe] ?? NO_PE;
    if (rank === NO_PE || typeof pe !== 'number') {
      throw mustBe(name, `a number from 0 to ${this.nPes - 1}`, pe);
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

function noTeam(operation: string): RefusalError {
  const text = `${operation}: all ${TEAMS_MAX} teams of a PE are taken; destroy some`;
  return new RefusalError('ENOMEM', text);
}
