/**
 * The file that the processes of a named device share: opened or created, validated, and locked.
 *
 * Kernel locks, which end with their process and with nothing else, show which processes live: one
 * byte per slot, far behind the file's end. Two more bytes are the lock of the arena's tables and
 * the lock for attaching and detaching.
 */
import { createHash, randomInt } from 'node:crypto';
import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readFileSync,
  readSync,
} from 'node:fs';
import { ftruncateSync, readdirSync, rmSync, unlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  DEVICE_HEADER_SIZE,
  DEVICE_MAGIC_COUNT,
  DEVICE_VERSION_COUNT,
  DeviceHeaderLayout,
} from '#build/abi.js';
import { timerMillis } from '../../base/timer.js';
import { engineFile } from '../../engine/load.js';
import { structAt, type Struct } from '../../engine/struct.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { systemRefusal } from '../../errors/system-refusal.js';
import type { HugePages } from './huge-pages.js';
import { PosixError, type Posix } from '../../link/posix.js';

/** Prefix of the names of device files. */
const PREFIX = 'verbena-';
/** A file of 8 PiB has no bytes here. */
const LOCKS = 2 ** 53 - 2 ** 20;
const JOIN = LOCKS;
const TABLES = LOCKS + 1;
const SLOTS = LOCKS + 16;
const SLOTS_MAX = 256;
/** Of the block count of a file (stat(2)). */
const STAT_BLOCK_BYTES = 512;
/** The kernel may refuse a lock for want of memory, and grant it at once on a second attempt. */
const LOCK_ATTEMPTS = 3;
/** Dozens of processes that start together join one after the other, on a busy machine as well. */
const JOIN_MILLIS_MAX = 60_000;
const JOIN_RETRY_MILLIS = 2;
const JOIN_RETRY_MILLIS_MAX = 50;

export type DeviceHeader = Struct<typeof DeviceHeaderLayout>;

export class DeviceFile {
  readonly path: string;
  readonly posix: Posix;
  readonly #fd: number;
  #joined = true;
  #closed = false;
  /** The buffer as well: its address is ours as long as it lives. */
  #mapped:
    | { readonly buffer: ArrayBufferLike; readonly address: number; readonly bytes: number }
    | undefined;

  private constructor(path: string, posix: Posix, fd: number) {
    this.path = path;
    this.posix = posix;
    this.#fd = fd;
  }

  /** Its number may be another file's once it is closed. Throws MisuseError. */
  get #openFile(): number {
    if (this.#closed) throw new MisuseError('device', 'is closed; open another');
    return this.#fd;
  }

  /**
   * Opens the file of that name, or creates an empty one; no other process attaches or detaches
   * until `leave`. A file without a living process is replaced. Throws RefusalError: EACCES
   * (another user's), EINVAL (foreign), EBUSY (another process holds the lock for attaching too
   * long), ENOENT (no such directory).
   */
  static async open(posix: Posix, name: string, directory: string): Promise<DeviceFile> {
    if (typeof name !== 'string' || !/^[A-Za-z0-9._-]{1,64}$/.test(name)) {
      const found = typeof name === 'string' ? JSON.stringify(name) : String(name);
      const rule = 'must be 1 to 64 letters, digits, dots, dashes and underscores';
      throw new MisuseError('name', `${rule}, got ${found}`);
    }
    const path = join(directory, PREFIX + name);
    for (;;) {
      const { fd, isNew } = openFile(path);
      try {
        await lockJoin(posix, fd, path);
        const { nlink, size } = fstatSync(fd);
        checkOwner(posix, fd, path);
        const alive = asked(path, () => posix.isLocked(fd, SLOTS, SLOTS_MAX));
        if (nlink > 0 && (size === 0 || alive)) return new DeviceFile(path, posix, fd);
        if (nlink > 0 && checkMagic(fd, path)) unlinkSync(path);
      } catch (error) {
        // EBUSY: another process uses the file. Other errors: no process does.
        if (isNew && (error as RefusalError).code !== 'EBUSY') rmSync(path, { force: true });
        closeSync(fd);
        throw error;
      }
      // The file was removed before this process locked it, or all its processes are dead.
      closeSync(fd);
    }
  }

