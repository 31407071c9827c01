/** File descriptors of event queues, for poll(2), epoll and the event loops of others: eventfds. */
import { MisuseError, RefusalError } from '../errors/errors.js';
import { loadPosix, PosixError, type Posix } from './posix.js';

/** The descriptor of one queue: opened by the first `getFd`, readable while there is an event. */
export class EventDescriptor {
  #opening: Promise<void> | undefined;
  #posix: Posix | undefined;
  #fd = -1;
  #isReadable = false;
  #isClosed = false;

  /**
   * Rejects with MisuseError (closed), RefusalError EOPNOTSUPP (no Linux; neither koffi nor
   * node:ffi), EMFILE.
   */
  async open(): Promise<number> {
    this.#opening ??= this.#open();
    await this.#opening;
    if (this.#isClosed) throw new MisuseError('getFd', 'needs a channel that is open');
    return this.#fd;
  }

  async #open(): Promise<void> {
    const { posix, reason } = await loadPosix();
    if (!posix) {
      const sentence = 'getFd: file descriptors of events need Linux with koffi or node:ffi';
      throw new RefusalError('EOPNOTSUPP', `${sentence} (${reason}); await the events instead`);
    }
    if (this.#isClosed) return;
    try {
      this.#fd = posix.eventDescriptor();
    } catch (error) {
      this.#opening = undefined;
      const { code } = error as PosixError;
      const sentence = `getFd: this process can open no further file (${code}): raise ulimit -n`;
      throw new RefusalError('EMFILE', sentence, { cause: error });
    }
    this.#posix = posix;
    if (this.#isReadable) posix.signalEvent(this.#fd);
  }

  /** Readable while the queue has events. */
  set({ length }: { readonly length: number }): void {
    this.#set(length > 0);
  }

  #set(isReadable: boolean): void {
    if (isReadable === this.#isReadable) return;
    this.#isReadable = isReadable;
    if (isReadable) this.#posix?.signalEvent(this.#fd);
    else this.#posix?.clearEvent(this.#fd);
  }

  /** A process that inherited the descriptor finds it readable, and the queue at its end. */
  close(): void {
    if (this.#isClosed) return;
    this.#set(true);
    this.#isClosed = true;
    this.#posix?.close(this.#fd);
    this.#posix = undefined;
  }
}
