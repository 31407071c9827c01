/** The bus of an application, whose failures become warnings: rooms go on in each process alone. */
import { warn } from '../../base/warning.js';
import type { SignallingBus } from './signalling-bus.js';

const WARNING_MILLIS = 60_000;

/** Warnings of one cause, at most one a minute. */
export class RareWarning {
  #nextMillis = -Infinity;

  warn(sentence: string): void {
    const now = performance.now();
    if (now < this.#nextMillis) return;
    this.#nextMillis = now + WARNING_MILLIS;
    warn(sentence);
  }
}

/** The part of a bus that rooms use. Neither function throws. */
export interface GuardedBus {
  publish(channel: string, message: string): void;
  /** Rejects if the bus fails; the returned function does not throw. */
  subscribe(channel: string, listener: (message: string) => void): Promise<() => void>;
}

export function guardBus(bus: SignallingBus): GuardedBus {
  const warning = new RareWarning();
  const failed = (method: string, error: unknown): void => {
    const why = error instanceof Error ? error.message : String(error);
    warning.warn(
      `createSignallingServer: bus.${method} failed: ${why}; members of other processes are not ` +
        'reached until the bus works again',
    );
  };
  /** A bus may be asynchronous where its type says void. */
  const attempt = async (method: string, call: () => unknown): Promise<void> => {
    try {
      await call();
    } catch (error) {
      failed(method, error);
    }
  };
  return {
    publish: (channel, message) =>
      void attempt('publish', () => bus.publish(channel, message) as unknown),
    async subscribe(channel, listener) {
      try {
        const unsubscribe: unknown = await bus.subscribe(channel, listener);
        if (typeof unsubscribe === 'function') {
          return () => void attempt('unsubscribe', () => unsubscribe() as unknown);
        }
        throw new TypeError(`subscribe must resolve with a function, got ${typeof unsubscribe}`);
      } catch (error) {
        failed('subscribe', error);
        throw error;
      }
    },
  };
}
