/** ppoll over a few descriptors, with its arguments in memory that stays where it is. */
import type { Posix } from '../posix.js';

const POLLFD_BYTES = 8;
const DESCRIPTORS_MAX = 4;

export interface PolledDescriptor {
  readonly fd: number;
  readonly events: number;
}

export class ReadyPoll {
  /** Of memory: pollfd for every descriptor, then a timespec. */
  static readonly BYTES = 64;
  readonly #posix: Posix;
  readonly #count: number;
  readonly #words: Uint32Array;
  readonly #at: number;
  readonly #descriptors: number;
  readonly #timeout: number;

  /** `base`: process address of the memory `words`; `address`: of our BYTES in it. */
  constructor(
    posix: Posix,
    words: Uint32Array,
    base: number,
    address: number,
    descriptors: readonly PolledDescriptor[],
  ) {
    this.#posix = posix;
    this.#count = descriptors.length;
    this.#words = words;
    this.#at = address >>> 2;
    this.#descriptors = base + address;
    this.#timeout = base + address + DESCRIPTORS_MAX * POLLFD_BYTES;
    descriptors.forEach(({ fd, events }, index) => {
      words[this.#at + 2 * index] = fd;
      words[this.#at + 2 * index + 1] = events;
    });
  }

  /** Blocks until one is ready or the time is over. False: none is. */
  wait(timeoutMicros = Infinity): boolean {
    let timeout = 0;
    if (timeoutMicros < Number.MAX_SAFE_INTEGER) {
      const micros = Math.max(0, Math.floor(timeoutMicros));
      const seconds = Math.floor(micros / 1e6);
      const at = this.#at + 2 * DESCRIPTORS_MAX;
      this.#words[at] = seconds >>> 0;
      this.#words[at + 1] = seconds / 2 ** 32;
      this.#words[at + 2] = (micros - seconds * 1e6) * 1000;
      timeout = this.#timeout;
    }
    return this.#posix.pollDescriptors(this.#descriptors, this.#count, timeout) > 0;
  }

  /** The descriptor `index` is another one from now on. */
  replace(index: number, fd: number): void {
    this.#words[this.#at + 2 * index] = fd;
  }

  /** Events of descriptor `index` at the last `wait`: POLLIN, POLLOUT, and errors. */
  found(index: number): number {
    return this.#words[this.#at + 2 * index + 1]! >>> 16;
  }
}
