/** A file of Node's file system that a client puts. */
import { constants, type BigIntStats, type Stats } from 'node:fs';
import { open, stat, type FileHandle } from 'node:fs/promises';
import { basename, resolve } from 'node:path';
import { fileRefusal } from '../errors/file-refusal.js';
import { RefusalError } from '../errors/errors.js';
import { readFully } from './directory-part.js';
import { Source } from './source.js';

/** Not of other systems than POSIX ones. With it, neither open nor read waits for a writer. */
const { O_RDONLY, O_NONBLOCK = 0 } = constants;

export class SourceFile extends Source {
  readonly #file: FileHandle;

  private constructor(
    path: string,
    file: FileHandle,
    name: string | undefined,
    size: number,
    mtimeNs: string,
    pieceBytes: number,
  ) {
    super(name ?? basename(resolve(path)), path, size, mtimeNs, pieceBytes);
    this.#file = file;
  }

  /**
   * `name`: at the receiver; default: the last one of the path. Rejects with RefusalError: ENOENT,
   * EACCES, EISDIR, EINVAL for a file that is not regular, or whose size differs from its content.
   */
  static async open(path: string, pieceBytes: number, name?: string): Promise<SourceFile> {
    let file: FileHandle | undefined;
    try {
      // A device may do something when it is opened.
      checkRegular(path, await stat(path));
      file = await open(path, O_RDONLY | O_NONBLOCK);
      const found = await file.stat({ bigint: true });
      checkRegular(path, found);
      const { size, mtimeNs } = found;
      const source = new SourceFile(path, file, name, Number(size), `${mtimeNs}`, pieceBytes);
      await source.#checkSize();
      return source;
    } catch (error) {
      await file?.close();
      throw fileRefusal(`cannot read ${path}`, error);
    }
  }

  /** The files of /proc and /sys have content of other lengths than their size. */
  async #checkSize(): Promise<void> {
    const last = Math.max(0, this.size - 1);
    const { bytesRead } = await this.#file.read(Buffer.alloc(2), 0, 2, last);
    // A file that grows meanwhile is refused after the last piece.
    if (bytesRead === this.size - last || !(await this.isUnchanged())) return;
    throw new RefusalError(
      'EINVAL',
      `${this.path} has a size of ${this.size} bytes and content of another length, as files of ` +
        '/proc and /sys have; copy it to a disk, and put the copy',
    );
  }

  protected async readAt(bytes: Uint8Array, position: number): Promise<boolean> {
    try {
      return await readFully(this.#file, bytes, position);
    } catch (error) {
      throw fileRefusal(`cannot read ${this.path}`, error);
    }
  }

  protected async isUnchanged(): Promise<boolean> {
    const { size, mtimeNs } = await this.#file.stat({ bigint: true });
    return Number(size) === this.size && `${mtimeNs}` === this.mtimeNs;
  }

  async close(): Promise<void> {
    await this.#file.close();
  }
}

function checkRegular(path: string, found: Stats | BigIntStats): void {
  if (found.isDirectory()) throw new RefusalError('EISDIR', `cannot read ${path}: is a directory`);
  if (found.isFile()) return;
  throw new RefusalError('EINVAL', `${path} is not a regular file; copy it to one, and put that`);
}
