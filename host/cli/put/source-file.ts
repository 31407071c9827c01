/**
 * The file that a client puts: read piece by piece, its digest taken on the way, and watched for
 * changes, since half of one version and half of another is no file.
 */
import { createHash } from 'node:crypto';
import { constants, type BigIntStats, type Stats } from 'node:fs';
import { open, stat, type FileHandle } from 'node:fs/promises';
import { basename, resolve } from 'node:path';
import { crc32 } from 'node:zlib';
import { RefusalError } from '../../index.js';
import { fileRefusal } from '../../errors/file-refusal.js';
import { readFully } from '../serve/part-file.js';

/** Not of other systems than POSIX ones. With it, neither open nor read waits for a writer. */
const { O_RDONLY, O_NONBLOCK = 0 } = constants;

/** The file is not what it was when the transfer began. */
export class FileChanged extends RefusalError {
  override readonly name = 'FileChanged';

  constructor(path: string) {
    super('EBUSY', `${path} changed while it was sent: put it again when no program writes to it`);
  }
}

export class SourceFile {
  /** Its last name: what it will be called on the server. */
  readonly name: string;
  readonly pieceCount: number;
  readonly #file: FileHandle;
  readonly #hash = createHash('sha256');
  /** Pieces below this one are in the digest. */
  #hashed = 0;
  readonly #crcs: Uint32Array;
  #digest: Buffer | undefined;

  private constructor(
    readonly path: string,
    file: FileHandle,

    /** Bytes. */
    readonly size: number,
    readonly mtimeNs: string,
    readonly pieceBytes: number,
  ) {
    this.name = basename(resolve(path));
    this.#file = file;
    this.pieceCount = Math.ceil(size / pieceBytes);
    this.#crcs = new Uint32Array(this.pieceCount);
  }

  /**
   * Rejects with RefusalError: ENOENT, EACCES, EISDIR, EINVAL for a file that is not regular, or
   * whose size is not that of its content.
   */
  static async open(path: string, pieceBytes: number): Promise<SourceFile> {
    let file: FileHandle | undefined;
    try {
      // A device may do something when it is opened.
      checkRegular(path, await stat(path));
      file = await open(path, O_RDONLY | O_NONBLOCK);
      const found = await file.stat({ bigint: true });
      checkRegular(path, found);
      const source = new SourceFile(path, file, Number(found.size), `${found.mtimeNs}`, pieceBytes);
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
    if (bytesRead === this.size - last || !(await this.#isUnchanged())) return;
    throw new RefusalError(
      'EINVAL',
      `${this.path} has a size of ${this.size} bytes and content of another length, as files of ` +
        '/proc and /sys have; copy it to a disk, and put the copy',
    );
  }

  /** Bytes of piece `index`. */
  lengthOf(index: number): number {
    return Math.min(this.pieceBytes, this.size - index * this.pieceBytes);
  }

  /**
   * Reads piece `index` into the beginning of `buffer`; returns the CRC-32 of its bytes. A piece is
   * not read before those below it have been read once. Throws FileChanged.
   */
  async read(index: number, buffer: Uint8Array): Promise<number> {
    const bytes = buffer.subarray(0, this.lengthOf(index));
    let whole: boolean;
    try {
      whole = await readFully(this.#file, bytes, index * this.pieceBytes);
    } catch (error) {
      throw fileRefusal(`cannot read ${this.path}`, error);
    }
    if (!whole) throw new FileChanged(this.path);
    const crc = crc32(bytes);
    if (index === this.#hashed) {
      this.#hash.update(bytes);
      this.#hashed++;
      this.#crcs[index] = crc;
    } else if (this.#crcs[index] !== crc) {
      throw new FileChanged(this.path);
    }
    return crc;
  }

  /** True when `read` of this piece is still needed for the digest. */
  needs(index: number): boolean {
    return index >= this.#hashed && index < this.pieceCount;
  }

  /** Throws FileChanged when size or time are not what they were. */
  async checkUnchanged(): Promise<void> {
    if (!(await this.#isUnchanged())) throw new FileChanged(this.path);
  }

  async #isUnchanged(): Promise<boolean> {
    const { size, mtimeNs } = await this.#file.stat({ bigint: true });
    return Number(size) === this.size && `${mtimeNs}` === this.mtimeNs;
  }

  /** SHA-256 of the file, when every piece has been read. */
  digest(): Buffer {
    return (this.#digest ??= this.#hash.digest());
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
