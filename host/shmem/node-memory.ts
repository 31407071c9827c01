/**
 * The symmetric memory of the PEs of one machine: one device, one domain, one heap, one key. The
 * first PE creates them; the others find them by named roots.
 * ```
 *  | PEs: 16 bytes each, in 4 KiB | memory of the first PE | of the second one | ...
 * ```
 */
import { ArenaLayout, CONTEXT_SLOT_SIZE, ContextSlotLayout } from '#build/abi.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { indicesOf, layoutOf, structAt } from '../engine/struct.js';
import type { Context } from '../verbs/context.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import { openDevice } from '../verbs/open-device.js';
import type { EndedWatch } from './ended-pes.js';

const TABLE_BYTES = 4096;
const PeLayout = layoutOf(
  {
    /** A PeState. */
    state: 'u32',
    /** Of the device. */
    slot: 'i32',
    incarnation: 'u32',
    /** Its waits for words that other PEs write. */
    watching: 'u32',
  },
  16,
);
const {
  state: STATE,
  slot: SLOT,
  incarnation: INCARNATION,
  watching: WATCHING,
} = indicesOf(PeLayout);
/** Processes of a device. */
export const LOCAL_PES_MAX = 256;
/** Tables, and memory of queues, beside the symmetric memory. */
const DEVICE_BYTES = 24 * 2 ** 20;
const SHARE_KEY = 0x5e4e4d;
const ROOT = 'shmem';
const HEAP = 'shmem';

/** Of a PE, in the table. */
enum PeState {
  ABSENT = 0,
  JOINED = 1,
  /** It has called finalize. */
  DONE = 2,
}

export interface NodeOptions {
  /** Name of the device. */
  readonly name: string;
  /** Index of this PE among those of the machine, and their number. */
  readonly index: number;
  readonly count: number;
  /** Rank of the first PE of the machine. */
  readonly first: number;
  /** Bytes of each PE. */
  readonly size: number;
  readonly address: string;
  readonly timeoutMillis: number;
  /** PEs of the launcher that have ended. */
  readonly ended: EndedWatch;
}

export class NodeMemory {
  readonly words: Int32Array;
  readonly #address: number;
  readonly #contextSlots: number;
  readonly #contextsMax: number;

  private constructor(
    readonly context: Context,
    readonly pd: ProtectionDomain,
    readonly key: number,
    address: number,
    readonly options: NodeOptions,
  ) {
    const { memory, address: arena } = context.device.arena;
    const { contextSlots, contextsMax } = structAt(memory, ArenaLayout, arena);
    this.words = new Int32Array(memory.buffer);
    this.#address = address;
    this.#contextSlots = contextSlots;
    this.#contextsMax = contextsMax;
  }

  /** Resolves when all PEs of the machine have joined. Rejects with RefusalError. */
  static async open(options: NodeOptions): Promise<NodeMemory> {
    const { name, index, count, size, address } = options;
    const memoryBytes = DEVICE_BYTES + Math.ceil(count * size * 1.08);
    const context = await openDevice({
      name,
      address,
      port: 0,
      memoryBytes,
      localMemoryBytes: 64 * 2 ** 20,
      processesMax: Math.max(2, count),
      // A program without finalize ends: see Shmem.
      keepsAlive: false,
    }).catch((error: unknown) => {
      throw withSize(error, options, memoryBytes);
    });
    try {
      const node = index === 0 ? create(context, options) : await join(context, options);
      await node.#join();
      return node;
    } catch (error) {
      await context.close();
      throw options.ended.cause(error);
    }
  }

  /** @internal */
  static of(
    context: Context,
    pd: ProtectionDomain,
    place: { readonly key: number; readonly address: number },
    options: NodeOptions,
  ): NodeMemory {
    return new NodeMemory(context, pd, place.key, place.address, options);
  }

  /** Address of the symmetric memory of a PE of this machine. */
  base(index: number): number {
    return this.#address + TABLE_BYTES + index * this.options.size;
  }

