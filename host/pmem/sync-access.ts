/**
 * Files of a browser's origin private file system, as a Worker reads and writes them: sync access
 * handles, whose calls block.
 */

/** Part of FileSystemSyncAccessHandle that is used; the DOM's types are not here. */
export interface SyncAccessHandle {
  read(bytes: Uint8Array, options: { readonly at: number }): number;
  write(bytes: Uint8Array, options: { readonly at: number }): number;
  truncate(bytes: number): void;
  getSize(): number;
  flush(): void;
  close(): void;
}

/** Name of the browser's error for a full disk or quota. */
export const QUOTA_ERROR = 'QuotaExceededError';
const LOCK_PAUSE_MILLIS = 50;

/**
 * Opens the file. A page that was closed releases its files a little later: waits for
 * `lockMillis`. Rejects with what the browser says.
 */
export async function openSyncAccess(
  file: { createSyncAccessHandle(): Promise<SyncAccessHandle> },
  lockMillis: number,
): Promise<SyncAccessHandle> {
  for (let waited = 0; ; waited += LOCK_PAUSE_MILLIS) {
    try {
      return await file.createSyncAccessHandle();
    } catch (error) {
      const isTaken = (error as Error).name === 'NoModificationAllowedError';
      if (!isTaken || waited >= lockMillis) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, LOCK_PAUSE_MILLIS));
  }
}

/** Throws what the browser says; QUOTA_ERROR if it writes nothing. */
export function writeAll(handle: SyncAccessHandle, bytes: Uint8Array, at: number): void {
  for (let done = 0; done < bytes.length;) {
    const count = handle.write(bytes.subarray(done), { at: at + done });
    if (count === 0) throw Object.assign(new Error('nothing was written'), { name: QUOTA_ERROR });
    done += count;
  }
}
