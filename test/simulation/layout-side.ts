/**
 * One side of the simulation of memory layouts: its memory, what it must hold, and random layouts
 * over it, nested, of many dimensions, uneven, as stencils.
 */
import {
  AccessFlag,
  type LayoutMemoryRegion,
  type MemoryRegion,
  type MrLayoutInterleaved,
  type Sge,
} from '../../host/index.js';
import {
  instanceStream,
  lookupOf,
  signed,
  stencilStream,
  type Described,
  type Lookup,
} from '../support/layout-oracle.js';
import { ALL_ACCESS, type Side } from '../support/pair.js';
import type { Random } from './random.js';
import { Violation } from './violation.js';

const AREA_BYTES = 24 * 1024;
const AREAS = 3;
const STREAM_MAX = 12_000;
const INSTANCE_MAX = 400;
/** Addresses far beyond linear memory, and exact as numbers. */
const FAR = 2 ** 40;
/** Of streams: mostly none, and the last one is at the end of all addresses. */
const ORIGINS = [0, 0, FAR, 2n ** 64n - 2n ** 32n];

/** A place of the oracle's: which area, and where in it. */
const place = (area: number, offset: number): number => area * 2 ** 20 + offset;

interface Area {
  readonly mr: MemoryRegion;
  readonly actual: Uint8Array;
  readonly expected: Uint8Array;
}

/** A layout that was made: what the oracle needs, and where it may be used. */
export interface Made extends Described {
  readonly packed: number;
  /** Depth of nested layouts. */
  readonly depth: number;
  /** Stencils: valid base pointers, and the one that peers access at address 0. */
  readonly pointers?: Pointers;
  readonly origin?: number;
}

/** Base pointers of a stencil: the first one, and the range of bytes for others. */
interface Pointers {
  readonly first: number;
  readonly count: number;
}

/** Bases of a layout: a region's bytes, a layout's stream, a stencil's base pointers. */
interface Base {
  readonly lkey: number;
  readonly first: number;
  /** Number of bytes, or of base pointers. */
  readonly length: number;
  readonly depth: number;
  /** Maximum bytes of a datum; for a stencil its fixed size at a base pointer. */
  readonly datumMax?: number;
}

/** A source, and the bytes (or base pointers) of its base that it covers from its address on. */
interface Placed {
  readonly source: MrLayoutInterleaved;
  readonly reach: number;
}

/** Bytes of memory as a work request names them, and where the oracle says that they are. */
export interface Named {
  readonly addr: number | bigint;
  readonly key: number;
  readonly stream: readonly number[];
}

