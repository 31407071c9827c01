/**
 * `bench keys`: what a lookup costs at 1,000 and at 1,000,000 live keys, with real keys in random
 * order. Both tables are measured by the same loops over lists of the same length, in turn.
 *
 * Independent: keys and addresses come from a list in memory, as they come from packets; the next
 * lookup does not wait for this one. Dependent: the linear address that a lookup gives is the next
 * key, so the chain goes through the table and nothing else, each key once.
 *
 * The yardstick is bare memory of the size of the larger table: one load of four bytes per 32, no
 * check at all, in random order. No lookup that touches memory can be faster.
 */
import { Arena } from '../memory/arena';
import { Errno } from '../memory/errno';
import { AccessFlag } from '../region/access-flag';
import {
  RANDOM_KEYS,
  RegionParameters,
  killRegion,
  regionReleased,
  registerRegion,
  translate,
} from '../region/key-table';
import { allocProtectionDomain } from '../region/protection-domain';
import { Random, makeArena, parameters, setCandidates } from './arena';
import { ROUNDS, Samples, WARM_UP, consume, figure, printFigures } from './bench';

const FEW: u32 = 1000;
const MANY: u32 = 1000000;
/** Lookups per measurement. */
const LOOKUPS: u32 = 1 << 20;
/** Bytes of a region, and what each lookup asks for. */
const REGION: u32 = 4096;
const ASKED: u32 = 64;
const NEED: u32 = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE;
/** An entry of the list of lookups: key, and offset into its region. */
const LOOKUP_SIZE: u32 = 8;

/** A table with its keys, the list of lookups, and where the chain begins. */
class Table {
  arena: Arena;
  pd: u32;
  count: u32;
  /** u32 each. */
  keys: usize;
  lookups: usize;
  independent: Samples = new Samples();
  dependent: Samples = new Samples();
  /** Sum of the independent lookups of one run. */
  expected: u64 = 0;
  /** Nanoseconds that registering all keys took. */
  filledIn: u64 = 0;

  constructor(count: u32, random: Random) {
    const arenaBytes: u32 = count * 256 + 65536;
    const at = grow(arenaBytes);
    this.arena = makeArena(at, at + arenaBytes, count);
    this.pd = allocProtectionDomain(this.arena, 0);
    this.count = count;
    this.keys = grow(count * 4);
    this.lookups = grow(LOOKUPS * LOOKUP_SIZE);
    this.fill(random);
  }

  private fill(random: Random): void {
    const start = process.hrtime();
    for (let index: u32 = 0; index < this.count; index++) {
      const key = this.register(random, addressOf(index));
      store<u32>(this.keys + (index << 2), key);
    }
    this.filledIn = process.hrtime() - start;
    for (let index: u32 = 0; index < LOOKUPS; index++) {
      const which = random.below(this.count);
      const offset = random.below(REGION - ASKED);
      const lookup = this.lookups + index * LOOKUP_SIZE;
      store<u32>(lookup, load<u32>(this.keys + (which << 2)));
      store<u32>(lookup, offset, 4);
      this.expected += addressOf(which) + offset;
    }
  }

  /** As the host does: sixteen random candidates, again when all met a taken slot. */
  private register(random: Random, address: u32): u32 {
    const wanted = parameters();
    wanted.iova = IOVA;
    wanted.address = address;
    wanted.length = REGION;
    wanted.pd = this.pd;
    wanted.access = NEED;
    const candidates = changetype<usize>(wanted) + offsetof<RegionParameters>('random');
    for (let attempt = 0; attempt < 64; attempt++) {
      for (let draw: u32 = 0; draw < RANDOM_KEYS; draw++) {
        store<u32>(candidates + (draw << 2), <u32>(random.next() >> 24));
      }
      if (registerRegion(this.arena, 0, wanted) == Errno.OK) return wanted.key;
    }
    return unreachable();
  }

  /** Registers every key anew, so that its address is the next key: one cycle through all. */
  chain(random: Random): void {
    shuffle(this.keys, this.count, random);
    const wanted = parameters();
    for (let index: u32 = 0; index < this.count; index++) {
      const key = load<u32>(this.keys + (index << 2));
      const next = index + 1 < this.count ? index + 1 : 0;
      killRegion(this.arena, key, 0);
      regionReleased(this.arena, key);
      wanted.iova = IOVA;
      wanted.address = load<u32>(this.keys + (next << 2));
      wanted.length = REGION;
      wanted.pd = this.pd;
      wanted.access = NEED;
      setCandidates(key);
      if (registerRegion(this.arena, 0, wanted) != Errno.OK) unreachable();
    }
  }
}

