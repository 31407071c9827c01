/**
 * The file of a persistent region: created under another name, checked, locked, grown. Under its
 * own name it has all of its storage and a valid header, so opening repairs nothing.
 */
import {
  closeSync,
  constants,
  fdatasyncSync,
  fstatSync,
  fsync,
  ftruncateSync,
  lstatSync,
  openSync,
  read,
  readSync,
  realpathSync,
  renameSync,
  statSync,
  unlinkSync,
  write,
  writeSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { promisify } from 'node:util';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { systemRefusal } from '../errors/system-refusal.js';
import { PosixError, type Posix } from '../link/posix.js';
import {
  MAKE_PRIVATE,
  OPEN_PRIVATE,
  PRIVATE_MODE,
  checkLink,
  checkOwner,
} from '../link/private-file.js';
import { FileLock } from './file-lock.js';
import {
  DATA_OFFSET,
  HEADER_BYTES,
  VERSION,
  decodeHeader,
  encodeHeader,
  type PmemHeader,
} from './header.js';
import { evictPages } from './page-cache.js';
import type { Place } from './place.js';
import { syncDirectory, syncDirectoryOf } from './sync-directory.js';

const CHUNK = 1 << 20;
/** Attempts: other processes may create and remove the name between two of them. */
const ATTEMPTS = 10;
const { O_RDWR, O_RDONLY, O_NOCTTY } = constants;
const [readAsync, writeAsync, fsyncAsync] = [promisify(read), promisify(write), promisify(fsync)];

/** Judges the storage under a region by a descriptor on it. Throws RefusalError to refuse it. */
export type JudgePlace = (fd: number, path: string) => Place;

export class PmemFile {
  readonly path: string;
  readonly fd: number;
  readonly place: Place;
  readonly #lock: FileLock;
  #header: PmemHeader;

  private constructor(path: string, fd: number, place: Place, lock: FileLock, header: PmemHeader) {
    this.path = path;
    this.fd = fd;
    this.place = place;
    this.#lock = lock;
    this.#header = header;
  }

  /**
   * Opens the file, or creates it with `bytes` bytes; a smaller file grows to `bytes`. After that a
   * read returns the bytes on the medium. `newId`: id of a created file. Rejects with MisuseError
   * (no file, and no `bytes`); RefusalError ENOENT (no such directory), EACCES (another user can
   * access it), EISDIR, EINVAL (foreign), EPROTO (another version), EIO (truncated, damaged, not
   * readable), EBUSY (open already, or its pages are in use), ENOSPC; the errors of `judge`.
   */
  static async open(
    path: string,
    bytes: number | undefined,
    newId: bigint,
    posix: Posix | undefined,
    judge: JudgePlace,
  ): Promise<PmemFile> {
    try {
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        const opened = hasContent(path)
          ? await openExisting(path, bytes, posix, judge)
          : await make(path, bytes, newId, posix, judge);
        if (opened) return opened;
      }
    } catch (error) {
      throw refusalOf(error, path);
    }
    throw new RefusalError(
      'EBUSY',
      `${path} is replaced by other processes again and again: try again`,
    );
  }

  /** @internal Wraps a file with complete storage, header and lock. */
  static of(path: string, fd: number, place: Place, lock: FileLock, header: PmemHeader): PmemFile {
    return new PmemFile(path, fd, place, lock, header);
  }

  get header(): PmemHeader {
    return this.#header;
  }

  close(): void {
    this.#lock.release();
    closeSync(this.fd);
  }

  /** @internal Writes the storage first, then the header with the new length. */
  async grow(bytes: number): Promise<void> {
    const { dataOffset, length } = this.#header;
    try {
      await writeZeros(this.fd, dataOffset + length, dataOffset + bytes);
      await fsyncAsync(this.fd);
    } catch (error) {
      // This also drops the pages with a failed write-back.
      ftruncateSync(this.fd, dataOffset + length);
      throw error;
    }
    const header = { ...this.#header, length: bytes, generation: this.#header.generation + 1 };
    writeHeader(this.fd, header);
    fdatasyncSync(this.fd);
    this.#header = header;
  }
}

/** Opens an existing file. Undefined: another process has replaced it meanwhile. */
async function openExisting(
  path: string,
  bytes: number | undefined,
  posix: Posix | undefined,
  judge: JudgePlace,
): Promise<PmemFile | undefined> {
  checkLink(path);
  const fd = openSync(path, O_RDWR | O_NOCTTY);
  let lock: FileLock | undefined;
  try {
    checkFile(fd, path);
    checkOwner(fstatSync(fd), path);
    const name = realpathSync(path);
    lock = await FileLock.take(fd, name, posix);
    if (!isNamed(fd, name)) {
      lock.release();
      closeSync(fd);
      return undefined;
    }
    const place = judge(fd, path);
    const { version } = readHeader(fd, path);
    if (!place.isMemory) {
      await reachMedium(fd, path, version, posix);
    }
    // Read again: only the header on the medium counts.
    const header = readHeader(fd, path);
    const end = header.dataOffset + header.length;
    // A process died while it grew the file.
    if (fstatSync(fd).size > end) ftruncateSync(fd, end);
    syncDirectoryOf(name);
    const file = PmemFile.of(path, fd, place, lock, header);
    if (bytes !== undefined && bytes > header.length) await file.grow(bytes);
    return file;
  } catch (error) {
    lock?.release();
    closeSync(fd);
    throw error;
  }
}

/** Creates the file. Undefined: another process has created it meanwhile. */
async function make(
  path: string,
  length: number | undefined,
  id: bigint,
  posix: Posix | undefined,
  judge: JudgePlace,
): Promise<PmemFile | undefined> {
  if (length === undefined) {
    throw new MisuseError('bytes', `is required to create ${path}`);
  }
  const name = nameOf(path);
  const place = judgeDirectory(name, path, judge);
  const unfinished = `${name}.new`;
  let lock = await FileLock.takeName(name, posix);
  let fd: number;
  try {
    fd = await makeUnfinished(unfinished, name, lock, posix);
  } catch (error) {
    lock?.release();
    throw error;
  }
  try {
    checkOwner(fstatSync(fd), unfinished);
    lock ??= await FileLock.take(fd, name, posix);
    // Another process removed it as the leftover of a dead process.
    if (!isNamed(fd, unfinished)) {
      throw new RefusalError('EBUSY', `${path} is being made by another process: try again`);
    }
    if (hasContent(name)) {
      unlinkSync(unfinished);
      lock.release();
      closeSync(fd);
      return undefined;
    }
    const header = { version: VERSION, generation: 0, id, dataOffset: DATA_OFFSET, length };
    await writeZeros(fd, 0, DATA_OFFSET + length);
    writeHeader(fd, header);
    await fsyncAsync(fd);
    renameSync(unfinished, name);
    syncDirectory(dirname(name));
    return PmemFile.of(path, fd, place, lock, header);
  } catch (error) {
    // While this process holds the lock, no other process removes the file.
    const isOurs = lock !== undefined || FileLock.isOwn(fd, posix);
    if (isOurs && isNamed(fd, unfinished)) unlinkSync(unfinished);
    lock?.release();
    closeSync(fd);
    throw error;
  }
}

/** Creates NAME.new exclusively, so that it is no file of another process. */
async function makeUnfinished(
  unfinished: string,
  name: string,
  nameLock: FileLock | undefined,
  posix: Posix | undefined,
): Promise<number> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    try {
      return openSync(unfinished, MAKE_PRIVATE, PRIVATE_MODE);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    await removeUnfinished(unfinished, name, nameLock, posix);
  }
  throw new RefusalError('EBUSY', `${name} is being made by other processes: try again`);
}

