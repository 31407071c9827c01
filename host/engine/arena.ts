/**
 * Opens a memory for engines: the arena's tables at its start, then a heap. Any number of contexts,
 * in any number of threads, work on one arena.
 */
import {
  ARENA_OFFSET_SIZE,
  ArenaConfigLayout,
  ContextConfigLayout,
  LOCAL_ENDPOINT_SIZE,
  LOCAL_ENDPOINTS_COUNT,
  LOCAL_MESSAGE_SIZE,
  LOCAL_VALUE_SIZE,
} from '#build/abi.js';
import { CacheModel, type CacheModelOptions } from './cache-model.js';
import { Heap, type UserHeap } from './heap.js';
import { engineModule, instantiate, type EngineExports } from './load.js';
import { EngineMemory, MEMORY_BYTES_MAX, type BackMemory } from './memory.js';
import { structAt, type Struct } from './struct.js';
import { checkWhole } from '../errors/check-whole.js';
import { RefusalError } from '../errors/errors.js';

/** A message and its bytes; with fewer of them a channel is not worth its memory. */
const LOCAL_ENTRY_BYTES = LOCAL_MESSAGE_SIZE + LOCAL_VALUE_SIZE;
const LOCAL_MESSAGES_LEAST = 4;
const LOCAL_MESSAGES_MAX = 32;

/** Address 0 stays empty, so that it can mean "none"; tests count branches below this one. */
const ARENA_ADDRESS = 8192;
/** Of WebAssembly memory. */
const PAGE = 65536;

export interface ArenaOptions {
  /** All memory of the device: tables, queues, user memory. */
  readonly memoryBytes: number;
  /** Shared memory, for engines in several threads. */
  readonly shared: boolean;
  readonly regionsMax: number;
  readonly protectionDomainsMax: number;
  readonly contextsMax: number;
  /** Default 0: no pools of regions. */
  readonly poolUsersMax?: number;
  /** Counts what an adapter's caches would do; with `shared`. */
  readonly cacheModel?: CacheModelOptions | undefined;
  /** Storage of the memory. Default: the system's. */
  readonly back?: BackMemory | undefined;
}

/** Settings in the file's header that all processes of an arena share. */
export interface SharedLimits {
  readonly regionsMax: number;
  readonly protectionDomainsMax: number;
  readonly contextsMax: number;
  readonly blocksMax: number;
  readonly servicesMax: number;
  readonly inboxEntries: number;
  readonly poolUsersMax: number;
}

export type ContextConfig = Struct<typeof ContextConfigLayout>;

/** A part of an arena's memory that is one thread's: can be posted to a Worker. */
export interface ArenaPart {
  readonly memory: WebAssembly.Memory;
  /** Address of the arena. */
  readonly arena: number;
  /** From here to there lies what this thread needs for itself. */
  readonly start: number;
  readonly end: number;
}

export class ArenaMemory {
  /** Memory for applications: the same, or, where processes share the arena, theirs. */
  userHeap: UserHeap;
  cacheModel: CacheModel | undefined;

  private constructor(
    readonly memory: EngineMemory,
    /**
     * Exports of the instance that runs on this memory; replaced when another thread runs it, too.
     */
    public exports: EngineExports,
    readonly address: number,
    /** Memory for queues and tables. Belongs to this thread. */
    readonly heap: Heap,
  ) {
    this.userHeap = heap;
  }

  /**
   * This process's part of an arena that it shares. `memory` has the header at `sharedAddress`,
   * shared memory from there on, and memory of its own below. `commit`: there is no arena
   * yet, and those bytes are zero; it gives a range storage. Throws RefusalError ENOMEM.
   */
  static attach(
    memory: EngineMemory,
    sharedAddress: number,
    limits: SharedLimits,
    slot: number,
    commit: ((address: number, bytes: number) => void) | undefined,
  ): ArenaMemory {
    const exports = instantiate(memory);
    const end = memory.bytes.length;
    const heap = new Heap(memory.bytes, ARENA_ADDRESS, sharedAddress);
    const configAddress = heap.alloc(ArenaConfigLayout.size);
    const config = structAt(memory, ArenaConfigLayout, configAddress);
    Object.assign(config, limits);
    config.localEndpointsMax = localEndpoints(limits.contextsMax, end - sharedAddress);
    config.localMessagesMax = localMessages(limits.contextsMax, end - sharedAddress);
    config.heapEnd = end;
    const arena = sharedAddress + ARENA_OFFSET_SIZE;
    const heapStart = arena + exports.arenaBytes(configAddress);
    checkTables(end - sharedAddress, heapStart - sharedAddress);
    if (commit) {
      commit(sharedAddress, heapStart - sharedAddress);
      exports.arenaInit(arena, configAddress);
    }
    const local = heap.alloc(exports.arenaLocalBytes());
    exports.arenaAttach(local, sharedAddress, configAddress, slot);
    heap.free(configAddress);
    return new ArenaMemory(memory, exports, local, heap);
  }

