/**
 * The writing end of a pipe of the program, which reads events from it: completion channels,
 * asynchronous events, channels of the connection manager.
 */
import { closeSync, constants, openSync, readSync, writeSync } from 'node:fs';

/** Records that wait for room, and how long until it is looked for again. */
const WAITING_MAX = 65_536;
const ROOM_MILLIS = 5;

export class EventPipe {
  readonly #fd: number;
  /** Records that the pipe, 64 KiB mostly, had no room for. */
  readonly #waiting: Uint8Array[] = [];
  #timer: NodeJS.Timeout | undefined;
  #hasSaid = false;
  #closed = false;

  /** `descriptor`: the writing end, which does not block; the pipe closes it. */
  constructor(descriptor: bigint) {
    this.#fd = Number(descriptor);
  }

  /** The writing end, which others may write to until `close`. */
  get descriptor(): number {
    return this.#fd;
  }

  /** Writes one event whole, as soon as the pipe has room for it and for those before it. */
  write(bytes: Uint8Array): void {
    if (this.#closed) return;
    if (this.#waiting.length === 0 && this.#fits(bytes)) return;
    if (this.#waiting.length === WAITING_MAX) {
      if (!this.#hasSaid) {
        console.error(`verbena run: the program reads no events; more than ${WAITING_MAX} wait`);
      }
      this.#hasSaid = true;
      return;
    }
    this.#waiting.push(bytes);
    this.#timer ??= setTimeout(() => this.#writeWaiting(), ROOM_MILLIS);
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
    for (const record of this.withdrawUnread(bytes, matches)) target.write(record);
  }

  /**
   * Takes back the records of `bytes` bytes that `matches`, if they are not read yet; `newest`: one
   * of them. Returns them.
   */
  withdrawUnread(
    bytes: number,
    matches: (record: DataView) => boolean,
    newest = false,
  ): Uint8Array[] {
    if (this.#closed) return [];
    const records = [...this.#takeUnread(bytes), ...this.#waiting.splice(0)];
    const found = records.filter((record) => matches(new DataView(record.buffer)));
    const taken = newest ? found.slice(-1) : found;
    for (const record of records) if (!taken.includes(record)) this.write(record);
    return taken;
  }

  #fits(bytes: Uint8Array): boolean {
    try {
      writeSync(this.#fd, bytes);
      return true;
    } catch (error) {
      // EPIPE: the program has closed its end.
      return (error as NodeJS.ErrnoException).code !== 'EAGAIN';
    }
  }

  #writeWaiting(): void {
    this.#timer = undefined;
    let count = 0;
    while (count < this.#waiting.length && this.#fits(this.#waiting[count]!)) count++;
    this.#waiting.splice(0, count);
    if (this.#waiting.length === 0) return;
    this.#timer = setTimeout(() => this.#writeWaiting(), ROOM_MILLIS);
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
    clearTimeout(this.#timer);
    closeSync(this.#fd);
  }
}