/** Removes NAME.new of a dead process. Throws RefusalError if it is anything else. */
async function removeUnfinished(
  unfinished: string,
  name: string,
  nameLock: FileLock | undefined,
  posix: Posix | undefined,
): Promise<void> {
  const stat = lstatSync(unfinished, { throwIfNoEntry: false });
  if (!stat) return;
  if (!stat.isFile()) {
    const what = stat.isSymbolicLink() ? 'a symbolic link' : 'not a regular file';
    const sentence = `${unfinished}, the temporary name of ${name}, is ${what}`;
    throw new RefusalError('EACCES', `${sentence}: remove it, or use another path`);
  }
  checkOwner(stat, unfinished);
  let fd: number;
  try {
    fd = openSync(unfinished, OPEN_PRIVATE);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw error;
  }
  let lock: FileLock | undefined;
  try {
    checkOwner(fstatSync(fd), unfinished);
    if (!nameLock) lock = await FileLock.take(fd, name, posix);
    else if (FileLock.isLockedByOther(fd)) {
      throw new RefusalError('EBUSY', `${name} is being made by another process: try again`);
    }
    if (isNamed(fd, unfinished)) unlinkSync(unfinished);
  } finally {
    lock?.release();
    closeSync(fd);
  }
}

/** Resolves a symbolic link. Throws RefusalError ENOENT if its target does not exist. */
function nameOf(path: string): string {
  checkLink(path);
  const stat = lstatSync(path, { throwIfNoEntry: false });
  if (!stat?.isSymbolicLink()) return path;
  if (statSync(path, { throwIfNoEntry: false })) return realpathSync(path);
  const sentence = `${path} is a symbolic link to a file that does not exist`;
  throw new RefusalError('ENOENT', `${sentence}: remove it, or name the file itself`);
}

function judgeDirectory(name: string, path: string, judge: JudgePlace): Place {
  const fd = openSync(dirname(name), O_RDONLY);
  try {
    return judge(fd, path);
  } finally {
    closeSync(fd);
  }
}

/**
 * Ensures that every later read returns the bytes on the medium, also after a failed sync of an
 * earlier process. With koffi the file's pages are evicted from the page cache. Without koffi, or
 * if other programs hold pages, the whole file is written again. That suffices for a file of
 * version 2, since all of its storage was written before.
 */
