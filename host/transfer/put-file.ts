/** `putFile`: a file into the store of a receiver, by RDMA WRITE. */
import { checkKeys, checkObject } from '../base/options.js';
import { TIMER_MILLIS_MAX, checkMillis } from '../base/timer.js';
import { checkLimits } from '../base/wait-limits.js';
import type { AuthOptions } from '../cm/auth-option.js';
import type { ConnectError } from '../cm/connect-error.js';
import { RejectReason } from '../cm/enums.js';
import { checkMember } from '../errors/check-member.js';
import { checkFunction, checkWhole, mustBe } from '../errors/check-whole.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { ROCE_PORT } from '../link/link.js';
import type { Context } from '../verbs/context.js';
import type { BlobLike } from './blob-source.js';
import { checkFileName } from './file-name.js';
import { openSource } from './open-source.js';
import { PIECE_BYTES_MAX, PIECE_BYTES_MIN } from './piece-bytes.js';
import { formatServerAddress, type ServerAddress } from './server-address.js';
import { Transfer } from './transfer.js';

/** The address of a receiver: a host or GID as text, or an endpoint of `link.peers`. */
export type ReceiverAddress = string | { readonly gid: { toString(): string } };

/** How `putFile` puts a file. */
export interface PutFileOptions {
  /** The device. It needs 8 pieces of free memory, and 512 KiB. */
  readonly context: Context;
  /** Name at the receiver. Default: that of the File, or the last one of the path. */
  readonly name?: string;
  /** UDP port of the receiver's device. Default: 4791; data channels have none. */
  readonly udpPort?: number;
  /** The key of the receiver. Default: none. */
  readonly auth?: AuthOptions;
  /** Bytes of a piece, 4 KiB to 16 MiB. Default: 256 KiB. */
  readonly pieceBytes?: number;
  /** Reconnects without progress before the transfer fails. Default: 5, */
  readonly retries?: number;
  /** and milliseconds without progress; both must be exhausted. Default: 60,000. */
  readonly outageMillis?: number;
  /** Ends the transfer; the receiver keeps its pieces. `putFile` rejects with its reason. */
  readonly signal?: AbortSignal;
  /** `bytes` of `totalBytes` are at the receiver. */
  readonly onProgress?: (bytes: number, totalBytes: number) => void;
  /** Something that the user should know: a lost connection, pieces of an earlier run. */
  readonly onNote?: (sentence: string) => void;
}

/** Result of `putFile`. */
export interface PutFileResult {
  readonly name: string;
  readonly bytes: number;
  /** Hexadecimal. The receiver has read the file back and found the same. */
  readonly sha256: string;
  readonly seconds: number;
  readonly piecesSent: number;
  /** Pieces that the receiver had from an earlier run. */
  readonly piecesSkipped: number;
  readonly reconnects: number;
}

const PIECE_BYTES = 2 ** 18;
const RETRIES = 5;
const OUTAGE_MILLIS = 60_000;
const OPTIONS =
  'context name udpPort auth pieceBytes retries outageMillis signal onProgress onNote' as const;

/**
 * Puts `file` (in Node also a path) into the store of `receiver`, and resolves when the receiver
 * has read it back and its SHA-256 is equal. A lost connection is made again, and the transfer goes
 * on; after a rejection the next call goes on from the receiver's pieces. `receiver` may be a
 * function, called before each connection: a page that was reloaded has another address. Rejects
 * with MisuseError; RefusalError: EINVAL (name), ECONNREFUSED, ETIMEDOUT, ECONNRESET, EACCES, the
 * receiver's (EBUSY, EAGAIN, ENOSPC, EIO), EBUSY (the file changed); the reason of `signal`.
 */
export async function putFile(
  receiver: ReceiverAddress | (() => ReceiverAddress | Promise<ReceiverAddress>),
  file: BlobLike | string,
  options: PutFileOptions,
): Promise<PutFileResult> {
  checkOptions(file, options);
  const { context, auth, udpPort = ROCE_PORT, pieceBytes = PIECE_BYTES } = options;
  const { retries = RETRIES, outageMillis = OUTAGE_MILLIS, onProgress, onNote } = options;
  const signal = options.signal ?? new AbortController().signal;
  const source = await openSource(file, options.name, pieceBytes);
  const { name, size } = source;
  try {
    checkFileName(name);
    const transfer = new Transfer(
      {
        ...{ context, file: source, auth, retries, outageMillis, signal },
        server: async () => ({
          host: hostOf(typeof receiver === 'function' ? await receiver() : receiver),
          port: udpPort,
        }),
        explain,
        remedy: 'check that it still receives files',
      },
      {
        progress: (bytes) => onProgress?.(bytes, size),
        verifying: () => undefined,
        note: (sentence) => onNote?.(sentence),
      },
    );
    const { sha256, seconds, piecesSent, piecesSkipped, reconnects } = await transfer.run();
    return { name, bytes: size, sha256, seconds, piecesSent, piecesSkipped, reconnects };
  } finally {
    await source.close();
  }
}

/** Throws MisuseError. */
function hostOf(address: ReceiverAddress): string {
  const host = typeof address === 'string' ? address : address?.gid?.toString();
  if (typeof host === 'string' && host !== '') return host;
  const rule = 'must be a host or a GID as text, or an endpoint of link.peers';
  throw new MisuseError('receiver', `${rule}, got ${host === '' ? 'no text' : typeof address}`);
}

function checkOptions(file: BlobLike | string, options: PutFileOptions): void {
  checkObject('putFile', options, 'options');
  checkKeys('putFile', options, OPTIONS);
  checkMember('context', options.context, 'allocPd', 'a context of openDevice');
  const isBlob = typeof file === 'object' && typeof file?.slice === 'function';
  if (typeof file !== 'string' && !(isBlob && Number.isSafeInteger(file.size) && file.size >= 0)) {
    const remedy = 'new Blob([bytes]) makes one of bytes';
    throw new MisuseError('file', `must be a Blob, a File, or a path in Node; ${remedy}`);
  }
  if (options.name !== undefined && typeof options.name !== 'string') {
    throw mustBe('name', 'text', options.name);
  }
  checkLimits(options.signal === undefined ? {} : { signal: options.signal });
  checkFunction('onProgress', options.onProgress);
  checkFunction('onNote', options.onNote);
  const { pieceBytes = PIECE_BYTES, retries = RETRIES, outageMillis = OUTAGE_MILLIS } = options;
  checkWhole('pieceBytes', pieceBytes, PIECE_BYTES_MIN, PIECE_BYTES_MAX);
  checkWhole('retries', retries, 0, TIMER_MILLIS_MAX);
  checkMillis('outageMillis', outageMillis);
}

function explain(error: ConnectError, server: ServerAddress): unknown {
  const place = formatServerAddress(server);
  const refusal = (rule: string): RefusalError =>
    new RefusalError(error.code, `putFile: ${rule}`, { cause: error });
  if (error.reason === RejectReason.INVALID_SERVICE_ID) {
    return refusal(`${place} receives no files; call receiveFiles, or start "verbena serve" there`);
  }
  if (error.code === 'ETIMEDOUT') {
    return refusal(`no answer from ${place}; check that it is connected, and its address`);
  }
  return refusal(`${place}: ${error.message.replace(` (${error.code})`, '')}`);
}
