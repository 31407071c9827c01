/** The memory that a side shares: from what an application names to registered regions. */
import { AccessFlag } from '#build/abi.js';
import { checkKeys, checkObject } from '../base/options.js';
import { checkWhole, mustBe, shown } from '../errors/check-whole.js';
import { MisuseError } from '../errors/errors.js';
import type { LayoutBase } from '../verbs/layouts/layouts.js';
import type { MrLayoutInterleaved } from '../verbs/layouts/layout-list.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { Sge } from '../verbs/queues/sge.js';
import {
  HELLO_BYTES_MAX,
  NAME_CHARACTERS_MAX,
  REGIONS_MAX,
  RightBit,
  buildHello,
  type RegionDescription,
} from './hello.js';
import {
  checkLayoutList,
  checkRegionSource,
  checkRegionTypes,
  checkRegions,
  checkRegisteredKey,
  withLayoutName,
} from './region-rules.js';

/** Access rights of a peer to a region. */
export type Right = 'read' | 'write' | 'atomic';

/** A typed array, `Uint8Array` and `Buffer` included. */
export type TypedArray =
  | Uint8Array
  | Int8Array
  | Uint8ClampedArray
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | Float32Array
  | Float64Array
  | BigInt64Array
  | BigUint64Array;

/** A region that is registered already, with the protection domain of the option `pd`. */
export interface RegisteredRegion {
  readonly addr: bigint;
  readonly rkey: number;
  readonly length: number;
  /**
   * Peers may flush it: `visible` if it was registered with FLUSH_GLOBAL, `durable` if also with
   * FLUSH_PERSISTENT. Default: no flush.
   */
  readonly flush?: 'visible' | 'durable';
}

/** A region with options: exactly one of `bytes`, `array`, `file`, `layout`, `registered`. */
export interface RegionOptions {
  /** Zero bytes; with `file` the size of a file that is created. */
  readonly bytes?: number;
  /** Initial contents. They are copied: the shared memory is `memory.NAME`, of the same type. */
  readonly array?: TypedArray;
  /** Path of a file whose bytes are the region (`context.openPmem`): FLUSH makes them durable. */
  readonly file?: string;
  /**
   * A view of other regions of this call, without memory of its own: called with their bases by
   * name. Returns what `matrixColumn` and its like return, or a list of `Sge`.
   */
  readonly layout?: (
    bases: Readonly<Record<string, LayoutBase>>,
  ) => readonly MrLayoutInterleaved[] | readonly Sge[];
  /** A region of the application's own: of a pool, a window, a stencil. */
  readonly registered?: RegisteredRegion;
  /** Access rights of peers. Default: `read`, `write` and `atomic`. */
  readonly rights?: readonly Right[];
}

/** A region of `share`: a size in bytes, a typed array whose contents are copied, or options. */
export type RegionSource = number | TypedArray | RegionOptions;
/** Regions by name. */
export type Regions = Readonly<Record<string, RegionSource>>;

type MemoryOf<Source> = Source extends number
  ? Uint8Array
  : Source extends TypedArray
    ? Source
    : Source extends { readonly array: infer Typed }
      ? Typed
      : Source extends { readonly layout: unknown } | { readonly registered: unknown }
        ? undefined
        : Uint8Array;
/** The memory of regions by name; layouts and `registered` regions have none here. */
export type MemoryByName<Named> = { readonly [Name in keyof Named]: MemoryOf<Named[Name]> };

const BITS: Readonly<Record<Right, number>> = {
  read: RightBit.READ,
  write: RightBit.WRITE,
  atomic: RightBit.ATOMIC,
};
const SOURCES = ['bytes', 'array', 'file', 'layout', 'registered'] as const;
const BYTES_MAX = 2 ** 32 - 2 ** 16;
/** For the other fields of the message, and the regions that one client gets of its own. */
const HELLO_SPARE_BYTES = 16 * 1024;

export function rightsOf(bits: number): readonly Right[] {
  return (Object.keys(BITS) as Right[]).filter((right) => bits & BITS[right]);
}

/** Local memory that requests may use in place, without a copy. */
export class LocalMemory {
  readonly #parts: { readonly start: number; readonly end: number; readonly lkey: number }[] = [];
  #last = { start: 0, end: 0, lkey: 0 };

  add(bytes: Uint8Array, lkey: number): void {
    const start = bytes.byteOffset;
    this.#parts.push({ start, end: start + bytes.length, lkey });
  }

  remove(lkey: number): void {
    const at = this.#parts.findIndex((part) => part.lkey === lkey);
    if (at >= 0) this.#parts.splice(at, 1);
    this.#last = { start: 0, end: 0, lkey: 0 };
  }

