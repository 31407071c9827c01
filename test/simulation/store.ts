/**
 * A store in virtual time: the bytes of a commit survive as they are when it begins, and it reports
 * its end. Between the two the power may fail: nothing else is promised.
 */
import type { DurableRange } from '../../host/device/durable/durable-store.js';
import type { KeptSegment } from '../../host/device/durable/durables.js';
import { AccessFlag, type Context } from '../../host/index.js';
import type { SimulatedDevice } from './device.js';
import type { Random } from './random.js';

export const FLUSH_ACCESS = AccessFlag.FLUSH_GLOBAL | AccessFlag.FLUSH_PERSISTENT;

export class SimulatedStore {
  /** Contents after a loss of power. */
  readonly durable: Uint8Array;
  readonly #device: SimulatedDevice;
  /** The device may be killed, and open again. */
  readonly #context: Context;
  readonly #memory: Uint8Array;
  readonly #segment: KeptSegment;
  readonly #random: Random;
  #pending: (() => void) | undefined;

  constructor(device: SimulatedDevice, memory: Uint8Array, random: Random) {
    this.#device = device;
    this.#context = device.context;
    this.#memory = memory;
    this.#random = random;
    this.durable = memory.slice();
    const { byteOffset, length } = memory;
    const { durables } = device.context.device;
    this.#segment = durables.addCommit(byteOffset, length, (ranges, done) =>
      this.#commit(ranges, done),
    );
  }

  /** Completes flushes in flight, and those behind them. */
  close(): void {
    while (this.#pending) this.#pending();
    void this.#segment.remove();
  }

  #commit(ranges: readonly DurableRange[], done: () => void): void {
    const found = ranges.map(({ offset, length }) => this.#memory.slice(offset, offset + length));
    const finish = (): void => {
      if (this.#pending !== finish) return;
      this.#pending = undefined;
      ranges.forEach(({ offset }, index) => this.durable.set(found[index]!, offset));
      done();
    };
    this.#pending = finish;
    const { queue, options } = this.#device.network;
    if (options.storeMicros === 0) {
      finish();
      return;
    }
    queue.plan(queue.now + this.#random.exponential(options.storeMicros), () => {
      const { alive, context } = this.#device;
      if (alive && context === this.#context) finish();
    });
  }
}
