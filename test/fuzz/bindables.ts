/**
 * What work requests bind and register: two windows, two regions for REG_MR; then the null region,
 * the region that windows are bound to, and the area that regions are made of.
 */
import {
  AccessFlag,
  MwType,
  incRkey,
  type Context,
  type FastMemoryRegion,
  type MemoryRegion,
  type MemoryWindow,
  type NullMemoryRegion,
  type ProtectionDomain,
} from '../../host/index.js';
import type { Binding } from '../../host/verbs/work-request.js';

const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, MW_BIND, ZERO_BASED } = AccessFlag;
const REMOTE = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
const ALL = LOCAL_WRITE | REMOTE | MW_BIND;
const RIGHTS = [REMOTE, REMOTE_READ, REMOTE_WRITE, REMOTE | ZERO_BASED];
/** Region indices from here on are bindables. */
export const BINDABLE = 64;
export const BINDABLES = 7;
/** So many of them are opened and closed by work; a power of two. */
const OPENED = 4;
const BYTES = 4096;

interface Bindable {
  readonly key: MemoryWindow | FastMemoryRegion;
  readonly isWindow: boolean;
}

export class Bindables {
  readonly #pd: ProtectionDomain;
  readonly #context: Context;
  /** Memory that whoever has a right key may change. */
  readonly #buffer: Uint8Array;
  readonly #carrier: MemoryRegion;
  readonly #null: NullMemoryRegion;
  readonly #area: number;
  #list: readonly Bindable[];

  constructor(context: Context, pd: ProtectionDomain) {
    this.#context = context;
    this.#pd = pd;
    this.#buffer = context.alloc(BYTES);
    this.#carrier = pd.regMr(this.#buffer, ALL);
    this.#null = pd.allocNullMr();
    this.#area = context.areaOf(context.allocations.find(this.#buffer.byteOffset, BYTES)!);
    this.#list = this.#make();
  }

  /** The key of a bindable as it is, and an address `offset` bytes into what it opens. */
  target(index: number, offset: number): [key: number, at: bigint] {
    const more = [this.#null.lkey, this.#carrier.rkey, this.#area];
    const key = this.#list[index % BINDABLES]?.key.rkey ?? more[(index % BINDABLES) - OPENED]!;
    return [key, BigInt.asUintN(64, BigInt(this.#buffer.byteOffset) + BigInt(offset))];
  }

  /** A request that opens one: plausible where the numbers are small. */
  binding(index: number, offset: number, length: number, rights: number): Binding {
    const { key, isWindow } = this.#list[index & (OPENED - 1)]!;
    // Now and then a window over a region that REG_MR has registered.
    const over = rights & 64 ? this.#list[2]!.key.rkey : this.#carrier.lkey;
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

  /** All are as at the beginning: bound to nothing. */
  tidy(): void {
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
