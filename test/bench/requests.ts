/** Work requests that are posted together, and aimed anew each time. */
import { SendFlag, type SendWorkRequest } from '../../host/index.js';
import type { End, There } from './stack.js';

/** Looked at in the end. */
const REMEMBERED = 16;
/** Times this, a number that was drawn is below 1. */
const DRAWN = 2 ** -32;

export interface RequestsOptions {
  /** RDMA_WRITE or RDMA_READ. */
  readonly opcode: number;
  readonly size: number;
  /** How many; the last one is signalled. */
  readonly length: number;
  /** Local memory, in one piece or by a layout. */
  readonly local: {
    readonly addr: bigint | number;
    readonly length: number;
    readonly lkey: number;
  };
  /** The peer's memory, `bytes` in all. */
  readonly regions: There['regions'];
  readonly bytes: number;
}

/** All of the first region. */
export function ofRegion({ mr }: Pick<End, 'mr'>): RequestsOptions['local'] {
  return { addr: mr.addr, length: mr.length, lkey: mr.lkey };
}

interface Request {
  wrId: number;
  readonly opcode: number;
  readonly sendFlags: number;
  readonly sgList: readonly [{ addr: number; length: number; lkey: number }];
  readonly rdma: { remoteAddr: number; rkey: number };
}

export interface Aim {
  readonly local: number;
  readonly remote: number;
  readonly rkey: number;
}

export class Requests {
  readonly #list: readonly Request[];
  readonly #size: number;
  /** Of the peer's regions. */
  readonly #addresses: Float64Array;
  readonly #keys: Uint32Array;
  readonly #local: number;
  readonly #localPlaces: number;
  readonly #places: number;
  #state = 1;

  constructor({ opcode, size, length, local, regions, bytes }: RequestsOptions) {
    this.#size = size;
    this.#addresses = Float64Array.from(regions, ({ addr }) => addr);
    this.#keys = Uint32Array.from(regions, ({ rkey }) => rkey);
    this.#local = Number(local.addr);
    this.#localPlaces = Math.floor(local.length / size);
    this.#places = Math.floor(bytes / regions.length / size);
    this.#list = Array.from({ length }, (_, index) => ({
      wrId: 0,
      opcode,
      sendFlags: index === length - 1 ? SendFlag.SIGNALED : 0,
      sgList: [{ addr: 0, length: size, lkey: local.lkey }],
      rdma: { remoteAddr: 0, rkey: 0 },
    }));
  }

  /**
   * At random places; `wrId` is that of the one completion. Its time counts as the stack's:
   * so there is no division, and common fields are read once.
   */
  aim(wrId: number): readonly SendWorkRequest[] {
    const size = this.#size;
    const addresses = this.#addresses;
    const keys = this.#keys;
    const local = this.#local;
    const localScale = this.#localPlaces * DRAWN;
    const scale = this.#places * DRAWN;
    const regionScale = keys.length * DRAWN;
    let state = this.#state;
    for (const request of this.#list) {
      state = draw(state);
      const region = Math.floor((state >>> 0) * regionScale);
      request.wrId = wrId;
      state = draw(state);
      request.sgList[0].addr = local + Math.floor((state >>> 0) * localScale) * size;
      state = draw(state);
      request.rdma.remoteAddr = addresses[region]! + Math.floor((state >>> 0) * scale) * size;
      request.rdma.rkey = keys[region]!;
    }
    this.#state = state;
    return this.#list;
  }

  /** Where the last ones went, or came from. */
  aimed(): readonly Aim[] {
    return this.#list.slice(-REMEMBERED).map(({ sgList, rdma }) => ({
      local: sgList[0].addr,
      remote: rdma.remoteAddr,
      rkey: rdma.rkey,
    }));
  }
}

/** xorshift32: the same places in every run. */
function draw(state: number): number {
  state ^= state << 13;
  state ^= state >>> 17;
  return state ^ (state << 5);
}
