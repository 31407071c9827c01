/** `ibv_import_mr`: a region that another context registered, in a protection domain of ours. */
import { mustBe } from '../../errors/check-whole.js';
import { KeyNoteLayout, KeyState } from '#build/abi.js';
import { structAt, type Struct } from '../../engine/struct.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { awaitRelease, retryChange } from './key.js';
import type { ProtectionDomain } from '../domains/protection-domain.js';
import { refuse } from '../refuse.js';

/** A region of another context, by its handle (`pd.importMr`, `ibv_import_mr`). */
export class ImportedMemoryRegion {
  readonly lkey: number;
  readonly rkey: number;
  /** Not available to the importing context (man ibv_import_mr). */
  readonly addr = undefined;
  #gone = false;
  /** No peer finds it any more; its memory may be in use. */
  #killed = false;

  /** @internal Use `pd.importMr()`. */
  constructor(
    readonly pd: ProtectionDomain,
    readonly handle: number,
  ) {
    const note = noteOf(pd, handle);
    const lives = note?.state === KeyState.LIVE && note.pd === pd.handle && note.key === handle;
    if (!lives) {
      throw new RefusalError(
        'ENOENT',
        `importMr: the domain has no region ${handle}; check handle`,
      );
    }
    this.lkey = handle;
    this.rkey = handle;
  }

  /** `ibv_unimport_mr`: the region stays as it is. */
  unimport(): void {
    this.#check();
    this.#gone = true;
  }

  /**
   * `ibv_dereg_mr`: ends the region for all contexts, including the one that registered it. Throws
   * RefusalError EBUSY while a window is bound to it, EINVAL if the region has ended.
   */
  dereg(): void {
    this.#check();
    const { arena, engine } = this.pd.context.device;
    if (!this.#killed) {
      const errno = retryChange(() => arena.exports.killMr(engine.context, this.handle));
      refuse(errno, 'dereg', {
        EINVAL: 'the region is deregistered; register it again',
        EBUSY: 'a memory window is bound to the region; unbind it first',
        EAGAIN: 'another thread is changing the region; call again later',
      });
      this.#killed = true;
    }
    if (!awaitRelease(() => arena.exports.mrReleased(engine.context, this.handle))) {
      throw new RefusalError(
        'EBUSY',
        'dereg: another thread is still using the memory; call again',
      );
    }
    this.#gone = true;
  }

  [Symbol.dispose](): void {
    if (!this.#gone) this.unimport();
  }

  #check(): void {
    if (this.#gone) throw new MisuseError('memory region', 'is no longer imported here');
  }
}

function noteOf(pd: ProtectionDomain, handle: number): Struct<typeof KeyNoteLayout> | undefined {
  if (!Number.isInteger(handle) || handle < 0 || handle >= 2 ** 32) {
    throw mustBe('handle', 'the handle of a region', handle);
  }
  const { arena, engine } = pd.context.device;
  const address = arena.exports.mrNote(engine.context, handle) >>> 0;
  return address === 0 ? undefined : structAt(arena.memory, KeyNoteLayout, address);
}
