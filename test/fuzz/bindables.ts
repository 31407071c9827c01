/**
 * Objects that work requests bind and register: two windows, two regions for REG_MR; then the null
 * region, the region that windows are bound to, the area that regions are made of; and memory
 * layouts over that region, of every kind.
 */
import { ArenaLayout, KeyEntryLayout, LayoutLayout, LayoutSourceLayout } from '#build/abi.js';
import { structAt } from '../../host/engine/struct.js';
import {
  AccessFlag,
  MwType,
  incRkey,
  type Context,
  MrSetLayoutFlag,
  type FastMemoryRegion,
  type LayoutMemoryRegion,
  type MemoryRegion,
  type MemoryWindow,
  type MrLayoutInterleavedDimension,
  type NullMemoryRegion,
  type ProtectionDomain,
  type Sge,
} from '../../host/index.js';
import type { Binding } from '../../host/verbs/queues/work-request.js';
import { areaOf } from '../../host/verbs/regions/user-memory.js';

const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, MW_BIND, ZERO_BASED } = AccessFlag;
const REMOTE = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
const ALL = LOCAL_WRITE | REMOTE | MW_BIND;
const RIGHTS = [REMOTE, REMOTE_READ, REMOTE_WRITE, REMOTE | ZERO_BASED];
/** Region indices from here on are bindables. */
export const BINDABLE = 64;
export const BINDABLES = 12;
/** The windows and regions that work requests open and close; a power of two. */
const OPENED = 4;
const FIRST_LAYOUT = 7;
/** Index of the layout that nothing has bound yet. */
const RECORDED = 4;
const BYTES = 4096;

interface Bindable {
  readonly key: MemoryWindow | FastMemoryRegion;
  readonly isWindow: boolean;
}

export class Bindables {
  readonly #pd: ProtectionDomain;
  readonly #context: Context;
  /** Memory that a peer with a right key may change. */
  readonly #buffer: Uint8Array;
  readonly #target: MemoryRegion;
  readonly #null: NullMemoryRegion;
  readonly #area: number;
  #list: readonly Bindable[];
  #layouts: readonly LayoutMemoryRegion[];
  #programs: readonly { readonly at: number; readonly count: number }[] = [];
  #isSpoiled = false;

  constructor(context: Context, pd: ProtectionDomain) {
    this.#context = context;
    this.#pd = pd;
    this.#buffer = context.alloc(BYTES);
    this.#target = pd.regMr(this.#buffer, ALL);
    this.#null = pd.allocNullMr();
    this.#area = areaOf(context, context.allocations.find(this.#buffer.byteOffset, BYTES)!);
    this.#list = this.#make();
    this.#layouts = this.#makeLayouts();
  }

