/** Exports of `verbena/transfer` in Node and in a page. */
export { putFile, type PutFileOptions, type PutFileResult } from './put-file.js';
export type { ReceiverAddress } from './put-file.js';
export { receiveFiles } from './receive-files.js';
export type {
  FilesReceiver,
  ReceiveFilesOptions,
  ReceivedFile,
  UnfinishedFile,
} from './receive-files.js';
export type { BlobLike } from './blob-source.js';
export type { FileStore } from './file-store.js';
