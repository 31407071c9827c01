/**
 * The writing end of a pipe of the program, which reads events from it: completion channels,
 * asynchronous events, channels of the connection manager.
 */
import { closeSync, constants, openSync, readSync, writeSync } from 'node:fs';

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

  /**
   * Moves the records of `bytes` bytes that the program has not read, and that `matches` takes, to
   * another pipe. Only this process writes to pipes, so that records keep their order.
   */
  moveUnread(target: EventPipe, bytes: number, matches: (record: DataView) => boolean): void {
    if (this.#closed) return;
    for (const record of this.#takeUnread(bytes)) {
      (matches(new DataView(record.buffer)) ? target : this).write(record);
    }
  }

  /** Takes back the newest record of `bytes` bytes that `matches`, if it is not read yet. */
  withdrawUnread(bytes: number, matches: (record: DataView) => boolean): void {
    if (this.#closed) return;
    const records = this.#takeUnread(bytes);
    const last = records.map((record) => matches(new DataView(record.buffer))).lastIndexOf(true);
    if (last >= 0) records.splice(last, 1);
    for (const record of records) this.write(record);
  }

  #takeUnread(bytes: number): Uint8Array[] {
    const records: Uint8Array[] = [];
    let fd: number | undefined;
    try {
      fd = openSync(`/proc/self/fd/${this.#fd}`, constants.O_RDONLY | constants.O_NONBLOCK);
      for (;;) {
        const record = new Uint8Array(bytes);
        if (readSync(fd, record) < bytes) break;
        records.push(record);
      }
    } catch {
      // EAGAIN: the pipe is empty.
    } finally {
      if (fd !== undefined) closeSync(fd);
    }
    return records;
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    closeSync(this.#fd);
  }
}
