/**
 * A heap in a protection domain (seed 000): memory that all threads and processes of a shared
 * domain allocate from, under one key. `pd.heap` creates it, or opens the one that another process
 * has created.
 */
import type { AccessFlags } from '../enums.js';
import {
  AccessFlag,
  ArenaLayout,
  CONTEXT_SLOT_SIZE,
  ContextSlotLayout,
  KeyNoteLayout,
  KeyState,
  DOMAIN_HOLDER,
  Errno,
  ProtectionDomainLayout,
  RootKind,
} from '#build/abi.js';
import { checkKeys } from '../../base/options.js';
import { checkWait, type WaitLimits } from '../../base/wait-limits.js';
import { SharedHeap } from '../../engine/shared-heap.js';
import { structAt } from '../../engine/struct.js';
import { isHeldBesides } from '../../engine/unheld-storage.js';
import { checkFlag, checkFunction, checkWhole, mustBe, shown } from '../../errors/check-whole.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { HEAP_BUDGET } from '../domains/root-table.js';
import type { ContextInternals, DomainInternals } from '../internals.js';
import { clearSpares } from '../regions/allocations.js';
import { Key, awaitRelease, retryChange } from '../regions/key.js';
import { refuse } from '../refuse.js';
import type { HeapMembers } from './heap-lock.js';
import {
  fitBudget,
  makeRoom,
  trimHeap,
  type PressureOptions,
  type Shortage,
} from './heap-pressure.js';
import { Header, HeapTable, heapBytes, spansIn, tableBytes } from './heap-table.js';
import { usageOf, type HeapUsage } from './heap-usage.js';
import { SPAN_BYTES, UNIT_BYTES } from './size-classes.js';
import { SlabHeap } from './slab-heap.js';

/** Options of `pd.heap`. */
export interface HeapOptions {
  /** Name of the heap within its domain: 1 to 64 bytes. Default `heap`. */
  readonly name?: string;
  /**
   * Bytes that allocations may take in all, a multiple of 65536 after rounding up. The creator
   * decides; its table takes a sixteenth more. Of a device that grows (`memoryBytesMax`), storage is
   * taken a megabyte at a time. Default 16 MiB.
   */
  readonly reserve?: number;
  /** Rights of its key, made of AccessFlag. The creator decides. Default: all but FLUSH. */
  readonly access?: AccessFlags;
  /** Bytes that each process may hold and cache. The creator decides. Default 0: no limit. */
  readonly quota?: number;
  /**
   * From 0 to 255: if a heap of the domain lacks storage, the heap of the lowest number gives free
   * segments first; of several, the one with most of them. The creator decides. Default 0.
   */
  readonly priority?: number;
  /** Bytes whose storage other heaps do not get. The creator decides. Default 0. */
  readonly minimum?: number;
  /**
   * Called in this process before an allocation is refused because other heaps give no storage: it
   * may free memory of any heap, and the allocation is tried once more.
   */
  readonly onPressure?: (lack: HeapLack) => void;
}

/** Storage that a heap lacks. */
export interface HeapLack {
  /** Of the heap that lacks it. */
  readonly name: string;
  readonly bytes: number;
}

/** Options of an allocation. */
export interface HeapAllocOptions {
  /** A power of two from 64 to 65536. Default 64. */
  readonly alignment?: number;
  /** True: the memory outlives this process, until a process frees it. Default false. */
  readonly common?: boolean;
}

/** Heaps that a thread has opened, by domain and name. */
const openHeaps = new WeakMap<ContextInternals['siblings'], Map<string, DomainHeap>>();
const RESERVE = 16 * 2 ** 20;
/** Of the root of a domain's budget. */
const BUDGET_NAME = 'heaps';
const ACCESS =
  AccessFlag.LOCAL_WRITE |
  AccessFlag.REMOTE_WRITE |
  AccessFlag.REMOTE_READ |
  AccessFlag.REMOTE_ATOMIC;

/** Where a heap lies, and its key. */
interface Place {
  readonly address: number;
  readonly length: number;
  readonly key: number;
}

/** A heap of a protection domain (`pd.heap`). */
export class DomainHeap {
  /** The key of all memory of the heap; addresses are the same in all processes. */
  readonly key: number;
  /** Address of its first byte, for keys. */
  readonly address: number;
  /** Bytes that it may have at most. */
  readonly length: number;
  readonly #context: ContextInternals;
  readonly #slabs: SlabHeap;
  readonly #words: Int32Array;
  readonly #pd: DomainInternals;
  readonly #place: Place;
  #ended = false;

