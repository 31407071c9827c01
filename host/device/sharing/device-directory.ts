/**
 * The directory for the files of devices: one of the user's own in /dev/shm. Each user may create
 * names in /dev/shm itself, so another user could create the name of a device first and keep it.
 * XDG_RUNTIME_DIR is no alternative: it ends with the user's last login, and processes of one user
 * may have different ones, or none.
 */
import { chmodSync, lstatSync, mkdirSync, mkdtempSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { RefusalError } from '../../errors/errors.js';

export const SHARED_MEMORY = '/dev/shm';
/** Names that another user takes between two looks. */
const ATTEMPTS_MAX = 16;
const MODE = 0o700;

/**
 * The user's directory in `place`; created, with mode 0700, if it does not exist. If another user
 * has its name, a suffix follows. All processes of the user find the same directory, the oldest.
 * Throws RefusalError: ENOENT (`place` does not exist), EACCES, ENOSPC.
 */
export function deviceDirectory(user: number, place = SHARED_MEMORY): string {
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    // Looked up after each creation: another process may have created one at the same time.
    const found = findDeviceDirectory(user, place);
    if (found !== undefined) return found;
    create(join(place, `verbena-${user}`), attempt > 0);
  }
  const sentence = `${place}: other users took ${ATTEMPTS_MAX} directory names of user ${user}`;
  throw new RefusalError('EACCES', `${sentence}; pass another one (option directory)`);
}

/** Finds that directory without creating it; undefined if the user has no directory. */
export function findDeviceDirectory(user: number, place = SHARED_MEMORY): string | undefined {
  const own = namesIn(place)
    .filter((name) => isNameOf(name, user))
    .flatMap((name) => judge(join(place, name), user));
  const [oldest] = own.sort((a, b) =>
    a.bornNanos === b.bornNanos ? compare(a.path, b.path) : a.bornNanos < b.bornNanos ? -1 : 1,
  );
  return oldest?.path;
}

function isNameOf(name: string, user: number): boolean {
  const base = `verbena-${user}`;
  return name.startsWith(base) && /^(\.[0-9A-Za-z]{6})?$/.test(name.slice(base.length));
}

interface Own {
  readonly path: string;
  readonly bornNanos: bigint;
}

/** Empty: it is no directory of this user. */
function judge(path: string, user: number): Own[] {
  const stat = lstatSync(path, { bigint: true, throwIfNoEntry: false });
  if (!stat?.isDirectory() || stat.uid !== BigInt(user)) return [];
  // Only its owner can change the mode; files in it are checked for themselves.
  if ((stat.mode & 0o077n) !== 0n) chmodSync(path, MODE);
  return [{ path, bornNanos: stat.birthtimeNs }];
}

function namesIn(place: string): string[] {
  try {
    return readdirSync(place);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const name = code === 'EACCES' ? 'EACCES' : 'ENOENT';
    const sentence = `${place} cannot be read (${code}): pass another place (option directory)`;
    throw new RefusalError(name, sentence, { cause: error });
  }
}

/** `isTaken`: another user has this name, and a suffix follows. */
function create(path: string, isTaken: boolean): void {
  try {
    if (isTaken) mkdtempSync(`${path}.`);
    else mkdirSync(path, { mode: MODE });
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') return;
    const name = code === 'ENOSPC' || code === 'EDQUOT' ? 'ENOSPC' : 'EACCES';
    const sentence = `cannot create the directory ${path}: ${message}; pass another one`;
    throw new RefusalError(name, `${sentence} (option directory)`, { cause: error });
  }
}

function compare(a: string, b: string): number {
  return a < b ? -1 : 1;
}
