/** Received files in a directory of Node's file system. */
import { resolve } from 'node:path';
import { checkKeys } from '../base/options.js';
import { MisuseError } from '../errors/errors.js';
import { openPartFile } from './directory-part.js';
import type { FileStore } from './file-store.js';
import type { FileVersion } from './journal.js';
import { EXPIRE_MILLIS, checkStoreLimits, systemMillis } from './limits.js';
import type { PartFile } from './part-file.js';
import { checkQuota, checkDirectory, removeUnfinished } from './served-directory.js';

/** Limits of a directory of received files. */
export interface DirectoryStoreOptions {
  /** Bytes of all files in the directory, finished or not. Default: what the disk has. */
  readonly quotaBytes?: number | undefined;
  /** Unfinished files that nothing was written to for so long are removed. Default: 7 days. */
  readonly expireMillis?: number | undefined;
}

export class DirectoryStore implements FileStore {
  readonly directory: string;
  readonly #options: DirectoryStoreOptions;

  private constructor(directory: string, options: DirectoryStoreOptions) {
    this.directory = resolve(directory);
    this.#options = options;
  }

  /** Rejects with MisuseError; RefusalError ENOENT, ENOTDIR, EACCES, EROFS. */
  static async open(
    directory: string,
    options: DirectoryStoreOptions = {},
  ): Promise<DirectoryStore> {
    checkKeys('directoryStore', options, 'quotaBytes expireMillis');
    if (typeof directory !== 'string' || directory === '' || directory.includes('\0')) {
      throw new MisuseError(
        'directory',
        `must be the path of a directory, got ${JSON.stringify(directory)}`,
      );
    }
    checkStoreLimits(options);
    await checkDirectory(directory);
    return new DirectoryStore(directory, options);
  }

  async open(version: FileVersion): Promise<PartFile> {
    const { quotaBytes } = this.#options;
    if (quotaBytes !== undefined) await checkQuota(this.directory, quotaBytes, version);
    return openPartFile(this.directory, version);
  }

  async expire(inUse: (name: string) => boolean): Promise<void> {
    const { expireMillis = EXPIRE_MILLIS } = this.#options;
    await removeUnfinished(this.directory, expireMillis, inUse, systemMillis());
  }
}
