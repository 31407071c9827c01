/**
 * Files that hold data of a user. In a directory that others may write to (/tmp), another user can
 * create the name first: as a file of that user, or as a link to a file of this user. So a new file
 * is created exclusively (O_EXCL), the last component of a path is not followed as a link
 * (O_NOFOLLOW), an existing file must belong to this user, and its mode is 0600.
 */
import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  ftruncateSync,
  lstatSync,
  openSync,
  type Stats,
} from 'node:fs';
import { RefusalError } from '../errors/errors.js';

const { O_RDWR, O_WRONLY, O_CREAT, O_EXCL } = constants;
/** 0 on Windows, which has no such flag and no numeric owner. */
const O_NOFOLLOW = constants.O_NOFOLLOW ?? 0;

export const PRIVATE_MODE = 0o600;
/** Flags of open(2): EEXIST if the name exists. */
export const MAKE_PRIVATE = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;
/** Flags of open(2): ELOOP if the name is a symbolic link. */
export const OPEN_PRIVATE = O_RDWR | O_NOFOLLOW;
/** Mode bits: write permission of the group and of others. */
export const GROUP_OR_OTHERS = 0o022;
export const OTHERS = 0o002;

/**
 * Checks that the file with that stat belongs to this user. `writers`: mode bits that the file must
 * not have. Throws RefusalError EACCES.
 */
export function checkOwner(
  { uid, mode }: Pick<Stats, 'uid' | 'mode'>,
  path: string,
  writers = GROUP_OR_OTHERS,
): void {
  const user = process.geteuid?.();
  if (user === undefined) return;
  if (uid !== user) {
    const sentence = `${path} belongs to user ${uid}, and this process runs as user ${user}`;
    const remedy = 'a data file must belong to its user: remove it, or use another path';
    throw new RefusalError('EACCES', `${sentence}; ${remedy}`);
  }
  if ((mode & writers) === 0) return;
  const sentence = `${path} has mode ${(mode & 0o7777).toString(8)}: other users may write to it`;
  throw new RefusalError('EACCES', `${sentence}; chmod go-w, or use another path`);
}

/**
 * Checks a symbolic link: it is followed only if this user or root created it, since its creator
 * chooses the target. Throws RefusalError EACCES.
 */
export function checkLink(path: string): void {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  if (!stat?.isSymbolicLink()) return;
  const user = process.geteuid?.();
  if (user === undefined || stat.uid === user || stat.uid === 0) return;
  const sentence = `${path} is a symbolic link of user ${stat.uid}`;
  throw new RefusalError('EACCES', `${sentence}: remove it, or name the file itself`);
}

/**
 * Opens a file for overwriting: creates it with mode 0600, or truncates it if this user owns it. A
 * pipe, a terminal or another device is opened unchanged. Throws RefusalError EACCES, and the
 * system's error.
 */
export function overwritePrivate(path: string): number {
  try {
    return openSync(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, PRIVATE_MODE);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  checkLink(path);
  const before = lstatSync(path);
  // A pipe of another user would block this process in open(2).
  if (!before.isSymbolicLink()) checkWritable(before, path);
  const fd = openSync(path, O_WRONLY);
  try {
    const stat = fstatSync(fd);
    checkWritable(stat, path);
    if (stat.isFile()) {
      ftruncateSync(fd, 0);
      fchmodSync(fd, PRIVATE_MODE);
    }
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** True: a device, which root owns. */
function checkWritable(stat: Stats, path: string): void {
  if (stat.isFile()) checkOwner(stat, path);
  else if (!stat.isDirectory() && stat.uid !== 0) checkOwner(stat, path, 0);
}
