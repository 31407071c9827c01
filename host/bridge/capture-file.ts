/** The file of --pcap: one process at a time writes to it. */
import { closeSync, constants, fstatSync, lstatSync, openSync, realpathSync } from 'node:fs';
import { RefusalError } from '../errors/errors.js';
import { pcapFile, type PcapSink } from '../link/capture/pcap.js';
import { loadPosix, type Posix } from '../link/posix.js';

const { O_CREAT, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_WRONLY } = constants;
const PRIVATE_MODE = 0o600;
/** Behind the end of any capture. */
const LOCK_OFFSET = 2 ** 53 - 1;

/** A descriptor of a regular file, which is created; undefined: `pcapFile` decides about others. */
function openRegular(path: string): number | undefined {
  try {
    return openSync(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, PRIVATE_MODE);
  } catch {
    // It exists, or cannot be created.
  }
  try {
    const file = realpathSync(path);
    // Opening a pipe has an effect.
    if (!lstatSync(file).isFile()) return undefined;
    const fd = openSync(file, O_WRONLY | O_NONBLOCK | O_NOFOLLOW);
    if (fstatSync(fd).isFile()) return fd;
    closeSync(fd);
  } catch {
    // pcapFile reports it.
  }
  return undefined;
}

function takeLock(posix: Posix | undefined, fd: number): boolean {
  try {
    return posix?.lockByte(fd, LOCK_OFFSET) ?? true;
  } catch {
    // A file system without locks.
    return true;
  }
}

/**
 * `pcapFile` with a lock until the sink is closed or this process ends. Rejects with RefusalError
 * EBUSY if another process has it, and then leaves the file as it is.
 */
export async function openCapture(path: string): Promise<PcapSink> {
  const { posix } = await loadPosix();
  let lock = openRegular(path);
  const release = (): void => {
    if (lock !== undefined) closeSync(lock);
    lock = undefined;
  };
  try {
    if (lock !== undefined && !takeLock(posix, lock)) {
      throw new RefusalError(
        'EBUSY',
        `--pcap: another process writes its capture to ${path}; name another file`,
      );
    }
    const sink = pcapFile(path);
    return { ...sink, close: () => sink.close().finally(release) };
  } catch (error) {
    release();
    throw error;
  }
}
