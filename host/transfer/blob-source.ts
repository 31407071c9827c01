/** A Blob or File of a page that a client puts. */
import { MisuseError, RefusalError } from '../errors/errors.js';
import { Source } from './source.js';

/** Part of a Blob, and of a File, that is used. */
export interface BlobLike {
  readonly size: number;
  /** Of a File. */
  readonly name?: string;
  /** Of a File: milliseconds since 1970. */
  readonly lastModified?: number;
  slice(start: number, end: number): { arrayBuffer(): Promise<ArrayBuffer> };
}

const AHEAD_BYTES = 2 ** 20;

export class BlobSource extends Source {
  readonly #blob: BlobLike;
  /** A part of the Blob, and where it begins: each read asks another process of the browser. */
  #ahead = new Uint8Array(0);
  #aheadAt = 0;

  /** `name`: default that of the File. Throws MisuseError for a Blob without a name. */
  constructor(blob: BlobLike, name: string | undefined, pieceBytes: number) {
    const called = name ?? blob.name;
    if (typeof called !== 'string' || called === '') {
      throw new MisuseError('name', 'is required for a Blob, which has none; a File has one');
    }
    const mtimeNs = BigInt(Math.trunc(blob.lastModified ?? 0)) * 1_000_000n;
    super(called, called, blob.size, `${mtimeNs}`, pieceBytes);
    this.#blob = blob;
  }

  protected async readAt(bytes: Uint8Array, position: number): Promise<boolean> {
    const end = position + bytes.length;
    if (position < this.#aheadAt || end > this.#aheadAt + this.#ahead.length) {
      const length = Math.max(bytes.length, AHEAD_BYTES);
      try {
        const read = await this.#blob.slice(position, position + length).arrayBuffer();
        this.#ahead = new Uint8Array(read);
        this.#aheadAt = position;
      } catch (error) {
        // A File whose content changed cannot be read any more.
        if ((error as Error).name === 'NotReadableError') return false;
        const rule = (error as Error).message;
        throw new RefusalError('EIO', `cannot read ${this.path}: ${rule}`, { cause: error });
      }
    }
    const at = position - this.#aheadAt;
    if (at + bytes.length > this.#ahead.length) return false;
    bytes.set(this.#ahead.subarray(at, at + bytes.length));
    return true;
  }

  /** A Blob has one content for life; that of a File is unreadable after a change. */
  protected isUnchanged(): Promise<boolean> {
    return Promise.resolve(true);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
