/** Node has no origin private file system. */
import { RefusalError } from '../errors/errors.js';
import type { OpfsAnswer, OpfsRequest } from './transfer-thread.js';

/** Part of Worker that is used; the DOM's types are not here. */
export interface OpfsWorker {
  onmessage: ((event: { readonly data: OpfsAnswer }) => void) | null;
  onerror: ((event: { readonly message?: string; preventDefault(): void }) => void) | null;
  postMessage(message: OpfsRequest, transfer?: readonly ArrayBuffer[]): void;
  terminate(): void;
}

export function startOpfsWorker(): OpfsWorker {
  throw new RefusalError('EOPNOTSUPP', 'opfsStore: is for pages; in Node use directoryStore');
}
