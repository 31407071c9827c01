/**
 * Part and journal in the origin private file system, where the Worker of the store works on them:
 * only Workers have sync access handles, and their calls block.
 */
import { formatBytes } from '../base/format-bytes.js';
import { RefusalError } from '../errors/errors.js';
import { openSyncAccess, writeAll, type SyncAccessHandle } from '../pmem/sync-access.js';
import { JOURNAL_SUFFIX, PART_SUFFIX } from './file-name.js';
import { formatJournalHeader, parseJournal, type FileVersion } from './journal.js';
import {
  fileNamed,
  freeBytes,
  removeFile,
  type OpfsDirectory,
  type OpfsFileHandle,
} from './opfs-directory.js';
import { complaintOf, type KnownPieces } from './part-file.js';
import { Sha256 } from './sha256.js';

const READ_BYTES = 2 ** 20;
/** A journal of another size is not read. */
const JOURNAL_BYTES_MAX = 64 * 2 ** 20;
/** A page that was closed releases its files a little later. */
const LOCK_MILLIS = 3000;

/** Pieces of an earlier connection, and the files that have them. */
export interface OpenedPart {
  readonly part: OpfsPart;
  readonly known: KnownPieces;
}

export class OpfsPart {
  readonly #directory: OpfsDirectory;
  readonly #name: string;
  readonly #part: SyncAccessHandle;
  readonly #journal: SyncAccessHandle;
  /** Of the bytes below `#hashedBytes`, as they were read back. */
  #hash = new Sha256();
  #hashedBytes = 0;
  #writtenBytes = 0;

  private constructor(
    directory: OpfsDirectory,
    name: string,
    part: SyncAccessHandle,
    journal: SyncAccessHandle,
  ) {
    this.#directory = directory;
    this.#name = name;
    this.#part = part;
    this.#journal = journal;
  }

  /** Rejects with RefusalError ENOSPC, and what the browser says. */
  static async open(directory: OpfsDirectory, version: FileVersion): Promise<OpenedPart> {
    const { name, size } = version;
    const before = await OpfsPart.#openKnown(directory, version);
    if (before && 'known' in before) return before;
    const free = await freeBytes();
    if (free !== undefined && size > free) {
      const remedy = 'remove received files there';
      throw new RefusalError(
        'ENOSPC',
        `${name} needs ${formatBytes(size)}, the browser allows ${formatBytes(free)}; ${remedy}`,
      );
    }
    const part = await access(directory, name + PART_SUFFIX);
    let journal: SyncAccessHandle | undefined;
    try {
      // The whole length now, so that no later write runs out of space.
      part.truncate(size);
      journal = await access(directory, name + JOURNAL_SUFFIX);
      journal.truncate(0);
      writeAll(journal, new TextEncoder().encode(formatJournalHeader(version)), 0);
    } catch (error) {
      part.close();
      journal?.close();
      await discardPart(directory, name);
      throw error;
    }
    const opened = new OpfsPart(directory, name, part, journal);
    return { part: opened, known: { entries: [], note: before?.note ?? '' } };
  }

