/**
 * Every place to die at: each change of the tables that processes share is cut off before each of
 * its accesses to memory, and what is left is taken back; so is the taking back itself, cut off
 * before each of its accesses, by a third process. Afterwards the tables must hold
 * (support/arena-audit.ts), what the living have must be as it was, and everything else free.
 *
 * Changes of tables happen one at a time (arena-lock.ts), so a death is a call that ends early: no
 * schedules here. The sources are those that ship, instrumented (build.ts).
 */
import {
  AccessFlag,
  ArenaConfigLayout,
  ArenaLayout,
  BlockParametersLayout,
  ContextSlotLayout,
  Errno,
  KeyKind,
  PoolParametersLayout,
  PoolTake,
  PoolUserParametersLayout,
  RegionParametersLayout,
  ShareParametersLayout,
  SlotState,
} from '#build/abi.js';
import type { ArenaMemory } from '../../host/engine/arena.js';
import { structAt, type Layout, type Struct } from '../../host/engine/struct.js';
import { auditArena } from '../support/arena-audit.js';
import { OPTIMIZED, PLAIN, buildProtocol, type Protocol, type Variant } from './build.js';

const FIND = "import * as windows from './region/window';";
const ENTRY = `
import { ArenaConfig as Config, attachArena } from './memory/arena';
import * as heap from './memory/heap';
import * as share from './region/share';
import * as reaping from './region/reap';
import * as fast from './region/fast-region';
import * as pool from './region/pool';
import * as poolVerbs from './region/pool-verbs';
export function poolOpen(arena: usize, slot: u32, p: usize): u32 {
  return poolVerbs.openPool(changetype<Arena>(arena), slot, changetype<poolVerbs.PoolParameters>(p));
}
export function poolClose(arena: usize, slot: u32): u32 {
  return poolVerbs.closePool(changetype<Arena>(arena), slot, 0);
}
export function poolAddUser(arena: usize, slot: u32, p: usize): u32 {
  const parameters = changetype<poolVerbs.PoolUserParameters>(p);
  return poolVerbs.addUser(changetype<Arena>(arena), slot, parameters);
}
export function poolRemoveUser(arena: usize, slot: u32, user: u32): u32 {
  return poolVerbs.removeUser(changetype<Arena>(arena), slot, user);
}
export function poolAdd(arena: usize, slot: u32, key: u32): u32 {
  return pool.addNode(changetype<Arena>(arena), slot, 0, key, 0);
}
export function poolRemove(arena: usize, slot: u32, at: u32): u32 {
  return pool.removeNode(changetype<Arena>(arena), slot, 0, at);
}
export function poolTake(arena: usize, slot: u32, user: u32, bucket: u32): u32 {
  return pool.takeNode(changetype<Arena>(arena), slot, 0, user, bucket, 0xffffffff);
}
export function poolGive(arena: usize, slot: u32, user: u32, bucket: u32, at: u32): u32 {
  return pool.giveNode(changetype<Arena>(arena), slot, 0, user, bucket, at);
}
export function poolDrain(arena: usize, slot: u32, bucket: u32): u32 {
  pool.drainBucket(changetype<Arena>(arena), slot, 0, bucket);
  return 0;
}
export function attachLocal(local: usize, arena: usize, config: usize, slot: u32): void {
  attachArena(changetype<Arena>(local), arena, changetype<Config>(config), slot, 0);
}
export function allocBlock(arena: usize, slot: u32, p: usize): u32 {
  return heap.allocBlock(changetype<Arena>(arena), slot, changetype<heap.BlockParameters>(p));
}
export function holdBlock(arena: usize, slot: u32, p: usize): u32 {
  return heap.holdBlock(changetype<Arena>(arena), slot, changetype<heap.BlockParameters>(p));
}
export function freeBlock(arena: usize, slot: u32, address: u32): u32 {
  return heap.freeBlock(changetype<Arena>(arena), slot, address);
}
export function bytesFree(arena: usize): u32 { return heap.heapBytesFree(changetype<Arena>(arena)); }
export function allocShpd(arena: usize, slot: u32, at: usize): u32 {
  const p = changetype<share.ShareParameters>(at);
  return share.allocSharedDomain(changetype<Arena>(arena), slot, p);
}
export function sharePd(arena: usize, slot: u32, p: usize): u32 {
  return share.shareDomain(changetype<Arena>(arena), slot, changetype<share.ShareParameters>(p));
}
export function destroyPd(arena: usize, slot: u32, pd: u32): u32 {
  return domains.destroyProtectionDomain(changetype<Arena>(arena), pd, slot);
}
export function repair(arena: usize): void { reaping.repairTables(changetype<Arena>(arena)); }
export function reap(arena: usize, slot: u32, dead: u32): u32 {
  return reaping.reapSlot(changetype<Arena>(arena), dead);
}
export function registerFast(
  arena: usize, slot: u32, region: u32, area: u32, pd: u32, at: u32, length: u32,
): u32 {
  const a = changetype<Arena>(arena);
  return u32(fast.registerFast(a, slot, region, region, area, pd, at, at, length, 1));
}
`;