async function reachMedium(
  fd: number,
  path: string,
  version: number,
  posix: Posix | undefined,
): Promise<void> {
  const left = posix && (await tryEvict(fd, posix));
  if (left === 0) return;
  if (version === VERSION) return rewrite(fd);
  if (left === undefined) {
    const sentence = `${path} was made by an earlier build, and without koffi its pages cannot be`;
    const remedy = 'npm install koffi, or copy its bytes into a new region';
    throw new RefusalError('EOPNOTSUPP', `${sentence} compared with the disk: ${remedy}`);
  }
  const sentence = `${path}: other programs use its pages, so the pages cannot be compared`;
  throw new RefusalError('EBUSY', `${sentence} with the disk: end them, and try again`);
}

/** Evicts the file's pages. Undefined: the system does not support it. */
async function tryEvict(fd: number, posix: Posix): Promise<number | undefined> {
  try {
    return await evictPages(fd, posix);
  } catch (error) {
    if (error instanceof PosixError) return undefined;
    throw error;
  }
}

/** Writes the same bytes again, so that pages marked clean after an error are written as well. */
async function rewrite(fd: number): Promise<void> {
  const chunk = Buffer.alloc(CHUNK);
  for (let at = 0; ;) {
    const { bytesRead } = await readAsync(fd, chunk, 0, chunk.length, at);
    if (bytesRead === 0) break;
    await writeAll(fd, chunk.subarray(0, bytesRead), at);
    at += bytesRead;
  }
  await fsyncAsync(fd);
}

function readHeader(fd: number, path: string): PmemHeader {
  const beginning = Buffer.alloc(HEADER_BYTES);
  const count = readSync(fd, beginning, 0, HEADER_BYTES, 0);
  return decodeHeader(beginning.subarray(0, count), fstatSync(fd).size, path);
}

/**
 * Writes zeros instead of preallocating: a later write then needs no free space, and no conversion
 * of an unwritten extent, which Linux does not repeat after a failure.
 */
async function writeZeros(fd: number, from: number, to: number): Promise<void> {
  const zeros = Buffer.alloc(Math.min(CHUNK, to - from));
  for (let at = from; at < to; at += zeros.length) {
    await writeAll(fd, zeros.subarray(0, Math.min(zeros.length, to - at)), at);
  }
}

async function writeAll(fd: number, bytes: Uint8Array, at: number): Promise<void> {
  for (let done = 0; done < bytes.length;) {
    const left = bytes.length - done;
    done += (await writeAsync(fd, bytes, done, left, at + done)).bytesWritten;
  }
}

function writeHeader(fd: number, header: PmemHeader): void {
  const { bytes, offset } = encodeHeader(header);
  writeSync(fd, bytes, 0, bytes.length, offset);
}

/** An empty file counts as absent: the caller may have created it to choose the name. */
function hasContent(path: string): boolean {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat !== undefined && (!stat.isFile() || stat.size > 0);
}

function isNamed(fd: number, path: string): boolean {
  const stat = lstatSync(path, { throwIfNoEntry: false, bigint: true });
  const { ino, dev } = fstatSync(fd, { bigint: true });
  return stat?.ino === ino && stat.dev === dev;
}

function checkFile(fd: number, path: string): void {
  const stat = fstatSync(fd);
  if (stat.isFile()) return;
  if (stat.isCharacterDevice() && path.startsWith('/dev/dax')) {
    const sentence = `${path}: a dax device is flushed by instructions that WebAssembly lacks`;
    const remedy = 'make it an fsdax namespace (ndctl create-namespace -m fsdax) and name a file';
    throw new RefusalError('EOPNOTSUPP', `${sentence}; ${remedy} on it`);
  }
  throw new RefusalError('EINVAL', `${path} must be a regular file: use another path`);
}

/** Error of the system, with the remedy. */
function refusalOf(error: unknown, path: string): Error {
  if (error instanceof RefusalError || error instanceof MisuseError) return error;
  const { code } = error as NodeJS.ErrnoException;
  const refusal = (name: RefusalError['code'], sentence: string): RefusalError =>
    new RefusalError(name, sentence, { cause: error });
  switch (code) {
    case 'EACCES':
    case 'EPERM':
      return refusal('EACCES', `this user may not write ${path}: use another path`);
    case 'EROFS':
      return refusal('EROFS', `${path} is on a read-only file system: name a file on another one`);
    case 'ENOENT':
    case 'ENOTDIR':
      return refusal('ENOENT', `${path}: there is no such directory; create it`);
    case 'EISDIR':
      return refusal('EISDIR', `${path} is a directory: name a file in it`);
    case 'ENOSPC':
    case 'EDQUOT':
    case 'EFBIG':
      return refusal('ENOSPC', `there is no room for ${path}: take fewer bytes, or another disk`);
    default:
      return systemRefusal(path, error) as Error;
  }
}
