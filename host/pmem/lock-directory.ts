/**
 * A lock that needs no native module: a directory NAME.lock of mode 0700 with a Unix socket at
 * which the owner listens. The lock ends with its process: the socket of a dead owner refuses
 * connections. No other user can take the lock, since no other user can create a directory that
 * belongs to this user.
 *
 * The directory is created under another name, with the listening socket in it, and then renamed:
 * rename(2) replaces only an empty directory. The socket's name is random, so that the removal of a
 * dead owner's socket can never remove the socket of a live owner.
 */
import {
  closeSync,
  constants,
  lstatSync,
  mkdtempSync,
  openSync,
  readdirSync,
  renameSync,
  rmdirSync,
  unlinkSync,
  type Dirent,
} from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { RefusalError } from '../errors/errors.js';
import { fileRefusal } from '../errors/file-refusal.js';

const SUFFIX = '.lock';
/** Length of sun_path on macOS, without the final 0 (unix(7)). */
const SOCKET_PATH_MAX = 103;
/** Attempts: another owner may take the lock and die between two of them. */
const ATTEMPTS = 100;

export class LockDirectory {
  readonly #path: string;
  readonly #fd: number;
  readonly #server: Server;

  private constructor(path: string, fd: number, server: Server) {
    this.#path = path;
    this.#fd = fd;
    this.#server = server;
  }

  /**
   * Locks the file `name`. Undefined: a live process holds the lock. Rejects with RefusalError:
   * EACCES (the directory cannot be created, or belongs to another user), EEXIST (a file of another
   * kind has its name), ENOSPC.
   */
  static async take(name: string): Promise<LockDirectory | undefined> {
    const path = name + SUFFIX;
    const prepared = makeDirectory(path);
    let lock: LockDirectory | undefined;
    try {
      lock = await LockDirectory.#listen(prepared);
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        if (isRenamed(prepared, path)) return new LockDirectory(path, lock.#fd, lock.#server);
        if (await clear(path)) break;
      }
    } catch (error) {
      lock?.release();
      if (!lock) rmdirSync(prepared);
      throw error;
    }
    lock.release();
    return undefined;
  }

  static async #listen(path: string): Promise<LockDirectory> {
    const fd = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY);
    try {
      const server = createServer((socket) => socket.destroy());
      await new Promise<void>((resolve, reject) => {
        server.once('error', (error) => reject(fileRefusal(`cannot lock ${path}`, error)));
        // A cluster worker listens by itself: its primary would outlive it.
        server.listen({ path: socketPath(fd, path, path.slice(-6)), exclusive: true }, resolve);
      });
      server.unref();
      return new LockDirectory(path, fd, server);
    } catch (error) {
      closeSync(fd);
      throw error;
    }
  }

  release(): void {
    // Closing the server removes the socket.
    this.#server.close();
    try {
      rmdirSync(this.#path);
    } catch {
      // The next owner has already replaced the directory.
    }
    closeSync(this.#fd);
  }
}

/** Does a live process hold the lock directory of the file `name`? */
export async function hasLiveOwner(name: string): Promise<boolean> {
  const path = name + SUFFIX;
  if (process.platform === 'win32' || !isOurs(path)) return false;
  for (const { name: socket } of entriesOf(path)) if (await answers(path, socket)) return true;
  return false;
}

function makeDirectory(path: string): string {
  try {
    return mkdtempSync(`${path}.`);
  } catch (error) {
    const refusal = fileRefusal(`cannot make the lock directory ${path}`, error);
    const { code, message } = refusal;
    const sentence = message.replace(` (${code})`, '');
    throw new RefusalError(code, `${sentence}; npm install koffi for locks without one`, {
      cause: error,
    });
  }
}

/** Renames the directory. False: the target exists and is not empty. */
function isRenamed(from: string, to: string): boolean {
  try {
    renameSync(from, to);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOTEMPTY' || code === 'EEXIST') return false;
    if (code === 'ENOTDIR') throw inTheWay(to);
    // In a directory like /tmp the target may belong to another user: `clear` throws the error.
    if ((code === 'EPERM' || code === 'EACCES') && isForeign(to)) return false;
    throw fileRefusal(`cannot make the lock directory ${to}`, error);
  }
}

/** Removes the sockets of dead owners. True: a live process holds the lock. */
async function clear(path: string): Promise<boolean> {
  if (!isOurs(path)) {
    const stat = lstatSync(path, { throwIfNoEntry: false });
    // Another process removed it meanwhile.
    if (!stat) return false;
    if (!stat.isDirectory()) throw inTheWay(path);
    const sentence = `${path} belongs to user ${stat.uid}: this user cannot lock the file`;
    throw new RefusalError('EACCES', `${sentence}; remove it, or npm install koffi`);
  }
  for (const entry of entriesOf(path)) {
    if (!entry.isSocket()) throw inTheWay(join(path, entry.name));
    if (await answers(path, entry.name)) return true;
    try {
      unlinkSync(join(path, entry.name));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
  }
  return false;
}

function inTheWay(path: string): RefusalError {
  const sentence = `${path} is in the way of the lock`;
  return new RefusalError('EEXIST', `${sentence}: remove it, or use another path`);
}

function isForeign(path: string): boolean {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  return stat !== undefined && stat.uid !== process.geteuid?.();
}

function isOurs(path: string): boolean {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  return stat !== undefined && stat.isDirectory() && stat.uid === process.geteuid?.();
}

function entriesOf(path: string): Dirent[] {
  try {
    return readdirSync(path, { withFileTypes: true });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw fileRefusal(`cannot read the lock directory ${path}`, error);
  }
}

/** Does a process listen at that socket? */
async function answers(path: string, socket: string): Promise<boolean> {
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
  try {
    return await new Promise<boolean>((resolve) => {
      const connection = connect(socketPath(fd, path, socket), () => {
        connection.destroy();
        resolve(true);
      });
      connection.once('error', ({ code }: NodeJS.ErrnoException) => {
        // All other errors mean that a process listens and is busy.
        resolve(code !== 'ECONNREFUSED' && code !== 'ENOENT');
      });
    });
  } finally {
    closeSync(fd);
  }
}

/** Uses the directory's descriptor in /proc on Linux, since a socket's path must be short. */
function socketPath(fd: number, directory: string, name: string): string {
  if (process.platform === 'linux') return `/proc/self/fd/${fd}/${name}`;
  const path = join(directory, name);
  if (Buffer.byteLength(path) <= SOCKET_PATH_MAX) return path;
  const sentence = `${path} is longer than the ${SOCKET_PATH_MAX} bytes of a socket's path`;
  throw new RefusalError('EINVAL', `${sentence}: use a shorter path`);
}
