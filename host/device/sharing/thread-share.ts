/**
 * One device in several threads of one process: one SharedArrayBuffer and a socket per thread, no
 * file. Each thread has a slot and a part of the memory for its queues, engine and link; protection
 * domains, keys and addresses are common. Each thread has its own port, because without a program
 * in the kernel the packets of threads could not be distinguished.
 */
import { mustBe } from '../../errors/check-whole.js';
import {
  ArenaLayout,
  CONTEXT_SLOT_SIZE,
  ContextSlotLayout,
  Errno,
  LOCK_HOLDER,
} from '#build/abi.js';
import { checkKeys } from '../../base/options.js';
import { ArenaMemory, type ArenaPart } from '../../engine/arena.js';
import { structAt } from '../../engine/struct.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { ArenaLock, WordLock } from './arena-lock.js';
import { checkObject } from '../../base/options.js';

/** Share with which one thread opens a context of the device; it can be posted to that thread. */
export interface DeviceShare extends ArenaPart {
  readonly slot: number;
  readonly address: string;
  /** Identifies the device in handles of shared domains. */
  readonly deviceId: bigint;
}

/** Options of a thread's share of a device. */
export interface ShareOptions {
  /** Memory of that thread alone: queues, buffers, and what its `alloc` gives. Default 16 MiB. */
  readonly memoryBytes?: number;
}

const MEMORY_BYTES = 16 * 2 ** 20;
const REAP_ATTEMPTS = 100;
const REMEDY = 'if its Worker has ended, call unshare with its share';

/** The slots of a device's threads, as the thread that opened it sees them. */
export class ThreadShares {
  readonly #arena: ArenaMemory;
  readonly #tables: ThreadTables | undefined;
  readonly #name: string | undefined;
  readonly #given = new Map<number, DeviceShare>();

  /**
   * `tables`: the lock of the tables; undefined: no other thread can share the device. `name`: name
   * of a device that processes share; there a thread is a member of its own, as a process is.
   */
  constructor(arena: ArenaMemory, tables: ThreadTables | undefined, name: string | undefined) {
    this.#arena = arena;
    this.#name = name;
    this.#tables = tables;
  }

  /** Messages to the thread that has ended are refused: those that sent them may sleep. */
  #wakeAll(): void {
    const { memory, address } = this.#arena;
    const { contextSlots, contextsMax } = structAt(memory, ArenaLayout, address);
    const words = new Int32Array(memory.buffer);
    const first = contextSlots + ContextSlotLayout.fields.announced[0];
    for (let slot = 0; slot < contextsMax; slot++) {
      Atomics.notify(words, (first + slot * CONTEXT_SLOT_SIZE) >>> 2);
    }
  }

  /** Can other threads have the device? */
  get any(): boolean {
    return this.#tables !== undefined;
  }

  /** Throws MisuseError, RefusalError EOPNOTSUPP (`threadsMax`), EBUSY (all taken), ENOMEM. */
  give(address: string, deviceId: bigint, options: ShareOptions): DeviceShare {
    checkKeys('share', options, 'memoryBytes');
    const { memoryBytes = MEMORY_BYTES } = options;
    const { memory, heap, address: arena } = this.#arena;
    if (!this.#tables) {
      const remedy =
        this.#name === undefined
          ? 'the device was opened for one thread; set threadsMax in openDevice'
          : `the device has the name ${this.#name}; call openDevice with that name in the thread`;
      throw new RefusalError('EOPNOTSUPP', `share: ${remedy}`);
    }
    if (!Number.isInteger(memoryBytes) || memoryBytes < 2 ** 20) {
      throw mustBe('memoryBytes', 'a whole number from 2^20 on', memoryBytes);
    }
    const { contextsMax } = structAt(memory, ArenaLayout, arena);
    for (let slot = 1; slot < contextsMax; slot++) {
      if (this.#given.has(slot)) continue;
      const start = heap.alloc(memoryBytes);
      const part = { memory: memory.memory, arena, start, end: start + memoryBytes };
      const share = { ...part, slot, address, deviceId };
      this.#given.set(slot, share);
      return share;
    }
    throw new RefusalError(
      'EBUSY',
      `share: all ${contextsMax - 1} slots for threads are taken; raise threadsMax`,
    );
  }

  /**
   * The thread has ended, or never began: all that it had comes back. Throws MisuseError;
   * RefusalError EBUSY: others are using it, call again.
   */
  takeBack(share: DeviceShare): void {
    checkObject('unshare', share, 'share');
    const { slot, start } = share;
    const tables = this.#tables;
    if (!tables || this.#given.get(slot)?.start !== start) {
      throw new MisuseError('share', 'must be a share of this device');
    }
    const { exports, address, heap } = this.#arena;
    // The thread may have ended while it held the lock.
    tables.word.releaseFor(slot);
    tables.lock.run(() => {
      exports.arenaRepair(address);
      for (let attempt = 0; attempt < REAP_ATTEMPTS; attempt++) {
        if (exports.arenaReap(address, slot) === Errno.OK) return;
      }
      throw new RefusalError(
        'EBUSY',
        'unshare: other threads still use resources of the share; call again',
      );
    });
    heap.free(start);
    this.#given.delete(slot);
    this.#wakeAll();
  }
}

/** The lock of the tables of a device that threads share, for the thread of one slot. */
export interface ThreadTables {
  readonly lock: ArenaLock;
  readonly word: WordLock;
}

/**
 * From now on the host takes the lock for the control verbs of this thread, and the engine does
 * not: a Worker may be terminated while it holds the lock, and the engine would then wait for ever.
 */
export function guardTables(arena: ArenaMemory, slot: number): ThreadTables {
  const { memory, address, exports } = arena;
  const struct = structAt(memory, ArenaLayout, address);
  struct.holder = LOCK_HOLDER;
  const word = address + ArenaLayout.fields.lock[0];
  const method = new WordLock(memory, word, slot);
  const lock = new ArenaLock(method, {
    repair: () => undefined,
    look: () => undefined,
    explainHeld: () =>
      `${nameThread((memory.words[word >>> 2]! & 0xffff) - 1)} holds the tables of the device; ${REMEDY}`,
    explainBusy: () =>
      `${nameThread(threadInCall(arena, slot))} does not leave the memory; ${REMEDY}`,
  });
  arena.exports = lock.guard(exports);
  return { lock, word: method };
}

function nameThread(slot: number): string {
  return slot < 0 ? 'another thread' : `the thread of slot ${slot}`;
}

/** The slot of another thread with an engine in a call; -1: no thread. */
function threadInCall({ memory, address }: ArenaMemory, own: number): number {
  const { contextSlots, contextsMax } = structAt(memory, ArenaLayout, address);
  for (let slot = 0; slot < contextsMax; slot++) {
    const place = structAt(memory, ContextSlotLayout, contextSlots + slot * CONTEXT_SLOT_SIZE);
    if (slot !== own && place.activity & 1) return slot;
  }
  return -1;
}

/** Does a context live in that slot? */
function isTaken({ memory, address }: ArenaMemory, slot: number): boolean {
  const { contextSlots } = structAt(memory, ArenaLayout, address);
  return structAt(memory, ContextSlotLayout, contextSlots + slot * CONTEXT_SLOT_SIZE).context !== 0;
}

/** The device as the thread has it that the share was made for. Throws RefusalError EBUSY. */
export function joinArena(share: DeviceShare): ArenaMemory {
  const arena = ArenaMemory.join(share);
  if (isTaken(arena, share.slot)) {
    throw new RefusalError('EBUSY', 'threadShare is in use: make one share per thread');
  }
  return arena;
}
