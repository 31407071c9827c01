/**
 * OpenSHMEM 1.5: every PE reads and writes the symmetric memory of every other one, whose code
 * takes no part. PEs of one machine share the memory; those of other machines are reached by RDMA.
 */
import { cpus } from 'node:os';
import type { WaitLimits } from '../base/wait-limits.js';
import { checkWhole, mustBe, shown } from '../errors/check-whole.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { copyBytes } from '../link/copy-bytes.js';
import { Collective } from './collective.js';
import { reportExit } from './ended-pes.js';
import { Atomic, type Peer, type Word } from './peer.js';
import {
  ShmemSignal,
  arrayLike,
  bytesOf,
  checkElement,
  checkType,
  compare,
  offsetOf,
  type ArrayConstructor,
  type AtomicArray,
  type Element,
  typeOf,
  type ShmemCmp,
  type SymmetricArray,
} from './symmetric.js';
import { ShmemTeam } from './team.js';
import type { World } from './world.js';

/** A put stores up to 8 elements one by one: that costs less than a view of the source. */
const FEW_ELEMENTS = 8;
/** Types of which there is a view of the whole memory. */
const TYPES = [
  Int8Array,
  Uint8Array,
  Int16Array,
  Uint16Array,
  Int32Array,
  Uint32Array,
  Float32Array,
  Float64Array,
  BigInt64Array,
  BigUint64Array,
];

const ATOMIC_TYPES = new Set<unknown>([Int32Array, Uint32Array, BigInt64Array, BigUint64Array]);

/** A processing element: this process, as `init` returns it. */
export class Shmem {
  /** `shmem_my_pe`. */
  readonly myPe: number;
  /** `shmem_n_pes`. */
  readonly nPes: number;
  /** `SHMEM_TEAM_WORLD`: all PEs. */
  readonly world: ShmemTeam;
  /** `SHMEM_TEAM_SHARED`: the PEs of this machine. */
  readonly shared: ShmemTeam;
  readonly #world: World;
  readonly #bytes: Uint8Array;
  /** Views of all memory, by the type of their elements. */
  readonly #views: ReadonlyMap<unknown, SymmetricArray>;
  /** Of the symmetric memory of PEs of this machine; empty after `finalize`. */
  #bases: readonly (number | undefined)[];
  readonly #base: number;
  readonly #size: number;
  readonly #watch: NodeJS.Timeout;
  #finalized: Promise<void> | undefined;