  /** Existing part; a note: the reason why it was discarded; undefined: there was no part. */
  static async #openKnown(
    directory: OpfsDirectory,
    version: FileVersion,
  ): Promise<OpenedPart | { readonly note: string } | undefined> {
    const { name } = version;
    const hasBoth =
      (await fileNamed(directory, name + PART_SUFFIX)) &&
      (await fileNamed(directory, name + JOURNAL_SUFFIX));
    if (!hasBoth) {
      await discardPart(directory, name);
      return undefined;
    }
    const part = await access(directory, name + PART_SUFFIX);
    let journal: SyncAccessHandle | undefined;
    let why: string | undefined;
    try {
      journal = await access(directory, name + JOURNAL_SUFFIX);
      const bytes = new Uint8Array(Math.min(journal.getSize(), JOURNAL_BYTES_MAX));
      readAll(journal, bytes, 0);
      const found = parseJournal(bytes);
      why = complaintOf(found, version, part.getSize());
      if (why === undefined) {
        journal.truncate(found!.validBytes);
        const { entries } = found!;
        return { part: new OpfsPart(directory, name, part, journal), known: { entries, note: '' } };
      }
    } catch (error) {
      part.close();
      journal?.close();
      throw error;
    }
    part.close();
    journal.close();
    await discardPart(directory, name);
    return { note: `the part of ${name} at the receiver is discarded: ${why}` };
  }

  write(bytes: Uint8Array, position: number): void {
    if (position < this.#hashedBytes) {
      this.#hash = new Sha256();
      this.#hashedBytes = 0;
    }
    writeAll(this.#part, bytes, position);
    this.#writtenBytes += bytes.length;
  }

  /** Undefined where the part ends before. */
  read(length: number, position: number): Uint8Array<ArrayBuffer> | undefined {
    const bytes = new Uint8Array(length);
    return readAll(this.#part, bytes, position) ? bytes : undefined;
  }

  /**
   * Reads back about as much as was written since the last call: at the end of the file only a rest
   * is missing from the digest.
   */
  sync(prefixBytes: number): void {
    this.#part.flush();
    this.#hashTo(Math.min(prefixBytes, this.#hashedBytes + 2 * this.#writtenBytes));
    this.#writtenBytes = 0;
  }

  digest(size: number): Uint8Array {
    this.#hashTo(size);
    return this.#hash.digest();
  }

  #hashTo(end: number): void {
    const buffer = new Uint8Array(Math.min(READ_BYTES, Math.max(0, end - this.#hashedBytes)));
    while (this.#hashedBytes < end) {
      const bytes = buffer.subarray(0, end - this.#hashedBytes);
      if (!readAll(this.#part, bytes, this.#hashedBytes)) return;
      this.#hash.update(bytes);
      this.#hashedBytes += bytes.length;
    }
  }

  append(text: string): void {
    writeAll(this.#journal, new TextEncoder().encode(text), this.#journal.getSize());
  }

  close(): void {
    this.#part.close();
    this.#journal.close();
  }

  /** Gives the part its name; a file of that name is replaced. */
  async complete(): Promise<void> {
    this.close();
    const directory = this.#directory;
    const file = await directory.getFileHandle(this.#name + PART_SUFFIX);
    await move(directory, file, this.#name);
    await removeFile(directory, this.#name + JOURNAL_SUFFIX);
  }
}

async function move(directory: OpfsDirectory, file: OpfsFileHandle, name: string): Promise<void> {
  if (!file.move) {
    const rule = 'this browser has no FileSystemFileHandle.move';
    throw new RefusalError('EOPNOTSUPP', `opfsStore: ${rule}; use a newer one`);
  }
  try {
    await file.move(name);
  } catch (error) {
    if ((error as Error).name !== 'InvalidModificationError') throw error;
    // A browser that replaces no file.
    await removeFile(directory, name);
    await file.move(name);
  }
}

/** The journal goes first: a part without one is worth nothing, the reverse would be a lie. */
export async function discardPart(directory: OpfsDirectory, name: string): Promise<void> {
  await removeFile(directory, name + JOURNAL_SUFFIX);
  await removeFile(directory, name + PART_SUFFIX);
}

/** Opens a file, which is created if it does not exist. */
async function access(directory: OpfsDirectory, name: string): Promise<SyncAccessHandle> {
  const file = await directory.getFileHandle(name, { create: true });
  return openSyncAccess(file, LOCK_MILLIS);
}

function readAll(handle: SyncAccessHandle, bytes: Uint8Array, at: number): boolean {
  for (let done = 0; done < bytes.length;) {
    const count = handle.read(bytes.subarray(done), { at: at + done });
    if (count === 0) return false;
    done += count;
  }
  return true;
}