  /** The key for `length` bytes at `start` of the device's memory; undefined: not registered. */
  keyOf(start: number, length: number): number | undefined {
    const end = start + length;
    if (start >= this.#last.start && end <= this.#last.end) return this.#last.lkey;
    const found = this.#parts.find((part) => start >= part.start && end <= part.end);
    if (found) this.#last = found;
    return found?.lkey;
  }
}

/** Throws MisuseError for a name that no region can have. */
export function checkName(operation: string, argument: string, name: string): void {
  const start = name.slice(0, NAME_CHARACTERS_MAX);
  if (name === start && /^(?!__proto__$)\P{Cc}+$/u.test(name)) return;
  const rule = `a name has 1 to ${NAME_CHARACTERS_MAX} characters, no control characters, not __proto__`;
  throw new MisuseError(argument, `${operation}: ${rule}, got ${shown(start)}`);
}

/** The argument in which a call names regions. */
function argumentOf(operation: string): string {
  if (operation === 'joinMesh') return 'memory';
  return operation === 'connect' ? 'share' : 'regions';
}

/** Throws MisuseError. */
function optionsOf(operation: string, name: string, source: RegionSource): RegionOptions {
  const regions = argumentOf(operation);
  const argument = `${regions}.${name}`;
  checkName(operation, regions, name);
  if (typeof source === 'number') return { bytes: source };
  checkRegionSource(operation, argument, source);
  if (ArrayBuffer.isView(source)) return { array: source };
  checkKeys(argument, source, 'bytes array file layout registered rights');
  const given = SOURCES.filter((key) => source[key] !== undefined);
  const isFile = source.file !== undefined && given.join() === 'bytes,file';
  if (given.length !== 1 && !isFile) {
    const rule = `${operation}: exactly one of ${SOURCES.join(', ')} is required`;
    throw new MisuseError(argument, rule);
  }
  checkRegionTypes(operation, argument, source);
  return source;
}

function rightBits(argument: string, rights: readonly Right[] = ['read', 'write', 'atomic']) {
  let bits = 0;
  if (rights.length === 0) {
    const rule = `must name one of read, write, atomic, got ${rights.length}`;
    throw new MisuseError(`${argument}.rights`, `${rule}; leave the region out to share nothing`);
  }
  for (const right of rights) {
    if (!(right in BITS)) {
      throw mustBe(`${argument}.rights`, 'of read, write, atomic', right);
    }
    bits |= BITS[right];
  }
  return bits;
}

function accessOf(bits: number): number {
  return (
    AccessFlag.LOCAL_WRITE |
    (bits & RightBit.READ ? AccessFlag.REMOTE_READ : 0) |
    (bits & RightBit.WRITE ? AccessFlag.REMOTE_WRITE : 0) |
    (bits & RightBit.ATOMIC ? AccessFlag.REMOTE_ATOMIC : 0)
  );
}

/** Bytes of device memory that the regions take. Throws MisuseError for invalid regions. */
export function regionBytes(operation: string, regions: Regions): number {
  const argument = argumentOf(operation);
  checkRegions(operation, argument, regions);
  checkObject(operation, regions, argument);
  const names = Object.entries(regions);
  if (names.length > REGIONS_MAX) {
    const rule = `${operation}: at most ${REGIONS_MAX} regions, got ${names.length}`;
    throw new MisuseError(argument, rule);
  }
  let total = 0;
  for (const [name, source] of names) {
    const { bytes = 0, array, file, rights } = optionsOf(operation, name, source);
    const length = array?.byteLength ?? bytes;
    if (file === undefined || bytes !== 0) {
      const isSized = bytes !== 0 || array !== undefined || typeof source === 'number';
      if (isSized) checkWhole(`${argument}.${name}`, length, 1, BYTES_MAX);
    }
    rightBits(`${argument}.${name}`, rights);
    total += length;
  }
  return total;
}

/** Descriptions of open regions, for further servers and clients of the same domain. */
export function registeredRegions(
  descriptions: readonly RegionDescription[],
): Readonly<Record<string, RegionOptions>> {
  return Object.fromEntries(
    descriptions.map(({ name, addr, rkey, length, rights }) => {
      const isDurable = (rights & RightBit.PERSISTENT) !== 0;
      const flush = isDurable ? { flush: 'durable' as const } : { flush: 'visible' as const };
      const registered = { addr, rkey, length, ...(rights & RightBit.FLUSH ? flush : {}) };
      return [name, { registered, rights: rightsOf(rights) }];
    }),
  );
}

/** Registered memory by name, and how to give it back. */
export class LocalRegions {
  readonly memory: Record<string, TypedArray | undefined> = {};
  readonly descriptions: RegionDescription[] = [];
  readonly #bases: Record<string, LayoutBase> = {};
  readonly #pd: ProtectionDomain;
  readonly #local: LocalMemory;
  readonly #undo: (() => void | Promise<void>)[] = [];

  private constructor(pd: ProtectionDomain, local: LocalMemory) {
    this.#pd = pd;
    this.#local = local;
  }

