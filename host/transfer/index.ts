/// <reference types="node" preserve="true" />
/// <reference lib="esnext.disposable" preserve="true" />
/** `verbena/transfer`: files to and from programs and pages. */
import type { FileStore } from './file-store.js';
import { DirectoryStore, type DirectoryStoreOptions } from './directory-store.js';

export * from './shared-index.js';
export type { DirectoryStoreOptions };

/**
 * Keeps received files in a directory, unfinished ones as NAME.part and NAME.part.journal. Rejects
 * with RefusalError ENOENT, ENOTDIR, EACCES, EROFS.
 */
export function directoryStore(
  directory: string,
  options: DirectoryStoreOptions = {},
): Promise<FileStore> {
  return DirectoryStore.open(directory, options);
}
