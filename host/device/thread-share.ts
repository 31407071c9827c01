/**
 * One device in several threads of one process: one SharedArrayBuffer, no file, nothing of the
 * system but a socket for each. A thread gets a slot of its own and a part of the memory for its
 * queues, engine and link; protection domains and keys are everybody's, and every address means the
 * same everywhere. Its port is its own: without a program in the kernel nobody could tell packets
 * for one thread from those for another.
 */
import { ArenaLayout, CONTEXT_SLOT_SIZE, ContextSlotLayout, Errno } from '#build/abi.js';
import { ArenaMemory, type ArenaPart } from '../engine/arena.js';
import { structAt } from '../engine/struct.js';
import { MisuseError, RefusalError } from '../errors/errors.js';

/** What a thread needs to have a context of the device; made for one, and to be posted to it. */
export interface DeviceShare extends ArenaPart {
  readonly slot: number;
  readonly address: string;
  /** Tells handles of shared domains that they are this device's. */
  readonly deviceId: bigint;
}

/** What a thread gets of a device that threads share. */
export interface ShareOptions {
  /** Memory of that thread alone: queues, buffers, and what its `alloc` gives. Default 16 MiB. */
  readonly memoryBytes?: number;
}

const MEMORY_BYTES = 16 * 2 ** 20;
/** Nobody who lives holds the lock of the tables for so long: a few dozen instructions. */
const LOCK_MILLIS = 1000;
const REAP_ATTEMPTS = 100;

/** The slots of a device's threads, as the thread that opened it sees them. */
export class ThreadShares {
  readonly #arena: ArenaMemory;
  readonly #given = new Map<number, DeviceShare>();

  constructor(arena: ArenaMemory) {
    this.#arena = arena;
  }

  /** Can other threads have the device? */
  get any(): boolean {
    const { memory, address } = this.#arena;
    return structAt(memory, ArenaLayout, address).contextsMax > 1;
  }

  /** Throws MisuseError, RefusalError EOPNOTSUPP (`threadsMax`), EBUSY (all taken), ENOMEM. */
  give(
    address: string,
    deviceId: bigint,
    { memoryBytes = MEMORY_BYTES }: ShareOptions,
  ): DeviceShare {
    const { memory, heap, address: arena } = this.#arena;
    const { contextsMax } = structAt(memory, ArenaLayout, arena);
    if (contextsMax === 1 || !memory.shared) {
      throw new RefusalError('EOPNOTSUPP', 'share: openDevice was not told of threads: threadsMax');
    }
    if (!Number.isInteger(memoryBytes) || memoryBytes < 2 ** 20) {
      throw new MisuseError('memoryBytes', 'must be a whole number from 2^20 on');
    }
    for (let slot = 1; slot < contextsMax; slot++) {
      if (this.#given.has(slot)) continue;
      const start = heap.alloc(memoryBytes);
      const part = { memory: memory.memory, arena, start, end: start + memoryBytes };
      const share = { ...part, slot, address, deviceId };
      this.#given.set(slot, share);
      return share;
    }
    throw new RefusalError('EBUSY', `share: all ${contextsMax - 1} places for threads are taken`);
  }

  /**
   * The thread has ended, or never began: all that it had comes back. Throws MisuseError;
   * RefusalError EBUSY: others are using it, call again.
   */
  takeBack({ slot, start }: DeviceShare): void {
    if (this.#given.get(slot)?.start !== start) {
      throw new MisuseError('share', 'is not one that this device has given');
    }
    const { exports, address, heap } = this.#arena;
    locked(this.#arena, () => {
      for (let attempt = 0; attempt < REAP_ATTEMPTS; attempt++) {
        if (exports.arenaReap(address, slot) === Errno.OK) return;
      }
      throw new RefusalError('EBUSY', 'unshare: other threads are using what it had; call again');
    });
    heap.free(start);
    this.#given.delete(slot);
  }
}

/**
 * With the lock of the tables, which is a word where threads share them. One that is held for so
 * long was its holder's who is dead: then the lists are made anew.
 */
function locked(arena: ArenaMemory, work: () => void): void {
  const words = new Int32Array(arena.memory.buffer);
  const at = (arena.address + ArenaLayout.fields.lock[0]) >> 2;
  const end = performance.now() + LOCK_MILLIS;
  while (Atomics.compareExchange(words, at, 0, 1) !== 0 && performance.now() < end);
  try {
    arena.exports.arenaRepair(arena.address);
    work();
  } finally {
    Atomics.store(words, at, 0);
  }
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
    throw new RefusalError('EBUSY', 'this share is in use: make one for every thread');
  }
  return arena;
}