  /** The device's slot of a PE. */
  slot(index: number): number {
    const slot = Atomics.load(this.words, this.#word(index, SLOT));
    return slot >= 0 && slot < this.#contextsMax ? slot : 0;
  }

  /** Index of the word that counts the waits of a PE for words that others write. */
  watchingWord(index: number): number {
    return this.#word(index, WATCHING);
  }

  /** Has the process of that PE ended without `finalize`? */
  hasFailed(index: number): boolean {
    if (Atomics.load(this.words, this.#word(index, STATE)) !== PeState.JOINED) return false;
    const incarnation = Atomics.load(this.words, this.#word(index, INCARNATION));
    return incarnation !== this.#incarnation(this.slot(index));
  }

  /** Has that PE called `finalize`? */
  isDone(index: number): boolean {
    return Atomics.load(this.words, this.#word(index, STATE)) === PeState.DONE;
  }

  /** This PE ends. */
  leave(): void {
    Atomics.store(this.words, this.#word(this.options.index, STATE), PeState.DONE);
    this.context.device.waits.wakeAll();
  }

  /** Detects dead processes now. */
  look(): void {
    this.context.device.shared?.members.look();
  }

  async #join(): Promise<void> {
    const { index, count, timeoutMillis, ended } = this.options;
    const { device } = this.context;
    Atomics.store(this.words, this.#word(index, SLOT), device.slot);
    Atomics.store(this.words, this.#word(index, INCARNATION), this.#incarnation(device.slot));
    Atomics.store(this.words, this.#word(index, STATE), PeState.JOINED);
    device.waits.wakeAll();
    const absent = (): number[] =>
      Array.from({ length: count }, (_, one) => one).filter(
        (one) => Atomics.load(this.words, this.#word(one, STATE)) === PeState.ABSENT,
      );
    await device.waits.until(
      () => absent().length === 0,
      { timeout: timeoutMillis, signal: ended.signal },
      () => {
        const missing = absent();
        const which = `${missing.length} of ${count} PEs of this machine (the first: ${missing[0]})`;
        return new RefusalError(
          'ETIMEDOUT',
          `init: ${which} did not start within ${timeoutMillis} ms; see their output, or raise ` +
            'timeout',
        );
      },
    );
  }

  #word(index: number, field: number): number {
    return (this.#address + index * PeLayout.size) / 4 + field;
  }

  #incarnation(slot: number): number {
    const at = this.#contextSlots + slot * CONTEXT_SLOT_SIZE;
    return Atomics.load(this.words, (at + ContextSlotLayout.fields.incarnation[0]) >>> 2);
  }
}

/** The same error in terms of `init`, if memory is short: it has no options of a device. */
function withSize(error: unknown, { count, size }: NodeOptions, memoryBytes: number): unknown {
  if (error instanceof MisuseError && error.argument === 'memoryBytes') {
    const rule = `must let the memory of ${count} PEs of one machine be less than 4 GB together`;
    return new MisuseError('size', `${rule}, got ${size}; lower it, or start fewer PEs`);
  }
  if (!(error instanceof RefusalError) || !(error.code === 'ENOSPC' || error.code === 'ENOMEM')) {
    return error;
  }
  const pes = count === 1 ? 'a PE' : `${count} PEs`;
  const text = `init: the machine lacks shared memory for ${pes} with ${size} bytes each`;
  const remedy =
    'lower size (verbena shmem run --size, SHMEM_SYMMETRIC_SIZE), free files of /dev/shm, ' +
    'or make it larger (mount -o remount,size=…)';
  return new RefusalError(error.code, `${text} (${memoryBytes} with tables); ${remedy}`, {
    cause: error,
  });
}

function create(context: Context, options: NodeOptions): NodeMemory {
  const { count, size } = options;
  const pd = context.allocPd();
  const shpd = pd.allocShpd(SHARE_KEY);
  const bytes = TABLE_BYTES + count * size;
  const heap = pd.heap({ name: HEAP, reserve: bytes });
  const address = heap.alloc(bytes, { common: true }).byteOffset;
  const { key } = heap;
  context.roots.put(ROOT, { pd, shpd, address, length: bytes, key, common: true });
  return NodeMemory.of(context, pd, { key, address }, options);
}

async function join(context: Context, options: NodeOptions): Promise<NodeMemory> {
  const { count, size, timeoutMillis, ended, first } = options;
  const limits = { timeout: timeoutMillis, signal: ended.signal };
  const root = await context.roots.wait(ROOT, limits).catch((error: unknown) => {
    if (!(error instanceof RefusalError) || error.code !== 'ETIMEDOUT') throw error;
    const text = `init: PE ${first}, the first of this machine, has not called init`;
    const remedy = 'see its output, start all PEs again, or raise timeout';
    throw new RefusalError(
      'ETIMEDOUT',
      `${text} within ${timeoutMillis} ms, or has ended since; ${remedy}`,
    );
  });
  const { shpd, address, length, key } = root;
  if (length !== TABLE_BYTES + count * size || shpd === undefined) {
    throw new RefusalError(
      'EINVAL',
      `init: the first PE has ${length} bytes of symmetric memory for the machine; pass the same ` +
        'size to all',
    );
  }
  const pd = context.sharePd(shpd, SHARE_KEY);
  pd.heap({ name: HEAP }).bytes(address, length);
  return NodeMemory.of(context, pd, { key, address }, options);
}
