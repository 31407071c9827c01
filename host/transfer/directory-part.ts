/** Part and journal in a directory of Node's file system. */
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { lstat, open, rename, rm, stat, statfs, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { formatBytes } from '../base/format-bytes.js';
import { RefusalError } from '../errors/errors.js';
import { fileRefusal } from '../errors/file-refusal.js';
import { PosixError, loadPosix } from '../link/posix.js';
import { MAKE_PRIVATE, OPEN_PRIVATE, PRIVATE_MODE, checkOwner } from '../link/private-file.js';
import { evictPages } from '../pmem/page-cache.js';
import { placeOf } from '../pmem/place.js';
import { syncDirectory } from '../pmem/sync-directory.js';
import { JOURNAL_SUFFIX, PART_SUFFIX } from './file-name.js';
import { formatJournalHeader, parseJournal, type FileVersion, type Journal } from './journal.js';
import { PartFile, complaintOf, type PartStorage } from './part-file.js';

const { O_APPEND } = constants;
const NOT_KNOWN =
  'the server was killed, and without koffi the part cannot be compared with the disk';
/** The journal of a hostile size is not read. */
const JOURNAL_BYTES_MAX = 256 * 2 ** 20;

/** How files are opened; tests put a disk that is full here. */
export type OpenFile = (path: string, flags: number, mode: number) => Promise<FileHandle>;

/**
 * Opens what there is of this version of the file, or begins it. What there is of another version
 * is thrown away. Throws RefusalError: EISDIR, EEXIST, ENOSPC before anything was written, EACCES,
 * EROFS.
 */
export async function openPartFile(
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
    const storage = new DirectoryPart(directory, version.name, opened);
    return new PartFile(version, storage, { entries: known?.entries ?? [], note });
  } catch (error) {
    throw fileRefusal(`the server cannot write ${version.name}`, error);
  }
}

class DirectoryPart implements PartStorage {
  readonly #directory: string;
  readonly #name: string;
  readonly #path: string;
  readonly #part: FileHandle;
  readonly #journal: FileHandle;
  #closed = false;

  constructor(directory: string, name: string, { part, journal }: Files) {
    this.#directory = directory;
    this.#name = name;
    this.#path = join(directory, name);
    this.#part = part;
    this.#journal = journal;
  }

  async write(bytes: Uint8Array, position: number): Promise<void> {
    for (let done = 0; done < bytes.length;) {
      const rest = bytes.length - done;
      done += (await this.#part.write(bytes, done, rest, position + done)).bytesWritten;
    }
  }

  read(bytes: Uint8Array, position: number): Promise<boolean> {
    return readFully(this.#part, bytes, position);
  }

  async digest(size: number, pieceBytes: number): Promise<Uint8Array> {
    const hash = createHash('sha256');
    const buffer = Buffer.allocUnsafe(pieceBytes);
    for (let at = 0; at < size; at += pieceBytes) {
      const bytes = buffer.subarray(0, Math.min(pieceBytes, size - at));
      if (!(await this.read(bytes, at))) break;
      hash.update(bytes);
    }
    return hash.digest();
  }

  sync(): Promise<void> {
    return this.#part.datasync();
  }

  append(text: string): Promise<void> {
    return this.#journal.appendFile(text);
  }

  async isNamed(): Promise<{ part: boolean; journal: boolean }> {
    const [part, journal] = await Promise.all([
      isNamed(this.#part, this.#path + PART_SUFFIX),
      isNamed(this.#journal, this.#path + JOURNAL_SUFFIX),
    ]);
    return { part, journal };
  }

  async complete(): Promise<void> {
    await this.close();
    await rename(this.#path + PART_SUFFIX, this.#path);
    syncDirectory(this.#directory);
    await rm(this.#path + JOURNAL_SUFFIX, { force: true });
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#part.close();
    await this.#journal.close();
  }

  discard(): Promise<void> {
    return discard(this.#path);
  }

  refusal(error: unknown): RefusalError {
    return fileRefusal(`the server cannot write ${this.#name}`, error);
  }
}

/** False: another program has removed or replaced the file. */
async function isNamed(file: FileHandle, path: string): Promise<boolean> {
  const [own, named] = await Promise.all([file.stat(), lstat(path).catch(() => undefined)]);
  return own.ino === named?.ino && own.dev === named.dev;
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
      if (!found.isFile())
        throw new RefusalError('EINVAL', `${path}${suffix} is not a file; remove it`);
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
    `${name} needs ${formatBytes(needed)}, the server's disk has ` +
      `${formatBytes(bavail * bsize)}; free some space there`,
  );
}
