/** Part of the origin private file system that is used; the DOM's types are not here. */
import { RefusalError } from '../errors/errors.js';
import type { SyncAccessHandle } from '../pmem/sync-access.js';

export interface OpfsFileHandle {
  readonly kind: 'file';
  createSyncAccessHandle(): Promise<SyncAccessHandle>;
  getFile(): Promise<OpfsBlob>;
  move?(name: string): Promise<void>;
}

/** A File of the DOM. */
export interface OpfsBlob {
  readonly name: string;
  readonly size: number;
  readonly lastModified: number;
  slice(start?: number, end?: number): { arrayBuffer(): Promise<ArrayBuffer> };
  arrayBuffer(): Promise<ArrayBuffer>;
}

export interface OpfsDirectory {
  readonly kind: 'directory';
  getDirectoryHandle(name: string, options?: { readonly create: boolean }): Promise<OpfsDirectory>;
  getFileHandle(name: string, options?: { readonly create: boolean }): Promise<OpfsFileHandle>;
  removeEntry(name: string): Promise<void>;
  values(): AsyncIterable<(OpfsFileHandle | OpfsDirectory) & { readonly name: string }>;
}

interface StorageOrigin {
  readonly navigator?: {
    readonly storage?: {
      getDirectory?(): Promise<OpfsDirectory>;
      estimate?(): Promise<{ readonly quota?: number; readonly usage?: number }>;
    };
  };
}

const { navigator } = globalThis as StorageOrigin;

/** Creates it if it does not exist. Rejects with RefusalError EOPNOTSUPP, EACCES. */
export async function openOpfsDirectory(name: string): Promise<OpfsDirectory> {
  const { storage } = navigator ?? {};
  if (!storage?.getDirectory) {
    const rule = 'this page has no origin private file system';
    throw new RefusalError('EOPNOTSUPP', `opfsStore: ${rule}; serve it by HTTPS or from localhost`);
  }
  try {
    const root = await storage.getDirectory();
    return await root.getDirectoryHandle(name, { create: true });
  } catch (error) {
    const rule = `the browser refuses its private file system: ${(error as Error).message}`;
    const remedy = 'allow the site to store data, and leave private browsing';
    throw new RefusalError('EACCES', `opfsStore: ${rule}; ${remedy}`, { cause: error });
  }
}

/** Bytes that the origin may still store; undefined: the browser does not report the number. */
export async function freeBytes(): Promise<number | undefined> {
  const { quota, usage = 0 } = (await navigator?.storage?.estimate?.()) ?? {};
  return quota === undefined ? undefined : Math.max(0, quota - usage);
}

/** Undefined: no file has this name. */
export async function fileNamed(
  directory: OpfsDirectory,
  name: string,
): Promise<OpfsFileHandle | undefined> {
  try {
    return await directory.getFileHandle(name);
  } catch (error) {
    if ((error as Error).name === 'NotFoundError') return undefined;
    throw error;
  }
}

export async function removeFile(directory: OpfsDirectory, name: string): Promise<void> {
  try {
    await directory.removeEntry(name);
  } catch (error) {
    if ((error as Error).name !== 'NotFoundError') throw error;
  }
}
