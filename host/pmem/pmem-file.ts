/**
 * The file of a persistent region: made whole under another name, judged, locked, grown. A file
 * under its name has its storage, all of it, and a header that holds; so opening repairs nothing.
 */
import {
  closeSync,
  constants,
  fdatasyncSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readSync,
  renameSync,
  statSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { systemRefusal } from '../errors/system-refusal.js';
import type { Posix } from '../link/posix.js';
import { FileLock } from './file-lock.js';
import {
  DATA_OFFSET,
  HEADER_BYTES,
  decodeHeader,
  encodeHeader,
  type PmemHeader,
} from './header.js';

const ZEROS = 1 << 20;
const { O_RDWR, O_CREAT } = constants;

export class PmemFile {
  readonly path: string;
  readonly fd: number;
  readonly #posix: Posix | undefined;
  readonly #lock: FileLock;
  #header: PmemHeader;

  private constructor(
    path: string,
    fd: number,
    posix: Posix | undefined,
    lock: FileLock,
    header: PmemHeader,
  ) {
    this.path = path;
    this.fd = fd;
    this.#posix = posix;
    this.#lock = lock;
    this.#header = header;
  }

  /**
   * Opens it, or makes it with `bytes` bytes; a smaller one grows to that. `newId`: of a file that
   * is made. Rejects with MisuseError (no file, and no `bytes`); RefusalError ENOENT (no such
   * directory), EACCES, EISDIR, EINVAL (foreign), EPROTO (another version), EIO (truncated,
   * damaged), EBUSY (open already), ENOSPC.
   */
  static async open(
    path: string,
    bytes: number | undefined,
    newId: bigint,
    posix: Posix | undefined,
  ): Promise<PmemFile> {
    if (!hasContent(path)) {
      if (bytes === undefined) {
        throw new MisuseError('bytes', `must be given where ${path} is to be made`);
      }
      return await make(path, bytes, newId, posix);
    }
    const fd = openFile(path, O_RDWR);
    let lock: FileLock | undefined;
    try {
      checkFile(fd, path);
      lock = await FileLock.take(fd, path, posix);
      const beginning = Buffer.alloc(HEADER_BYTES);
      const count = readSync(fd, beginning, 0, HEADER_BYTES, 0);
      const header = decodeHeader(beginning.subarray(0, count), fstatSync(fd).size, path);
      const file = new PmemFile(path, fd, posix, lock, header);
      if (bytes !== undefined && bytes > header.length) file.#grow(bytes);
      return file;
    } catch (error) {
      lock?.release();
      closeSync(fd);
      throw refusalOf(error, path);
    }
  }

  /** @internal Of a file that was made, and has its name now. */
  static of(
    path: string,
    fd: number,
    posix: Posix | undefined,
    lock: FileLock,
    header: PmemHeader,
  ): PmemFile {
    return new PmemFile(path, fd, posix, lock, header);
  }

  get header(): PmemHeader {
    return this.#header;
  }

  close(): void {
    this.#lock.release();
    closeSync(this.fd);
  }

  /** First the storage, then the header that says so. */
  #grow(bytes: number): void {
    const { dataOffset, length } = this.#header;
    allocate(this.fd, dataOffset + length, dataOffset + bytes, this.#posix);
    fsyncSync(this.fd);
    const header = { ...this.#header, length: bytes, generation: this.#header.generation + 1 };
    writeHeader(this.fd, header);
    fdatasyncSync(this.fd);
    this.#header = header;
  }
}

async function make(
  path: string,
  length: number,
  id: bigint,
  posix: Posix | undefined,
): Promise<PmemFile> {
  const unfinished = `${path}.new`;
  const fd = openFile(unfinished, O_RDWR | O_CREAT);
  let lock: FileLock | undefined;
  try {
    checkFile(fd, unfinished);
    lock = await FileLock.take(fd, path, posix);
    // Whoever made it meanwhile has renamed what we have opened.
    if (!isNamed(fd, unfinished)) {
      throw new RefusalError('EBUSY', `${path} is being made by another process: try again`);
    }
    // What was begun before and never finished is nobody's.
    ftruncateSync(fd, 0);
    const header = { generation: 0, id, dataOffset: DATA_OFFSET, length };
    allocate(fd, 0, DATA_OFFSET + length, posix);
    writeHeader(fd, header);
    fsyncSync(fd);
    renameSync(unfinished, path);
    syncDirectory(dirname(path));
    return PmemFile.of(path, fd, posix, lock, header);
  } catch (error) {
    if (lock && isNamed(fd, unfinished)) unlinkSync(unfinished);
    lock?.release();
    closeSync(fd);
    throw refusalOf(error, path);
  }
}

/** All of it: a hole that cannot be filled later kills whoever touches it through a mapping. */
function allocate(fd: number, from: number, to: number, posix: Posix | undefined): void {
  if (posix) {
    ftruncateSync(fd, to);
    posix.allocateFile(fd, to);
    return;
  }
  const zeros = Buffer.alloc(Math.min(ZEROS, to - from));
  for (let at = from; at < to;) {
    at += writeSync(fd, zeros, 0, Math.min(zeros.length, to - at), at);
  }
}

function writeHeader(fd: number, header: PmemHeader): void {
  const { bytes, offset } = encodeHeader(header);
  writeSync(fd, bytes, 0, bytes.length, offset);
}

/** The name, too, is to be there after a power cut. */
function syncDirectory(directory: string): void {
  if (process.platform === 'win32') return;
  const fd = openSync(directory, constants.O_RDONLY);
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/** An empty file counts for none: somebody chose the name. */
function hasContent(path: string): boolean {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat !== undefined && (!stat.isFile() || stat.size > 0);
}

function isNamed(fd: number, path: string): boolean {
  const stat = statSync(path, { throwIfNoEntry: false, bigint: true });
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
  throw new RefusalError('EINVAL', `${path} is no regular file`);
}

function openFile(path: string, flags: number): number {
  try {
    return openSync(path, flags, 0o600);
  } catch (error) {
    throw refusalOf(error, path);
  }
}

/** What the system says, with the remedy. */
function refusalOf(error: unknown, path: string): Error {
  if (error instanceof RefusalError || error instanceof MisuseError) return error;
  const { code } = error as NodeJS.ErrnoException;
  const refusal = (name: RefusalError['code'], sentence: string): RefusalError =>
    new RefusalError(name, sentence, { cause: error });
  switch (code) {
    case 'EACCES':
    case 'EPERM':
    case 'EROFS':
      return refusal('EACCES', `this user may not write ${path}`);
    case 'ENOENT':
    case 'ENOTDIR':
      return refusal('ENOENT', `${path}: there is no such directory`);
    case 'EISDIR':
      return refusal('EISDIR', `${path} is a directory`);
    case 'ENOSPC':
    case 'EDQUOT':
    case 'EFBIG':
      return refusal('ENOSPC', `there is no room for ${path}: take fewer bytes, or another disk`);
    default:
      return systemRefusal(path, error) as Error;
  }
}