  private constructor(pd: DomainInternals, place: Place, options: HeapOptions) {
    const { context } = pd;
    const { key } = place;
    const table = tableOf(context, place);
    this.#pd = pd;
    this.#place = place;
    this.#context = context;
    this.#words = table.words;
    const commit = (start: number, bytes: number): void =>
      commitParts(context, table, start, bytes);
    const members = membersOf(context);
    const { name = 'heap', onPressure } = options;
    const tryRoom = (spans: number): Shortage | undefined => {
      for (;;) {
        const found = context.device.locked(() => makeRoom(table, spans, pressureOf(pd)));
        if (found !== 'busy') return found;
        this.#slabs.awaitLock();
      }
    };
    let isAsking = false;
    const room = (spans: number): Shortage | undefined => {
      const shortage = tryRoom(spans);
      if (shortage === undefined || shortage === 'reserve') return shortage;
      context.device.waits.wakeAll();
      // The callback may allocate as well, and is not called for its own lack.
      if (!onPressure || isAsking) return shortage;
      isAsking = true;
      try {
        onPressure({ name, bytes: spans * SPAN_BYTES });
      } finally {
        isAsking = false;
      }
      // It may have ended the domain.
      this.#checkOpen();
      return tryRoom(spans);
    };
    this.#slabs = new SlabHeap({ table, members, commit, room });
    this.key = key;
    this.address = table.data;
    this.length = table.spans * SPAN_BYTES;
    this.#slabs.join();
  }

  /** @internal Use `pd.heap()`. */
  static open(pd: DomainInternals, options: HeapOptions): DomainHeap {
    checkKeys('heap', options, 'name reserve access quota priority minimum onPressure');
    const { name = 'heap', reserve = RESERVE, access = ACCESS } = options;
    if (typeof name !== 'string') {
      throw new MisuseError('name', `heap: must be a string, got ${shown(name)}`);
    }
    checkWhole('reserve', reserve, 1, 2 ** 32 - 2 ** 20);
    checkWhole('access', access);
    checkPolicy(options);
    const { context } = pd;
    const heaps = openHeaps.get(context.siblings) ?? new Map<string, DomainHeap>();
    openHeaps.set(context.siblings, heaps);
    const id = `${pd.handle} ${name}`;
    const known = heaps.get(id);
    if (known) return known;
    let isFound = false;
    const place = context.device.locked(() => {
      const found = findPlace(pd, name);
      isFound = found !== undefined;
      return found ?? createPlace(pd, name, reserve, access, options);
    });
    // Without the lock of the tables: the lock of the heap may be a dead process's, and a process
    // that opens the device, which needs the tables, keeps others from its reclaim meanwhile.
    try {
      const heap = new DomainHeap(pd, place, options);
      heaps.set(id, heap);
      return heap;
    } catch (error) {
      if (isFound) letGo(pd, place);
      throw error;
    }
  }