  /** @internal Use `init`. */
  constructor(world: World) {
    const teams = new Map<number, ShmemTeam>();
    this.#world = world;
    this.myPe = world.rank;
    this.nPes = world.size;
    const all = Array.from({ length: world.size }, (_, rank) => rank);
    this.world = new ShmemTeam(world, all, 0, teams);
    this.shared = new ShmemTeam(world, world.local, 1, teams);
    this.#bytes = new Uint8Array(world.range.buffer);
    const { buffer } = world.range;
    this.#views = new Map(TYPES.map((type) => [type, arrayOf(type, buffer)] as const));
    this.#bases = world.peers.map(({ base }) => base);
    this.#base = world.range.base;
    this.#size = world.range.size;
    this.#watch = setInterval(() => world.findFailed(), 100);
    this.#watch.unref();
    process.once('beforeExit', this.#finish);
  }

  /** A program that ends without `finalize` (1.5 specification, 9.1): the others wait for it. */
  readonly #finish = (): void => void this.finalize();

  /** PEs that ended without `finalize`, as far as this PE knows. */
  get failedPes(): number[] {
    this.#world.checkOpen();
    return [...this.#world.findFailed()].sort((a, b) => a - b);
  }

  /**
   * `shmem_finalize`: waits for all PEs that have not failed, and closes the device. After a limit
   * it closes the device without the others. Rejects with MisuseError; RefusalError ETIMEDOUT; the
   * reason of the signal.
   */
  async finalize(limits?: WaitLimits): Promise<void> {
    return (this.#finalized ??= this.#end(new Collective('finalize', limits)));
  }

  /**
   * `shmem_global_exit`: ends this process at once, and `verbena shmem run` ends the others with
   * it; its exit code is `status`, from 0 to 255. Under another launcher the others end by its
   * rule: mpirun ends them for a status other than 0, srun with `--kill-on-bad-exit`. Throws
   * MisuseError.
   */
  globalExit(status: number): never {
    checkWhole('status', status, 0, 255);
    reportExit(process.env.VERBENA_SHMEM_ENDED, status);
    process.exit(status);
  }

  /** `shmem_pe_accessible`: has that PE not failed? */
  peAccessible(pe: number): boolean {
    this.#peer(pe);
    return !this.#world.findFailed().has(pe);
  }

  /** `shmem_addr_accessible`: is it symmetric, and the PE accessible? */
  addrAccessible(array: SymmetricArray, pe: number): boolean {
    this.#peer(pe);
    if (!ArrayBuffer.isView(array)) throw mustBe('array', 'a typed array', array);
    const { buffer, base, size } = this.#world.range;
    const offset = array.byteOffset - base;
    const isInside = array.buffer === buffer && offset >= 0 && offset + array.byteLength <= size;
    return isInside && this.peAccessible(pe);
  }

  /**
   * `shmem_ptr`: the same elements in the memory of another PE, for plain loads and stores;
   * undefined: it is on another machine.
   */
  ptr<Elements extends SymmetricArray>(array: Elements, pe: number): Elements | undefined {
    const { base } = this.#peer(pe);
    if (base === undefined) return undefined;
    const offset = offsetOf(this.#world.range, array, 'array');
    return arrayLike(array, this.#world.range.buffer, base + offset, array.length);
  }

  /**
   * `shmem_malloc`: symmetric memory, at the same offset in all PEs; all call it with the same
   * length. Rejects with MisuseError; RefusalError ENOMEM (SHMEM_SYMMETRIC_SIZE), ECONNRESET.
   */
  async malloc(length: number, limits?: WaitLimits): Promise<Uint8Array> {
    return this.#malloc(new Collective('malloc', limits), length);
  }

  /** `shmem_calloc`: `count` times `size` bytes, all 0. */
  async calloc(count: number, size: number, limits?: WaitLimits): Promise<Uint8Array> {
    const collective = new Collective('calloc', limits);
    checkWhole('count', count, 0, 2 ** 32);
    checkWhole('size', size, 0, 2 ** 32);
    return this.#calloc(collective, count * size);
  }

  /** `shmem_align`: at a multiple of `alignment`, a power of two. */
  async align(alignment: number, length: number, limits?: WaitLimits): Promise<Uint8Array> {
    const collective = new Collective('align', limits);
    if (!(alignment >= 1 && Number.isInteger(Math.log2(alignment)))) {
      throw mustBe('alignment', 'a power of two', alignment);
    }
    return this.#malloc(collective, length, Math.max(64, alignment));
  }

  /** `shmem_realloc`: new symmetric memory with the old contents; the old memory is free. */
  async realloc(memory: Uint8Array, length: number, limits?: WaitLimits): Promise<Uint8Array> {
    const collective = new Collective('realloc', limits);
    this.#checkAllocated(memory);
    checkWhole('length', length, 0, 2 ** 32);
    this.#world.quiet();
    await this.world.meet(collective);
    const address = this.#alloc(collective, length, 64);
    const bytes = this.#bytes.subarray(address, address + length);
    bytes.set(bytesOf(memory).subarray(0, Math.min(length, memory.byteLength)));
    this.#world.heap.free(memory.byteOffset);
    await this.#barrier(collective);
    return bytes;
  }

  /** `shmem_free`: all PEs call it. */
  async free(memory: SymmetricArray, limits?: WaitLimits): Promise<void> {
    const collective = new Collective('free', limits);
    this.#checkAllocated(memory);
    await this.#barrier(collective);
    this.#world.heap.free(memory.byteOffset);
  }

  /** Symmetric elements of a type, all 0: `await shmem.array(Float64Array, 100)`. */
  async array<Type extends new (...values: never[]) => SymmetricArray>(
    type: Type,
    length: number,
    limits?: WaitLimits,
  ): Promise<InstanceType<Type>> {
    const collective = new Collective('array', limits);
    if (!TYPES.includes(type as never)) {
      const found = typeof type === 'function' ? type.name : shown(type);
      throw new MisuseError('type', `must be a typed array such as Float64Array, got ${found}`);
    }
    checkWhole('length', length, 0, 2 ** 32);
    const width = (type as unknown as { readonly BYTES_PER_ELEMENT: number }).BYTES_PER_ELEMENT;
    const { buffer, byteOffset } = await this.#calloc(collective, length * width);
    return new (type as unknown as ArrayConstructor)(
      buffer,
      byteOffset,
      length,
    ) as InstanceType<Type>;
  }

  /**
   * `shmem_put`, of any width: the elements of `source`, any memory, go to the symmetric `dest` of
   * a PE. The source may change as soon as it returns. Throws MisuseError; RefusalError ECONNRESET.
   */
  put<Elements extends SymmetricArray>(dest: Elements, source: Elements, pe: number): void {
    if (!dest || dest.constructor !== source?.constructor)
      checkType('source', source, 'dest', dest);
    const length = source.byteLength;
    const offset = dest.byteOffset - this.#base;
    const isInside = offset >= 0 && offset + length <= this.#size;
    if (!isInside || dest.buffer !== this.#bytes.buffer || length > dest.byteLength) {
      offsetOf(this.#world.range, dest, 'dest');
      throw new MisuseError('dest', `must have at least the ${length} bytes of the source`);
    }
    const base = this.#baseOf(pe);
    if (base === undefined) this.#peer(pe).put(offset, bytesOf(source));
    else {
      this.#store(base + offset, source);
      this.#world.wakeWatcher(pe);
    }
  }

  /** `shmem_put_nbi`: the source must not change before `quiet`. Here it may. */
  putNbi<Elements extends SymmetricArray>(dest: Elements, source: Elements, pe: number): void {
    this.put(dest, source, pe);
  }

  /** `shmem_p`: one element. */
  p<Elements extends SymmetricArray>(dest: Elements, value: Element<Elements>, pe: number): void {
    const base = this.#baseOf(pe);
    const offset = offsetOf(this.#world.range, dest, 'dest');
    checkElement('value', dest, value);
    if (dest.length === 0)
      throw new MisuseError('dest', `must have an element, got ${dest.length}`);
    if (base === undefined) {
      const one = arrayLike(dest, new ArrayBuffer(dest.BYTES_PER_ELEMENT), 0, 1);
      one[0] = value as never;
      this.#peer(pe).put(offset, bytesOf(one));
      return;
    }
    const all = this.#views.get(dest.constructor)!;
    all[(base + offset) / dest.BYTES_PER_ELEMENT] = value as never;
    this.#world.wakeWatcher(pe);
  }

  /** `shmem_get`: elements of the symmetric `source` of a PE go to `dest`, any memory. */
  get<Elements extends SymmetricArray>(dest: Elements, source: Elements, pe: number): void {
    if (!source || source.constructor !== dest?.constructor)
      checkType('dest', dest, 'source', source);
    const offset = offsetOf(this.#world.range, source, 'source');
    if (dest.byteLength > source.byteLength) {
      throw new MisuseError('source', `must have at least the ${dest.byteLength} bytes of dest`);
    }
    this.#peer(pe).get(offset, bytesOf(dest));
  }

  /** `shmem_get_nbi`: the elements are there after `quiet`. Here they are at once. */
  getNbi<Elements extends SymmetricArray>(dest: Elements, source: Elements, pe: number): void {
    this.get(dest, source, pe);
  }

  /** `shmem_g`: one element. */
  g<Elements extends SymmetricArray>(source: Elements, pe: number): Element<Elements> {
    offsetOf(this.#world.range, source, 'source');
    if (source.length === 0)
      throw new MisuseError('source', `must have an element, got ${source.length}`);
    const one = arrayLike(source, new ArrayBuffer(source.BYTES_PER_ELEMENT), 0, 1);
    this.get(one, source, pe);
    return one[0] as Element<Elements>;
  }

  /**
   * `shmem_iput`: `nelems` elements; those of `source` are `sst` apart, those of `dest` `dst`.
   */
  iput<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    dst: number,
    sst: number,
    nelems: number,
    pe: number,
  ): void {
    checkType('source', source, 'dest', dest);
    checkStrides(dest, source, dst, sst, nelems);
    offsetOf(this.#world.range, dest, 'dest');
    const there = this.ptr(dest, pe);
    for (let index = 0; index < nelems; index++) {
      const value = source[index * sst] as Element<Elements>;
      if (there) there[index * dst] = value as never;
      else this.p(dest.subarray(index * dst, index * dst + 1) as Elements, value, pe);
    }
    this.#world.wakeWatcher(pe);
  }

  /** `shmem_iget`. */
  iget<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    dst: number,
    sst: number,
    nelems: number,
    pe: number,
  ): void {
    checkType('dest', dest, 'source', source);
    checkStrides(dest, source, dst, sst, nelems);
    offsetOf(this.#world.range, source, 'source');
    let there = this.ptr(source, pe);
    if (!there) {
      const span = nelems === 0 ? 0 : (nelems - 1) * sst + 1;
      there = arrayLike(source, new ArrayBuffer(span * source.BYTES_PER_ELEMENT), 0, span);
      this.get(there, source.subarray(0, span) as Elements, pe);
    }
    for (let index = 0; index < nelems; index++) dest[index * dst] = there[index * sst] as never;
  }

  /**
   * `shmem_put_signal`: a put, and then the signal of the same PE is set to `value`, or raised by
   * it (`ShmemSignal`). A PE that sees the signal sees the elements.
   */
  putSignal<Elements extends SymmetricArray>(
    dest: Elements,
    source: Elements,
    signal: BigUint64Array,
    value: bigint,
    operation: ShmemSignal,
    pe: number,
  ): void {
    // A wrong argument leaves the elements as they are.
    const offset = this.#signalOffset(signal);
    checkElement('value', signal, value);
    if (operation !== ShmemSignal.SET && operation !== ShmemSignal.ADD) {
      throw mustBe('operation', 'a ShmemSignal', operation);
    }
    this.put(dest, source, pe);
    const change = operation === ShmemSignal.SET ? Atomic.SET : Atomic.ADD;
    this.#peer(pe).atomic(signal, offset, change, value);
    this.#world.wakeWatcher(pe);
  }

  /** `shmem_signal_fetch`: the signal of this PE. */
  signalFetch(signal: BigUint64Array): bigint {
    const offset = this.#signalOffset(signal);
    return this.#peer(this.myPe).atomic(signal, offset, Atomic.FETCH, 0n) as bigint;
  }

  /** `shmem_signal_wait_until`. Resolves to the signal. */
  async signalWaitUntil(
    signal: BigUint64Array,
    cmp: ShmemCmp,
    value: bigint,
    limits?: WaitLimits,
  ): Promise<bigint> {
    this.#signalOffset(signal);
    await this.#waitUntil('signalWaitUntil', signal, cmp, value, limits);
    return this.signalFetch(signal);
  }

  /** `shmem_atomic_fetch`: the first element of `source` of a PE. Atomics take 32 and 64 bits. */
  atomicFetch<Words extends AtomicArray>(source: Words, pe: number): Element<Words> {
    const offset = this.#atomicOffset(source, 'source');
    return this.#peer(pe).atomic(source, offset, Atomic.FETCH, 0) as Element<Words>;
  }

  /** `shmem_atomic_set`. */
  atomicSet<Words extends AtomicArray>(dest: Words, value: Element<Words>, pe: number): void {
    this.#atomic(dest, Atomic.SET, value, pe);
  }

  /** `shmem_atomic_swap`: returns the old value. */
  atomicSwap<Words extends AtomicArray>(
    dest: Words,
    value: Element<Words>,
    pe: number,
  ): Element<Words> {
    return this.#atomic(dest, Atomic.SET, value, pe);
  }

  /** `shmem_atomic_compare_swap`: returns the old value. */
  atomicCompareSwap<Words extends AtomicArray>(
    dest: Words,
    condition: Element<Words>,
    value: Element<Words>,
    pe: number,
  ): Element<Words> {
    const offset = this.#atomicOffset(dest, 'dest');
    checkElement('condition', dest, condition);
    checkElement('value', dest, value);
    const before = this.#peer(pe).compareSwap(dest, offset, condition as Word, value as Word);
    this.#world.wakeWatcher(pe);
    return before as Element<Words>;
  }

  /** `shmem_atomic_inc`. */
  atomicInc(dest: AtomicArray, pe: number): void {
    this.atomicFetchInc(dest, pe);
  }

  /** `shmem_atomic_fetch_inc`. */
  atomicFetchInc<Words extends AtomicArray>(dest: Words, pe: number): Element<Words> {
    const one = dest?.BYTES_PER_ELEMENT === 8 ? 1n : 1;
    return this.#atomic(dest, Atomic.ADD, one as Element<Words>, pe);
  }

  /** `shmem_atomic_add`. */
  atomicAdd<Words extends AtomicArray>(dest: Words, value: Element<Words>, pe: number): void {
    this.#atomic(dest, Atomic.ADD, value, pe);
  }

  /** `shmem_atomic_fetch_add`. */
  atomicFetchAdd<Words extends AtomicArray>(
    dest: Words,
    value: Element<Words>,
    pe: number,
  ): Element<Words> {
    return this.#atomic(dest, Atomic.ADD, value, pe);
  }

  /** `shmem_atomic_and`. */
  atomicAnd<Words extends AtomicArray>(dest: Words, value: Element<Words>, pe: number): void {
    this.#atomic(dest, Atomic.AND, value, pe);
  }

  /** `shmem_atomic_fetch_and`. */
  atomicFetchAnd<Words extends AtomicArray>(
    dest: Words,
    value: Element<Words>,
    pe: number,
  ): Element<Words> {
    return this.#atomic(dest, Atomic.AND, value, pe);
  }

  /** `shmem_atomic_or`. */
  atomicOr<Words extends AtomicArray>(dest: Words, value: Element<Words>, pe: number): void {
    this.#atomic(dest, Atomic.OR, value, pe);
  }

  /** `shmem_atomic_fetch_or`. */
  atomicFetchOr<Words extends AtomicArray>(
    dest: Words,
    value: Element<Words>,
    pe: number,
  ): Element<Words> {
    return this.#atomic(dest, Atomic.OR, value, pe);
  }

  /** `shmem_atomic_xor`. */
  atomicXor<Words extends AtomicArray>(dest: Words, value: Element<Words>, pe: number): void {
    this.#atomic(dest, Atomic.XOR, value, pe);
  }

  /** `shmem_atomic_fetch_xor`. */
  atomicFetchXor<Words extends AtomicArray>(
    dest: Words,
    value: Element<Words>,
    pe: number,
  ): Element<Words> {
    return this.#atomic(dest, Atomic.XOR, value, pe);
  }

  /** `shmem_fence`: puts and atomics to a PE before it arrive before those after it. */
  fence(): void {
    this.#world.checkOpen();
    Atomics.load(this.#world.node.words, 0);
  }

  /**
   * `shmem_quiet`: returns when all puts and atomics of this PE are where they go. Throws
   * RefusalError ECONNRESET, once for what went to a PE that has failed.
   */
  quiet(): void {
    this.#world.checkOpen();
    this.#world.quiet();
  }

  /** `shmem_barrier_all`: `quiet`, and then all PEs wait for each other. */
  async barrierAll(limits?: WaitLimits): Promise<void> {
    this.#world.quiet();
    return this.world.syncAs('barrierAll', limits);
  }

  /** `shmem_sync_all`. */
  syncAll(limits?: WaitLimits): Promise<void> {
    return this.world.syncAs('syncAll', limits);
  }

  /** `shmem_test`: how the first element of `ivar` of this PE compares. */
  test<Words extends AtomicArray>(ivar: Words, cmp: ShmemCmp, value: Element<Words>): boolean {
    this.#checkWait('ivar', ivar, cmp, value, 1);
    return compare(load(ivar), cmp, value as Word);
  }

  /** `shmem_test_all`: do all elements? */
  testAll<Words extends AtomicArray>(ivars: Words, cmp: ShmemCmp, value: Element<Words>): boolean {
    this.#checkWait('ivars', ivars, cmp, value);
    return compareAll(ivars, cmp, value as Word);
  }

  /** `shmem_test_any`: the index of an element that does; -1: no element does. */
  testAny<Words extends AtomicArray>(ivars: Words, cmp: ShmemCmp, value: Element<Words>): number {
    this.#checkWait('ivars', ivars, cmp, value);
    return compareAny(ivars, cmp, value as Word);
  }

  /**
   * `shmem_wait_until`: resolves when another PE has changed the first element of `ivar` so that it
   * compares. `limits`: timeout (milliseconds) and signal. Rejects with MisuseError; RefusalError
   * ETIMEDOUT; the reason of the signal.
   */
  async waitUntil<Words extends AtomicArray>(
    ivar: Words,
    cmp: ShmemCmp,
    value: Element<Words>,
    limits?: WaitLimits,
  ): Promise<void> {
    return this.#waitUntil('waitUntil', ivar, cmp, value, limits);
  }

  /** `shmem_wait_until_all`. Of no elements it resolves at once. */
  async waitUntilAll<Words extends AtomicArray>(
    ivars: Words,
    cmp: ShmemCmp,
    value: Element<Words>,
    limits?: WaitLimits,
  ): Promise<void> {
    this.#checkWait('ivars', ivars, cmp, value);
    const look = (): boolean => compareAll(ivars, cmp, value as Word);
    return this.#world.untilWritten('waitUntilAll', look, limits);
  }

  /**
   * `shmem_wait_until_any`. Resolves to the index of an element that compares; of no elements it
   * resolves at once, to -1 (C: SIZE_MAX).
   */
  async waitUntilAny<Words extends AtomicArray>(
    ivars: Words,
    cmp: ShmemCmp,
    value: Element<Words>,
    limits?: WaitLimits,
  ): Promise<number> {
    this.#checkWait('ivars', ivars, cmp, value);
    let found = -1;
    const look = (): boolean => {
      found = compareAny(ivars, cmp, value as Word);
      return found >= 0 || ivars.length === 0;
    };
    await this.#world.untilWritten('waitUntilAny', look, limits);
    return found;
  }

  /**
   * `shmem_set_lock`: waits for the lock, a symmetric word that is 0 at first. A lock whose holder
   * has failed is taken over. Rejects with RefusalError ETIMEDOUT; the reason of the signal.
   */
  async setLock(lock: BigInt64Array, limits?: WaitLimits): Promise<void> {
    await this.#world.untilWritten('setLock', () => this.testLock(lock), limits);
  }

  /** `shmem_test_lock`: true if this PE has the lock now. */
  testLock(lock: BigInt64Array): boolean {
    const own = BigInt(this.myPe + 1);
    const found = this.#swapLock(lock, 0n, own);
    if (found === 0n) return true;
    const holder = Number(found) - 1;
    if (!this.#world.failed.has(holder)) return false;
    return this.#swapLock(lock, found, own) === found;
  }

  /** `shmem_clear_lock`: all writes of this PE are there before. Throws MisuseError. */
  clearLock(lock: BigInt64Array): void {
    checkLock(lock);
    this.#world.quiet();
    const own = BigInt(this.myPe + 1);
    if (this.#swapLock(lock, own, 0n) !== own) {
      throw new MisuseError('lock', 'is not held by this PE; call setLock first');
    }
    for (let pe = 0; pe < this.nPes; pe++) this.#world.wakeWatcher(pe);
  }

  /** `shmem_info_get_name`, and `shmem_info_get_version`. */
  info(): { readonly name: string; readonly major: number; readonly minor: number } {
    return { name: `Verbena (${cpus().length} processors)`, major: 1, minor: 5 };
  }

  /** Copies into the memory of a PE of this machine. */
  #store(address: number, source: SymmetricArray): void {
    const { length, BYTES_PER_ELEMENT: width } = source;
    const all =
      length <= FEW_ELEMENTS && address % width === 0 && this.#views.get(source.constructor);
    if (!all) return copyBytes(this.#bytes, bytesOf(source), address);
    const first = address / width;
    for (let index = 0; index < length; index++) all[first + index] = source[index] as never;
  }

  #atomic<Words extends AtomicArray>(
    words: Words,
    operation: Atomic,
    value: Element<Words>,
    pe: number,
  ): Element<Words> {
    const offset = this.#atomicOffset(words, 'dest');
    checkElement('value', words, value);
    const before = this.#peer(pe).atomic(words, offset, operation, value as Word);
    this.#world.wakeWatcher(pe);
    return before as Element<Words>;
  }

  /** The word of the lock before, which is PE 0's. */
  #swapLock(lock: BigInt64Array, condition: bigint, value: bigint): bigint {
    checkLock(lock);
    const offset = this.#atomicOffset(lock, 'lock');
    const before = this.#peer(0).compareSwap(lock, offset, condition, value) as bigint;
    // Not for a look that changed nothing: the wait of this PE, which looks, would never sleep.
    if (before === condition) this.#world.wakeWatcher(0);
    return before;
  }

  #atomicOffset(words: AtomicArray, name: string, least = 1): number {
    const offset = offsetOf(this.#world.range, words, name);
    if (!ATOMIC_TYPES.has(words.constructor)) {
      throw mustBe(name, 'an array of whole numbers of 32 or 64 bits', words);
    }
    if (words.length >= least) return offset;
    throw new MisuseError(name, `must have an element, got ${words.length}`);
  }

  #signalOffset(signal: BigUint64Array): number {
    if (signal instanceof BigUint64Array) return this.#atomicOffset(signal, 'signal');
    const remedy = 'make it with shmem.array(BigUint64Array, 1)';
    throw new MisuseError('signal', `must be a BigUint64Array, got ${typeOf(signal)}; ${remedy}`);
  }

  /** Of a wait or a test: no PE changes words that are not symmetric. */
  #checkWait(name: string, ivars: AtomicArray, cmp: ShmemCmp, value: unknown, least = 0): void {
    this.#world.checkOpen();
    this.#atomicOffset(ivars, name, least);
    checkElement('value', ivars, value);
    compare(0, cmp, 0);
  }

  #waitUntil<Words extends AtomicArray>(
    operation: string,
    ivar: Words,
    cmp: ShmemCmp,
    value: Element<Words>,
    limits: WaitLimits | undefined,
  ): Promise<void> {
    this.#checkWait('ivar', ivar, cmp, value, 1);
    const look = (): boolean => compare(load(ivar), cmp, value as Word);
    return this.#world.untilWritten(operation, look, limits);
  }

  /** Undefined: `#peer` says why. Names of properties may be strings. */
  #baseOf(pe: number): number | undefined {
    return typeof pe === 'number' ? this.#bases[pe] : undefined;
  }

  #peer(pe: number): Peer {
    this.#world.checkOpen();
    const peer = this.#world.peers[pe];
    // A name of a property may be a string.
    if (peer && typeof pe === 'number') return peer;
    throw mustBe('pe', `a number from 0 to ${this.nPes - 1}`, pe);
  }

  #alloc({ operation }: Collective, length: number, alignment: number): number {
    this.#world.checkOpen();
    checkWhole('length', length, 0, 2 ** 32);
    try {
      return this.#world.heap.alloc(length, alignment);
    } catch (error) {
      if (!(error instanceof RefusalError)) throw error;
      const { bytesFree } = this.#world.heap;
      throw new RefusalError(
        'ENOMEM',
        `${operation}: no ${length} bytes in a row are free of the ${this.#size} of this PE ` +
          `(${bytesFree} in all); raise SHMEM_SYMMETRIC_SIZE, or size of init`,
        { cause: error },
      );
    }
  }

  async #malloc(collective: Collective, length: number, alignment = 64): Promise<Uint8Array> {
    const address = this.#alloc(collective, length, alignment);
    await this.#barrier(collective);
    return this.#bytes.subarray(address, address + length);
  }

  async #calloc(collective: Collective, length: number): Promise<Uint8Array> {
    const address = this.#alloc(collective, length, 64);
    this.#bytes.fill(0, address, address + length);
    await this.#barrier(collective);
    return this.#bytes.subarray(address, address + length);
  }

  /** Before this PE takes part: the others would wait for one that has thrown. */
  #checkAllocated(memory: SymmetricArray): void {
    this.#world.checkOpen();
    if (!ArrayBuffer.isView(memory)) {
      throw mustBe('memory', 'memory that malloc, calloc, align or array returned', memory);
    }
    offsetOf(this.#world.range, memory, 'memory');
    if (this.#world.heap.has(memory.byteOffset)) return;
    const found = `0x${memory.byteOffset.toString(16)}`;
    throw new MisuseError(
      'memory',
      `must be memory as malloc, calloc, align or array returned it, and not free, got ${found}`,
    );
  }

  #barrier(collective: Collective): Promise<void> {
    this.#world.quiet();
    return this.world.meet(collective);
  }

  async #end(collective: Collective): Promise<void> {
    this.#world.isFinalizing = true;
    try {
      await this.#meetLast(collective);
    } finally {
      clearInterval(this.#watch);
      process.removeListener('beforeExit', this.#finish);
      this.#world.isClosed = true;
      this.#bases = [];
      this.#world.node.leave();
      await this.#world.node.context.close();
    }
  }

  /** Resolves when all PEs that have not failed finalize. */
  async #meetLast(collective: Collective): Promise<void> {
    const world = this.#world;
    for (;;) {
      const failed = world.findFailed().size;
      try {
        // PEs that have gone on without this one are no reason to wait.
        const team =
          failed === 0 ? this.world : await this.world.agree(collective, () => undefined);
        team.quiet();
        await team.meet(collective);
        world.isEnding = true;
        return team.quiet();
      } catch (error) {
        // Without a number for their team the PEs have met all the same.
        if (error instanceof RefusalError && error.code === 'ENOMEM') return;
        if (!(error instanceof RefusalError) || error.code !== 'ECONNRESET') throw error;
        // A PE has failed meanwhile: the others meet without it.
        if (world.findFailed().size === failed) return;
      }
    }
  }
}

/** A 32-bit word, as of C's long on some machines, is no lock here. */
function checkLock(lock: unknown): void {
  if (lock instanceof BigInt64Array) return;
  const remedy = 'make it with shmem.array(BigInt64Array, 1)';
  throw new MisuseError('lock', `must be a BigInt64Array, got ${typeOf(lock)}; ${remedy}`);
}

function arrayOf(type: unknown, buffer: ArrayBufferLike): SymmetricArray {
  return new (type as new (buffer: ArrayBufferLike) => SymmetricArray)(buffer);
}

function compareAll(words: AtomicArray, cmp: ShmemCmp, value: Word): boolean {
  for (let index = 0; index < words.length; index++) {
    if (!compare(load(words, index), cmp, value)) return false;
  }
  return true;
}

/** -1: no element does. */
function compareAny(words: AtomicArray, cmp: ShmemCmp, value: Word): number {
  for (let index = 0; index < words.length; index++) {
    if (compare(load(words, index), cmp, value)) return index;
  }
  return -1;
}

function load(words: AtomicArray, index = 0): Word {
  return Atomics.load(words as Int32Array, index);
}

function checkStrides(
  dest: SymmetricArray,
  source: SymmetricArray,
  dst: number,
  sst: number,
  nelems: number,
): void {
  checkWhole('nelems', nelems, 0, 2 ** 31);
  checkWhole('dst', dst, 1, 2 ** 31);
  checkWhole('sst', sst, 1, 2 ** 31);
  if (nelems === 0) return;
  if (dest.length < (nelems - 1) * dst + 1) {
    throw new MisuseError('dest', `must have ${(nelems - 1) * dst + 1} elements for these strides`);
  }
  if (source.length < (nelems - 1) * sst + 1) {
    throw new MisuseError(
      'source',
      `must have ${(nelems - 1) * sst + 1} elements for these strides`,
    );
  }
}
