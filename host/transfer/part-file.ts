/**
 * A file on its way: NAME.part, written piece by piece in any order, and its journal. It becomes
 * NAME in one step, after it has been read back whole and has the digest that the client named.
 */
import { RefusalError } from '../errors/errors.js';
import { areEqual } from './bytes.js';
import { crc32 } from './crc32.js';
import { PART_SUFFIX } from './file-name.js';
import {
  CLOSED_LINE,
  formatJournalEntry,
  type FileVersion,
  type Journal,
  type JournalEntry,
} from './journal.js';
import { PieceSet } from './piece-set.js';

/** Written pieces that wait for one sync. */
const SYNC_PIECES = 16;

/** Where part and journal are: a directory of Node, or the origin private file system of a page. */
export interface PartStorage {
  /** Puts all bytes at `position` of the part. */
  write(bytes: Uint8Array, position: number): Promise<void>;
  /** Resolves to false where the part ends before `bytes` are full. */
  read(bytes: Uint8Array, position: number): Promise<boolean>;
  /** SHA-256 of `size` bytes of the part as they are stored, or of what there is of them. */
  digest(size: number, pieceBytes: number): Promise<Uint8Array>;
  /** Makes earlier writes to the part durable. The first `prefixBytes` bytes are complete. */
  sync(prefixBytes: number): Promise<void>;
  /** Appends to the journal. */
  append(text: string): Promise<void>;
  /** Do the names still belong to the open files? */
  isNamed(): Promise<{ readonly part: boolean; readonly journal: boolean }>;
  /** Closes, gives the part the name of the file, and removes the journal. */
  complete(): Promise<void>;
  /** May be called again. */
  close(): Promise<void>;
  /** Removes both files. */
  discard(): Promise<void>;
  /** `error` of one of these calls as the client receives it. */
  refusal(error: unknown): RefusalError;
}

/** Journal entries of earlier connections. */
export interface KnownPieces {
  readonly entries: readonly JournalEntry[];
  /** Note for the client's user: an older part was discarded, and why. */
  readonly note: string;
}

export class PartFile {
  readonly pieceCount: number;
  /** Pieces that are on the disk and in the journal. */
  readonly synced: PieceSet;
  /** Note for the client's user: an older part was discarded, and why. */
  readonly note: string;
  readonly #storage: PartStorage;
  readonly #written: PieceSet;
  /** All pieces below are written. */
  #prefix = 0;
  readonly #crcs: Uint32Array;
  #unsynced: JournalEntry[] = [];
  /** The syncs so far: they run one after the other. */
  #syncing: Promise<void> = Promise.resolve();
  #failure: unknown;
  #closed = false;

  constructor(
    readonly version: FileVersion,
    storage: PartStorage,
    known: KnownPieces,
  ) {
    this.#storage = storage;
    this.pieceCount = Math.ceil(version.size / version.pieceBytes);
    this.synced = new PieceSet(this.pieceCount);
    this.#written = new PieceSet(this.pieceCount);
    this.#crcs = new Uint32Array(this.pieceCount);
    this.note = known.note;
    for (const { index, crc } of known.entries) {
      this.synced.add(index);
      this.#written.add(index);
      this.#crcs[index] = crc;
    }
  }

  /** Pieces that are in the part, synced or not. */
  get writtenCount(): number {
    return this.#written.size;
  }

  /** Bytes of piece `index`. */
  lengthOf(index: number): number {
    const { size, pieceBytes } = this.version;
    return Math.min(pieceBytes, size - index * pieceBytes);
  }

