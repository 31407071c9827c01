/**
 * The lock of the process that has a file open. It ends when that process ends, and not before.
 * With koffi it is a lock of the open file description (fcntl(2), F_OFD_SETLK): only a process with
 * permission to open the file can take it. Without koffi it is a directory NAME.lock beside the
 * file (lock-directory.ts).
 *
 * Both kinds exclude each other: a process takes its own kind, then checks for the other kind. Of
 * two processes that do this at the same time, at least one detects the other.
 */
import { fstatSync, readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { RefusalError } from '../errors/errors.js';
import type { Posix } from '../link/posix.js';
import { LockDirectory, hasLiveOwner } from './lock-directory.js';

/** Behind the end of any file. */
const LOCK_OFFSET = 2 ** 53 - 2 ** 21;

export class FileLock {
  /** Undefined: the lock ends when the descriptor is closed. */
  readonly #release: (() => void) | undefined;

  private constructor(release?: () => void) {
    this.#release = release;
  }

  /**
   * Locks the file `fd` with the name `path`. Rejects with RefusalError: EBUSY (another process or
   * this one holds the lock), EACCES, ENOSPC (the lock directory cannot be created). With koffi the
   * lock lasts until the descriptor and all mappings made with it are closed.
   */
  static async take(fd: number, path: string, posix: Posix | undefined): Promise<FileLock> {
    if (posix) {
      if (!posix.lockByte(fd, LOCK_OFFSET)) throw taken(path);
      if (await hasLiveOwner(path)) throw taken(path);
      return new FileLock();
    }
    const { dev, ino, nlink } = fstatSync(fd, { bigint: true });
    if (process.platform === 'win32') {
      const pipe = await listenAt(`\\\\.\\pipe\\verbena-pmem-${dev}-${ino}`);
      if (!pipe) throw taken(path);
      return new FileLock(() => pipe.close());
    }
    if (nlink > 1n) {
      const sentence = `${path} has ${nlink} names (hard links), and without koffi a lock covers one name`;
      throw new RefusalError('EBUSY', `${sentence}: remove the others, or npm install koffi`);
    }
    const directory = await LockDirectory.take(path);
    if (!directory) throw taken(path);
    if (isDescriptorLocked(dev, ino)) {
      directory.release();
      throw taken(path);
    }
    return new FileLock(() => directory.release());
  }

  /**
   * Locks the name `path` before the file is created, so that a process that fails leaves no file.
   * Undefined with koffi and on Windows: there the new file itself is locked.
   */
  static async takeName(path: string, posix: Posix | undefined): Promise<FileLock | undefined> {
    if (posix || process.platform === 'win32') return undefined;
    const directory = await LockDirectory.take(path);
    if (!directory) throw taken(path);
    return new FileLock(() => directory.release());
  }

  /** Does a process with koffi hold the lock of the file `fd`? */
  static isLockedByOther(fd: number): boolean {
    const { dev, ino } = fstatSync(fd, { bigint: true });
    return isDescriptorLocked(dev, ino);
  }

  /** Does this process hold the kernel's lock of the file `fd`? */
  static isOwn(fd: number, posix: Posix | undefined): boolean {
    return posix?.lockByte(fd, LOCK_OFFSET) ?? false;
  }

  release(): void {
    this.#release?.();
  }
}

function taken(path: string): RefusalError {
  const sentence = `${path} is open already, here or in another process`;
  return new RefusalError('EBUSY', `${sentence}: close it there first`);
}

/**
 * Does a process with koffi hold the lock of that inode? A line of /proc/locks: `1: OFDLCK ADVISORY
 * WRITE -1 fe:00:12 0 0`. The device numbers of Btrfs and overlayfs there differ from stat(2); the
 * major number is 0 in both.
 */
function isDescriptorLocked(dev: bigint, ino: bigint): boolean {
  let locks: string;
  try {
    locks = readFileSync('/proc/locks', 'latin1');
  } catch {
    // Processes with koffi exist only on Linux.
    return false;
  }
  const wanted = majorMinor(dev);
  const pattern = /: OFDLCK +ADVISORY +WRITE +\S+ ([0-9a-f]+):([0-9a-f]+):(\d+) (\d+) /g;
  for (const [, major = '', minor = '', inode = '', start = ''] of locks.matchAll(pattern)) {
    if (Number(start) !== LOCK_OFFSET || BigInt(inode) !== ino) continue;
    const found = [parseInt(major, 16), parseInt(minor, 16)];
    if (found[0] === 0 && wanted[0] === 0) return true;
    if (found[0] === wanted[0] && found[1] === wanted[1]) return true;
  }
  return false;
}

/** Splits a device number as makedev(3) of glibc and musl composes it. */
function majorMinor(dev: bigint): [major: number, minor: number] {
  const major = ((dev >> 8n) & 0xfffn) | ((dev >> 32n) & 0xfffff000n);
  const minor = (dev & 0xffn) | ((dev >> 12n) & 0xffffff00n);
  return [Number(major), Number(minor)];
}

/** Listens at `path`; undefined: another process does. A cluster worker listens by itself. */
function listenAt(path: string): Promise<Server | undefined> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy());
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') resolve(undefined);
      else reject(new RefusalError('EIO', `the lock: ${error.message}`, { cause: error }));
    });
    server.listen({ path, exclusive: true }, () => {
      server.unref();
      resolve(server);
    });
  });
}
