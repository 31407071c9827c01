/**
 * The engine's memory as the host sees it: one buffer, taken whole at open, so that no view ever
 * goes stale.
 */
const PAGE = 65536;
/** wasm32: everything a device holds lies below 4 GiB. */
export const MEMORY_BYTES_MAX = 65536 * PAGE;

/** Maps storage over a new memory; another process can map the same storage (host/bridge). */
export type BackMemory = (buffer: ArrayBufferLike) => void;

export class EngineMemory {
  /** Memory that the WebAssembly instance imports. */
  readonly memory: WebAssembly.Memory;
  readonly buffer: ArrayBufferLike;
  readonly bytes: Uint8Array;
  readonly words: Uint32Array;
  readonly view: DataView;
  readonly shared: boolean;

  constructor(memory: WebAssembly.Memory) {
    this.memory = memory;
    this.buffer = memory.buffer;
    this.bytes = new Uint8Array(this.buffer);
    this.words = new Uint32Array(this.buffer);
    this.view = new DataView(this.buffer);
    this.shared =
      typeof SharedArrayBuffer !== 'undefined' && this.buffer instanceof SharedArrayBuffer;
  }

  /**
   * `bytes` is rounded up to whole pages. `back`: maps storage of the caller's over the new memory,
   * which nothing has touched yet. Throws RangeError when the system has no room.
   */
  static create(bytes: number, shared: boolean, back?: BackMemory): EngineMemory {
    const pages = Math.ceil(bytes / PAGE);
    const limits = { initial: pages, maximum: pages };
    const memory = new EngineMemory(
      new WebAssembly.Memory(shared ? { ...limits, shared } : limits),
    );
    back?.(memory.buffer);
    return memory;
  }
}
