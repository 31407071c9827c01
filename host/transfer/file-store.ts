/** Storage of received files. */
import type { FileVersion } from './journal.js';
import type { PartFile } from './part-file.js';

/** Where received files go: `directoryStore` in Node, `opfsStore` in a page. */
export interface FileStore {
  /** Before anything else. Rejects with RefusalError where nothing can be stored. */
  start?(): Promise<void>;
  /**
   * Opens what there is of this version of a file, or begins it; what there is of another version
   * is thrown away. The receiver has checked the name, and has at most one part of a name open.
   * Rejects with RefusalError, which the client receives: ENOSPC before anything was written, …
   */
  open(version: FileVersion): Promise<PartFile>;
  /** Removes unfinished files that expired, but for those in use. May reject. */
  expire(inUse: (name: string) => boolean): Promise<void>;
  /** Gives back what it holds, once no part is open. */
  close?(): Promise<void>;
}