  /** Puts a piece in its place. It is durable later: `synced` has it then. */
  async write(index: number, bytes: Uint8Array, crc: number): Promise<void> {
    this.#check();
    // A sender that repeats it does not make the journal longer.
    if (this.#written.has(index)) return;
    try {
      await this.#storage.write(bytes, index * this.version.pieceBytes);
    } catch (error) {
      throw this.#storage.refusal(error);
    }
    this.#written.add(index);
    this.#crcs[index] = crc;
    this.#unsynced.push({ index, crc });
    if (this.#unsynced.length >= SYNC_PIECES) this.#sync().catch(() => undefined);
  }

  /**
   * Completes the file: syncs, reads it back, compares, renames it to NAME. Throws RefusalError:
   * EPROTO if pieces are missing; EIO if the bytes on the disk differ from those sent, ENOENT if
   * another program has removed the part: then nothing is kept.
   */
  async finish(sha256: Uint8Array): Promise<void> {
    this.#check();
    if (this.#written.size < this.pieceCount) {
      const missing = this.pieceCount - this.#written.size;
      throw new RefusalError('EPROTO', `the file is incomplete: ${missing} pieces are missing`);
    }
    await this.#sync();
    this.#check();
    const complaint = await this.#verify(sha256);
    if (complaint !== undefined) {
      await this.abandon();
      throw new RefusalError('EIO', complaint);
    }
    if (!(await this.#storage.isNamed()).part) {
      await this.abandon();
      const rule = `a program removed ${this.version.name}${PART_SUFFIX} during the transfer`;
      throw new RefusalError('ENOENT', `the server: ${rule}; put the file again`);
    }
    this.#closed = true;
    try {
      await this.#storage.complete();
    } catch (error) {
      throw this.#storage.refusal(error);
    }
  }

  /** Syncs what is written, so that a later connection goes on from there. */
  async close(): Promise<void> {
    if (this.#closed) return;
    await this.#sync();
    // All written bytes are on the disk.
    if (this.#failure === undefined) {
      await this.#storage.append(CLOSED_LINE).catch(() => undefined);
    }
    const { part, journal } = await this.#storage.isNamed();
    // Without a piece, or without one of the files, there is nothing to go on from.
    if (this.synced.size === 0 || !part || !journal) return this.abandon();
    this.#closed = true;
    await this.#storage.close();
  }

  /** Throws everything away. */
  async abandon(): Promise<void> {
    await this.#syncing.catch(() => undefined);
    this.#closed = true;
    await this.#storage.close();
    await this.#storage.discard();
    this.synced.clear();
  }

  #check(): void {
    if (this.#failure !== undefined) throw this.#storage.refusal(this.#failure);
    if (this.#closed)
      throw new RefusalError('ECONNRESET', `${this.version.name} is closed; put the file again`);
  }

  #sync(): Promise<void> {
    this.#syncing = this.#syncing.then(async () => {
      const entries = this.#unsynced;
      // After an error the kernel marks unwritten pages clean: another sync would succeed.
      if (entries.length === 0 || this.#closed || this.#failure !== undefined) return;
      this.#unsynced = [];
      while (this.#prefix < this.pieceCount && this.#written.has(this.#prefix)) this.#prefix++;
      const { size, pieceBytes } = this.version;
      try {
        await this.#storage.sync(Math.min(size, this.#prefix * pieceBytes));
        await this.#storage.append(entries.map(formatJournalEntry).join(''));
      } catch (error) {
        this.#failure ??= error;
        return;
      }
      for (const { index } of entries) this.synced.add(index);
    });
    return this.#syncing;
  }

  /** Reads the part as it is on the disk; returns what is wrong with it. */
  async #verify(sha256: Uint8Array): Promise<string | undefined> {
    const { name, size, pieceBytes } = this.version;
    try {
      if (areEqual(await this.#storage.digest(size, pieceBytes), sha256)) return undefined;
      // Which of the two did not keep its word?
      const buffer = new Uint8Array(pieceBytes);
      for (let index = 0; index < this.pieceCount; index++) {
        const bytes = buffer.subarray(0, this.lengthOf(index));
        const read = await this.#storage.read(bytes, index * pieceBytes);
        if (read && crc32(bytes) === this.#crcs[index]) continue;
        return (
          `piece ${index} of ${name}${PART_SUFFIX} is not what was written there: something else ` +
          'writes to it, or the disk fails; what was there is thrown away, put it again'
        );
      }
    } catch (error) {
      throw this.#storage.refusal(error);
    }
    return (
      `what arrived of ${name} has another SHA-256 than the file now: pieces of an earlier run were ` +
      'of other content; what was there is thrown away, put it again'
    );
  }
}

/** Why a part cannot be continued as `version`; undefined: it can. */
export function complaintOf(
  known: Journal | undefined,
  version: FileVersion,
  partBytes: number,
): string | undefined {
  const old = known?.version;
  if (!old) return 'its journal cannot be read';
  if (old.size !== version.size || old.mtimeNs !== version.mtimeNs) {
    return 'the file has changed since';
  }
  if (old.pieceBytes !== version.pieceBytes) return 'it was cut into pieces of another size';
  const isWhole = old.name === version.name && partBytes === version.size;
  return isWhole ? undefined : 'it does not match its journal';
}
