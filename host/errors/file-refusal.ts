/** Refusals by the file system, which name the file. */
import { getSystemErrorMap } from 'node:util';
import { RefusalError, type ErrnoName } from './errors.js';

/** Codes of the system under the name that our refusals have for them. */
const CODES: Readonly<Record<string, ErrnoName>> = {
  ENOENT: 'ENOENT',
  ENOTDIR: 'ENOTDIR',
  EACCES: 'EACCES',
  EPERM: 'EPERM',
  EROFS: 'EROFS',
  EISDIR: 'EISDIR',
  EEXIST: 'EEXIST',
  ENOSPC: 'ENOSPC',
  EDQUOT: 'ENOSPC',
  EFBIG: 'ENOSPC',
  EBUSY: 'EBUSY',
  EMFILE: 'EMFILE',
  ENFILE: 'ENFILE',
};

const SENTENCES: Partial<Record<ErrnoName, string>> = {
  ENOENT: 'no such file or directory',
  EACCES: 'permission denied',
  EPERM: 'not permitted',
  EISDIR: 'is a directory',
  ENOTDIR: 'not a directory',
  EROFS: 'the file system is mounted read-only',
  ENOSPC: 'no room left on the disk',
  EBUSY: 'is busy',
  EMFILE: 'this process has as many files open as it may (ulimit -n)',
  ENFILE: 'the system has as many files open as it may (fs.file-max)',
};

const NOT_UTF8 = 'its name is not UTF-8 (U+FFFD replaces other bytes); rename the file';

/** `what` is the subject: `cannot write NAME`. Errors that are refusals already stay as they are. */
export function fileRefusal(what: string, error: unknown): RefusalError {
  if (error instanceof RefusalError) return error;
  const { code = '', errno = 0, message } = error as NodeJS.ErrnoException;
  const known = CODES[code];
  // The message of Node has the whole path, which a peer must not see.
  const [, said] = getSystemErrorMap().get(errno) ?? [];
  const isUtf8 = code !== 'ENOENT' || !what.includes('\ufffd');
  const why = isUtf8 ? ((known && SENTENCES[known]) ?? said ?? message) : NOT_UTF8;
  return new RefusalError(known ?? 'EIO', `${what}: ${why}`, { cause: error });
}
