/** World of processes that die: an arena's tables, and the engine's functions, step by step. */
import { createHash } from 'node:crypto';
import {
  AccessFlag,
  ArenaConfigLayout,
  ArenaLayout,
  BlockParametersLayout,
  ContextSlotLayout,
  Errno,
  KeyKind,
  LayoutLayout,
  PoolParametersLayout,
  PoolTake,
  PoolUserParametersLayout,
  RegionParametersLayout,
  ShareParametersLayout,
  SlotState,
} from '#build/abi.js';
import { structAt, type Layout, type Struct } from '../../host/engine/struct.js';
import type { Protocol, Variant } from './build.js';

const FIND = "import * as windows from './region/memory-window';";
const ENTRY = `
import { ArenaConfig as Config, attachArena } from './memory/arena';
import * as heap from './memory/heap';
import * as share from './region/protection-domain';
import * as reaping from './region/reap';
import * as fast from './region/fast-region';
import * as pool from './region/pool';
import * as poolVerbs from './region/pool-verbs';
import * as layouts from './region/layout';
export function poolOpen(arena: usize, slot: u32, p: usize): u32 {
  const parameters = changetype<poolVerbs.PoolParameters>(p);
  return poolVerbs.openPool(changetype<Arena>(arena), slot, parameters);
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
  pool.drainBucket(changetype<Arena>(arena), slot, 0, bucket, 64);
  return 0;
}
export function bindLayout(arena: usize, slot: u32, pd: u32, key: u32, program: usize): u32 {
  const layout = changetype<layouts.Layout>(program);
  return u32(layouts.bindLayout(changetype<Arena>(arena), slot, pd, key, layout));
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
/** The slots of the process that dies, of the one that reclaims (and may die too), of a third. */
export const VICTIM = 1;
/** In place of a bucket: the pool alone. */
export const NO_BUCKET = -1;
export const REAPER = 2;
export const SURVIVOR = 0;
export const LIMITS = {
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

/** A change, with the calls before it: the death interrupts the change. */
export interface Change {
  readonly name: string;
  readonly before?: (world: World) => void;
  readonly change: (world: World) => void;
}

export class World {
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
  own = { pd: 0, key: 0, window: 0, block: 0, area: 0, fast: 0, node: 0, user: 0, layout: 0 };
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
    if (kind === KeyKind.LAYOUT) {
      const access = ACCESS & ~AccessFlag.MW_BIND;
      Object.assign(p, { iova: 0n, address: 0, length: 0, pd, access, kind });
    } else {
      Object.assign(p, { iova: 4096n, address: 0xf000, length: 256, pd, access: ACCESS, kind });
    }
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

  /** The program of a layout, which is to get that key; returns its address. */
  program(slot: number, key: number): number {
    const address = this.alloc(slot, LayoutLayout.size);
    const program = this.at(LayoutLayout, address);
    Object.assign(program, { packed: 8, level: 1, key, pd: this.pd });
    return address;
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

  /** A pool region without a holder. */
  pool(slot: number, key: number): void {
    const node = this.index(this.register(slot, 0, key, KeyKind.MOBILE_REGION));
    this.ok(slot, 'poolAdd', key);
    this.ok(slot, 'poolGive', 0, NO_BUCKET, node);
  }

  /** The survivor has a pool of two regions, and a user; the victim takes part. */
  sharePool(joins = true): void {
    this.openPool(SURVIVOR);
    this.pool(SURVIVOR, 0x50500);
    this.pool(SURVIVOR, 0x60600);
    this.pooled = 2;
    this.addUser(SURVIVOR);
    if (joins) this.openPool(VICTIM);
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

  /** SHA-1 of the whole memory: equal memories have equal futures. */
  digest(): string {
    return createHash('sha1').update(this.#bytes).digest('base64');
  }

  equals(saved: Uint8Array): boolean {
    return Buffer.compare(this.#bytes, saved) === 0;
  }

  save(): Uint8Array {
    return this.#bytes.slice();
  }

  restore(saved: Uint8Array): void {
    this.#bytes.set(saved);
  }
}
