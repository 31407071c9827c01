/**
 * Buffers between a host and a store that is not memory of the device: their fixed number is the
 * quota of data in flight. A command waits its turn for a buffer.
 */
import { AccessFlag } from '#build/abi.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { Sge } from '../verbs/queues/sge.js';
import { giveBack } from './give-back.js';

export interface Lease {
  readonly bytes: Uint8Array;
  sge(length: number): Sge;
  release(): void;
}

export class Staging {
  readonly bufferBytes: number;
  readonly #memory: Uint8Array;
  readonly #mr: MemoryRegion;
  readonly #free: number[];
  #waiting: ((index: number) => void)[] = [];
  /** How many commands had to wait. */
  waits = 0;

  /** Throws RefusalError ENOMEM. */
  constructor(pd: ProtectionDomain, count: number, bufferBytes: number) {
    this.bufferBytes = bufferBytes;
    this.#memory = pd.context.alloc(count * bufferBytes);
    this.#mr = pd.regMr(this.#memory, AccessFlag.LOCAL_WRITE);
    this.#free = Array.from({ length: count }, (_, index) => count - 1 - index);
  }

  /** Free buffers. */
  get free(): number {
    return this.#free.length;
  }

  async take(): Promise<Lease> {
    let index = this.#free.pop();
    if (index === undefined) {
      this.waits++;
      index = await new Promise<number>((resolve) => this.#waiting.push(resolve));
    }
    return this.#lease(index);
  }

  close(): void {
    giveBack(this.#mr, this.#memory);
  }

  #lease(index: number): Lease {
    const { bufferBytes } = this;
    const start = index * bufferBytes;
    const { lkey, addr } = this.#mr;
    let isOut = true;
    return {
      bytes: this.#memory.subarray(start, start + bufferBytes),
      sge: (length) => ({ addr: addr + BigInt(start), length, lkey }),
      release: () => {
        if (!isOut) return;
        isOut = false;
        const next = this.#waiting.shift();
        if (next) next(index);
        else this.#free.push(index);
      },
    };
  }
}