/** Not 0, so that the subtraction is one; not aligned with anything. */
const IOVA: u64 = 0x7f12_3450_0000;

function addressOf(index: u32): u32 {
  return 4096 + index * 64;
}

/** Zero bytes at the end of memory. */
function grow(bytes: u32): usize {
  const at = (<usize>memory.size()) << 16;
  if (memory.grow((bytes + 0xffff) >>> 16) < 0) unreachable();
  return at;
}

function independent(table: Table, round: i32): void {
  const arena = table.arena;
  const pd = table.pd;
  const end = table.lookups + LOOKUPS * LOOKUP_SIZE;
  let sum: u64 = 0;
  const start = process.hrtime();
  for (let at = table.lookups; at < end; at += LOOKUP_SIZE) {
    sum += translate(arena, load<u32>(at), pd, IOVA + load<u32>(at, 4), ASKED, NEED);
  }
  table.independent.add(round, start, LOOKUPS);
  // Every lookup found its own region, or the numbers mean nothing.
  if (sum != table.expected) unreachable();
  consume(sum);
}

function dependent(table: Table, round: i32): void {
  const arena = table.arena;
  const pd = table.pd;
  let key = load<u32>(table.keys);
  const first = key;
  const start = process.hrtime();
  // Whole cycles, so that the end is known.
  const count = LOOKUPS - (LOOKUPS % table.count);
  const turns = count == 0 ? table.count : count;
  for (let turn: u32 = 0; turn < turns; turn++) {
    key = <u32>translate(arena, key, pd, IOVA, ASKED, NEED);
  }
  table.dependent.add(round, start, turns);
  if (key != first) unreachable();
  consume(key);
}

/** Memory of SLOTS entries that holds one cycle through all of them, in random order. */
class Bare {
  static readonly SLOTS: u32 = 1 << 21;
  static readonly SIZE: u32 = 32;
  at: usize = grow(Bare.SLOTS * Bare.SIZE);
  /** All slots in random order. */
  order: usize = grow(Bare.SLOTS * 4);
  independent: Samples = new Samples();
  dependent: Samples = new Samples();

  constructor(random: Random) {
    const order = this.order;
    for (let index: u32 = 0; index < Bare.SLOTS; index++) store<u32>(order + (index << 2), index);
    shuffle(order, Bare.SLOTS, random);
    for (let index: u32 = 0; index < Bare.SLOTS; index++) {
      const next = load<u32>(order + (((index + 1) & (Bare.SLOTS - 1)) << 2));
      store<u32>(this.at + load<u32>(order + (index << 2)) * Bare.SIZE, next);
    }
  }

  measure(round: i32): void {
    let slot: u32 = 0;
    let start = process.hrtime();
    for (let turn: u32 = 0; turn < LOOKUPS; turn++) slot = load<u32>(this.at + slot * Bare.SIZE);
    this.dependent.add(round, start, LOOKUPS);
    consume(slot);
    let sum: u32 = 0;
    start = process.hrtime();
    for (let turn: u32 = 0; turn < LOOKUPS; turn++) {
      sum += load<u32>(this.at + load<u32>(this.order + (turn << 2)) * Bare.SIZE);
    }
    this.independent.add(round, start, LOOKUPS);
    consume(sum);
  }
}

/** Sattolo's: one cycle through all. */
function shuffle(list: usize, count: u32, random: Random): void {
  for (let index = count - 1; index > 0; index--) {
    const other = list + (random.below(index) << 2);
    const here = list + (index << 2);
    const value = load<u32>(here);
    store<u32>(here, load<u32>(other));
    store<u32>(other, value);
  }
}

export function benchKeys(): void {
  const random = new Random(0x1234567);
  const few = new Table(FEW, random);
  const many = new Table(MANY, random);
  figure('fill_1000000_ns', <f64>many.filledIn / <f64>MANY);
  const bare = new Bare(random);
  bare.measure(0);
  for (let round = 0; round < ROUNDS + WARM_UP; round++) {
    independent(few, round);
    independent(many, round);
    bare.measure(round);
  }
  const start = process.hrtime();
  many.chain(random);
  figure('turn_over_1000000_ns', <f64>(process.hrtime() - start) / <f64>MANY);
  few.chain(random);
  for (let round = 0; round < ROUNDS + WARM_UP; round++) {
    dependent(few, round);
    dependent(many, round);
  }
  figure('independent_1000_ns', few.independent.median());
  figure('independent_1000000_ns', many.independent.median());
  figure('independent_memory_ns', bare.independent.median());
  figure('dependent_1000_ns', few.dependent.median());
  figure('dependent_1000000_ns', many.dependent.median());
  figure('dependent_memory_ns', bare.dependent.median());
  printFigures();
}