  /**
   * This thread leaves the heap: what it has allocated and not made common is free. If no other
   * process has it open, the key ends, and its memory is the device's again. `pd.dealloc` does the
   * same. Throws RefusalError EBUSY while a region or queue lies in it.
   */
  close(): void {
    if (this.#ended) return;
    this.checkUnused('close');
    for (const [id, heap] of openHeaps.get(this.#context.siblings)!) {
      if (heap === this) openHeaps.get(this.#context.siblings)!.delete(id);
    }
    this.end();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** @internal Throws RefusalError EBUSY. */
  checkUnused(verb: string): void {
    const allocation = this.#context.allocations.find(this.address, 1);
    if (!allocation) return;
    clearSpares(allocation);
    if (allocation.regions === 0 && allocation.lent.size === 0) return;
    throw new RefusalError(
      'EBUSY',
      `${verb}: a region or queue lies in a heap of the domain; end that first`,
    );
  }

  /** @internal Its domain has ended in this thread, or `close` was called. */
  end(): void {
    const { allocations } = this.#context;
    this.#ended = true;
    const allocation = allocations.find(this.address, 1);
    if (allocation) allocations.remove(allocation);
    // Before the tables: their lock comes before that of a heap, never after it.
    try {
      this.#slabs.leave();
    } finally {
      // Memory of this process in it is freed when the device is closed.
      this.#giveUp();
    }
  }

  #giveUp(): void {
    const { device } = this.#context;
    const { arena, engine } = device;
    const errno = device.locked(() => this.#leave());
    const isReleased =
      errno === Errno.OK
        ? awaitRelease(() => arena.exports.mrReleased(engine.context, this.key))
        : errno === Errno.EINVAL;
    // Otherwise it stays until the device is closed: a window is bound, or a thread still copies.
    if (isReleased) arena.userHeap.free(this.#place.address);
  }

  /**
   * With the lock of the tables, so that of processes that leave at the same time one is the last:
   * it kills the key, the others give up their hold. An Errno of the kill; undefined: another
   * process has the heap open.
   */
  #leave(): number | undefined {
    const { device } = this.#context;
    const { arena, engine } = device;
    const { address, key } = this.#place;
    const { userHeap } = arena;
    if (device.share) return undefined;
    if (userHeap instanceof SharedHeap) {
      if (isHeldBesides(arena, address, device.slot)) {
        userHeap.free(address);
        return undefined;
      }
    } else if (device.threads.any && isLiveDomain(this.#pd)) return undefined;
    return retryChange(() => arena.exports.killMr(engine.context, key));
  }

  /**
   * The address of `length` bytes at a multiple of 64, with any contents. They are this process's:
   * free when it ends, however it ends. No system call. Throws MisuseError; RefusalError ENOMEM.
   */
  malloc(length: number): number {
    this.#checkOpen();
    return this.#slabs.malloc(length);
  }

  /** `length` zero bytes. Throws MisuseError, RefusalError ENOMEM. */
  alloc(length: number, options: HeapAllocOptions = {}): Uint8Array {
    this.#checkOpen();
    checkKeys('alloc', options, 'alignment common');
    const { alignment = UNIT_BYTES, common = false } = options;
    checkFlag('common', common);
    const isPower = typeof alignment === 'number' && Number.isInteger(Math.log2(alignment));
    if (!isPower || alignment < UNIT_BYTES || alignment > SPAN_BYTES) {
      const kind = `a power of two from ${UNIT_BYTES} to ${SPAN_BYTES}`;
      throw mustBe('alignment', kind, alignment);
    }
    const address =
      alignment === UNIT_BYTES
        ? this.#slabs.malloc(length, common)
        : this.#slabs.mallocAligned(length, alignment, common);
    if (common) this.#slabs.assign(address, true);
    return this.bytes(address, length).fill(0);
  }

  /**
   * Frees an allocation, of whichever process: an address of `malloc`, or bytes of `alloc`. Peers
   * still reach the memory by the key. Throws MisuseError (not allocated, or freed before).
   */
  free(allocation: number | Uint8Array): void {
    this.#slabs.free(this.#addressOf(allocation));
  }

  /** `length` bytes of the heap from an address on, allocated or not. Throws MisuseError. */
  bytes(address: number, length: number): Uint8Array {
    this.#checkOpen();
    checkWhole('address', address);
    checkWhole('length', length);
    const offset = address - this.address;
    if (!(offset >= 0 && offset <= this.length - length)) {
      throw new MisuseError('address', `${address} and ${length} bytes leave the heap`);
    }
    return new Uint8Array(this.#words.buffer, address, length);
  }

  /** Bytes of the allocation that begins there; 0: no allocation does. */
  sizeOf(address: number): number {
    this.#checkOpen();
    checkWhole('address', address);
    return this.#slabs.sizeOf(address);
  }

  /** The allocation outlives this process, until a process frees it. Throws MisuseError. */
  share(allocation: number | Uint8Array): void {
    this.#slabs.assign(this.#addressOf(allocation), true);
  }

  /**
   * The allocation, of any process, is this process's and ends with it. Throws MisuseError; RefusalError
   * ENOMEM (quota).
   */
  adopt(allocation: number | Uint8Array): void {
    this.#slabs.assign(this.#addressOf(allocation), false);
  }

  /** Use per process and of the common part. Visits the whole table. */
  usage(): HeapUsage {
    this.#checkOpen();
    this.#slabs.sweepDead();
    return usageOf(this.#slabs.table);
  }

  /**
   * Bytes that the process of a slot (`usage().processes`) may hold and cache; 0: what the heap
   * says. Without a slot: of each process. An allocation beyond it is refused (ENOMEM); what a
   * process has already stays. Throws MisuseError.
   */
  setQuota(bytes: number, slot?: number): void {
    this.#checkOpen();
    checkWhole('bytes', bytes, 0, 2 ** 32 - 1);
    const { table, slotsMax } = this.#slabs;
    if (slot !== undefined) checkWhole('slot', slot, 0, slotsMax - 1);
    if (slot === undefined) table.set(Header.QUOTA, bytes);
    else table.setQuotaOf(slot, bytes);
  }

  /** Gives the storage of free segments back to the device's file. Returns the bytes. */
  trim(): number {
    this.#checkOpen();
    return this.#context.device.locked(() => trimHeap(this.#slabs.table, pressureOf(this.#pd)));
  }

  /**
   * Resolves when an allocation of another heap of the domain was refused for lack of storage, to
   * the bytes that it lacked: time to free memory of this one. Rejects with MisuseError;
   * RefusalError ETIMEDOUT; the reason of the signal.
   */
  async waitPressure(limits: WaitLimits = {}): Promise<number> {
    checkWait('waitPressure', limits);
    const { table } = this.#slabs;
    const before = table.get(Header.PRESSURE);
    const late = (): Error =>
      new RefusalError(
        'ETIMEDOUT',
        `waitPressure: no heap lacked storage for ${limits.timeout} ms; raise timeout`,
      );
    await this.#context.device.waits.until(
      () => {
        this.#checkOpen();
        return table.get(Header.PRESSURE) !== before;
      },
      limits,
      late,
    );
    return table.get(Header.LACKING);
  }

  /** Free objects in the cache of this process are free for all at once. */
  flush(): void {
    this.#checkOpen();
    this.#slabs.flush();
  }

  /**
   * Waits until the 32-bit word at `address` differs from `value`, and resolves to what it is then:
   * at once after `notify`, otherwise within 20 ms. Rejects with MisuseError; RefusalError
   * ETIMEDOUT; the reason of the signal.
   */
  async wait(address: number, value: number, limits: WaitLimits = {}): Promise<number> {
    const index = this.#wordIndex(address);
    checkWord(value);
    checkWait('wait', limits);
    const read = (): number => Atomics.load(this.#words, index);
    const { waits } = this.#context.device;
    await waits.until(
      () => {
        this.#checkOpen();
        return read() !== (value | 0);
      },
      limits,
      () =>
        new RefusalError(
          'ETIMEDOUT',
          `wait: the word at 0x${address.toString(16)} was ${value} for ${limits.timeout} ms; raise timeout`,
        ),
    );
    return read();
  }

  /** Wakes the waits of all threads and processes: this process has written words. */
  notify(): void {
    this.#checkOpen();
    this.#context.device.waits.wakeAll();
  }

  /** Stores a 32-bit word and wakes the waits for it. Throws MisuseError. */
  store(address: number, value: number): void {
    const index = this.#wordIndex(address);
    checkWord(value);
    Atomics.store(this.#words, index, value);
    this.notify();
  }

  #checkOpen(): void {
    // The slot of a closed context may be another process's: its memory would not be reclaimed.
    this.#context.checkOpen();
    if (this.#ended) {
      throw new MisuseError('heap', 'is closed, or its domain has ended; call pd.heap again');
    }
  }

  #addressOf(allocation: number | Uint8Array): number {
    this.#checkOpen();
    if (typeof allocation === 'number') return allocation;
    if (ArrayBuffer.isView(allocation) && allocation.buffer === this.#words.buffer) {
      return allocation.byteOffset;
    }
    throw new MisuseError('allocation', 'must be an address of malloc or bytes of alloc');
  }

  #wordIndex(address: number): number {
    this.#checkOpen();
    checkWhole('address', address);
    const offset = address - this.address;
    if (!(offset >= 0 && offset <= this.length - 4 && offset % 4 === 0)) {
      throw new MisuseError('address', `${address} must be a multiple of 4 in the heap`);
    }
    return address >>> 2;
  }
}

function checkPolicy({ quota = 0, priority = 0, minimum = 0, onPressure }: HeapOptions): void {
  checkWhole('quota', quota, 0, 2 ** 32 - 1);
  checkWhole('priority', priority, 0, 255);
  checkWhole('minimum', minimum, 0, 2 ** 32 - 1);
  checkFunction('onPressure', onPressure);
}

function tableOf({ device }: ContextInternals, { address, length }: Place): HeapTable {
  const words = new Int32Array(device.arena.memory.buffer);
  return new HeapTable(words, address, spansIn(length));
}

/** All heaps of the domain, as they are now. */
function pressureOf(pd: DomainInternals): PressureOptions {
  const { context } = pd;
  const { userHeap } = context.device.arena;
  const isShared = userHeap instanceof SharedHeap;
  const members = membersOf(context);
  // With the lock: entries change.
  const tables = context.device.locked(() =>
    context.roots
      .entriesOf(RootKind.HEAP, pd.handle)
      .filter((one) => isLiveHeap(pd, one))
      .map((one) => tableOf(context, one)),
  );
  // Objects of dead processes become free first.
  const commit = (): void => undefined;
  for (const table of tables) new SlabHeap({ table, members, commit }).sweepDead(true);
  return {
    tables,
    members,
    commit: (table, address, bytes) => commitParts(context, table, address, bytes),
    release: (address, bytes) => isShared && userHeap.release(address, bytes),
    releaseUnheld: () => isShared && userHeap.releaseUnheld(),
  };
}

function heapsOf({ context, handle }: DomainInternals): [string, DomainHeap][] {
  const all = openHeaps.get(context.siblings) ?? [];
  return [...all].filter(([id]) => id.startsWith(`${handle} `));
}

/**
 * @internal An instance of the domain is about to end. Throws RefusalError EBUSY if it is the last
 * of this thread and a region or queue lies in a heap.
 */
export function checkHeaps(pd: DomainInternals): void {
  if (pd.context.siblings.instancesOf(pd.handle) > 1) return;
  for (const [, heap] of heapsOf(pd)) heap.checkUnused('dealloc');
}

/** @internal The instance has ended; with the last one of this thread its heaps end. */
export function endHeaps(pd: DomainInternals): void {
  if (pd.context.siblings.instancesOf(pd.handle) > 0) return;
  const errors: unknown[] = [];
  for (const [id, heap] of heapsOf(pd)) {
    openHeaps.get(pd.context.siblings)!.delete(id);
    try {
      heap.end();
    } catch (error) {
      errors.push(error);
    }
  }
  if (errors.length > 0) throw errors[0];
}

/** Does any context take part in the domain? */
function isLiveDomain({ context, handle }: DomainInternals): boolean {
  const { memory, address } = context.device.arena;
  const { protectionDomains } = structAt(memory, ArenaLayout, address);
  const at = protectionDomains + ((handle & 0xffff) - 1) * ProtectionDomainLayout.size;
  const { id, attachedCount } = structAt(memory, ProtectionDomainLayout, at);
  return id === handle && attachedCount > 0;
}

/** @internal `pd.limitHeaps`. */
export function limitHeaps(pd: DomainInternals, bytes: number): void {
  checkWhole('bytes', bytes, 0, 2 ** 32 - 1);
  if (bytes > 0 && bytes < SPAN_BYTES) {
    throw mustBe('bytes', `0 (no limit) or at least ${SPAN_BYTES}`, bytes);
  }
  const { device, roots } = pd.context;
  const spans = Math.floor(bytes / SPAN_BYTES);
  device.locked(() => {
    const known = roots.entry(BUDGET_NAME, HEAP_BUDGET, pd.handle);
    const values = { pd: pd.handle, address: 0, length: spans, key: 0, kind: HEAP_BUDGET };
    if (known) known.length = spans;
    else roots.write('limitHeaps', BUDGET_NAME, values, true);
    const options = pressureOf(pd);
    for (const table of options.tables) table.set(Header.BUDGET, spans);
    if (spans > 0) fitBudget(spans, options);
  });
}

/** A word of 32 bits, with or without a sign. */
function checkWord(value: number): void {
  checkWhole('value', value, -(2 ** 31), 2 ** 32 - 1);
}

/** The heap that a process has created; undefined: it does not exist, or it has ended. */
function findPlace(pd: DomainInternals, name: string): Place | undefined {
  const { context } = pd;
  const { arena, share } = context.device;
  const entry = context.roots.entry(name, RootKind.HEAP, pd.handle);
  if (!entry) return undefined;
  const { address, length, key } = entry;
  if (!isLiveHeap(pd, entry)) {
    entry.state = 0;
    return undefined;
  }
  if (arena.userHeap instanceof SharedHeap) arena.userHeap.hold(address, length);
  else if (!share)
    throw new RefusalError('EINVAL', `heap: "${name}" is of another device; use another name`);
  noteAllocation(context, { address, length, key });
  return { address, length, key };
}

/** Undoes `findPlace`: the heap could not be opened here. */
function letGo({ context }: DomainInternals, { address }: Place): void {
  const allocation = context.allocations.find(address, 1);
  if (allocation) context.allocations.remove(allocation);
  const { userHeap } = context.device.arena;
  if (userHeap instanceof SharedHeap) userHeap.free(address);
}

/** Has a process it open? Otherwise its memory may be another one's. */
function isLiveHeap({ context, handle }: DomainInternals, { length, key }: Place): boolean {
  const { arena, engine } = context.device;
  const at = arena.exports.mrNote(engine.context, key);
  const note = at === 0 ? undefined : structAt(arena.memory, KeyNoteLayout, at);
  const isLive = note?.owner === DOMAIN_HOLDER && note.state === KeyState.LIVE;
  return isLive && note.pd === handle && spansIn(length) >= 1;
}

function createPlace(
  pd: DomainInternals,
  name: string,
  reserve: number,
  access: number,
  { quota = 0, priority = 0, minimum = 0 }: HeapOptions,
): Place {
  const { context } = pd;
  const { device } = context;
  const { arena, engine } = device;
  if (device.share) {
    const rule = 'a thread that shares the device opens heaps';
    throw new RefusalError('EOPNOTSUPP', `heap: ${rule}; create "${name}" in the first thread`);
  }
  const spans = Math.ceil(reserve / SPAN_BYTES);
  const length = heapBytes(spans);
  const { userHeap } = arena;
  const isShared = userHeap instanceof SharedHeap;
  const address = isShared ? userHeap.reserve(length) : userHeap.alloc(length);
  const table = new HeapTable(new Int32Array(arena.memory.buffer), address, spans);
  try {
    if (isShared) userHeap.commitOrRelease(address, table.unitTable * 4 - address);
    const wanted = {
      iova: BigInt(table.data),
      address: table.data,
      length: spans * SPAN_BYTES,
      pd: pd.handle,
      access,
    };
    // Before the key, which would stay: a release waits, and not under this lock.
    context.roots.checkRoom('heap');
    const key = new Key(context, wanted, 'heap', {
      EOPNOTSUPP: `access 0x${access.toString(16)} has an unknown flag; leave it out`,
      EINVAL: 'REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE',
    });
    const place = { address, length, key: key.value };
    table.set(Header.QUOTA, quota);
    table.set(Header.PRIORITY, priority);
    table.set(Header.MINIMUM, Math.ceil(minimum / SPAN_BYTES));
    const budget = context.roots.entry(BUDGET_NAME, HEAP_BUDGET, pd.handle);
    table.set(Header.BUDGET, budget?.length ?? 0);
    // The root first: if this process dies before the next call, the key ends with it.
    const root = { ...place, pd: pd.handle, kind: RootKind.HEAP };
    context.roots.write('heap', name, root, true);
    refuse(arena.exports.setMrKept(engine.context, place.key), 'heap', {});
    noteAllocation(context, place);
    return place;
  } catch (error) {
    arena.userHeap.free(address);
    throw error;
  }
}

/** Spans of the heap are about to be used: they and their words of the table get storage. */
function commitParts(
  context: ContextInternals,
  table: HeapTable,
  start: number,
  bytes: number,
): void {
  const { userHeap } = context.device.arena;
  if (!(userHeap instanceof SharedHeap)) return;
  const [first, count] = [(start - table.data) / UNIT_BYTES, bytes / UNIT_BYTES];
  userHeap.commit((table.unitTable + first) * 4, count * 4);
  userHeap.commit(start, bytes);
}

/** Its data may be registered in parts, and is not freed by `context.free`. */
function noteAllocation(context: ContextInternals, { address, length }: Place): void {
  const spans = spansIn(length);
  const data = Math.ceil((address + tableBytes(spans)) / SPAN_BYTES) * SPAN_BYTES;
  if (context.allocations.find(data, 1)) return;
  context.allocations.add(data, spans * SPAN_BYTES, 'memory of a heap (pd.heap): use heap.free');
}

function membersOf(context: ContextInternals): HeapMembers {
  const { device } = context;
  const { memory, address } = device.arena;
  const { contextSlots, contextsMax } = structAt(memory, ArenaLayout, address);
  const words = new Int32Array(memory.buffer);
  const field = ContextSlotLayout.fields.incarnation[0];
  return {
    slot: device.slot,
    slotsMax: contextsMax,
    incarnation: (slot) =>
      Atomics.load(words, (contextSlots + slot * CONTEXT_SLOT_SIZE + field) >>> 2) & 0xffff,
    look: () => device.shared?.lookNow(),
    describe: (slot) => device.shared?.members.describe(slot) ?? `the thread of slot ${slot}`,
  };
}
