/** A region of pages that have several places in the device's memory (memory.c). */
import { AccessFlag } from '../verbs/enums.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';

interface Part {
  dereg(): void;
}

/**
 * A layout of one region for each piece, with the program's addresses (seed 001). Windows cannot be
 * bound to it.
 */
export class ScatteredRegion {
  readonly lkey: number;
  readonly length: number;
  /** Regions that are to be deregistered, in this order. */
  readonly #parts: Part[] = [];

  /**
   * `pieces`: parts of the device's memory, in the order of their addresses from `iova` on. Throws
   * RefusalError as `regMr` and `setLayoutSg`; nothing is registered then.
   */
  constructor(pd: ProtectionDomain, pieces: readonly Uint8Array[], access: number, iova: bigint) {
    const isZeroBased = (access & AccessFlag.ZERO_BASED) !== 0;
    const rights = access & ~(AccessFlag.ZERO_BASED | AccessFlag.MW_BIND);
    const origin = isZeroBased ? 0n : iova;
    let length = 0;
    try {
      const list = pieces.map((piece) => {
        const addr = BigInt.asUintN(64, origin + BigInt(length));
        const mr = pd.regMr(piece, rights, { iova: addr });
        this.#parts.push(mr);
        length += piece.length;
        return { addr, length: piece.length, lkey: mr.lkey };
      });
      const whole = pd.regMr(null, 0, rights | AccessFlag.ZERO_BASED);
      this.#parts.unshift(whole);
      whole.setLayoutSg(0, list, { origin });
      this.lkey = whole.lkey;
      this.length = length;
    } catch (error) {
      this.dereg();
      throw error;
    }
  }

  /** Throws RefusalError EBUSY as `ibv_dereg_mr`: another call deregisters the rest. */
  dereg(): void {
    for (let part = this.#parts[0]; part; part = this.#parts[0]) {
      part.dereg();
      this.#parts.shift();
    }
  }
}