  /** The key of a bindable as it is, and an address `offset` bytes into what it opens. */
  target(index: number, offset: number): [key: number, at: bigint] {
    const layout = this.#layouts[(index % BINDABLES) - FIRST_LAYOUT];
    if (layout && layout.access & ZERO_BASED) {
      return [layout.lkey, BigInt.asUintN(64, layout.addr + BigInt(offset))];
    }
    const more = [this.#null.lkey, this.#target.rkey, this.#area];
    const key =
      layout?.lkey ??
      this.#list[index % BINDABLES]?.key.rkey ??
      more[(index % BINDABLES) - OPENED]!;
    return [key, BigInt.asUintN(64, BigInt(this.#buffer.byteOffset) + BigInt(offset))];
  }

  /** A request that opens one: plausible where the numbers are small. */
  binding(index: number, offset: number, length: number, rights: number): Binding {
    const { key, isWindow } = this.#list[index & (OPENED - 1)]!;
    // Now and then a window over a region that REG_MR has registered.
    const over = rights & 64 ? this.#list[2]!.key.rkey : this.#target.lkey;
    const chosen = RIGHTS[rights & 3]!;
    return {
      target: key.rkey,
      key: rights & 4 ? key.rkey : incRkey(key.rkey),
      base: isWindow ? over : this.#area,
      address: BigInt.asUintN(64, BigInt(this.#buffer.byteOffset) + BigInt(offset)),
      memory: isWindow ? 0 : this.#buffer.byteOffset + (offset >>> 0),
      length,
      access: isWindow ? chosen : chosen | LOCAL_WRITE | (rights & 32 ? MW_BIND : 0),
    };
  }

  /** The key of a layout's region: what BIND_MR names. */
  layoutKey(index: number): number {
    return this.#layouts[index % this.#layouts.length]!.lkey;
  }

  /** Changes a word of the program of a layout, as a peer could. It is rebuilt afterwards. */
  program(word: number): number {
    this.#isSpoiled = true;
    const layout = this.#programs[word % this.#programs.length]!;
    const bytes = LayoutLayout.size + layout.count * LayoutSourceLayout.size;
    return (layout.at + 4 * (Math.floor(word / 5) % (bytes / 4))) >> 2;
  }

  /** All are as at the beginning: bound to nothing; layouts to their regions. */
  tidy(): void {
    if (this.#isSpoiled || this.#layouts.some(({ bound }, index) => bound !== index < RECORDED)) {
      this.#isSpoiled = false;
      for (const layout of this.#layouts) layout.dereg();
      this.#layouts = this.#makeLayouts();
    }
    const untouched = this.#list.every(({ key }) =>
      'bound' in key ? !key.bound : !key.registered,
    );
    if (untouched) return;
    for (const { key } of this.#list) {
      if ('bound' in key) key.dealloc();
      else key.dereg();
    }
    this.#list = this.#make();
  }

  /** A column, sources that end unevenly, a stencil, a layout on layouts; and one to be bound. */
  #makeLayouts(): readonly LayoutMemoryRegion[] {
    const { lkey, addr } = this.#target;
    const sge = (offset: number, length: number, key = lkey) => ({
      addr: addr + BigInt(offset),
      length,
      lkey: key,
    });
    const make = (access: number) => this.#pd.regMr(null, 0, access & ~MW_BIND);
    const dims = (offsetStride: number, datumCount: number) => ({ offsetStride, datumCount });
    const [column, uneven, stencil] = [make(ALL | ZERO_BASED), make(ALL | ZERO_BASED), make(ALL)];
    const [nested, recorded] = [make(ALL | ZERO_BASED), make(ALL | ZERO_BASED)];
    const cube = [dims(24, 10), dims(400, 5), dims(2000, 2)];
    column.setLayoutInterleaved(0, [{ firstDatum: sge(8, 8), dims: cube }]);
    const of = (at: number, length: number, numRepeated: number, count: number) => ({
      firstDatum: sge(at, length),
      numRepeated,
      dims: [dims(length + 4, count)],
    });
    const sources = [of(0, 12, 3, 7), of(500, 4, 1, 60), of(1000, 16, 2, 3), of(1200, 5, 70, 70)];
    uneven.setLayoutInterleaved(0, sources);
    const pairs = [of(0, 4, 1, 40), of(600, 3, 2, 80)];
    stencil.setLayoutSg(0, [
      { addr: 0, length: 8, lkey },
      { addr: 100, length: 300, lkey },
      { addr: 40, length: 5, lkey },
    ]);
    // Thirty cycles of 8 bytes of the column, 40 of the stencil, 8 and 6 of the region.
    const from = (first: Sge, numRepeated: number, ...all: MrLayoutInterleavedDimension[]) => ({
      firstDatum: first,
      numRepeated,
      dims: all,
    });
    const several = [
      from({ addr: 0, length: 8, lkey: column.lkey }, 1, dims(16, 30)),
      from({ addr: addr + 8n, length: 40, lkey: stencil.lkey }, 1, dims(4, 30)),
      from(sge(3000, 4), 2, dims(8, 60)),
      from(sge(3600, 6), 1, dims(10, 5), dims(70, 6)),
    ];
    nested.setLayoutInterleaved(0, several, { origin: addr });
    recorded.setLayoutInterleaved(MrSetLayoutFlag.WITH_POST_WR, pairs);
    const { memory, address } = this.#context.device.arena;
    const arena = structAt(memory, ArenaLayout, address);
    this.#programs = [column, uneven, stencil, nested].map(({ lkey }) => {
      const entry = arena.keys + ((lkey >>> 8) & arena.keyMask) * KeyEntryLayout.size;
      const at = structAt(memory, KeyEntryLayout, entry).address;
      return { at, count: structAt(memory, LayoutLayout, at).count };
    });
    return [column, uneven, stencil, nested, recorded];
  }

  #make(): readonly Bindable[] {
    const pd = this.#pd;
    return [
      { key: pd.allocMw(MwType.TYPE_2), isWindow: true },
      { key: pd.allocMw(MwType.TYPE_1), isWindow: true },
      { key: pd.allocMr(BYTES), isWindow: false },
      { key: this.#context.allocMr(BYTES), isWindow: false },
    ];
  }
}
