/** Lines over time, a value each tenth of a second. */
import type { Network } from './network.js';

export type Series = Readonly<Record<string, readonly number[]>>;

export const SLICE_MILLIS = 100;

/** Packets that wait at the output port of a host, until `end`. */
export function watchQueue(network: Network, host: number): { end(): Promise<readonly number[]> } {
  const values: number[] = [];
  let isOver = false;
  const watching = (async () => {
    while (!isOver) {
      values.push((await network.counters())[host - 1]!.queue);
      await new Promise((resolve) => setTimeout(resolve, SLICE_MILLIS));
    }
  })();
  // The switch ends below it where a load has failed.
  watching.catch(() => undefined);
  return {
    async end() {
      isOver = true;
      await watching;
      return values;
    },
  };
}
