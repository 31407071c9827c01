/** What a socket tells who does not poll. */
import { PollEvent } from '../wire/constants.js';

/** Who wants to hear instead of polling; it may call whatever it likes. */
export interface SocketListener {
  readable?(): void;
  writable?(): void;
}

const RESOLVED = Promise.resolve();

/** Tells a listener once what came in one go: in a microtask, when the node is done with it. */
export class ListenerQueue {
  listener: SocketListener | undefined;
  readonly #isClosed: () => boolean;
  /** Made of PollEvent: what it will be told. */
  #news = 0;

  constructor(isClosed: () => boolean) {
    this.#isClosed = isClosed;
  }

  tell(event: number): void {
    if (!this.listener) return;
    // For each message: queueMicrotask would make an object to name the caller by.
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
      // No promise failed.
      queueMicrotask(() => {
        throw error;
      });
    }
  };
}
