/** What the file system refuses, as a refusal that names the file. */
import { RefusalError, type ErrnoName } from './errors.js';

/** Codes of the system under the name that our refusals have for them. */
const CODES: Readonly<Record<string, ErrnoName>> = {
  ENOENT: 'ENOENT',
  ENOTDIR: 'ENOENT',
  EACCES: 'EACCES',
  EPERM: 'EPERM',
  EROFS: 'EACCES',
  EISDIR: 'EISDIR',
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
  ENOSPC: 'no room left on the disk',
  EBUSY: 'is busy',
  EMFILE: 'this process has as many files open as it may (ulimit -n)',
  ENFILE: 'the system has as many files open as it may (fs.file-max)',
};

/** `what` is the subject: `cannot write NAME`. Errors that are refusals already stay as they are. */
export function fileRefusal(what: string, error: unknown): RefusalError {
  if (error instanceof RefusalError) return error;
  const { code = '', message } = error as NodeJS.ErrnoException;
  const known = CODES[code];
  const why = (known && SENTENCES[known]) ?? message;
  return new RefusalError(known ?? 'EIO', `${what}: ${why}`, { cause: error });
}
