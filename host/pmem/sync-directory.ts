/** Syncs a directory: a file's name is durable after a sync of its directory. */
import { closeSync, constants, fsyncSync, openSync } from 'node:fs';
import { dirname } from 'node:path';

/** Throws the system's error. */
export function syncDirectory(directory: string): void {
  // On Windows a directory cannot be opened.
  if (process.platform === 'win32') return;
  const fd = openSync(directory, constants.O_RDONLY);
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/**
 * Syncs the directory of an existing file: the process that created the name may have died before
 * its sync. Ignores a directory without read permission, or on a file system without such a sync.
 */
export function syncDirectoryOf(path: string): void {
  try {
    syncDirectory(dirname(path));
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (!['EACCES', 'EPERM', 'EINVAL', 'ENOTSUP', 'EOPNOTSUPP'].includes(code)) throw error;
  }
}
