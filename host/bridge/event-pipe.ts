/**
 * The writing end of a pipe of the program, which reads events from it: completion channels,
 * asynchronous events, channels of the connection manager.
 */
import { closeSync, constants, openSync, writeSync } from 'node:fs';

export class EventPipe {
  readonly #fd: number;
  #closed = false;

  /** `descriptor`: of the program's writing end, which stays open until this returns. */
  constructor(owner: number, descriptor: bigint) {
    const path = `/proc/${owner}/fd/${descriptor}`;
    this.#fd = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK);
  }

  /**
   * Writes one event whole. A full pipe keeps the events that it has: the program is behind by
   * thousands, and is readable.
   */
  write(bytes: Uint8Array): void {
    if (this.#closed) return;
    try {
      writeSync(this.#fd, bytes);
    } catch {
      // EAGAIN, or EPIPE: the program has closed its end.
    }
  }

  writeWords(...words: readonly (number | bigint)[]): void {
    const bytes = new DataView(new ArrayBuffer(8 * words.length));
    words.forEach((word, index) => bytes.setBigUint64(8 * index, BigInt(word), true));
    this.write(new Uint8Array(bytes.buffer));
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    closeSync(this.#fd);
  }
}
