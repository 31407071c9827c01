/**
 * Ensures that a read returns the bytes on the medium. After a failed write-back Linux keeps the
 * pages, marks them clean, and reports the error once per open file (Documentation: errseq_t). A
 * later sync has nothing to write and succeeds, and a read returns bytes that the medium does not
 * have. A page over an unwritten extent is worse: Linux may write it again without the conversion
 * that failed, and a remount finds zeros. So the page cache of a file is not trusted at open: an
 * earlier process may have ended because of a failed sync.
 */
import { fdatasync, fstatSync } from 'node:fs';
import { promisify } from 'node:util';
import type { Posix } from '../link/posix.js';

const syncData = promisify(fdatasync);

/** Pages under write-back, or in a per-processor list, become evictable a moment later. */
const ATTEMPTS = 6;
const PAUSE_MILLIS = 20;
/** Bytes mapped at a time to count their pages: 256 Ki pages of 4 KiB. */
const WINDOW_BYTES = 2 ** 30;

/**
 * Writes the dirty pages of a file, evicts all pages from the page cache, and returns the number of
 * remaining pages. 0: every later read comes from the medium. More: another program maps or reads
 * the file. Rejects with the system's error if dirty pages cannot be written at the second attempt
 * either.
 */
export async function evictPages(fd: number, posix: Posix): Promise<number> {
  for (let attempt = 1; ; attempt++) {
    // The error may stem from an earlier process: Linux reports it once.
    const failure = await syncData(fd).then(
      () => undefined,
      (error: unknown) => error,
    );
    posix.dropCache(fd);
    const left = await countPages(fd, posix);
    if (left === 0 && failure === undefined) return 0;
    if (attempt === ATTEMPTS) {
      if (failure !== undefined) throw failure;
      return left;
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MILLIS));
  }
}

async function countPages(fd: number, posix: Posix): Promise<number> {
  const { size } = fstatSync(fd);
  const { pageBytes } = posix;
  let count = 0;
  for (let at = 0; at < size && count === 0; at += WINDOW_BYTES) {
    count += posix.cachedPages(fd, at, Math.min(WINDOW_BYTES, size - at), pageBytes);
    // A large file has many windows: yield to the event loop.
    await new Promise((resolve) => setImmediate(resolve));
  }
  return count;
}
