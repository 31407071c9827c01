/** Files of secrets: no other user may read them. */
import { readFile, stat } from 'node:fs/promises';
import { fileRefusal } from '../../errors/file-refusal.js';
import { RefusalError } from '../../errors/errors.js';

const GROUP_AND_OTHERS = 0o077;

/** The text of a file. Rejects with RefusalError EACCES if other users may read it, ENOENT. */
export async function readPrivateFile(path: string, what: string): Promise<string> {
  try {
    const { mode } = await stat(path);
    if (process.platform !== 'win32' && (mode & GROUP_AND_OTHERS) !== 0) {
      const others = `other users may read ${path} (mode ${(mode & 0o777).toString(8)})`;
      throw new RefusalError('EACCES', `${others}: chmod 600 it, and choose another ${what}`);
    }
    return await readFile(path, 'utf8');
  } catch (error) {
    throw fileRefusal(`cannot read the ${what} in ${path}`, error);
  }
}