/** One side: areas, and the layouts over them. */
export class LayoutSide {
  readonly side: Side;
  readonly areas: readonly Area[];
  readonly #random: Random;
  readonly #access: number;
  #made: Made[] = [];
  #known: Lookup | undefined;
  readonly #region: Lookup = (lkey, address, length, stream) => {
    const area = this.areas.findIndex(({ mr }) => mr.lkey === lkey);
    if (area < 0) throw new Violation(`the oracle does not know key ${lkey}`);
    const first = place(area, address - Number(this.areas[area]!.mr.addr));
    for (let at = first; at < first + length; at++) stream.push(at);
  };

  constructor(side: Side, random: Random, access = ALL_ACCESS) {
    this.side = side;
    this.#random = random;
    this.#access = access;
    this.areas = Array.from({ length: AREAS }, (_, index) => {
      const actual = side.context.alloc(AREA_BYTES);
      random.fill(actual);
      const options = index === 1 ? { iova: FAR + actual.byteOffset } : {};
      const access = index === 2 ? this.#access | AccessFlag.ZERO_BASED : this.#access;
      const mr = side.pd.regMr(actual, access, options);
      return { mr, actual, expected: actual.slice() };
    });
  }

  get #lookup(): Lookup {
    return (this.#known ??= lookupOf(this.#made, this.#region));
  }

  #anyArea(): Base {
    const { mr } = this.#random.pick(this.areas);
    return { lkey: mr.lkey, first: Number(mr.addr), length: mr.length, depth: 0 };
  }

  /** A region, a zero-based layout of at most this depth, or a stencil. */
  #anyBase(depth: number): Base {
    const random = this.#random;
    if (depth <= 1 || random.chance(0.6)) return this.#anyArea();
    // A layout that several sources refer to is below more than once.
    const known = this.#made.filter((made) => made.depth < depth);
    const inner =
      known.length > 0 && random.chance(0.3) ? random.pick(known) : this.make(depth - 1);
    const { mr, packed, pointers, depth: below } = inner;
    if (!pointers) return { lkey: mr.lkey, first: 0, length: packed, depth: below };
    const instances = random.pick([1, 1, 2, 3]);
    const { first, count } = pointersFor(inner, instances);
    // The oracle visits the whole instance for each datum.
    if (count < 1 || packed > INSTANCE_MAX) return this.#anyArea();
    return { lkey: mr.lkey, first, length: count, depth: below, datumMax: packed * instances };
  }

  /** A layout of layouts, `depth` deep at most. */
  make(depth: number): Made {
    const stencil = this.#random.chance(0.25);
    const access = this.#access | (stencil ? 0 : AccessFlag.ZERO_BASED);
    const mr = this.side.pd.regMr(null, 0, access);
    const made = stencil ? this.#stencil(mr, depth) : this.#plain(mr, depth);
    this.#made.push(made);
    this.#known = undefined;
    return made;
  }

  #plain(mr: LayoutMemoryRegion, depth: number): Made {
    const options = { origin: this.#random.pick(ORIGINS) };
    if (this.#random.chance(0.4)) {
      const sg = this.#pieces(depth);
      mr.setLayoutSg(0, sg, options);
      return { mr, sg, packed: mr.length, depth };
    }
    const ilv = this.#sources(() => this.#anyBase(depth)).map(({ source }) => source);
    mr.setLayoutInterleaved(0, ilv, options);
    return { mr, ilv, packed: mr.length, depth };
  }

  /** Relative to a base pointer: offsets may be below it, above it, or on both sides. */
  #stencil(mr: LayoutMemoryRegion, depth: number): Made {
    const random = this.#random;
    const base = this.#anyBase(depth);
    const room = { ...base, first: 0, length: Math.max(1, base.length >> 1) };
    const placed = this.#sources(() => room);
    const from = ({ source }: Placed) => Number(source.firstDatum.addr);
    const high = Math.max(...placed.map((each) => from(each) + each.reach));
    // All offsets are shifted below the base pointer by a random distance.
    const back = random.pick([0, 0, high >> 1, random.below(2 * high + 1), 2 * high]);
    const low = Math.min(...placed.map(from)) - back;
    const pointers = { first: base.first - low, count: base.length - (high - back - low) + 1 };
    const origin = pointers.first + random.below(pointers.count);
    const isComposite = placed.every(({ source }) => source.dims.length === 0);
    const ilv = placed.map(({ source }) => {
      const { firstDatum } = source;
      const addr = this.#offset(Number(firstDatum.addr) - back);
      return { ...source, firstDatum: { ...firstDatum, addr } };
    });
    const spans = spanOfAll(ilv);
    const extent = random.pick([
      undefined,
      undefined,
      1,
      -1,
      spans,
      random.between(1, spans + 20),
      -random.between(1, spans + 20),
    ]);
    const options = {
      origin: this.#offset(origin),
      ...(extent === undefined ? {} : { extent: random.chance(0.5) ? extent : BigInt(extent) }),
    };
    const list = ilv.map(({ firstDatum }) => firstDatum);
    if (isComposite) mr.setLayoutSg(0, list, options);
    else mr.setLayoutInterleaved(0, ilv, options);
    const made = { mr, packed: mr.length, depth, pointers, origin, extent: extent ?? spans };
    return isComposite ? { ...made, sg: list } : { ...made, ilv };
  }

  /** A signed number in one of its valid representations. */
  #offset(value: number): number | bigint {
    const ways = [value, BigInt(value), BigInt.asUintN(64, BigInt(value))];
    return this.#random.pick(ways);
  }

  /** Entries of a composite: of regions, of layouts, of stencils; some of them a column. */
  #pieces(depth: number): Sge[] {
    const random = this.#random;
    const list: Sge[] = [];
    let total = 0;
    for (let count = random.between(1, 12); count > 0 && total < STREAM_MAX; count--) {
      if (depth > 1 && random.chance(0.2)) {
        const inner = this.make(depth - 1);
        const named = this.name(inner, 400, false);
        // Of a stream below only the offset counts.
        const addr = inner.pointers ? named.addr : BigInt(named.addr) - inner.mr.addr;
        list.push({ addr, length: named.stream.length, lkey: named.key });
        total += named.stream.length;
        continue;
      }
      const { lkey, first, length, datumMax } = this.#anyBase(depth);
      const bytes = random.between(1, Math.min(datumMax ?? length, random.pick([8, 8, 64, 900])));
      const width = datumMax === undefined ? bytes : 1;
      const times = random.chance(0.4) ? random.between(2, 9) : 1;
      const stride = random.chance(0.3) ? bytes : bytes + random.below(40);
      const at = random.below(Math.max(1, length - width - stride * (times - 1) + 1));
      for (let index = 0; index < times; index++) {
        if (at + index * stride + width > length) break;
        list.push({ addr: pointer(first + at + index * stride), length: bytes, lkey });
        total += bytes;
      }
    }
    return list;
  }

  #sources(base: () => Base): Placed[] {
    const random = this.#random;
    const count = random.chance(0.4) ? 1 : random.pick([2, 2, 3, 5, 17, 40]);
    const uneven = random.chance(0.5);
    const single = random.chance(0.2);
    const cycles = random.between(1, 12);
    return Array.from({ length: count }, () => {
      const numRepeated = random.pick([1, 1, 2, 3, 5]);
      const data = uneven ? random.between(1, 30) : cycles * numRepeated;
      const all = count === 1 ? random.between(1, 300) : data;
      return this.#source(base(), numRepeated, single ? 1 : all);
    });
  }

  /** `count` data, in as many dimensions as it has factors, within a base. */
  #source(base: Base, numRepeated: number, count: number): Placed {
    const random = this.#random;
    const { lkey, datumMax } = base;
    const sizes = count > 60 ? [1, 4, 8, 8, 16] : [1, 4, 4, 8, 8, 16, 70, 300];
    const length = random.between(1, Math.min(datumMax ?? base.length, random.pick(sizes)));
    const dims: { offsetStride: number; datumCount: number }[] = [];
    let left = count;
    let reach = datumMax === undefined ? length : 1;
    while (left > 1 && dims.length < 7) {
      const factor = [2, 3, 5, 7].find((prime) => left % prime === 0 && random.chance(0.3)) ?? left;
      // Usually beyond what the dimensions before it make up; now and then into it.
      const free = Math.floor((base.length - reach) / (factor - 1));
      const wanted = random.chance(0.2)
        ? random.below(reach + 1)
        : reach + random.pick([0, 0, 4, 9]);
      const offsetStride = Math.min(free, wanted);
      dims.push({ offsetStride, datumCount: factor });
      reach += offsetStride * (factor - 1);
      left /= factor;
    }
    if (left > 1) dims.push({ offsetStride: 0, datumCount: left });
    const addr = pointer(base.first + random.below(base.length - reach + 1));
    return { source: { firstDatum: { addr, length, lkey }, numRepeated, dims }, reach };
  }

  /** Some bytes of a layout, at most `most`; `remote`: as peers name them. */
  name(made: Made, most: number, remote: boolean): Named {
    const random = this.#random;
    const { mr, packed, pointers, extent } = made;
    if (!pointers) {
      const all = instanceStream(made, this.#lookup);
      const length = random.between(1, Math.min(most, packed));
      const at = random.below(packed - length + 1);
      const addr = mr.addr + BigInt(at);
      return { addr, key: mr.rkey, stream: all.slice(at, at + length) };
    }
    const from = remote ? made.origin! : pointers.first + random.below(pointers.count);
    const last = pointers.first + pointers.count - 1;
    const further = extent! > 0 ? last - from : from - pointers.first;
    const instances = 1 + Math.min(4, Math.floor(further / Math.abs(extent!)));
    const skip = remote ? random.below(packed * instances) : 0;
    const length = random.between(1, Math.min(most, packed * instances - skip));
    const stream = stencilStream(made, this.#lookup, from, skip + length).slice(skip);
    return { addr: remote ? skip : pointer(from), key: mr.rkey, stream };
  }

  /** Bytes that the oracle expects at these places. */
  read(stream: readonly number[]): Uint8Array {
    return Uint8Array.from(stream, (at) => this.areas[at >> 20]!.expected[at & 0xfffff]!);
  }

  isStencil(key: number): boolean {
    return this.#made.some(({ mr, pointers }) => pointers && mr.lkey === key);
  }

  expect(stream: readonly number[], bytes: Uint8Array): void {
    stream.forEach((at, index) => {
      this.areas[at >> 20]!.expected[at & 0xfffff] = bytes[index]!;
    });
  }

  check(what: string): void {
    this.areas.forEach(({ actual, expected }, index) => {
      if (Buffer.compare(actual, expected) === 0) return;
      const at = actual.findIndex((byte, offset) => byte !== expected[offset]);
      throw new Violation(
        `${what}: byte ${at} of area ${index} is ${actual[at]}, not ${expected[at]}`,
      );
    });
  }

  clear(): void {
    for (const { mr } of this.#made) mr.dereg();
    this.#made = [];
    this.#known = undefined;
  }
}

function spanOf({ firstDatum, dims }: MrLayoutInterleaved): number {
  return dims.reduce(
    (span, { offsetStride, datumCount }) => span + Number(offsetStride) * (Number(datumCount) - 1),
    Number(firstDatum.length),
  );
}

/** Bytes from the lowest byte of a stencil to the end of its highest: its default extent. */
function spanOfAll(list: readonly MrLayoutInterleaved[]): number {
  const from = list.map(({ firstDatum }) => signed(firstDatum.addr));
  const to = list.map((source, index) => from[index]! + spanOf(source));
  return Math.max(...to) - Math.min(...from);
}

/** Base pointers at which a stencil and its further instances are within its base. */
function pointersFor({ pointers, extent }: Made, instances: number): Pointers {
  const { first, count } = pointers!;
  const further = extent! * (instances - 1);
  return { first: Math.max(first, first - further), count: count - Math.abs(further) };
}

/** An address as the verbs take it: modulo 2^64. */
function pointer(address: number): number | bigint {
  return address < 0 ? BigInt.asUintN(64, BigInt(address)) : address;
}
