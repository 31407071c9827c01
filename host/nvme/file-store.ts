/**
 * Blocks in a file: byte n of the namespace is byte n of the file, so that other programs find in
 * it what hosts wrote. A flush is an fdatasync; those that come while one is under way share the
 * next.
 */
import { realpathSync } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { RefusalError } from '../errors/errors.js';
import { fileRefusal } from '../errors/file-refusal.js';
import { PosixError, loadPosix, type Posix } from '../link/posix.js';
import {
  MAKE_PRIVATE,
  OPEN_PRIVATE,
  OTHERS,
  PRIVATE_MODE,
  checkLink,
  checkOwner,
} from '../link/private-file.js';
import { FileLock } from '../pmem/file-lock.js';
import { OpenMark } from '../pmem/open-mark.js';
import { evictPages } from '../pmem/page-cache.js';
import { placeOf, type Durability, type Place } from '../pmem/place.js';
import { syncDirectoryOf } from '../pmem/sync-directory.js';
import type { NvmeStore } from './store.js';

const BLOCK_BYTES = 512;
const ZEROES_BYTES = 2 ** 20;

interface Parts {
  readonly path: string;
  readonly file: FileHandle;
  readonly lock: FileLock;
  readonly mark: OpenMark | undefined;
  readonly posix: Posix | undefined;
  readonly place: Place;
  readonly length: number;
}

/** A namespace on a file: byte n of the namespace is byte n of the file. */
export class FileStore implements NvmeStore {
  readonly length: number;
  readonly isVolatile = true;
  readonly path: string;
  /** Failures that flushed data survive, and the file's storage (host/guide/PERSISTENCE.md). */
  readonly durability: Durability;
  readonly durabilityReason: string;
  readonly #parts: Parts;
  readonly #file: FileHandle;
  #zeroes: Uint8Array | undefined;
  #running: Promise<void> | undefined;
  #next: Promise<void> | undefined;
  #failure: Error | undefined;

  private constructor(parts: Parts) {
    this.path = parts.path;
    this.length = parts.length;
    this.durability = parts.place.durability;
    this.durabilityReason = parts.place.reason;
    this.#parts = parts;
    this.#file = parts.file;
  }

  /**
   * `bytes`: creates the file with this size, or grows it. After that a read returns the bytes on
   * the medium. Rejects with RefusalError EBUSY (another process serves it, or uses its pages),
   * EINVAL (not a regular file, or shorter than a block), EIO (without koffi: the last process did
   * not close it), ENOENT, EACCES (belongs to another user), EISDIR, and the system's error.
   */
  static async open(path: string, bytes?: number): Promise<FileStore> {
    const file = await openFile(path, bytes !== undefined).catch((error: unknown) => {
      throw fileRefusal(`cannot open ${path}`, error);
    });
    let lock: FileLock | undefined;
    try {
      const found = await file.stat();
      if (!found.isFile()) throw new RefusalError('EINVAL', `${path} is no regular file; name one`);
      checkOwner(found, path, OTHERS);
      const { posix } = await loadPosix();
      const name = realpathSync(path);
      lock = await FileLock.take(file.fd, name, posix);
      const place = placeOf(file.fd);
      const mark = place.isMemory ? undefined : await reachMedium(file.fd, path, name, posix);
      if (bytes !== undefined && found.size < bytes) {
        await file.truncate(bytes);
        await file.sync();
      }
      syncDirectoryOf(name);
      const { size } = await file.stat();
      const length = size - (size % BLOCK_BYTES);
      if (length === 0)
        throw new RefusalError('EINVAL', `${path} has no block of 512 bytes; make it larger`);
      return new FileStore({ path, file, lock, mark, posix, place, length });
    } catch (error) {
      lock?.release();
      await file.close();
      throw fileRefusal(`cannot open ${path}`, error);
    }
  }

  async read(offset: number, into: Uint8Array): Promise<void> {
    for (let done = 0; done < into.length;) {
      const { bytesRead } = await this.#file.read(into, done, into.length - done, offset + done);
      // Another program has truncated the file.
      if (bytesRead === 0)
        throw new RefusalError(
          'EIO',
          `read: ${this.path} ends at ${offset + done}; restore its size`,
        );
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
    const { posix } = this.#parts;
    if (!posix) return this.writeZeroes(offset, length);
    try {
      posix.punchHole(this.#file.fd, offset, length);
      return Promise.resolve();
    } catch (error) {
      const isUnknown = error instanceof PosixError && error.code === 'EOPNOTSUPP';
      return isUnknown ? this.writeZeroes(offset, length) : Promise.reject(error as Error);
    }
  }

  /** Fails for ever after its first failure: the pages that were lost are unknown. */
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
      this.#parts.mark?.remove();
    } finally {
      this.#parts.lock.release();
      await this.#file.close();
    }
  }
}

/** Opens the file; creates it if `bytes` are set. A link without a target: ENOENT. */
async function openFile(path: string, isMade: boolean): Promise<FileHandle> {
  checkLink(path);
  try {
    if (isMade) return await open(path, MAKE_PRIVATE, PRIVATE_MODE);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  return open(realpathSync(path), OPEN_PRIVATE);
}

/**
 * Ensures that every later read returns the bytes on the medium, also after a failed sync of an
 * earlier process. Without koffi this needs a file that its last process closed in order.
 */
async function reachMedium(
  fd: number,
  path: string,
  name: string,
  posix: Posix | undefined,
): Promise<OpenMark> {
  let left: number | undefined;
  try {
    left = posix && (await evictPages(fd, posix));
  } catch (error) {
    if (!(error instanceof PosixError)) throw error;
  }
  if (left !== undefined && left > 0) {
    const sentence = `${path}: other programs use its pages, so the pages cannot be compared`;
    throw new RefusalError('EBUSY', `${sentence} with the disk: end them`);
  }
  const mark = OpenMark.put(name);
  if (left === 0 || !mark.wasThere) return mark;
  const sentence = `${path} was not closed (${mark.path}), and without koffi its pages cannot be`;
  const remedy = 'npm install koffi, or replace the file by a copy and remove the mark';
  throw new RefusalError('EIO', `${sentence} compared with the disk: ${remedy}`);
}
