/**
 * The file that a client puts: read piece by piece, its digest taken on the way, and watched for
 * changes, since half of one version and half of another is no file.
 */
import { createHash } from 'node:crypto';
import { open, type FileHandle } from 'node:fs/promises';
import { basename, resolve } from 'node:path';
import { crc32 } from 'node:zlib';
import { RefusalError } from '../../index.js';
import { fileRefusal } from '../../errors/file-refusal.js';
import { readFully } from '../serve/part-file.js';

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

  /** Rejects with RefusalError: ENOENT, EACCES, EISDIR, EINVAL for what is no regular file. */
  static async open(path: string, pieceBytes: number): Promise<SourceFile> {
    let file: FileHandle | undefined;
    try {
      file = await open(path, 'r');
      const stat = await file.stat({ bigint: true });
      if (stat.isDirectory()) throw Object.assign(new Error(), { code: 'EISDIR' });
      if (!stat.isFile()) throw new RefusalError('EINVAL', `${path} is not a regular file`);
      return new SourceFile(path, file, Number(stat.size), `${stat.mtimeNs}`, pieceBytes);
    } catch (error) {
      await file?.close();
      throw fileRefusal(`cannot read ${path}`, error);
    }
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
    const { size, mtimeNs } = await this.#file.stat({ bigint: true });
    if (Number(size) !== this.size || `${mtimeNs}` !== this.mtimeNs) {
      throw new FileChanged(this.path);
    }
  }

  /** SHA-256 of the file, when every piece has been read. */
  digest(): Buffer {
    return (this.#digest ??= this.#hash.digest());
  }

  async close(): Promise<void> {
    await this.#file.close();
  }
}
