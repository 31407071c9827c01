/**
 * A piece of a device's memory with one purpose, what the auditor knows of its content, the regions
 * registered over it, and a ring that hands out its bytes.
 */
import {
  ReregMrFlag,
  type Context,
  type MemoryRegion,
  type ProtectionDomain,
  type Sge,
} from '../../host/index.js';
import type { Random } from './random.js';

/** A key of the whole area: a registration, or what work opened (bindings.ts). */
export interface Region {
  readonly mr: Pick<MemoryRegion, 'lkey' | 'rkey'> &
    Partial<Pick<MemoryRegion, 'addr' | 'dereg' | 'rereg'>>;
  /** `mr.addr`; a number where that is exact, which is faster. */
  base: number | bigint;
  /** Requests, posted and not complete, that name it. */
  uses: number;
}

/** A region whose key a request kills. */
export interface Victim {
  readonly area: Area;
  readonly region: Region;
}

/** Key and address of memory, as a peer names it. */
export interface RemoteKey {
  readonly rkey: number;
  /** Address of the first byte. */
  readonly base: number | bigint;
}

/** Bytes of an area, in the order in which a message runs through them. */
export type Pieces = readonly (readonly [offset: number, length: number])[];

/** Dead keys that are remembered for misuse. */
const DEAD_KEYS_MAX = 8;
/** Regions that were invalidated and not deregistered yet. */
const INVALID_MAX = 4;

export class Area {
  readonly length: number;
  /** The memory itself. */
  readonly actual: Uint8Array;
  /** Contents that memory must have after all operations known to be executed. */
  readonly confirmed: Uint8Array;
  readonly regions: Region[] = [];
  readonly deadKeys: RemoteKey[] = [];
  /** Offered to a request that kills; and those that it killed. */
  readonly #offered = new Set<Region>();
  readonly #invalid: Region[] = [];
  /** May a region change and keep its key, instead of making room for another? */
  reregisters = false;
  readonly #context: Context;
  readonly #pd: ProtectionDomain;
  readonly #access: number;
  readonly #random: Random;
  // The ring counts bytes from the beginning of time.
  #head = 0;
  #tail = 0;
  readonly #ends: number[] = [];
  #endsTaken = 0;

  /** `prepare` has the memory before anything is registered. */
  constructor(
    pd: ProtectionDomain,
    length: number,
    access: number,
    random: Random,
    prepare?: (memory: Uint8Array) => void,
  ) {
    this.#context = pd.context;
    this.#pd = pd;
    this.#access = access;
    this.#random = random;
    this.length = length;
    this.actual = this.#context.alloc(length);
    prepare?.(this.actual);
    random.fill(this.actual);
    this.confirmed = this.actual.slice();
    const regions = random.between(1, 3);
    for (let index = 0; index < regions; index++) this.#register();
  }

  anyRegion(): Region {
    return this.#random.pick(this.regions);
  }

  /** A random region that is a registration; undefined: all are windows. */
  anyRegistration(): Region | undefined {
    const registered = this.regions.filter(({ mr }) => mr.dereg);
    return registered.length > 0 ? this.#random.pick(registered) : undefined;
  }

