/**
 * WRITEs what is touched into the other's memory. While the send queue is full, what is touched
 * twice is written once: a slow wire costs steps in between, not time.
 */
import { SendFlag, WrOpcode } from '../verbs/enums.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import type { SendWorkRequest } from '../verbs/queues/work-request.js';
import { TouchedRows } from './brush.js';
import { at, check, type End } from './private-data.js';

export const PAINT_DEPTH = 256;

/** A picture that is painted on here and written there, at the same offsets. */
export class Layer {
  /** Touched, and not yet given to the send queue. */
  readonly touched = new TouchedRows();

  constructor(readonly region: MemoryRegion) {}

  get picture(): Uint8Array {
    return this.region.buffer;
  }
}

export class Painter {
  readonly #end: End;
  readonly #layers: readonly Layer[];
  #inFlight = 0;
  #written = 0;
  readonly #waiting: (() => void)[] = [];
  #failure: Error | undefined;
  readonly #failed: () => void;

  /** `failed` is called when nothing more can be written. */
  constructor(end: End, layers: readonly Layer[], failed: () => void) {
    this.#end = end;
    this.#layers = layers;
    this.#failed = failed;
    this.#complete().catch((error: Error) => this.#fail(error));
  }

  /** WRITEs under way. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /** WRITEs that are acknowledged. */
  get written(): number {
    return this.#written;
  }

  /** Gives the send queue as much as it takes; the rest follows as places become free. */
  flush(): void {
    for (const layer of this.#layers) this.#post(layer);
  }

  /** Resolves when all that was touched is in the other's memory. Rejects when it never will be. */
  async settled(): Promise<void> {
    while (!this.#failure && (this.#inFlight > 0 || this.#layers.some(isTouched))) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    if (this.#failure) throw this.#failure;
  }

  #post({ touched, region: { addr, lkey } }: Layer): void {
    if (this.#failure) return;
    const rows = touched.take(PAINT_DEPTH - this.#inFlight);
    if (rows.length === 0) return;
    const requests = rows.map(({ at: offset, length }, index): SendWorkRequest => ({
      wrId: rows.length,
      opcode: WrOpcode.RDMA_WRITE,
      sgList: [{ addr: addr + BigInt(offset), length, lkey }],
      rdma: at(this.#end, offset),
      // One completion says that those before it are done.
      sendFlags: index + 1 === rows.length ? SendFlag.SIGNALED : 0,
    }));
    this.#inFlight += rows.length;
    try {
      this.#end.connection.qp.postSend(requests);
    } catch (error) {
      this.#fail(error as Error);
    }
  }

  async #complete(): Promise<void> {
    const { sendCq } = this.#end.connection;
    for (;;) {
      const completions = await sendCq.wait(PAINT_DEPTH);
      check(completions);
      for (const { wrId } of completions) {
        this.#inFlight -= Number(wrId);
        this.#written += Number(wrId);
      }
      this.flush();
      this.#wake();
    }
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    this.#wake();
    this.#failed();
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}

function isTouched({ touched }: Layer): boolean {
  return !touched.isEmpty;
}
