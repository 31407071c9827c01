/**
 * `ibv_td`: the promise that one thread alone uses what is made from it. A context is used by one
 * thread anyway, so it changes nothing.
 */
import { MisuseError, RefusalError } from '../../errors/errors.js';
import type { Context } from '../context.js';

/** `struct ibv_td`: a promise that one thread uses what is made with it (`context.allocTd`). */
export class ThreadDomain {
  #users = 0;
  #gone = false;

  /** @internal Use `context.allocTd()`. */
  constructor(readonly context: Context) {}

  /** `ibv_dealloc_td`. Throws RefusalError EBUSY while a parent domain names it. */
  dealloc(): void {
    if (this.#gone) throw new MisuseError('thread domain', 'is deallocated already');
    if (this.#users > 0)
      throw new RefusalError(
        'EBUSY',
        'dealloc: a parent domain uses the thread domain; dealloc it first',
      );
    this.#gone = true;
  }

  [Symbol.dispose](): void {
    if (!this.#gone) this.dealloc();
  }

  /** @internal */
  use(): void {
    if (this.#gone) throw new MisuseError('td', 'is deallocated');
    this.#users++;
  }

  /** @internal */
  leave(): void {
    this.#users--;
  }
}
