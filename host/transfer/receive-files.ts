/** `receiveFiles`: accepts what `putFile` and `verbena put` send. */
import { checkKeys, checkObject } from '../base/options.js';
import type { AuthOptions } from '../cm/auth-option.js';
import { checkMember } from '../errors/check-member.js';
import { checkFunction, checkWhole } from '../errors/check-whole.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { Context } from '../verbs/context.js';
import { FileReceiver, type FileReceiverEvents } from './file-receiver.js';
import type { FileStore } from './file-store.js';

/** A file that is complete. */
export interface ReceivedFile {
  readonly name: string;
  readonly bytes: number;
  /** Hexadecimal; the file was read back. */
  readonly sha256: string;
  readonly seconds: number;
  /** Address of the sender. */
  readonly remote: string;
}

/** A transfer that ended before the file was complete. */
export interface UnfinishedFile {
  readonly name: string;
  readonly bytes: number;
  readonly remote: string;
  /** Pieces that are stored: the next transfer of the same file goes on from there. */
  readonly piecesKept: number;
  /** `code`: ECONNRESET where the sender left; else that of the failure, EIO by default. */
  readonly error: RefusalError;
}

/** How `receiveFiles` receives. */
export interface ReceiveFilesOptions {
  /** The device; it stays open when the receiver is closed. */
  readonly context: Context;
  /** `opfsStore()` in a page, `directoryStore(path)` in Node. `receiver.close()` closes it. */
  readonly store: FileStore;
  /** Keys, of which each sender must prove one. Default: none. Not in a page (DTLS). */
  readonly auth?: AuthOptions;
  /** Senders at the same time. Default: 4. */
  readonly clientsMax?: number;
  /** Device memory of each sender; besides it takes 1.5 MiB. Default: 4 MiB. */
  readonly windowBytes?: number;
  /** A file is complete and stored. */
  readonly onFile?: (file: ReceivedFile) => void;
  /** Bytes of a file that have arrived, with those of earlier connections. */
  readonly onProgress?: (file: { name: string; bytes: number; totalBytes: number }) => void;
  readonly onUnfinished?: (file: UnfinishedFile) => void;
  /** A sender was refused, or left without a request. */
  readonly onRefused?: (remote: string, error: Error) => void;
}

/** Receiver that `receiveFiles` returns. */
export interface FilesReceiver {
  /** Files that arrive now. */
  readonly count: number;
  /** Ends every transfer; the pieces that have arrived are kept. Closes the store. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

type Callbacks = Pick<ReceiveFilesOptions, 'onFile' | 'onProgress' | 'onUnfinished' | 'onRefused'>;

const CLIENTS_MAX = 4;
const CLIENTS_LIMIT = 128;
const WINDOW_BYTES = 2 ** 22;
const WINDOW_BYTES_MIN = 65_536;
const WINDOW_BYTES_MAX = 2 ** 28;
const OPTIONS =
  'context store auth clientsMax windowBytes onFile onProgress onUnfinished onRefused' as const;

/**
 * Receives files into `store` until it is closed. One sender at a time has a name; another one with
 * the same name is refused with EBUSY. Rejects with MisuseError; RefusalError EADDRINUSE (this
 * device receives files already), EOPNOTSUPP, EACCES (a page that may store nothing).
 */
export async function receiveFiles(options: ReceiveFilesOptions): Promise<FilesReceiver> {
  checkObject('receiveFiles', options, 'options');
  checkKeys('receiveFiles', options, OPTIONS);
  const { context, store, auth, clientsMax = CLIENTS_MAX, windowBytes = WINDOW_BYTES } = options;
  checkMember('context', context, 'allocPd', 'a context of openDevice');
  if (typeof store?.open !== 'function') {
    throw new MisuseError('store', 'is required: opfsStore() in a page, directoryStore() in Node');
  }
  checkWhole('clientsMax', clientsMax, 1, CLIENTS_LIMIT);
  checkWhole('windowBytes', windowBytes, WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
  const how = { context, store, auth, clientsMax, windowBytes };
  const receiver = await FileReceiver.open(how, eventsOf(options));
  return {
    get count() {
      return receiver.clientCount;
    },
    close: () => receiver.close(),
    [Symbol.asyncDispose]: () => receiver.close(),
  };
}

/** An exception of a callback is the program's: it stays uncaught, and the sender sees nothing. */
function guarded(options: ReceiveFilesOptions): Callbacks {
  const guard =
    <Given extends unknown[]>(call: (...given: Given) => void) =>
    (...given: Given): void => {
      try {
        call(...given);
      } catch (error) {
        queueMicrotask(() => {
          throw error;
        });
      }
    };
  const { onFile, onProgress, onUnfinished, onRefused } = options;
  const calls = { onFile, onProgress, onUnfinished, onRefused };
  for (const [name, call] of Object.entries(calls)) checkFunction(name, call);
  const wrapped = Object.entries(calls).flatMap(([name, call]) =>
    call === undefined ? [] : [[name, guard(call as (...given: unknown[]) => void)] as const],
  );
  return Object.fromEntries(wrapped) as Callbacks;
}

function eventsOf(options: ReceiveFilesOptions): FileReceiverEvents {
  const { onFile, onProgress, onUnfinished, onRefused } = guarded(options);
  return {
    started: () => undefined,
    arrived: ({ name, size, pieceBytes }, pieces) => {
      const bytes = Math.min(size, pieces * pieceBytes);
      onProgress?.({ name, bytes, totalBytes: size });
    },
    ended: ({ name, size: bytes }, remote, end) => {
      if (end.kind === 'finished') {
        const { sha256, seconds } = end;
        return onFile?.({ name, bytes, sha256, seconds, remote });
      }
      const error = end.kind === 'failed' ? end.error : new RefusalError('ECONNRESET', end.reason);
      onUnfinished?.({ name, bytes, remote, piecesKept: end.piecesSynced, error });
    },
    refused: (remote, error) => onRefused?.(remote, error as Error),
  };
}