  /** Throws MisuseError for limits out of range, RefusalError ENOMEM when memory is too small. */
  static create(options: ArenaOptions): ArenaMemory {
    checkWhole('regionsMax', options.regionsMax, 1, 2 ** 22);
    checkWhole('protectionDomainsMax', options.protectionDomainsMax, 1, 65535);
    checkWhole('contextsMax', options.contextsMax, 1, 256);
    checkWhole('memoryBytes', options.memoryBytes, 1, MEMORY_BYTES_MAX);
    const memory = allocate(options);
    const { cacheModel } = options;
    const exports = instantiate(memory, cacheModel && engineModule(true, true));
    const config = structAt(memory, ArenaConfigLayout, 1024);
    config.regionsMax = options.regionsMax;
    config.protectionDomainsMax = options.protectionDomainsMax;
    config.contextsMax = options.contextsMax;
    config.poolUsersMax = options.poolUsersMax ?? 0;
    config.localEndpointsMax = localEndpoints(options.contextsMax, options.memoryBytes);
    config.localMessagesMax = localMessages(options.contextsMax, options.memoryBytes);
    const end = ARENA_ADDRESS + exports.arenaBytes(1024);
    checkTables(options.memoryBytes, end);
    exports.arenaInit(ARENA_ADDRESS, 1024);
    const heap = new Heap(memory.bytes, end, memory.bytes.length);
    const arena = new ArenaMemory(memory, exports, ARENA_ADDRESS, heap);
    if (cacheModel) {
      arena.cacheModel = new CacheModel(memory, heap, exports, ARENA_ADDRESS, cacheModel);
    }
    return arena;
  }

  /** The arena as another thread has it, with memory of its own in it. */
  static join({ memory, arena, start, end }: ArenaPart): ArenaMemory {
    const engineMemory = new EngineMemory(memory);
    const heap = new Heap(engineMemory.bytes, start, end);
    return new ArenaMemory(engineMemory, instantiate(engineMemory), arena, heap);
  }

  /** Makes a context in slot `slot`; returns its address. Throws RefusalError ENOMEM. */
  createContext(slot: number, fill: (config: ContextConfig) => void, nowMicros: number): number {
    const configAddress = this.heap.alloc(ContextConfigLayout.size);
    try {
      const config = structAt(this.memory, ContextConfigLayout, configAddress);
      config.slot = slot;
      fill(config);
      const context = this.heap.alloc(this.exports.contextSize(configAddress));
      this.exports.contextInit(context, this.address, configAddress, nowMicros);
      return context;
    } finally {
      this.heap.free(configAddress);
    }
  }
}

/**
 * Queue pairs of a context that others can address by the local path: a power of two. Their table
 * takes at most 1/32 of the memory. All processes of an arena compute the same number.
 */
function localEndpoints(contexts: number, memoryBytes: number): number {
  if (contexts === 1) return 0;
  const most = memoryBytes / 32 / (contexts * LOCAL_ENDPOINT_SIZE);
  return most < 1 ? 0 : Math.min(2 ** Math.floor(Math.log2(most)), LOCAL_ENDPOINTS_COUNT);
}

/**
 * Messages that wait in the channel of a context to another one: a power of two. There is a channel
 * for each pair of contexts. Together they take at most 1/16 of the memory; 0: SENDs go by packets.
 */
function localMessages(contexts: number, memoryBytes: number): number {
  if (contexts === 1) return 0;
  const most = memoryBytes / 16 / (contexts * contexts * LOCAL_ENTRY_BYTES) - 1;
  if (most < LOCAL_MESSAGES_LEAST) return 0;
  return Math.min(2 ** Math.floor(Math.log2(most)), LOCAL_MESSAGES_MAX);
}

function allocate(options: ArenaOptions): EngineMemory {
  try {
    return EngineMemory.create(options.memoryBytes, options.shared, options.back);
  } catch (error) {
    throw new RefusalError(
      'ENOMEM',
      `memoryBytes: the system gives no ${options.memoryBytes} bytes of ` +
        'WebAssembly memory; lower it',
      { cause: error },
    );
  }
}

/** The tables and at least a byte of the heap are in the memory. Throws RefusalError ENOMEM. */
function checkTables(memoryBytes: number, need: number): void {
  if (need < memoryBytes) return;
  const text = `memoryBytes: ${memoryBytes} is less than the device's tables need`;
  // Tables of the local path grow with the memory, by less than an eighth of what is added.
  const enough = Math.ceil((need * 9) / 8 / PAGE) * PAGE;
  throw new RefusalError('ENOMEM', `${text}; raise it to ${enough} bytes`);
}
