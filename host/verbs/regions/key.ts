/** Allocation and release of keys, common to all their kinds. */
import { Errno, KeyNoteLayout, KeyState, RANDOM_KEYS, RegionParametersLayout } from '#build/abi.js';
import type { Device } from '../../device/device.js';
import { structAt, type Struct } from '../../engine/struct.js';
import { RefusalError, type ErrnoName } from '../../errors/errors.js';
import { fillRandom, refuse, taken } from '../refuse.js';

/** How many times fresh key candidates are drawn before the table is called full. */
const DRAWS = 64;
/** Another thread that changes the same entry is done in a few stores, when it runs. */
const KILL_TURNS = 100_000;
/** Other threads leave the engine within microseconds; this many turns are seconds. */
const RELEASE_TURNS = 50_000_000;

/** Fields of the engine's RegionParameters; absent ones are 0. */
export type KeyParameters = Partial<Struct<typeof RegionParametersLayout>>;

/** `ibv_inc_rkey`: the same key with the next low byte. */
export function incRkey(rkey: number): number {
  return ((rkey & 0xffffff00) | ((rkey + 1) & 0xff)) >>> 0;
}

/** Calls an export until no other thread changes the entry; returns its Errno. */
export function retryChange(change: () => number): number {
  let errno: number = Errno.EAGAIN;
  for (let turn = 0; turn < KILL_TURNS && errno === Errno.EAGAIN; turn++) errno = change();
  return errno;
}

/** Waits until `released`; false when another thread does not leave the engine. */
export function awaitRelease(released: () => number): boolean {
  for (let turn = 0; turn < RELEASE_TURNS; turn++) if (released() === 1) return true;
  return false;
}

/** A key of the table: taken when it is made. */
export class Key {
  readonly #device: Device;
  readonly #note: Struct<typeof KeyNoteLayout>;
  #state: 'live' | 'killed' | 'gone' = 'live';

  /**
   * `wanted`: a number is a key that another context has taken. Throws RefusalError with one of
   * `sentences`; `verb` is whose.
   */
  constructor(
    { device }: { readonly device: Device },
    wanted: KeyParameters | number,
    verb: string,
    sentences: Partial<Record<ErrnoName, string>> = {},
  ) {
    const { arena, engine, limits } = device;
    this.#device = device;
    if (typeof wanted === 'number') {
      const note = arena.exports.mrNote(engine.context, wanted);
      if (note === 0)
        throw new RefusalError('ENOENT', `${verb}: the region is deregistered; register it again`);
      this.#note = structAt(arena.memory, KeyNoteLayout, note);
      return;
    }
    const address = arena.heap.alloc(RegionParametersLayout.size + RANDOM_KEYS * 4);
    try {
      const parameters = Object.assign(
        structAt(arena.memory, RegionParametersLayout, address),
        wanted,
      );
      const random = address + RegionParametersLayout.fields.random[0];
      let errno: number = Errno.EAGAIN;
      for (let draw = 0; draw < DRAWS && errno === Errno.EAGAIN; draw++) {
        fillRandom(arena.memory.bytes, random, RANDOM_KEYS);
        errno = arena.exports.regMr(engine.context, address);
      }
      refuse(errno, verb, {
        ENOMEM: taken(`${limits.regionsMax} regions`),
        EAGAIN: 'no free key was found; try again',
        ...sentences,
      });
      const note = arena.exports.mrNote(engine.context, parameters.key);
      this.#note = structAt(arena.memory, KeyNoteLayout, note);
    } finally {
      arena.heap.free(address);
    }
  }

  /** The key as it is now: binding and fast registration change its low byte. */
  get value(): number {
    return this.#note.key;
  }

  get live(): boolean {
    return this.#state === 'live';
  }

  get gone(): boolean {
    return this.#state === 'gone';
  }

  /** Accesses of peers with this key. */
  counters() {
    const { reads, readBytes, writes, writeBytes, atomics } = this.#note;
    return { reads, readBytes, writes, writeBytes, atomics };
  }

  /** Fields that control verbs and counters read. */
  get note(): Struct<typeof KeyNoteLayout> {
    return this.#note;
  }

  /**
   * Invalidates the key at once; returns when no engine can use its object. Throws RefusalError
   * EBUSY: `bound` if a window is bound to it, and nothing has changed; otherwise another thread
   * does not leave the engine: call again later.
   */
  release(verb: string, bound = ''): void {
    const { arena, engine } = this.#device;
    const key = this.value;
    if (this.#state === 'live') {
      const errno = retryChange(() => arena.exports.killMr(engine.context, key));
      // Another context has ended the region, or is ending it.
      const isDying = this.#note.key === key && this.#note.state === KeyState.DYING;
      if (errno === Errno.EINVAL && !isDying) this.#state = 'gone';
      refuse(errno, verb, {
        EINVAL: 'the key is dead already; allocate another',
        EBUSY: bound,
        EAGAIN: 'another thread is changing the region; call again later',
      });
      this.#state = 'killed';
    }
    if (!awaitRelease(() => arena.exports.mrReleased(engine.context, key))) {
      throw new RefusalError(
        'EBUSY',
        `${verb}: another thread is still using the memory; call again`,
      );
    }
    this.#state = 'gone';
  }
}
