/** `verbena/transfer` in a page. */
export * from './shared-index.js';
export { opfsStore, type OpfsStore, type OpfsStoreOptions } from './opfs-store.js';
export type { OpfsBlob } from './opfs-directory.js';
