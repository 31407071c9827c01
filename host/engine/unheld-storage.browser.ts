/** Stands in for unheld-storage.ts in a page: its memory has no file. */
export const releaseUnheld = (): boolean => false;
