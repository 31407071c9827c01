/** A Blob or File of a page that a client puts. */
import { MisuseError, RefusalError } from '../errors/errors.js';
import { Source } from './source.js';

/** What of a Blob, and of a File, is used. */
export interface BlobLike {
  readonly size: number;
  /** Of a File. */
  readonly name?: string;
  /** Of a File: milliseconds since 1970. */
  readonly lastModified?: number;
  slice(start: number, end: number): { arrayBuffer(): Promise<ArrayBuffer> };
}

export class BlobSource extends Source {
  readonly #blob: BlobLike;

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
    let read: ArrayBuffer;
    try {
      read = await this.#blob.slice(position, position + bytes.length).arrayBuffer();
    } catch (error) {
      // A File whose content changed cannot be read any more.
      if ((error as Error).name === 'NotReadableError') return false;
      const rule = (error as Error).message;
      throw new RefusalError('EIO', `cannot read ${this.path}: ${rule}`, { cause: error });
    }
    if (read.byteLength < bytes.length) return false;
    bytes.set(new Uint8Array(read));
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