  /** Bytes; 0: it was just made. */
  get size(): number {
    return fstatSync(this.#openFile).size;
  }

  /**
   * Gives a new file its size, and its first bytes storage. Throws RefusalError ENOSPC.
   */
  allocate(bytes: number, first: number): void {
    const remedy =
      'use fewer (memoryBytes), another directory (directory), a larger /dev/shm ' +
      '(docker run --shm-size), or more huge pages (vm.nr_hugepages) if it is on hugetlbfs';
    this.#grow(first, remedy, () => ftruncateSync(this.#openFile, bytes));
  }

  /** May parts of the file have no storage yet? */
  get isSparse(): boolean {
    const { blocks, size } = fstatSync(this.#openFile);
    return blocks * STAT_BLOCK_BYTES < size;
  }

  /**
   * Gives a range of the file storage, before any use: a hole that cannot be filled would kill the
   * process that touches it. Throws RefusalError ENOSPC.
   */
  commit(offset: number, bytes: number): void {
    const remedy =
      'the file system is full; free memory of the device (heap.trim gives back free memory of ' +
      'heaps) or files there, or make it larger ' +
      '(docker run --shm-size, vm.nr_hugepages)';
    this.#grow(bytes, remedy, () => undefined, offset);
  }

  /** Gives the storage of a range back, if the file system can: it is zeros. */
  release(offset: number, bytes: number): void {
    try {
      this.posix.punchHole(this.#openFile, offset, bytes);
    } catch (error) {
      if (!(error instanceof PosixError)) throw error;
    }
  }

  #grow(bytes: number, remedy: string, before: () => void, offset = 0): void {
    try {
      before();
      this.posix.allocateFile(this.#openFile, bytes, offset);
    } catch (error) {
      const { code } = error as PosixError;
      if (code !== 'ENOSPC' && code !== 'EFBIG' && code !== 'ENOMEM' && code !== 'EDQUOT')
        throw error;
      throw new RefusalError('ENOSPC', `no room for ${bytes} bytes at ${this.path}: ${remedy}`, {
        cause: error,
      });
    }
  }

  /**
   * Maps the whole file over memory from `offset` on, until `close`. `stored`: bytes that this process
   * has allocated. Throws RefusalError ENOMEM: no huge pages are free, or the address
   * is not a multiple of their size.
   */
  map(
    buffer: ArrayBufferLike,
    offset: number,
    bytes: number,
    stored: number,
    pages?: HugePages,
  ): void {
    const address = this.posix.addressOf(buffer) + offset;
    // Opened once more: a mapping keeps its descriptor's locks as long as it lasts itself.
    const fd = openSync(`/proc/self/fd/${this.#openFile}`, constants.O_RDWR);
    try {
      this.posix.mapFile(fd, address, bytes);
      this.#mapped = { buffer, address, bytes };
      if (pages?.isAdvised) {
        this.posix.adviseHugePages(address, bytes);
        // They were allocated without a mapping that is advised. An older kernel collapses later.
        if (stored > 0) this.posix.collapsePages(address, stored);
      }
    } catch (error) {
      if (!pages || !(error instanceof PosixError)) throw error;
      throw new RefusalError(
        'ENOMEM',
        `hugePages: ${bytes} bytes at ${this.path} in pages of ${pages.bytes} were refused ` +
          `(${error.code}): use fewer (memoryBytes), or raise vm.nr_hugepages`,
        { cause: error },
      );
    } finally {
      closeSync(fd);
    }
  }

  /** The header of a file that others live in. Throws RefusalError EINVAL, EPROTO, EIO. */
  readHeader(): DeviceHeader {
    return readHeader(this.#openFile, this.path);
  }

  /** Locks that slot for this process. False: another process has it. */
  takeSlot(slot: number): boolean {
    return this.#lock(SLOTS + slot);
  }

  /** Unlocks that slot. */
  releaseSlot(slot: number): void {
    this.#unlock(SLOTS + slot);
  }

  /** True if another process has that slot. */
  isAlive(slot: number): boolean {
    const fd = this.#openFile;
    return asked(this.path, () => slotIsAlive(this.posix, fd, slot));
  }

  /** Does another process use this file? */
  get isShared(): boolean {
    const fd = this.#openFile;
    return asked(this.path, () => this.posix.isLocked(fd, SLOTS, SLOTS_MAX));
  }

  /** Does a process live in another slot than these? */
  hasOthers(own: readonly number[]): boolean {
    for (let slot = 0; slot < SLOTS_MAX; slot++) {
      if (!own.includes(slot) && this.isAlive(slot)) return true;
    }
    return false;
  }

  /** The lock of the tables, which `arena-lock.ts` makes more of. */
  tryLockTables(): boolean {
    return this.#lock(TABLES);
  }

  unlockTables(): void {
    this.#unlock(TABLES);
  }

  /** Keeps others from coming and going, until `leave`. Rejects with RefusalError EBUSY. */
  async join(): Promise<void> {
    await lockJoin(this.posix, this.#openFile, this.path);
    this.#joined = true;
  }

  /** The same at once, or not: false. */
  tryJoin(): boolean {
    if (this.#joined || !this.#lock(JOIN)) return false;
    this.#joined = true;
    return true;
  }

  leave(): void {
    this.#joined = false;
    this.#unlock(JOIN);
  }

  /** Removes the name: the next process that opens the device creates a new file. */
  remove(): void {
    unlinkSync(this.path);
  }

  /**
   * All locks end, and the mapping: its storage is the system's again at once, and not when the
   * buffer is collected. What was mapped reads as zeros.
   */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    try {
      if (this.#mapped) this.posix.unmapFile(this.#mapped.address, this.#mapped.bytes);
    } finally {
      closeSync(this.#fd);
    }
  }

  #lock(offset: number): boolean {
    const fd = this.#openFile;
    return asked(this.path, () => this.posix.lockByte(fd, offset));
  }

  #unlock(offset: number): void {
    const fd = this.#openFile;
    asked(this.path, () => this.posix.unlockByte(fd, offset));
  }
}

/**
 * Removes the device files of a directory that have no living process: otherwise they would occupy
 * storage until the machine restarts. Files of other users, foreign files and files that are being
 * opened or closed stay. Returns the removed paths.
 */
export function removeDeadFiles(posix: Posix, directory: string): string[] {
  const removed: string[] = [];
  let names: string[];
  try {
    names = readdirSync(directory).filter((name) => name.startsWith(PREFIX));
  } catch {
    return removed;
  }
  for (const name of names) {
    const path = join(directory, name);
    if (removeDeadFile(posix, path)) removed.push(path);
  }
  return removed;
}

function removeDeadFile(posix: Posix, path: string): boolean {
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDWR | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch {
    return false;
  }
  try {
    checkOwner(posix, fd, path);
    // While this process holds the lock, no other process removes or replaces the name.
    if (!posix.lockByte(fd, JOIN)) return false;
    const { nlink, size } = fstatSync(fd);
    if (nlink === 0 || size === 0 || posix.isLocked(fd, SLOTS, SLOTS_MAX)) return false;
    if (!checkMagic(fd, path)) return false;
    unlinkSync(path);
    return true;
  } catch {
    // No permission, or the kernel has no lock now: the next process tries again.
    return false;
  } finally {
    closeSync(fd);
  }
}

let ownBuild: bigint | undefined;

/** Of the engine that this process runs: all of a device run the same. */
export function buildHash(): bigint {
  ownBuild ??= createHash('sha256')
    .update(readFileSync(engineFile(true)))
    .digest()
    .readBigUInt64LE(0);
  return ownBuild;
}

/** Does a living process have that slot? */
export function slotIsAlive(posix: Posix, fd: number, slot: number): boolean {
  return posix.isLocked(fd, SLOTS + slot);
}

/** FNV-1a over the fields before the checksum. */
export function headerChecksum(bytes: Uint8Array): number {
  let hash = 0x811c9dc5;
  for (const byte of bytes.subarray(0, DeviceHeaderLayout.fields.checksum[0])) {
    hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  }
  return hash;
}

/** The file of that name; `isNew`: we have made it. */
function openFile(path: string): { readonly fd: number; readonly isNew: boolean } {
  const { O_RDWR, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  for (let isNew = true; ; isNew = !isNew) {
    try {
      const fd = openSync(path, O_RDWR | O_NOFOLLOW | (isNew ? O_CREAT | O_EXCL : 0), 0o600);
      return { fd, isNew };
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // It came, or went, between two looks.
      if (code === (isNew ? 'EEXIST' : 'ENOENT')) continue;
      throw refusalOf(error as NodeJS.ErrnoException, path);
    }
  }
}

function refusalOf(error: NodeJS.ErrnoException, path: string): RefusalError {
  const { code, message } = error;
  if (code === 'EACCES' || code === 'EPERM' || code === 'EROFS') {
    const owner = lstatSync(path, { throwIfNoEntry: false })?.uid;
    const whose = owner === undefined ? '' : `: it belongs to user ${owner}`;
    const sentence = `open ${path}: this user may not${whose}; take another name or directory`;
    return new RefusalError('EACCES', sentence, { cause: error });
  }
  if (code === 'ENOENT' || code === 'ENOTDIR') {
    const isThere = lstatSync(dirname(path), { throwIfNoEntry: false }) !== undefined;
    const sentence = isThere
      ? `open ${path}: no file can be created there; pass another directory`
      : `open ${path}: the directory does not exist; create it`;
    return new RefusalError('ENOENT', sentence, { cause: error });
  }
  if (code === 'ELOOP' || code === 'EISDIR' || code === 'ENXIO') {
    return new RefusalError(
      'EINVAL',
      `${path} is not a device file; remove it, or use another name`,
      { cause: error },
    );
  }
  if (code === 'ENOSPC') {
    return new RefusalError('ENOSPC', `open ${path}: the file system is full; free some space`, {
      cause: error,
    });
  }
  return new RefusalError('EIO', message, { cause: error });
}

/**
 * Answer of the kernel to a question about the locks of a file. Throws RefusalError, mostly ENOLCK,
 * if every attempt is refused.
 */
function asked<Answer>(path: string, question: () => Answer): Answer {
  for (let attempt = 1; ; attempt++) {
    try {
      return question();
    } catch (error) {
      if (attempt === LOCK_ATTEMPTS) throw systemRefusal(path, error);
    }
  }
}

async function lockJoin(posix: Posix, fd: number, path: string): Promise<void> {
  const end = performance.now() + JOIN_MILLIS_MAX;
  let pause = JOIN_RETRY_MILLIS;
  while (!asked(path, () => posix.lockByte(fd, JOIN))) {
    if (performance.now() > end) {
      throw new RefusalError(
        'EBUSY',
        `open ${path}: another process has been opening or closing it for ` +
          `${JOIN_MILLIS_MAX / 1000} s; end that process`,
      );
    }
    // Many that wait would take the processor from the one that they wait for; and if all looked at
    // the same moment, the lock would be free for as long as they pause.
    await sleep(timerMillis(randomInt(pause / 2, pause * 1.5)));
    pause = Math.min(pause * 2, JOIN_RETRY_MILLIS_MAX);
  }
}

function checkOwner(posix: Posix, fd: number, path: string): void {
  const stat = fstatSync(fd);
  if (!stat.isFile())
    throw new RefusalError(
      'EINVAL',
      `${path} is not a device file; remove it, or use another name`,
    );
  if (stat.uid !== posix.effectiveUser) {
    throw new RefusalError('EACCES', `${path} belongs to user ${stat.uid}: a device has one user`);
  }
  if ((stat.mode & 0o077) !== 0) {
    const mode = (stat.mode & 0o777).toString(8);
    throw new RefusalError('EACCES', `${path} is open to others (mode ${mode}): chmod 600 it`);
  }
}

function readBytes(fd: number): Buffer {
  const bytes = Buffer.alloc(DEVICE_HEADER_SIZE);
  readSync(fd, bytes, 0, DEVICE_HEADER_SIZE, 0);
  return bytes;
}

function headerIn(bytes: Buffer): DeviceHeader {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return structAt({ view }, DeviceHeaderLayout, 0);
}

/** Throws RefusalError EINVAL for a foreign file. False: the file is empty. */
function checkMagic(fd: number, path: string): boolean {
  const bytes = readBytes(fd);
  if (bytes.every((byte) => byte === 0)) return true;
  if (headerIn(bytes).magic === DEVICE_MAGIC_COUNT) return true;
  throw new RefusalError('EINVAL', `${path} is not a device file; remove it, or use another name`);
}

/** Throws RefusalError EINVAL, EPROTO, EIO. */
export function readHeader(fd: number, path: string): DeviceHeader {
  checkMagic(fd, path);
  const bytes = readBytes(fd);
  const header = headerIn(bytes);
  if (header.version !== DEVICE_VERSION_COUNT || header.build !== buildHash()) {
    throw new RefusalError(
      'EPROTO',
      `${path} belongs to another build of Verbena: all processes of a device must run the same`,
    );
  }
  if (header.ready !== 1 || header.checksum !== headerChecksum(bytes)) {
    throw new RefusalError(
      'EIO',
      `${path} is damaged: end its processes, and the next one creates it anew`,
    );
  }
  const { size } = fstatSync(fd);
  if (size !== header.fileBytes) {
    const sentence = `${path} has ${size} bytes, not the ${header.fileBytes} that its header names`;
    throw new RefusalError(
      'EIO',
      `${sentence}: end its processes, and the next one creates it anew`,
    );
  }
  return header;
}
