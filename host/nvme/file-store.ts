/**
 * Blocks in a file: byte n of the namespace is byte n of the file, so that other programs find in
 * it what hosts wrote. A flush is an fdatasync; those that come while one is under way share the
 * next.
 */
import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { RefusalError } from '../errors/errors.js';
import { fileRefusal } from '../errors/file-refusal.js';
import { PosixError, loadPosix, type Posix } from '../link/posix.js';
import { FileLock } from '../pmem/file-lock.js';
import type { NvmeStore } from './store.js';

const BLOCK_BYTES = 512;
const ZEROES_BYTES = 2 ** 20;

/** A namespace made of a file, or a block device. */
export class FileStore implements NvmeStore {
  readonly length: number;
  readonly isVolatile = true;
  readonly path: string;
  readonly #file: FileHandle;
  readonly #lock: FileLock;
  readonly #posix: Posix | undefined;
  #zeroes: Uint8Array | undefined;
  #running: Promise<void> | undefined;
  #next: Promise<void> | undefined;
  #failure: Error | undefined;

  private constructor(
    path: string,
    file: FileHandle,
    lock: FileLock,
    posix: Posix | undefined,
    length: number,
  ) {
    this.path = path;
    this.#file = file;
    this.#lock = lock;
    this.#posix = posix;
    this.length = length;
  }

  /**
   * `bytes`: the file is made, or grows to them. Rejects with RefusalError EBUSY (another process
   * serves it), EINVAL (no regular file, or without a block), ENOENT, EACCES, EISDIR, and the
   * system's error.
   */
  static async open(path: string, bytes?: number): Promise<FileStore> {
    const flags = constants.O_RDWR | (bytes === undefined ? 0 : constants.O_CREAT);
    const file = await open(path, flags).catch((error: unknown) => {
      throw fileRefusal(`cannot open ${path}`, error);
    });
    let lock: FileLock | undefined;
    try {
      const found = await file.stat();
      if (!found.isFile()) throw new RefusalError('EINVAL', `${path} is no regular file`);
      const { posix } = await loadPosix();
      lock = await FileLock.take(file.fd, path, posix);
      if (bytes !== undefined && found.size < bytes) {
        await file.truncate(bytes);
        await file.sync();
      }
      const { size } = await file.stat();
      const length = size - (size % BLOCK_BYTES);
      if (length === 0) throw new RefusalError('EINVAL', `${path} has no block of 512 bytes`);
      return new FileStore(path, file, lock, posix, length);
    } catch (error) {
      lock?.release();
      await file.close();
      throw error;
    }
  }

  async read(offset: number, into: Uint8Array): Promise<void> {
    for (let done = 0; done < into.length;) {
      const { bytesRead } = await this.#file.read(into, done, into.length - done, offset + done);
      // Somebody cut it.
      if (bytesRead === 0) throw new RefusalError('EIO', `${this.path} ends at ${offset + done}`);
      done += bytesRead;
    }
  }

  async write(offset: number, from: Uint8Array): Promise<void> {
    for (let done = 0; done < from.length;) {
      const { bytesWritten } = await this.#file.write(
        from,
        done,
        from.length - done,
        offset + done,
      );
      done += bytesWritten;
    }
  }

  async writeZeroes(offset: number, length: number): Promise<void> {
    this.#zeroes ??= new Uint8Array(ZEROES_BYTES);
    for (let done = 0; done < length; done += ZEROES_BYTES) {
      const count = Math.min(ZEROES_BYTES, length - done);
      await this.write(offset + done, this.#zeroes.subarray(0, count));
    }
  }

  /** A hole, where the file system knows them. */
  deallocate(offset: number, length: number): Promise<void> {
    if (!this.#posix) return this.writeZeroes(offset, length);
    try {
      this.#posix.punchHole(this.#file.fd, offset, length);
      return Promise.resolve();
    } catch (error) {
      const isUnknown = error instanceof PosixError && error.code === 'EOPNOTSUPP';
      return isUnknown ? this.writeZeroes(offset, length) : Promise.reject(error as Error);
    }
  }

  /** After it has failed once it always does: which pages were lost, nobody knows any more. */
  flush(): Promise<void> {
    if (this.#next) return this.#next;
    if (this.#running) {
      this.#next = this.#running.then(
        () => this.#sync(),
        () => this.#sync(),
      );
      return this.#next;
    }
    return this.#sync();
  }

  #sync(): Promise<void> {
    this.#next = undefined;
    this.#running = this.#syncOnce().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  async #syncOnce(): Promise<void> {
    if (this.#failure) throw this.#failure;
    try {
      await this.#file.datasync();
    } catch (error) {
      this.#failure = error as Error;
      throw error;
    }
  }

  async close(): Promise<void> {
    try {
      await this.flush();
    } finally {
      this.#lock.release();
      await this.#file.close();
    }
  }
}
