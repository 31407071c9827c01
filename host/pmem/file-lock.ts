/**
 * Who has a region open is told by the kernel: a lock that ends with its process and with nothing
 * else. With koffi it is a lock of the open file; a name among abstract sockets (elsewhere a pipe,
 * or a socket file) is one that needs no native module, and holds where that is absent.
 */
import { fstatSync, unlinkSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { RefusalError } from '../errors/errors.js';
import type { Posix } from '../link/posix.js';

/** Behind the end of any file. */
const LOCK_OFFSET = 2 ** 53 - 2 ** 21;

export class FileLock {
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  /** Rejects with RefusalError EBUSY: somebody else has it. The lock on `fd` ends with `fd`. */
  static async take(fd: number, path: string, posix: Posix | undefined): Promise<FileLock> {
    if (posix && !posix.lockByte(fd, LOCK_OFFSET)) throw taken(path);
    const { dev, ino } = fstatSync(fd, { bigint: true });
    const name = socketName(`verbena-pmem-${dev}-${ino}`);
    const server = (await listen(name)) ?? (isFile(name) ? await replace(name) : undefined);
    if (!server) throw taken(path);
    return new FileLock(server);
  }

  release(): void {
    this.#server.close();
  }
}

function taken(path: string): RefusalError {
  const sentence = `${path} is open already, here or in another process`;
  return new RefusalError('EBUSY', `${sentence}: close it there first`);
}

function socketName(name: string): string {
  if (process.platform === 'linux') return `\0${name}`;
  if (process.platform === 'win32') return `\\\\.\\pipe\\${name}`;
  return join(tmpdir(), `${name}.sock`);
}

function isFile(name: string): boolean {
  return name.startsWith('/');
}

/** Undefined: the name is taken. */
function listen(name: string): Promise<Server | undefined> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy());
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') resolve(undefined);
      else reject(new RefusalError('EIO', `the lock: ${error.message}`, { cause: error }));
    });
    server.listen(name, () => {
      server.unref();
      resolve(server);
    });
  });
}

/** A socket file outlives its process: nobody answers there. */
async function replace(name: string): Promise<Server | undefined> {
  const isAlive = await new Promise<boolean>((resolve) => {
    const socket = connect(name, () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
  if (isAlive) return undefined;
  unlinkSync(name);
  return listen(name);
}
