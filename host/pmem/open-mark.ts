/**
 * A mark NAME.open beside a file that a process writes. It exists from before the first write until
 * the file was closed with everything synced. If a process finds it, an earlier sync may have
 * failed, and the page cache may differ from the medium (page-cache.ts). The mark need not be
 * durable: the page cache does not survive a power cut either.
 */
import { closeSync, lstatSync, openSync, rmSync } from 'node:fs';
import { RefusalError } from '../errors/errors.js';
import { fileRefusal } from '../errors/file-refusal.js';
import { MAKE_PRIVATE, PRIVATE_MODE, checkOwner } from '../link/private-file.js';

const SUFFIX = '.open';

export class OpenMark {
  private constructor(
    readonly path: string,
    /** True: an earlier process did not close the file. */
    readonly wasThere: boolean,
  ) {}

  /** Sets the mark of the file `name`, locked by the caller. Throws RefusalError EACCES, ENOSPC. */
  static put(name: string): OpenMark {
    const path = name + SUFFIX;
    try {
      closeSync(openSync(path, MAKE_PRIVATE, PRIVATE_MODE));
      return new OpenMark(path, false);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') {
        throw fileRefusal(`cannot create the mark ${path}`, error);
      }
    }
    const stat = lstatSync(path);
    if (!stat.isFile())
      throw new RefusalError('EACCES', `${path} is not a regular file: remove it`);
    checkOwner(stat, path);
    return new OpenMark(path, true);
  }

  /** Removes the mark: everything is synced. */
  remove(): void {
    rmSync(this.path, { force: true });
  }
}
