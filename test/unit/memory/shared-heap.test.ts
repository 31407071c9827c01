/** The heap that the processes of a device share, against a model of its blocks. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { BLOCK_SIZE, BlockLayout, BlockParametersLayout, Errno } from '#build/abi.js';
import { Random } from '../../simulation/random.js';
import { SharedArena } from '../../support/shared-arena.js';

const { OK, EINVAL, EBUSY, ENOMEM } = Errno;
const UNIT = 64;
const BLOCKS = 7;
/** Their bits are in different words of a block. */
const SLOTS = [0, 1, 31, 32, 63, 64, 130, 255];
const up = (value: number, unit: number): number => Math.ceil(value / unit) * unit;

interface Block {
  readonly start: number;
  readonly size: number;
  readonly length: number;
  readonly holders: Set<number>;
}

class World {
  readonly #arena = new SharedArena({
    regionsMax: 2,
    protectionDomainsMax: 1,
    contextsMax: 256,
    blocksMax: BLOCKS,
    servicesMax: 0,
    inboxEntries: 0,
    poolUsersMax: 0,
  });
  readonly #processes = SLOTS.map((slot) => ({ slot, ...this.#arena.attach(slot) }));
  readonly #local = this.#processes[0]!.local;
  readonly #at = this.#arena.heap.alloc(BlockParametersLayout.size);
  readonly #parameters = this.#arena.at(BlockParametersLayout, this.#at);
  readonly #start = this.#arena.state.heapStart;
  readonly #end = this.#arena.state.heapEnd;
  readonly #entries = Array.from({ length: BLOCKS }, (_, index) =>
    this.#arena.at(BlockLayout, this.#arena.state.blocks + index * BLOCK_SIZE),
  );
  readonly #random: Random;
  /** By address. */
  #blocks: Block[] = [];
  /** From here on no byte was ever in a block. */
  #fresh = this.#start;

  constructor(seed: number) {
    this.#random = new Random(seed);
  }

  #call(name: 'allocBlock' | 'attachBlock', context: number, values: object): number {
    Object.assign(this.#parameters, values);
    return this.#arena.exports[name](context, this.#at);
  }

  /** The lowest aligned address with room for `size` bytes. */
  #fit(size: number, alignment: number): number | undefined {
    let end = this.#start;
    for (const next of [...this.#blocks, { start: this.#end, size: 0 }]) {
      const at = up(end, alignment);
      if (at + size <= next.start) return at;
      end = next.start + next.size;
    }
    return undefined;
  }

  alloc(): void {
    const random = this.#random;
    const { slot, context } = random.pick(this.#processes);
    const room = this.#end - this.#start;
    const some = [0, 1, UNIT, random.below(300), random.below(room)];
    const length = random.pick([...some, ...some, room, 2 ** 32 - 1]);
    const alignment = random.pick([0, UNIT, UNIT, 128, 4096, 2 ** 16]);
    const size = Math.max(UNIT, up(length, UNIT));
    const fit = this.#fit(size, Math.max(UNIT, alignment));
    const start = this.#blocks.length < BLOCKS ? fit : undefined;
    const errno = this.#call('allocBlock', context, { length, alignment });
    assert.is(errno, start === undefined ? ENOMEM : OK, `${length} bytes`);
    if (start === undefined) return;
    const { address, dirty } = this.#parameters;
    assert.equal([address, dirty], [start, Math.min(Math.max(this.#fresh - start, 0), size)]);
    this.#fresh = Math.max(this.#fresh, start + size);
    this.#blocks.push({ start, size, length, holders: new Set([slot]) });
    this.#blocks.sort((one, other) => one.start - other.start);
  }

  /** An address in or at a block, and that block. */
  #anywhere(): readonly [address: number, block: Block | undefined] {
    const random = this.#random;
    const near = this.#blocks.length > 0 ? random.pick(this.#blocks) : undefined;
    const { start = this.#start, size = UNIT } = near ?? {};
    const address = start + random.pick([0, 0, 0, 1, size - 1, size, -1, random.below(size)]);
    const holds = (one: Block): boolean => one.start <= address && address < one.start + one.size;
    return [address, this.#blocks.find(holds)];
  }

  attach(): void {
    const { slot, context } = this.#random.pick(this.#processes);
    const [address, block] = this.#anywhere();
    const left = block ? block.start + block.size - address : 0;
    const length = this.#random.pick([0, 1, left, left + 1]);
    const errno = this.#call('attachBlock', context, { address, length });
    if (!block || length > left) return assert.is(errno, EINVAL);
    assert.is(errno, block.holders.has(slot) ? EBUSY : OK);
    block.holders.add(slot);
    if (errno !== OK) return;
    assert.equal([this.#parameters.address, this.#parameters.length], [block.start, block.length]);
  }

  free(): void {
    const [address, block] = this.#anywhere();
    const isHolder = ({ slot }: { readonly slot: number }) => block?.holders.has(slot) ?? false;
    const holder = this.#random.chance(0.8) ? this.#processes.find(isHolder) : undefined;
    const { slot, context } = holder ?? this.#random.pick(this.#processes);
    const isHeld = block?.start === address && block.holders.delete(slot);
    const errno = this.#arena.exports.deallocBlock(context, address);
    assert.is(errno, isHeld ? OK : EINVAL);
    this.#blocks = this.#blocks.filter(({ holders }) => holders.size > 0);
  }

  check(): void {
    const used = this.#blocks.reduce((sum, { size }) => sum + size, 0);
    const { exports } = this.#arena;
    assert.is(exports.arenaBytesFree(this.#local), this.#end - this.#start - used);
  }

  /** Another process writes anything. Calls end, and what they give lies in the heap. */
  scribble(): void {
    const random = this.#random;
    const [start, end] = [this.#start, this.#end];
    const places = [0, start, start - UNIT, start + UNIT, start + 32, end, end - UNIT, UNIT];
    for (const entry of this.#entries) {
      if (random.chance(0.2)) entry.start = random.pick(places);
      if (random.chance(0.2)) entry.size = random.pick([0, UNIT, 32, 2 * UNIT, end - start]);
      if (random.chance(0.1)) entry.holders2 = 4n;
      if (random.chance(0.3)) entry.next = random.below(BLOCKS + 3);
    }
    const { state, exports } = this.#arena;
    if (random.chance(0.3)) state.blockFirst = random.below(BLOCKS + 3);
    if (random.chance(0.3)) state.blockFree = random.below(BLOCKS + 3);
    if (random.chance(0.3)) state.heapFresh = random.pick([0, start, end, end + UNIT]);
    for (let count = random.below(4); count > 0; count--) {
      const { context } = random.pick(this.#processes);
      const [address] = this.#anywhere();
      this.#call('attachBlock', context, { address, length: 1 });
      exports.deallocBlock(context, address);
      const errno = this.#call('allocBlock', context, { length: 100, alignment: UNIT });
      const given = this.#parameters.address;
      assert.ok(errno === ENOMEM || (given >= start && given <= end - 128), `${given}`);
      assert.ok(exports.arenaBytesFree(this.#local) <= end - start);
    }
  }

  /** Makes the lists anew, from entries that lie apart and in the heap. */
  repair(): void {
    const { state, exports } = this.#arena;
    const blocks: Block[] = [];
    for (const entry of [...this.#entries].reverse()) {
      const { start, size, length } = entry;
      const words = [entry.holders0, entry.holders1, entry.holders2, entry.holders3];
      const isHolder = (slot: number): boolean =>
        BigInt.asUintN(1, words[slot >> 6]! >> BigInt(slot & 63)) === 1n;
      const holders = new Set(SLOTS.filter(isHolder));
      const isInside = start >= this.#start && size > 0 && start + size <= this.#end;
      const isApart = blocks.every(
        (one) => start + size <= one.start || one.start + one.size <= start,
      );
      const isSound = isInside && isApart && start % UNIT === 0 && size % UNIT === 0;
      if (isSound && holders.size > 0) blocks.push({ start, size, length, holders });
    }
    const ends = blocks.map(({ start, size }) => start + size);
    this.#fresh = Math.max(this.#start, Math.min(state.heapFresh, this.#end), ...ends);
    this.#blocks = blocks.sort((one, other) => one.start - other.start);
    exports.arenaRepair(this.#local);
    assert.equal(this.#arena.audit(this.#local), []);
  }

  step(): void {
    const kinds = ['alloc', 'alloc', 'attach', 'free', 'free', 'repair'] as const;
    this[this.#random.pick(kinds)]();
    this.check();
  }
}

test('blocks are where the model has them, whichever slots hold them, and after each repair', () => {
  for (let seed = 1; seed <= 40; seed++) {
    const world = new World(seed);
    for (let step = 0; step < 60; step++) {
      if (step % 20 === 19) {
        world.scribble();
        world.repair();
      }
      world.step();
    }
  }
});

test.run();