  /** Deregisters an idle region, and registers another one. */
  renew(): void {
    const idle = this.regions.findIndex(({ mr, uses }) => mr.dereg && uses === 0);
    if (idle < 0) return;
    if (this.reregisters && this.#random.chance(0.5)) {
      this.#reregister(this.regions[idle]!);
      return;
    }
    const [old] = this.regions.splice(idle, 1);
    if (this.#random.chance(0.5)) this.#register();
    this.bury(old!);
    old!.mr.dereg!();
    if (this.regions.length === 0 || this.#random.chance(0.3)) this.#register();
  }

  /** An idle region, to be killed: later requests do not name it. */
  offer(): Victim {
    // Keys that work requests opened are closed by work requests.
    const idle = (): number => this.regions.findIndex(({ uses, mr }) => uses === 0 && mr.dereg);
    if (this.regions.length === 1 || idle() < 0) this.#register();
    const [region] = this.regions.splice(idle(), 1);
    this.#offered.add(region!);
    return { area: this, region: region! };
  }

  /** It was killed: its key is dead before it is deregistered. */
  killed(region: Region): void {
    this.#offered.delete(region);
    this.bury(region);
    this.#invalid.push(region);
    if (this.#invalid.length > INVALID_MAX) this.#invalid.shift()!.mr.dereg!();
  }

  /** The key of this region is dead. */
  bury({ mr, base }: Region): void {
    this.deadKeys.push({ rkey: mr.rkey, base });
    if (this.deadKeys.length > DEAD_KEYS_MAX) this.deadKeys.shift();
  }

  /** A contiguous range of `length` bytes, from the ring; undefined: no range is free now. */
  take(length: number): number | undefined {
    let start = this.#head;
    const left = this.length - (start % this.length);
    if (left < length) start += left;
    if (start + length - this.#tail > this.length) return undefined;
    this.#head = start + length;
    this.#ends.push(this.#head);
    return start % this.length;
  }

  /** Gives back what was taken first. */
  giveBack(): void {
    this.#tail = this.#ends[this.#endsTaken++]!;
  }

  /** The application uses the bytes for something else. */
  scribble(pieces: Pieces): void {
    for (const [offset, length] of pieces) {
      const value = this.#random.u32() & 255;
      this.actual.fill(value, offset, offset + length);
      this.confirmed.fill(value, offset, offset + length);
    }
  }

  gather(pieces: Pieces, length: number): Uint8Array {
    const data = new Uint8Array(length);
    let at = 0;
    for (const [offset, size] of pieces) {
      data.set(this.actual.subarray(offset, offset + size), at);
      at += size;
    }
    return data;
  }

  close(): void {
    for (const { mr } of [...this.regions, ...this.#offered, ...this.#invalid]) mr.dereg?.();
    this.#context.free(this.actual);
  }

  #register(): void {
    const mr = this.#pd.regMr(this.actual, this.#access, {
      iova: this.#anyAddress(),
      invalidatable: true,
    });
    this.regions.push({ mr, base: baseOf(mr.addr), uses: 0 });
  }

  /** The same memory at another address, under the same key. */
  #reregister(region: Region): void {
    const iova = this.#anyAddress();
    region.mr.rereg!(ReregMrFlag.CHANGE_TRANSLATION, undefined, this.actual, undefined, { iova });
    region.base = baseOf(region.mr.addr!);
  }

  /** Anywhere in 64 bits, but where atomics could be executed. */
  #anyAddress(): bigint {
    const kind = this.#random.below(4);
    const high = BigInt(this.#random.u32()) << 32n;
    const low = BigInt(this.actual.byteOffset);
    return kind === 0 ? high | low : low;
  }
}

function baseOf(addr: bigint): number | bigint {
  return addr < 2n ** 52n ? Number(addr) : addr;
}

/** Address of byte `offset` from a region's first one. */
export function addressOf(base: number | bigint, offset: number): number | bigint {
  if (typeof base === 'bigint') return base + BigInt(offset);
  // In front of what counts from zero there is the end of all addresses.
  const address = base + offset;
  return address < 0 ? BigInt.asUintN(64, BigInt(address)) : address;
}

/** Cuts a range into up to `count` pieces, empty ones among them, in any order. */
export function cut(start: number, length: number, count: number, random: Random): Pieces {
  if (count <= 1) return [[start, length]];
  const marks = Array.from({ length: count - 1 }, () => random.below(length + 1));
  marks.sort((one, other) => one - other);
  const pieces: [number, number][] = [];
  let from = 0;
  for (const mark of [...marks, length]) {
    pieces.push([start + from, mark - from]);
    from = mark;
  }
  for (let index = pieces.length - 1; index > 0; index--) {
    const other = random.below(index + 1);
    [pieces[index], pieces[other]] = [pieces[other]!, pieces[index]!];
  }
  return pieces;
}

/** Scatter or gather entries for these pieces. */
export function entries(pieces: Pieces, region: Region): Sge[] {
  return pieces.map(([offset, length]) => ({
    addr: addressOf(region.base, offset),
    length,
    lkey: region.mr.lkey,
  }));
}
