/** Events of a socket for a listener that does not poll. */
import { PollEvent } from '../wire/constants.js';

/** Receives events instead of polling; may call any method of the socket. */
export interface SocketListener {
  readable?(): void;
  writable?(): void;
}

const RESOLVED = Promise.resolve();

/** Notifies a listener once for all events of one turn, in a microtask after the node's work. */
export class ListenerQueue {
  listener: SocketListener | undefined;
  readonly #isClosed: () => boolean;
  /** Pending events, a mask of PollEvent. */
  #news = 0;

  constructor(isClosed: () => boolean) {
    this.#isClosed = isClosed;
  }

  tell(event: number): void {
    if (!this.listener) return;
    // Runs for each message: queueMicrotask would allocate an object for the async context.
    if (this.#news === 0) void RESOLVED.then(this.#inform);
    this.#news |= event;
  }

  readonly #inform = (): void => {
    const news = this.#news;
    this.#news = 0;
    if (this.#isClosed()) return;
    try {
      if (news & PollEvent.IN) this.listener?.readable?.();
      if (news & PollEvent.OUT) this.listener?.writable?.();
    } catch (error) {
      // Rethrown outside of the promise chain, as an uncaught exception.
      queueMicrotask(() => {
        throw error;
      });
    }
  };
}