  /** Throws MisuseError; RefusalError ENOMEM, and those of `context.openPmem`. */
  static async open(
    operation: string,
    pd: ProtectionDomain,
    local: LocalMemory,
    regions: Regions,
  ): Promise<LocalRegions> {
    const made = new LocalRegions(pd, local);
    try {
      const entries = Object.entries(regions).map(
        ([name, source]) => [name, optionsOf(operation, name, source)] as const,
      );
      // A layout names other regions, whatever their order.
      for (const [name, options] of entries) if (!options.layout) await made.#add(name, options);
      for (const [name, options] of entries) {
        const argument = `${argumentOf(operation)}.${name}`;
        if (options.registered) checkRegisteredKey(operation, argument, pd, options.registered);
        if (!options.layout) continue;
        withLayoutName(operation, argument, () => made.#addLayout(name, options));
      }
      checkDescriptions(operation, made.descriptions);
      return made;
    } catch (error) {
      await made.close();
      throw error;
    }
  }

  /** Ends the regions: peers lose access at once. */
  async close(): Promise<void> {
    for (const undo of this.#undo.splice(0).reverse()) await undo();
  }

  async #add(name: string, { bytes, array, file, registered, rights: wanted }: RegionOptions) {
    const { context } = this.#pd;
    const bits = rightBits(name, wanted);
    if (registered) {
      this.memory[name] = undefined;
      const { addr, rkey, length, flush } = registered;
      const rights = bits | (flush ? RightBit.FLUSH : 0);
      const all = flush === 'durable' ? rights | RightBit.PERSISTENT : rights;
      this.descriptions.push({ name, addr, length, rkey, rights: all });
      return;
    }
    if (file !== undefined) {
      const pmem = await context.openPmem(file, bytes === undefined ? {} : { bytes });
      this.#undo.push(() => pmem.close());
      this.#register(name, pmem.buffer, bits | RightBit.PERSISTENT);
      this.memory[name] = pmem.buffer;
      return;
    }
    const buffer = context.alloc(array?.byteLength ?? bytes!);
    this.#undo.push(() => context.free(buffer));
    if (array) buffer.set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
    this.#register(name, buffer, bits);
    this.memory[name] = array ? likeOf(array, buffer) : buffer;
  }

  #register(name: string, buffer: Uint8Array, rights: number): void {
    const bits = rights & RightBit.WRITE ? rights | RightBit.FLUSH : rights;
    let access = accessOf(bits);
    if (bits & RightBit.FLUSH) access |= AccessFlag.FLUSH_GLOBAL;
    if (bits & RightBit.PERSISTENT) access |= AccessFlag.FLUSH_PERSISTENT;
    const mr = this.#pd.regMr(buffer, access);
    this.#local.add(buffer, mr.lkey);
    this.#undo.push(() => {
      this.#local.remove(mr.lkey);
      mr.dereg();
    });
    const { addr, lkey, rkey, length } = mr;
    this.#bases[name] = { addr, lkey };
    this.descriptions.push({ name, addr, length, rkey, rights: bits });
  }

  #addLayout(name: string, { layout, rights }: RegionOptions): void {
    const bits = rightBits(name, rights ?? ['read', 'write']);
    const list = layout!(this.#bases);
    checkLayoutList(list);
    const mr = this.#pd.regMr(null, 0, accessOf(bits) | AccessFlag.ZERO_BASED);
    this.#undo.push(() => mr.dereg());
    const isInterleaved = list.length > 0 && 'firstDatum' in list[0]!;
    if (isInterleaved) mr.setLayoutInterleaved(0, list as readonly MrLayoutInterleaved[]);
    else mr.setLayoutSg(0, list as readonly Sge[]);
    this.memory[name] = undefined;
    const { addr, rkey, length } = mr;
    this.descriptions.push({ name, addr, length, rkey, rights: bits });
  }
}

/** All descriptions are one message. */
function checkDescriptions(operation: string, regions: readonly RegionDescription[]): void {
  const { length } = buildHello({ id: 0n, messageBytesMax: 0, regions, wanted: [] });
  if (length <= HELLO_BYTES_MAX - HELLO_SPARE_BYTES) return;
  const rule = `${operation}: their names and number take ${length} bytes of one message`;
  throw new MisuseError(argumentOf(operation), `${rule}; use fewer regions or shorter names`);
}

/** A view of the same type. */
function likeOf(array: TypedArray, { buffer, byteOffset }: Uint8Array): TypedArray {
  const Type = array.constructor as new (
    buffer: ArrayBufferLike,
    byteOffset: number,
    length: number,
  ) => TypedArray;
  // A Buffer is not made by its constructor.
  if (typeof Buffer !== 'undefined' && array instanceof Buffer) {
    return Buffer.from(buffer as ArrayBuffer, byteOffset, array.length);
  }
  return new Type(buffer, byteOffset, array.length);
}
