/**
 * The file that a client puts: read piece by piece, its digest taken on the way, and watched for
 * changes, since half of one version and half of another is no file.
 */
import { RefusalError } from '../errors/errors.js';
import { crc32 } from './crc32.js';
import { Sha256 } from './sha256.js';

/** The file is not what it was when the transfer began. */
export class FileChanged extends RefusalError {
  override readonly name = 'FileChanged';

  constructor(path: string) {
    super('EBUSY', `${path} changed while it was sent: put it again when no program writes to it`);
  }
}

export abstract class Source {
  readonly pieceCount: number;
  readonly #hash = new Sha256();
  /** Pieces below this one are in the digest. */
  #hashed = 0;
  readonly #crcs: Uint32Array;
  #digest: Uint8Array | undefined;

  protected constructor(
    /** Name of the file at the receiver. */
    readonly name: string,
    /** For messages. */
    readonly path: string,
    /** Bytes. */
    readonly size: number,
    readonly mtimeNs: string,
    readonly pieceBytes: number,
  ) {
    this.pieceCount = Math.ceil(size / pieceBytes);
    this.#crcs = new Uint32Array(this.pieceCount);
  }

  /** Fills `bytes` from `position` on. Resolves to false where the file ends before. */
  protected abstract readAt(bytes: Uint8Array, position: number): Promise<boolean>;

  /** False: the file is not what it was when it was opened. */
  protected abstract isUnchanged(): Promise<boolean>;

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
    if (!(await this.readAt(bytes, index * this.pieceBytes))) throw new FileChanged(this.path);
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
    if (!(await this.isUnchanged())) throw new FileChanged(this.path);
  }

  /** SHA-256 of the file, when every piece has been read. */
  digest(): Uint8Array {
    return (this.#digest ??= this.#hash.digest());
  }

  abstract close(): Promise<void>;
}
