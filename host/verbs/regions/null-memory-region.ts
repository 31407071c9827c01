/**
 * `ibv_alloc_null_mr`: an lkey for any address and any length. Reads as zeros; what is written to
 * it is discarded. It has no rkey, and can neither be registered anew nor carry a window.
 */
import { KeyKind } from '#build/abi.js';
import { MisuseError } from '../../errors/errors.js';
import { Key } from './key.js';
import type { ProtectionDomain } from '../domains/protection-domain.js';

/** A region without memory: reads as zeros, takes and drops writes (`pd.allocNullMr`). */
export class NullMemoryRegion {
  readonly lkey: number;
  readonly #key: Key;

  /** @internal Use `pd.allocNullMr()`. */
  constructor(readonly pd: ProtectionDomain) {
    const wanted = { kind: KeyKind.NULL_REGION, pd: pd.handle };
    this.#key = new Key(pd.context, wanted, 'allocNullMr');
    this.lkey = this.#key.value;
    pd.resources.add(this);
  }

  /** `ibv_dereg_mr`. */
  dereg(): void {
    if (this.#key.gone) throw new MisuseError('null region', 'is deregistered already');
    this.#key.release('dereg');
    this.pd.resources.delete(this);
  }

  [Symbol.dispose](): void {
    if (!this.#key.gone) this.dereg();
  }
}