/** The protocol with what processes do besides. */
export function deathVariant(base: Variant): Variant {
  const edit = { file: 'entry.ts', find: FIND, replace: FIND + ENTRY };
  return { ...base, name: `deaths-${base.name}`, edits: [...base.edits, edit] };
}

type Calls = { readonly [name: string]: (...numbers: number[]) => number };

const CONFIG = 64;
const PARAMETERS = 256;
const LOCALS = 1024;
const ARENA = 2048;
const END = 65536;
/** Who dies; who finds it, and may die as well; who has something to lose. */
const VICTIM = 1;
const REAPER = 2;
const SURVIVOR = 0;
const LIMITS = {
  regionsMax: 6,
  protectionDomainsMax: 3,
  contextsMax: 3,
  blocksMax: 6,
  servicesMax: 0,
  inboxEntries: 0,
  poolUsersMax: 3,
};
const ACCESS = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.MW_BIND;
const SHARE_KEY = 0x1234n;

class Killed extends Error {}

/** What happened before, and what the death cuts off. */
interface Change {
  readonly name: string;
  readonly before?: (world: World) => void;
  readonly change: (world: World) => void;
}

class World {
  readonly calls: Calls;
  readonly memory: { readonly view: DataView };
  readonly #bytes: Uint8Array;
  #left = Infinity;
  steps = 0;
  /** The survivor's. */
  pd = 0;
  key = 0;
  block = 0;
  /** The victim's, from what came before. */
  own = { pd: 0, key: 0, window: 0, block: 0, area: 0, fast: 0, node: 0, user: 0 };
  /** Is there a pool that the survivor takes part in, and with how many regions? */
  pooled = -1;

