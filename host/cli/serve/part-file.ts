/**
 * A file on its way: NAME.part, written piece by piece in any order, and its journal. It becomes
 * NAME in one step, after it has been read back whole and has the digest that the client named.
 */
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { lstat, open, rename, rm, stat, statfs, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { RefusalError } from '../../index.js';
import { JOURNAL_SUFFIX, PART_SUFFIX } from '../file-transfer/file-name.js';
import { formatBytes } from '../base/format.js';
import { fileRefusal } from '../../errors/file-refusal.js';
import { PosixError, loadPosix } from '../../link/posix.js';
import { MAKE_PRIVATE, OPEN_PRIVATE, PRIVATE_MODE, checkOwner } from '../../link/private-file.js';
import { evictPages } from '../../pmem/page-cache.js';
import { placeOf } from '../../pmem/place.js';
import { syncDirectory } from '../../pmem/sync-directory.js';
import {
  CLOSED_LINE,
  formatJournalEntry,
  formatJournalHeader,
  parseJournal,
  type FileVersion,
  type Journal,
  type JournalEntry,
} from './journal.js';
import { PieceSet } from '../file-transfer/piece-set.js';

const { O_APPEND } = constants;
const NOT_KNOWN =
  'the server was killed, and without koffi the part cannot be compared with the disk';
/** Written pieces that wait for one fdatasync. */
const SYNC_PIECES = 16;
/** The journal of a hostile size is not read. */
const JOURNAL_BYTES_MAX = 256 * 2 ** 20;

/** How files are opened; tests put a disk that is full here. */
export type OpenFile = (path: string, flags: number, mode: number) => Promise<FileHandle>;

export class PartFile {
  readonly pieceCount: number;
  /** Pieces that are on the disk and in the journal. */
  readonly synced: PieceSet;
  /** What the client's user should know: an older part was thrown away, and why. */
  readonly note: string;
  readonly #directory: string;
  readonly #path: string;
  readonly #part: FileHandle;
  readonly #journal: FileHandle;
  readonly #written: PieceSet;
  readonly #crcs: Uint32Array;
  #unsynced: JournalEntry[] = [];
  /** The syncs so far: they run one after the other. */
  #syncing: Promise<void> = Promise.resolve();
  #failure: unknown;
  #closed = false;

  private constructor(
    directory: string,
    readonly version: FileVersion,
    opened: { part: FileHandle; journal: FileHandle; known: Journal | undefined; note: string },
  ) {
    this.#directory = directory;
    this.#path = join(directory, version.name);
    this.pieceCount = Math.ceil(version.size / version.pieceBytes);
    this.synced = new PieceSet(this.pieceCount);
    this.#written = new PieceSet(this.pieceCount);
    this.#crcs = new Uint32Array(this.pieceCount);
    this.#part = opened.part;
    this.#journal = opened.journal;
    this.note = opened.note;
    for (const { index, crc } of opened.known?.entries ?? []) {
      this.synced.add(index);
      this.#written.add(index);
      this.#crcs[index] = crc;
    }
  }

  /**
   * Opens what there is of this version of the file, or begins it. What there is of another version
   * is thrown away. Throws RefusalError: EISDIR, EEXIST, ENOSPC before anything was written,
   * EACCES, EROFS.
   */
  static async open(
    directory: string,
    version: FileVersion,
    openFile: OpenFile = open,
  ): Promise<PartFile> {
    const path = join(directory, version.name);
    await checkNames(path, version.name);
    try {
      const { known, note, files } = await findKnown(path, version, openFile);
      try {
        await checkRoom(directory, version, known?.entries.length ?? 0);
      } catch (error) {
        await files?.close();
        throw error;
      }
      const opened = files ?? (await makeFiles(path, version, openFile));
      return new PartFile(directory, version, { ...opened, known, note });
    } catch (error) {
      throw fileRefusal(`the server cannot write ${version.name}`, error);
    }
  }

  /** Bytes of piece `index`. */
  lengthOf(index: number): number {
    const { size, pieceBytes } = this.version;
    return Math.min(pieceBytes, size - index * pieceBytes);
  }

  /** Puts a piece in its place. It is durable later: `synced` has it then. */
  async write(index: number, bytes: Uint8Array, crc: number): Promise<void> {
    this.#check();
    const start = index * this.version.pieceBytes;
    try {
      for (let done = 0; done < bytes.length;) {
        const rest = bytes.length - done;
        done += (await this.#part.write(bytes, done, rest, start + done)).bytesWritten;
      }
    } catch (error) {
      throw this.#refusal(error);
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
    if (!(await this.#isNamed(PART_SUFFIX))) {
      await this.abandon();
      const rule = `a program removed ${this.version.name}${PART_SUFFIX} during the transfer`;
      throw new RefusalError('ENOENT', `the server: ${rule}; put the file again`);
    }
    try {
      await this.#close();
      await rename(this.#path + PART_SUFFIX, this.#path);
      syncDirectory(this.#directory);
      await rm(this.#path + JOURNAL_SUFFIX, { force: true });
    } catch (error) {
      throw this.#refusal(error);
    }
  }

  /** Syncs what is written, so that a later `open` goes on from there. */
  async close(): Promise<void> {
    if (this.#closed) return;
    await this.#sync();
    // All written bytes are on the disk.
    if (this.#failure === undefined) {
      await this.#journal.appendFile(CLOSED_LINE).catch(() => undefined);
    }
    const isWhole = (await this.#isNamed(PART_SUFFIX)) && (await this.#isNamed(JOURNAL_SUFFIX));
    // Without a piece, or without one of the files, there is nothing to go on from.
    if (this.synced.size === 0 || !isWhole) return this.abandon();
    await this.#close();
  }

  /** Throws everything away. */
  async abandon(): Promise<void> {
    await this.#syncing.catch(() => undefined);
    await this.#close();
    await discard(this.#path);
    this.synced.clear();
  }

  /** False: another program has removed or replaced the file with this suffix. */
  async #isNamed(suffix: string): Promise<boolean> {
    const file = suffix === PART_SUFFIX ? this.#part : this.#journal;
    const [own, named] = await Promise.all([
      file.stat(),
      lstat(this.#path + suffix).catch(() => undefined),
    ]);
    return own.ino === named?.ino && own.dev === named.dev;
  }

  async #close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#part.close();
    await this.#journal.close();
  }

  #check(): void {
    if (this.#failure !== undefined) throw this.#refusal(this.#failure);
    if (this.#closed) throw new RefusalError('ECONNRESET', `${this.version.name} is closed`);
  }

  #sync(): Promise<void> {
    this.#syncing = this.#syncing.then(async () => {
      const entries = this.#unsynced;
      // After an error the kernel marks unwritten pages clean: another sync would succeed.
      if (entries.length === 0 || this.#closed || this.#failure !== undefined) return;
      this.#unsynced = [];
      try {
        await this.#part.datasync();
        await this.#journal.appendFile(entries.map(formatJournalEntry).join(''));
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
    const { name, pieceBytes } = this.version;
    const hash = createHash('sha256');
    const buffer = Buffer.allocUnsafe(pieceBytes);
    try {
      for (let index = 0; index < this.pieceCount; index++) {
        const bytes = buffer.subarray(0, this.lengthOf(index));
        if (!(await readFully(this.#part, bytes, index * pieceBytes))) break;
        hash.update(bytes);
      }
      if (hash.digest().equals(sha256)) return undefined;
      // Which of the two did not keep its word?
      for (let index = 0; index < this.pieceCount; index++) {
        const bytes = buffer.subarray(0, this.lengthOf(index));
        const read = await readFully(this.#part, bytes, index * pieceBytes);
        if (read && crc32(bytes) === this.#crcs[index]) continue;
        return (
          `piece ${index} of ${name}${PART_SUFFIX} is not what was written there: something else ` +
          'writes to it, or the disk fails; what was there is thrown away, put it again'
        );
      }
    } catch (error) {
      throw this.#refusal(error);
    }
    return (
      `what arrived of ${name} has another SHA-256 than the file now: pieces of an earlier run were ` +
      'of other content; what was there is thrown away, put it again'
    );
  }

  #refusal(error: unknown): RefusalError {
    return fileRefusal(`the server cannot write ${this.version.name}`, error);
  }
}

/** False when the file ends before `bytes` are full. */
export async function readFully(
  file: FileHandle,
  bytes: Uint8Array,
  position: number,
): Promise<boolean> {
  for (let done = 0; done < bytes.length;) {
    const { bytesRead } = await file.read(bytes, done, bytes.length - done, position + done);
    if (bytesRead === 0) return false;
    done += bytesRead;
  }
  return true;
}

interface Files {
  readonly part: FileHandle;
  readonly journal: FileHandle;
}

interface KnownFiles extends Files {
  close(): Promise<void>;
}

interface Known {
  readonly known?: Journal;
  readonly note: string;
  /** The files of `known`. */
  readonly files?: KnownFiles;
}

/** The journal of an earlier run, when it is about this version of the file. */
async function findKnown(path: string, version: FileVersion, openFile: OpenFile): Promise<Known> {
  const files = await openKnown(path, openFile);
  if (!files) {
    await discard(path);
    return { note: '' };
  }
  try {
    const { size } = await files.journal.stat();
    const readable = size <= JOURNAL_BYTES_MAX;
    const known = readable ? parseJournal(await files.journal.readFile()) : undefined;
    const why =
      complaintOf(known, version, (await files.part.stat()).size) ??
      ((await isOnDisk(files.part, known!)) ? undefined : NOT_KNOWN);
    if (why === undefined) {
      // Bytes after the last complete line would make the next line unreadable.
      await files.journal.truncate(known!.validBytes);
      return { known: known!, note: '', files };
    }
    await files.close();
    await discard(path);
    return { note: `the server's part of ${version.name} is discarded: ${why}` };
  } catch (error) {
    await files.close();
    throw error;
  }
}

function complaintOf(
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

/**
 * Is the part on the disk as it is read? After a failed sync of an earlier process its pages must
 * be evicted from the page cache first (pmem/page-cache.ts).
 */
async function isOnDisk(part: FileHandle, { isClosed }: Journal): Promise<boolean> {
  const { posix } = await loadPosix();
  if (placeOf(part.fd).isMemory) return true;
  if (!posix) return isClosed;
  try {
    return (await evictPages(part.fd, posix)) === 0 || isClosed;
  } catch (error) {
    if (error instanceof PosixError) return isClosed;
    throw error;
  }
}

/** Opens part and journal. Undefined: they do not exist, or do not belong to this user. */
async function openKnown(path: string, openFile: OpenFile): Promise<KnownFiles | undefined> {
  const opened: FileHandle[] = [];
  const close = async (): Promise<void> => {
    for (const file of opened) await file.close();
  };
  try {
    for (const suffix of [PART_SUFFIX, JOURNAL_SUFFIX]) {
      const append = suffix === JOURNAL_SUFFIX ? O_APPEND : 0;
      const file = await openFile(path + suffix, OPEN_PRIVATE | append, PRIVATE_MODE);
      opened.push(file);
      const found = await file.stat();
      checkOwner(found, path + suffix);
      if (!found.isFile()) throw new RefusalError('EINVAL', `${path}${suffix} is not a file`);
    }
    const [part, journal] = opened as [FileHandle, FileHandle];
    return { part, journal, close };
  } catch (error) {
    await close();
    const { code = '' } = error as NodeJS.ErrnoException;
    // A file of another user, a link or a directory: removed if possible.
    if (['ENOENT', 'ELOOP', 'EACCES', 'EINVAL', 'EISDIR', 'ENXIO'].includes(code)) return undefined;
    throw error;
  }
}

/** Creates part and journal. Fails with EEXIST if one of the names exists. */
async function makeFiles(path: string, version: FileVersion, openFile: OpenFile): Promise<Files> {
  const part = await openFile(path + PART_SUFFIX, MAKE_PRIVATE, PRIVATE_MODE);
  try {
    await part.truncate(version.size);
    const journal = await openFile(path + JOURNAL_SUFFIX, MAKE_PRIVATE | O_APPEND, PRIVATE_MODE);
    try {
      await journal.appendFile(formatJournalHeader(version));
      return { part, journal };
    } catch (error) {
      await journal.close();
      throw error;
    }
  } catch (error) {
    await part.close();
    throw error;
  }
}

/** Throws RefusalError if a directory or another file that is not regular has one of the names. */
async function checkNames(path: string, name: string): Promise<void> {
  for (const suffix of ['', PART_SUFFIX, JOURNAL_SUFFIX]) {
    // A link in the place of a part is removed; a finished file replaces a link to a file.
    const look = suffix === '' ? stat : lstat;
    const found = await look(path + suffix).catch(() => undefined);
    const remedy = 'remove it there, or put the file by another name';
    if (found?.isDirectory()) {
      throw new RefusalError('EISDIR', `${name}${suffix} is a directory on the server; ${remedy}`);
    }
    if (suffix === '' && found && !found.isFile()) {
      throw new RefusalError('EEXIST', `${name} is no regular file on the server; ${remedy}`);
    }
  }
}

/** The journal goes first: a part without one is worth nothing, the reverse would be a lie. */
async function discard(path: string): Promise<void> {
  await rm(path + JOURNAL_SUFFIX, { force: true });
  await rm(path + PART_SUFFIX, { force: true });
}

/** Refuses before the first byte travels what the disk cannot hold. */
async function checkRoom(
  directory: string,
  { name, size, pieceBytes }: FileVersion,
  piecesKnown: number,
): Promise<void> {
  const { bavail, bsize } = await statfs(directory);
  const needed = Math.max(0, size - piecesKnown * pieceBytes);
  if (needed <= bavail * bsize) return;
  throw new RefusalError(
    'ENOSPC',
    `${name} needs ${formatBytes(needed)}, the server's disk has ${formatBytes(bavail * bsize)}`,
  );
}
