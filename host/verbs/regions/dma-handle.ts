/**
 * `ibv_dmah`: hints to a PCIe bus about what an adapter writes: which processor's cache should have
 * it, and what kind of memory it is. This adapter writes with the processor itself, so that every
 * hint is followed by itself; what is no hint is refused all the same.
 */
import { shown } from '../../errors/check-whole.js';
import { checkKeys } from '../../base/options.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { TphMemType } from '../constants.js';
import type { Context } from '../context.js';
import { availableParallelism } from '../processors.js';

/** `ibv_dmah_init_attr`. */
export interface DmahInitAttributes {
  /** The processor that will read what is written, from 0. */
  readonly cpuId?: number;
  /** The bus's processing hint, 0 to 3. */
  readonly ph?: number;
  /** A TphMemType. */
  readonly tphMemType?: number;
}

const PH_MAX = 3;

/** `struct ibv_dmah`: a hint for registrations (`context.allocDmah`). */
export class DmaHandle {
  readonly context: Context;
  readonly attributes: DmahInitAttributes;
  #gone = false;

  /** @internal Use `context.allocDmah()`. */
  constructor(context: Context, attributes: DmahInitAttributes) {
    checkKeys('allocDmah', attributes, 'cpuId ph tphMemType');
    const { cpuId = 0, ph = 0, tphMemType = TphMemType.VM } = attributes;
    checkBelow('cpuId', cpuId, availableParallelism());
    checkBelow('ph', ph, PH_MAX + 1);
    checkBelow('tphMemType', tphMemType, Object.keys(TphMemType).length);
    this.context = context;
    this.attributes = { cpuId, ph, tphMemType };
  }

  /** `ibv_dealloc_dmah`: regions that were registered with it keep their hint. */
  dealloc(): void {
    this.check();
    this.#gone = true;
  }

  [Symbol.dispose](): void {
    if (!this.#gone) this.dealloc();
  }

  /** @internal */
  check(): void {
    if (this.#gone) throw new MisuseError('dmah', 'is deallocated');
  }
}

function checkBelow(name: string, value: number, end: number): void {
  if (Number.isInteger(value) && value >= 0 && value < end) return;
  throw new RefusalError(
    'EINVAL',
    `allocDmah: ${name} must be from 0 to ${end - 1}, got ${shown(value)}`,
  );
}
