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
/** Addresses far beyond linear memory, and exact as numbers. */
const FAR = 2 ** 40;

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
  /** Stencils: of what its addresses are relative to; how far an instance reaches. */
  readonly base?: Base;
  readonly reach?: number;
  readonly origin?: number;
}

/** Bytes that a layout may be made of: a region's, or another layout's stream. */
interface Base {
  readonly lkey: number;
  readonly first: number;
  readonly length: number;
}

/** Bytes of memory as a work request names them, and where the oracle says that they are. */
export interface Named {
  readonly addr: number;
  readonly key: number;
  readonly stream: readonly number[];
}

/** One side: areas, and the layouts over them. */
export class LayoutSide {
  readonly side: Side;
  readonly areas: readonly Area[];
  readonly #random: Random;
  #made: Made[] = [];
  #known: Lookup | undefined;
  readonly #region: Lookup = (lkey, address, length, stream) => {
    const area = this.areas.findIndex(({ mr }) => mr.lkey === lkey);
    if (area < 0) throw new Violation(`the oracle does not know key ${lkey}`);
    const first = place(area, address - Number(this.areas[area]!.mr.addr));
    for (let at = first; at < first + length; at++) stream.push(at);
  };

  constructor(side: Side, random: Random) {
    this.side = side;
    this.#random = random;
    this.areas = Array.from({ length: AREAS }, (_, index) => {
      const actual = side.context.alloc(AREA_BYTES);
      random.fill(actual);
      const options = index === 1 ? { iova: FAR + actual.byteOffset } : {};
      const access = index === 2 ? ALL_ACCESS | AccessFlag.ZERO_BASED : ALL_ACCESS;
      const mr = side.pd.regMr(actual, access, options);
      return { mr, actual, expected: actual.slice() };
    });
  }

  get #lookup(): Lookup {
    return (this.#known ??= lookupOf(this.#made, this.#region));
  }

  #anyArea(): Base {
    const { mr } = this.#random.pick(this.areas);
    return { lkey: mr.lkey, first: Number(mr.addr), length: mr.length };
  }

  /** A region, or a zero-based layout of at most this depth. */
  #anyBase(depth: number): Base {
    if (depth <= 1 || this.#random.chance(0.6)) return this.#anyArea();
    const inner = this.make(depth - 1, false);
    return { lkey: inner.mr.lkey, first: 0, length: inner.packed };
  }

  /** A layout of layouts, `depth` deep at most. */
  make(depth: number, mayBeStencil = true): Made {
    const random = this.#random;
    const stencil = mayBeStencil && random.chance(0.2);
    const access = ALL_ACCESS | (stencil ? 0 : AccessFlag.ZERO_BASED);
    const mr = this.side.pd.regMr(null, 0, access);
    const made = stencil ? this.#stencil(mr, depth) : this.#plain(mr, depth);
    this.#made.push(made);
    this.#known = undefined;
    return made;
  }

  #plain(mr: LayoutMemoryRegion, depth: number): Made {
    const random = this.#random;
    if (random.chance(0.4)) {
      const sg = this.#pieces(depth);
      mr.setLayoutSg(0, sg);
      return { mr, sg, packed: mr.length };
    }
    const ilv = this.#sources(() => this.#anyBase(depth));
    mr.setLayoutInterleaved(0, ilv);
    return { mr, ilv, packed: mr.length };
  }

  /** Relative to a base pointer: addresses of its entries count from 0. */
  #stencil(mr: LayoutMemoryRegion, depth: number): Made {
    const base = this.#anyBase(depth);
    const room = { ...base, first: 0, length: Math.max(1, base.length >> 1) };
    const ilv = this.#sources(() => room);
    const reach = Math.max(...ilv.map((source) => Number(source.firstDatum.addr) + spanOf(source)));
    const extent = this.#random.chance(0.5) ? reach : this.#random.between(1, reach + 20);
    const origin = base.first + this.#random.below(base.length - reach + 1);
    mr.setLayoutInterleaved(0, ilv, { extent, origin });
    return { mr, ilv, packed: mr.length, base, reach, origin, extent };
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
        list.push({ addr: named.addr, length: named.stream.length, lkey: named.key });
        total += named.stream.length;
        continue;
      }
      const { lkey, first, length } = this.#anyBase(depth);
      const bytes = random.between(1, Math.min(length, random.pick([8, 8, 64, 900])));
      const times = random.chance(0.4) ? random.between(2, 9) : 1;
      const stride = random.chance(0.3) ? bytes : bytes + random.below(40);
      const at = random.below(Math.max(1, length - bytes - stride * (times - 1) + 1));
      for (let index = 0; index < times; index++) {
        if (at + index * stride + bytes > length) break;
        list.push({ addr: first + at + index * stride, length: bytes, lkey });
        total += bytes;
      }
    }
    return list;
  }

  #sources(base: () => Base): MrLayoutInterleaved[] {
    const random = this.#random;
    const count = random.chance(0.4) ? 1 : random.pick([2, 2, 3, 5, 17, 40]);
    const uneven = random.chance(0.5);
    const cycles = random.between(1, 12);
    return Array.from({ length: count }, () => {
      const numRepeated = random.pick([1, 1, 2, 3, 5]);
      const data = uneven ? random.between(1, 30) : cycles * numRepeated;
      return this.#source(base(), numRepeated, count === 1 ? random.between(1, 300) : data);
    });
  }

  /** `count` data, in as many dimensions as it has factors, within a base. */
  #source(base: Base, numRepeated: number, count: number): MrLayoutInterleaved {
    const random = this.#random;
    const { lkey } = base;
    const sizes = count > 60 ? [1, 4, 8, 8, 16] : [1, 4, 4, 8, 8, 16, 70, 300];
    const length = random.between(1, Math.min(base.length, random.pick(sizes)));
    const dims: { offsetStride: number; datumCount: number }[] = [];
    let left = count;
    let reach = length;
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
    const addr = base.first + random.below(base.length - reach + 1);
    return { firstDatum: { addr, length, lkey }, numRepeated, dims };
  }

  /** Some bytes of a layout, at most `most`; `remote`: as peers name them. */
  name(made: Made, most: number, remote: boolean): Named {
    const random = this.#random;
    const { mr, packed, base, reach, extent } = made;
    if (!base) {
      const all = instanceStream(made, this.#lookup);
      const length = random.between(1, Math.min(most, packed));
      const addr = random.below(packed - length + 1);
      return { addr, key: mr.rkey, stream: all.slice(addr, addr + length) };
    }
    const from = remote ? made.origin! : base.first + random.below(base.length - reach! + 1);
    const behind = base.first + base.length - reach! - from;
    const instances = 1 + Math.min(4, extent! === 0 ? 0 : Math.floor(behind / extent!));
    const skip = remote ? random.below(packed * instances) : 0;
    const length = random.between(1, Math.min(most, packed * instances - skip));
    const stream = stencilStream(made, this.#lookup, from, skip + length).slice(skip);
    return { addr: remote ? skip : from, key: mr.rkey, stream };
  }

  /** What the oracle expects at these places. */
  read(stream: readonly number[]): Uint8Array {
    return Uint8Array.from(stream, (at) => this.areas[at >> 20]!.expected[at & 0xfffff]!);
  }

  isStencil(key: number): boolean {
    return this.#made.some(({ mr, base }) => base && mr.lkey === key);
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
    firstDatum.length,
  );
}