  constructor(protocol: Protocol) {
    const memory = new WebAssembly.Memory({ initial: 1, maximum: 1 });
    const step = (): void => {
      this.steps++;
      if (this.#left-- <= 0) throw new Killed();
    };
    const module = new WebAssembly.Module(protocol.bytes);
    const instance = new WebAssembly.Instance(module, { env: { memory, step } });
    this.calls = instance.exports as unknown as Calls;
    this.#bytes = new Uint8Array(memory.buffer);
    this.memory = { view: new DataView(memory.buffer) };
    Object.assign(this.at(ArenaConfigLayout, CONFIG), LIMITS, { heapEnd: END });
    this.calls['arenaBytes']!(CONFIG);
    this.calls['arenaInit']!(ARENA, CONFIG);
    for (const slot of [SURVIVOR, VICTIM, REAPER]) {
      this.calls['attachLocal']!(this.local(slot), ARENA, CONFIG, slot);
      this.slot(slot).state = SlotState.LIVE;
    }
    this.pd = this.call(SURVIVOR, 'allocPd');
    this.key = this.register(SURVIVOR, this.pd, 0x10100);
    this.block = this.alloc(SURVIVOR, 1000);
    this.share(SURVIVOR, 'allocShpd');
  }

  at<L extends Layout>(layout: L, address: number): Struct<L> {
    return structAt(this.memory, layout, address);
  }

  /** A process's own copy of the arena. */
  local(slot: number): number {
    return LOCALS + slot * 256;
  }

  slot(slot: number): Struct<typeof ContextSlotLayout> {
    const { contextSlots } = this.at(ArenaLayout, this.local(SURVIVOR));
    return this.at(ContextSlotLayout, contextSlots + slot * 64);
  }

  call(slot: number, name: string, ...values: number[]): number {
    return this.calls[name]!(this.local(slot), slot, ...values) >>> 0;
  }

  ok(slot: number, name: string, ...values: number[]): void {
    const errno = this.call(slot, name, ...values);
    if (errno !== Errno.OK) throw new Error(`${name}: errno ${errno}`);
  }

  register(slot: number, pd: number, key: number, kind: number = KeyKind.REGION): number {
    const p = this.at(RegionParametersLayout, PARAMETERS);
    Object.assign(p, { iova: 4096n, address: 0xf000, length: 256, pd, access: ACCESS, kind });
    p.invalidatable = 1;
    for (let draw = 0; draw < 16; draw++) {
      const at = PARAMETERS + RegionParametersLayout.fields.random[0] + 4 * draw;
      this.memory.view.setUint32(at, key + 0x100 * draw, true);
    }
    this.ok(slot, 'register', PARAMETERS);
    return p.key;
  }

  alloc(slot: number, length: number): number {
    const p = this.at(BlockParametersLayout, PARAMETERS);
    Object.assign(p, { length, alignment: 64 });
    this.ok(slot, 'allocBlock', PARAMETERS);
    return p.address;
  }

  hold(slot: number, address: number): void {
    Object.assign(this.at(BlockParametersLayout, PARAMETERS), { address, length: 10 });
    this.ok(slot, 'holdBlock', PARAMETERS);
  }

  share(slot: number, name: 'allocShpd' | 'sharePd', pd = this.pd): void {
    const nonce = 77n;
    Object.assign(this.at(ShareParametersLayout, PARAMETERS), { shareKey: SHARE_KEY, nonce, pd });
    this.ok(slot, name, PARAMETERS);
  }

  openPool(slot: number): void {
    const p = this.at(PoolParametersLayout, PARAMETERS);
    Object.assign(p, { ulp0: 7n, ulp1: 0n, ulp2: 0n, ulp3: 0n, pd: 0 });
    Object.assign(p, {
      maxLength: 64,
      mrsMax: 4,
      mrsMin: 0,
      lowWater: 0,
      buckets: 4,
      bucketMrs: 2,
    });
    this.ok(slot, 'poolOpen', PARAMETERS);
  }

  /** A region that nobody has, of a pool. */
  pool(slot: number, key: number): void {
    const node = this.index(this.register(slot, 0, key, KeyKind.MOBILE_REGION));
    this.ok(slot, 'poolAdd', key);
    this.ok(slot, 'poolGive', 0, 0, node);
  }

  /** The survivor has a pool of two regions, and a user; the victim takes part. */
  sharePool(): void {
    this.openPool(SURVIVOR);
    this.pool(SURVIVOR, 0x50500);
    this.pool(SURVIVOR, 0x60600);
    this.pooled = 2;
    this.addUser(SURVIVOR);
    this.openPool(VICTIM);
  }

  addUser(slot: number): number {
    const p = this.at(PoolUserParametersLayout, PARAMETERS);
    Object.assign(p, { pool: 0, numMr: 1, weight: 1000 });
    this.ok(slot, 'poolAddUser', PARAMETERS);
    return p.user;
  }

  /** Where a key is. */
  index(key: number): number {
    return (key >>> 8) & this.at(ArenaLayout, this.local(SURVIVOR)).keyMask;
  }

  /** Takes one of the pool; where it is. */
  take(slot: number, user: number): number {
    return (this.call(slot, 'poolTake', user, 0) & PoolTake.INDEX) - 1;
  }

  /** A call of the data path: others see that it is under way. */
  inCall(work: () => void): void {
    this.call(VICTIM, 'enterCall');
    work();
    this.call(VICTIM, 'leaveCall');
  }

  /** Runs `work` and dies before access `steps`; false: it came to its end. */
  diesAt(steps: number, work: () => void): boolean {
    this.#left = steps;
    this.steps = 0;
    try {
      work();
      return false;
    } catch (error) {
      if (error instanceof Killed) return true;
      throw error;
    } finally {
      this.#left = Infinity;
    }
  }

  save(): Uint8Array {
    return this.#bytes.slice();
  }

  restore(saved: Uint8Array): void {
    this.#bytes.set(saved);
  }
}

/** Every change of a table, in the victim's hands. */
const CHANGES: readonly Change[] = [
  { name: 'allocPd', change: (w) => void w.call(VICTIM, 'allocPd') },
  {
    name: 'deallocPd',
    before: (w) => (w.own.pd = w.call(VICTIM, 'allocPd')),
    change: (w) => w.ok(VICTIM, 'destroyPd', w.own.pd),
  },
  {
    name: 'allocShpd',
    before: (w) => (w.own.pd = w.call(VICTIM, 'allocPd')),
    change: (w) => w.share(VICTIM, 'allocShpd', w.own.pd),
  },
  { name: 'sharePd', change: (w) => w.share(VICTIM, 'sharePd') },
  {
    name: 'leaving a shared domain',
    before: (w) => w.share(VICTIM, 'sharePd'),
    change: (w) => w.ok(VICTIM, 'destroyPd', w.pd),
  },
  { name: 'importPd', change: (w) => w.ok(VICTIM, 'attach', w.pd) },
  {
    name: 'regMr',
    before: (w) => w.share(VICTIM, 'sharePd'),
    change: (w) => void w.register(VICTIM, w.pd, 0x20200),
  },
  {
    name: 'deregMr',
    before: (w) => {
      w.share(VICTIM, 'sharePd');
      w.own.key = w.register(VICTIM, w.pd, 0x20200);
    },
    change: (w) => {
      w.ok(VICTIM, 'kill', w.own.key);
      w.call(VICTIM, 'release', w.own.key);
    },
  },
  {
    name: 'an invalidation of one’s own region',
    before: (w) => {
      w.share(VICTIM, 'sharePd');
      w.own.key = w.register(VICTIM, w.pd, 0x20200);
    },
    change: (w) => w.inCall(() => void w.call(VICTIM, 'invalidate', w.own.key, w.pd)),
  },
  {
    name: 'allocMw',
    before: (w) => w.share(VICTIM, 'sharePd'),
    change: (w) => void w.register(VICTIM, w.pd, 0x20200, KeyKind.WINDOW_TYPE_1),
  },
  {
    name: 'a bind to somebody else’s region',
    before: (w) => {
      w.share(VICTIM, 'sharePd');
      w.own.window = w.register(VICTIM, w.pd, 0x20200, KeyKind.WINDOW_TYPE_1);
    },
    change: (w) =>
      w.inCall(() => void w.call(VICTIM, 'bind', w.own.window, w.key, w.pd, 4096, 64, 2)),
  },
  {
    name: 'an unbind',
    before: (w) => {
      w.share(VICTIM, 'sharePd');
      w.own.window = w.register(VICTIM, w.pd, 0x20200, KeyKind.WINDOW_TYPE_1);
      w.call(VICTIM, 'bind', w.own.window, w.key, w.pd, 4096, 64, 2);
    },
    change: (w) => w.inCall(() => void w.call(VICTIM, 'bind', w.own.window, w.key, w.pd, 0, 0, 0)),
  },
  {
    name: 'REG_MR',
    before: (w) => {
      w.own.pd = w.call(VICTIM, 'allocPd');
      w.own.area = w.register(VICTIM, 0, 0x20200, KeyKind.AREA);
      w.own.fast = w.register(VICTIM, w.own.pd, 0x30300, KeyKind.FAST_REGION);
    },
    change: (w) =>
      w.inCall(() => {
        const { fast, area, pd } = w.own;
        w.call(VICTIM, 'registerFast', fast, area, pd, 0xf000, 64);
      }),
  },
  { name: 'createFmrPool', change: (w) => w.openPool(VICTIM) },
  { name: 'createFmrPool of others', before: (w) => w.sharePool(), change: (w) => w.openPool(2) },
  {
    name: 'a pool of one’s own ends',
    before: (w) => {
      w.openPool(VICTIM);
      w.pool(VICTIM, 0x50500);
    },
    change: (w) => {
      w.own.node = w.take(VICTIM, 0);
      w.ok(VICTIM, 'poolRemove', w.own.node);
      w.ok(VICTIM, 'kill', 0x50500);
      w.call(VICTIM, 'release', 0x50500);
      w.ok(VICTIM, 'poolClose');
    },
  },
  { name: 'createUser', before: (w) => w.sharePool(), change: (w) => void w.addUser(VICTIM) },
  {
    name: 'destroyUser',
    before: (w) => {
      w.sharePool();
      w.own.user = w.addUser(VICTIM);
    },
    change: (w) => w.ok(VICTIM, 'poolRemoveUser', w.own.user),
  },
  {
    name: 'addMr',
    before: (w) => {
      w.sharePool();
      w.own.key = w.register(VICTIM, 0, 0x70700, KeyKind.MOBILE_REGION);
    },
    change: (w) => {
      w.ok(VICTIM, 'poolAdd', w.own.key);
      w.ok(VICTIM, 'poolGive', 0, 0, w.index(w.own.key));
    },
  },
  { name: 'getMr', before: (w) => w.sharePool(), change: (w) => void w.take(VICTIM, 1) },
  {
    name: 'putMr',
    before: (w) => {
      w.sharePool();
      w.own.node = w.take(VICTIM, 1);
    },
    change: (w) => w.ok(VICTIM, 'poolGive', 1, 0, w.own.node),
  },
  {
    name: 'a bucket goes back',
    before: (w) => {
      w.sharePool();
      w.ok(VICTIM, 'poolGive', 1, 0, w.take(VICTIM, 1));
    },
    change: (w) => w.ok(VICTIM, 'poolDrain', 0),
  },
  {
    name: 'getMr, REG_MR, LOCAL_INV, putMr',
    before: (w) => {
      w.sharePool();
      w.own.pd = w.call(VICTIM, 'allocPd');
      w.own.area = w.register(VICTIM, 0, 0x20200, KeyKind.AREA);
    },
    change: (w) => {
      const { area, pd } = w.own;
      const node = w.take(VICTIM, 1);
      const key = [0x50500, 0x60600].find((one) => w.index(one) === node)!;
      w.inCall(() => void w.call(VICTIM, 'registerFast', key, area, pd, 0xf000, 64));
      w.inCall(() => void w.call(VICTIM, 'invalidate', key, pd));
      w.ok(VICTIM, 'poolGive', 1, 0, node);
    },
  },
  { name: 'alloc', change: (w) => void w.alloc(VICTIM, 500) },
  {
    name: 'alloc between others',
    before: (w) => {
      const hole = w.alloc(SURVIVOR, 64);
      w.alloc(REAPER, 64);
      w.ok(SURVIVOR, 'freeBlock', hole);
    },
    change: (w) => void w.alloc(VICTIM, 64),
  },
  {
    name: 'free',
    before: (w) => (w.own.block = w.alloc(VICTIM, 500)),
    change: (w) => w.ok(VICTIM, 'freeBlock', w.own.block),
  },
  { name: 'attach', change: (w) => w.hold(VICTIM, w.block) },
  {
    name: 'free of what others hold',
    before: (w) => w.hold(VICTIM, w.block),
    change: (w) => w.ok(VICTIM, 'freeBlock', w.block),
  },
];

export interface DeathTotals {
  /** Deaths of the first, and of who took back what it left. */
  first: number;
  second: number;
  readonly wrong: string[];
}

/** What the one who has the lock next does (arena-lock.ts, members.ts), until it is done. */
function takeBack(world: World, slot: number, dead: readonly number[]): void {
  world.calls['repair']!(world.local(slot));
  for (const one of dead) {
    world.slot(one).state = SlotState.DEAD;
    for (let turn = 0; world.call(slot, 'reap', one) !== Errno.OK; turn++) {
      if (turn > 3) throw new Error(`slot ${one} is never taken back`);
    }
    world.slot(one).state = SlotState.FREE;
  }
}

/** Looks at the tables, and at what can be had. */
function judge(world: World, what: string, dead: readonly number[], wrong: string[]): void {
  const complain = (sentence: string): void => void wrong.push(`${what}: ${sentence}`);
  const arena = { memory: world.memory, address: world.local(SURVIVOR) } as unknown as ArenaMemory;
  for (const sentence of auditArena(arena)) complain(sentence);
  const found = world.call(SURVIVOR, 'translate', world.key, world.pd, 4096, 256, 2);
  if (found !== 0xf000) complain('the survivor’s key opens nothing');
  try {
    if (world.pooled >= 0) judgePool(world, complain);
    // What there is can be had: the dead have nothing left.
    const keys: number[] = [];
    for (let key = 1; key < LIMITS.regionsMax; key++) {
      keys.push(world.register(SURVIVOR, world.pd, 0x40400 + (key << 12)));
    }
    const blocks: number[] = [];
    const others = dead.includes(REAPER) ? 1 : 1 + heldBy(world, REAPER);
    while (blocks.length < LIMITS.blocksMax - others) blocks.push(world.alloc(SURVIVOR, 64));
    for (const key of keys) {
      world.ok(SURVIVOR, 'kill', key);
      if (world.call(SURVIVOR, 'release', key) !== 1) complain('a region is not released');
    }
    for (const block of blocks) world.ok(SURVIVOR, 'freeBlock', block);
    world.ok(SURVIVOR, 'kill', world.key);
    if (world.call(SURVIVOR, 'release', world.key) !== 1)
      complain('the survivor’s is not released');
    world.ok(SURVIVOR, 'destroyPd', world.pd);
  } catch (error) {
    complain((error as Error).message);
  }
}

/** The pool has what it had, nobody else any of it, and no key that was registered opens anything. */
function judgePool(world: World, complain: (sentence: string) => void): void {
  const found = new Set<number>();
  for (let node = world.take(SURVIVOR, 0); node >= 0; node = world.take(SURVIVOR, 0)) {
    if (found.has(node)) complain(`region ${node} is in two hands`);
    if (found.has(node)) break;
    found.add(node);
  }
  if (found.size < world.pooled || found.size > world.pooled + 1) {
    complain(`${found.size} regions are in the pool`);
  }
  const { own, pd } = world;
  for (const key of [0x50500, 0x60600, 0x70700]) {
    const node = world.index(key);
    for (const domain of [pd, own.pd]) {
      if (world.call(SURVIVOR, 'translate', key, domain, 0xf000, 64, 0) !== 0) {
        complain(`key 0x${key.toString(16)} opens what the dead had registered`);
      }
    }
    if (!found.has(node)) continue;
    world.ok(SURVIVOR, 'poolRemove', node);
    world.ok(SURVIVOR, 'kill', key);
    if (world.call(SURVIVOR, 'release', key) !== 1) complain('a pooled region is not released');
  }
  world.ok(SURVIVOR, 'poolRemoveUser', 0);
  world.ok(SURVIVOR, 'poolClose');
}

/** Blocks that the second process has from before. */
function heldBy(world: World, slot: number): number {
  const { blocks, blocksMax } = world.at(ArenaLayout, world.local(SURVIVOR));
  let count = 0;
  for (let index = 0; index < blocksMax; index++) {
    count += (world.memory.view.getUint32(blocks + index * 64 + 16, true) >>> slot) & 1;
  }
  return count;
}

/** Cuts off every change everywhere. `second`: the taking back as well. */
export function runDeathSteps(protocol: Protocol, second: boolean): DeathTotals {
  const totals: DeathTotals = { first: 0, second: 0, wrong: [] };
  const world = new World(protocol);
  const start = world.save();
  for (const { name, before, change } of CHANGES) {
    world.restore(start);
    world.pooled = -1;
    before?.(world);
    const ready = world.save();
    for (let at = 0, dies = true; dies && totals.wrong.length < 20; at++) {
      world.restore(ready);
      dies = world.diesAt(at, () => change(world));
      totals.first++;
      const left = world.save();
      const what = `${name}, ${dies ? `dead at ${at}` : 'ended'}`;
      takeBack(world, SURVIVOR, [VICTIM]);
      judge(world, what, [VICTIM], totals.wrong);
      for (let later = 0, again = second; again && totals.wrong.length < 20; later++) {
        world.restore(left);
        again = world.diesAt(later, () => takeBack(world, REAPER, [VICTIM]));
        totals.second++;
        takeBack(world, SURVIVOR, again ? [VICTIM, REAPER] : [REAPER]);
        judge(world, `${what}, taken back until ${later}`, [VICTIM, REAPER], totals.wrong);
      }
    }
  }
  return totals;
}

/** All of it, and what it came to; the number of failures. */
export async function runKills(): Promise<number> {
  let passed = 0;
  let failed = 0;
  for (const variant of [PLAIN, OPTIMIZED]) {
    const protocol = await buildProtocol(deathVariant(variant));
    const { first, second, wrong } = runDeathSteps(protocol, true);
    for (const sentence of wrong) console.log(sentence);
    console.log(`${variant.name}: ${first} deaths in changes, ${second} while taking back`);
    failed += wrong.length;
    passed += first + second - wrong.length;
  }
  console.log(`${passed} passed, ${failed} failed`);
  return failed;
}
