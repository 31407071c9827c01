/** READs the other's memory repeatedly, so that the page shows its real content. */
import { SendFlag, WrOpcode } from '../verbs/enums.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import { at, check, type End } from './private-data.js';
import type { Latencies } from './latencies.js';
import { PICTURE_BYTES, ENDPOINT_BYTES, readWord } from './memory-layout.js';

/** A READ of the words, then the picture in pieces. */
const PIECE_BYTES = 16384;

export class View {
  readonly #end: End;
  readonly #region: MemoryRegion;
  readonly #delays: Latencies;
  #last: Promise<void> = Promise.resolve();

  constructor(end: End, region: MemoryRegion, delays: Latencies) {
    this.#end = end;
    this.#region = region;
    this.#delays = delays;
  }

  /** The other's memory as it was READ last. */
  get memory(): Uint8Array {
    return this.#region.buffer;
  }

  /** Reads a Word of the copy. */
  word(offset: number): number {
    return readWord(this.memory, offset);
  }

  /** READs the whole picture from now on. Rejects when the connection ends. */
  refresh(): Promise<void> {
    // One after the other: their completions come from one queue.
    this.#last = this.#last.then(() => this.#refresh());
    return this.#last;
  }

  async #refresh(): Promise<void> {
    const start = performance.now();
    await this.#read(PICTURE_BYTES, ENDPOINT_BYTES - PICTURE_BYTES);
    this.#delays.add(performance.now() - start);
    await this.#read(0, PICTURE_BYTES);
  }

  async #read(from: number, length: number): Promise<void> {
    const { qp, sendCq } = this.#end.connection;
    const { addr, lkey } = this.#region;
    const to = from + length;
    for (let offset = from; offset < to; offset += PIECE_BYTES) {
      const bytes = Math.min(PIECE_BYTES, to - offset);
      qp.postSend({
        opcode: WrOpcode.RDMA_READ,
        sgList: [{ addr: addr + BigInt(offset), length: bytes, lkey }],
        rdma: at(this.#end, offset),
        sendFlags: offset + bytes === to ? SendFlag.SIGNALED : 0,
      });
    }
    check(await sendCq.wait());
  }
}
