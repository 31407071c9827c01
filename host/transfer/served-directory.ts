/** The quota of a served directory, and the removal of unfinished files that expired. */
import { constants } from 'node:fs';
import { access, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { RefusalError } from '../errors/errors.js';
import { fileRefusal } from '../errors/file-refusal.js';
import { JOURNAL_SUFFIX, PART_SUFFIX } from './file-name.js';
import { checkQuotaOf, expiredOf, type Unfinished } from './limits.js';

/** Unfinished files that no client puts at the moment. */
async function unfinishedIn(
  directory: string,
  inUse: (name: string) => boolean,
): Promise<Unfinished[]> {
  const found: Unfinished[] = [];
  for (const file of await readdir(directory)) {
    if (!file.endsWith(JOURNAL_SUFFIX)) continue;
    const name = file.slice(0, -JOURNAL_SUFFIX.length);
    if (inUse(name)) continue;
    const [journal, part] = await Promise.all(
      [file, name + PART_SUFFIX].map((each) =>
        stat(join(directory, each)).catch(() => ({ mtimeMs: 0, size: 0 })),
      ),
    );
    const changedMillis = Math.max(journal!.mtimeMs, part!.mtimeMs);
    found.push({ name, changedMillis, journalBytes: journal!.size });
  }
  return found;
}

/**
 * Removes unfinished files that no client puts: those that nothing was written to for
 * `expireMillis`, and the oldest ones beyond a limit. Returns their names.
 */
export async function removeUnfinished(
  directory: string,
  expireMillis: number,
  inUse: (name: string) => boolean,
  nowMillis: number,
): Promise<string[]> {
  const all = await unfinishedIn(directory, inUse);
  const gone = expiredOf(all, expireMillis, nowMillis);
  for (const { name } of gone) {
    // The journal first: a part without one is worth nothing.
    await rm(join(directory, name + JOURNAL_SUFFIX), { force: true });
    await rm(join(directory, name + PART_SUFFIX), { force: true });
  }
  return gone.map(({ name }) => name);
}

/** Throws RefusalError ENOSPC where `name` with `size` bytes does not fit. */
export async function checkQuota(
  directory: string,
  quotaBytes: number,
  { name, size }: { readonly name: string; readonly size: number },
): Promise<void> {
  let used = 0;
  for (const file of await readdir(directory)) {
    // `size` includes the existing part.
    if (file === name + PART_SUFFIX) continue;
    const found = await stat(join(directory, file)).catch(() => undefined);
    if (found?.isFile()) used += found.size;
  }
  checkQuotaOf({ name, size }, used, quotaBytes);
}

/** Rejects with RefusalError ENOENT, ENOTDIR; EACCES, EROFS where no file can be created. */
export async function checkDirectory(directory: string): Promise<void> {
  const { R_OK, W_OK, X_OK } = constants;
  try {
    if (!(await stat(directory)).isDirectory()) {
      throw Object.assign(new Error(), { code: 'ENOTDIR' });
    }
    await access(directory, R_OK | W_OK | X_OK);
  } catch (error) {
    const { code, message } = fileRefusal(`cannot serve ${directory}`, error);
    const sentence = message.replace(` (${code})`, '');
    const remedy = 'choose a directory that this user can write to (--dir)';
    throw new RefusalError(code, `${sentence}; ${remedy}`, { cause: error });
  }
}
