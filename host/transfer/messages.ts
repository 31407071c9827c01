/**
 * Messages between client and server by SEND, at most 512 bytes; pieces travel by WRITE. Numbers
 * are big-endian. The guide (COMMANDS.md) has the conversation.
 * ```
 *            0        1        2        4                8           12
 *   PIECE    | 1      | 0      | slot   | piece index    | length    | CRC-32 of the piece |
 *            | early: 4 bytes |
 *   END      | 2      | 0      | 0      | SHA-256 of the file, 32 bytes …
 *   ABANDON  | 3      | 0      | 0      |
 *   ALIVE    | 4      | 0      | 0      |
 *   PUT      | 5      | 0      | 0      | bytes of a piece | size, mtime in ns: 8 bytes each |
 *            | transfer, 16 bytes | name: UTF-8 …
 *   WRITTEN  | 16     | 0      | slot   | piece index    |
 *   DONE     | 17     | 0      | 0      | SHA-256 of the file, 32 bytes …
 *   FAILED   | 18     | 0      | 0      | code, space, sentence: UTF-8 …
 *   READY    | 19     | 0      | slots  | rkey           | address: 8 bytes      |
 *            | pieces there    | rkey of their bits      | address of their bits | note: UTF-8 …
 * ```
 */
import { RefusalError, type ErrnoName } from '../errors/errors.js';
import { textOf } from './bytes.js';

export const MESSAGE_BYTES_MAX = 512;
const HEADER_BYTES = 4;

/** Pieces in flight at most. */
export const SLOTS_MAX = 8;

/** Client: the file with this version. The first message of a connection. */
export interface PutMessage {
  readonly kind: 'PUT';
  readonly pieceBytes: number;
  /** Bytes of the file. */
  readonly size: bigint;
  /** Modification time, two's complement; with the size it identifies the file's version. */
  readonly mtimeNs: bigint;
  /** 16 random bytes: the same in every connection of one run of `put`. */
  readonly transfer: Uint8Array;
  readonly name: string;
}

/** Server: the answer to PUT. */
export interface ReadyMessage {
  readonly kind: 'READY';
  /** The region to write to: `slots` pieces. */
  readonly slots: number;
  readonly rkey: number;
  readonly addr: bigint;
  /** Number of pieces that the server has; the client reads their bits (PieceSet), if any. */
  readonly have: number;
  readonly bitsRkey: number;
  readonly bitsAddr: bigint;
  /** Something that the user should know. */
  readonly note: string;
}

/** Client: `length` bytes of piece `index` lie in slot `slot` of your region. */
export interface PieceMessage {
  readonly kind: 'PIECE';
  readonly slot: number;
  readonly index: number;
  readonly length: number;
  readonly crc: number;
  /** Bytes at the beginning of the piece that were written to the early region. */
  readonly early: number;
}

export type Message =
  | PutMessage
  | ReadyMessage
  | PieceMessage
  /** Client: that was all; the file has this digest. */
  | { kind: 'END'; sha256: Uint8Array }
  /** Client: what I sent is no file any more (it changed): forget it. */
  | { kind: 'ABANDON' }
  /** Client: still here, busy with something else than sending. */
  | { kind: 'ALIVE' }
  /** Server: piece `index` is in the file, slot `slot` is yours again. */
  | { kind: 'WRITTEN'; slot: number; index: number }
  /** Server: the file is complete, read back, durable and has its name. */
  | { kind: 'DONE'; sha256: Uint8Array }
  /** Server: it cannot go on. `text`: an ErrnoName and a sentence. */
  | { kind: 'FAILED'; text: string };

/** Text up to the end of the message. */
const TEXT = 0;
/** Of each field: its offset and its bytes (2 and 4: number, 8: bigint). */
type Fields = Readonly<Record<string, readonly [at: number, bytes: number]>>;
const LAYOUTS: Readonly<Record<Message['kind'], readonly [code: number, fields: Fields]>> = {
  PIECE: [1, { slot: [2, 2], index: [4, 4], length: [8, 4], crc: [12, 4], early: [16, 4] }],
  END: [2, { sha256: [4, 32] }],
  ABANDON: [3, {}],
  ALIVE: [4, {}],
  PUT: [
    5,
    { pieceBytes: [4, 4], size: [8, 8], mtimeNs: [16, 8], transfer: [24, 16], name: [40, TEXT] },
  ],
  WRITTEN: [16, { slot: [2, 2], index: [4, 4] }],
  DONE: [17, { sha256: [4, 32] }],
  FAILED: [18, { text: [4, TEXT] }],
  READY: [
    19,
    {
      ...{ slots: [2, 2], rkey: [4, 4], addr: [8, 8] },
      ...{ have: [16, 4], bitsRkey: [20, 4], bitsAddr: [24, 8], note: [32, TEXT] },
    },
  ],
};
const KINDS = new Map(Object.entries(LAYOUTS).map(([kind, [code]]) => [code, kind]));

/** A text that is too long is cut at a character. */
export function encodeMessage(message: Message, bytesMax = MESSAGE_BYTES_MAX): Uint8Array {
  const bytes = new Uint8Array(bytesMax);
  const view = new DataView(bytes.buffer);
  const values = message as unknown as Readonly<Record<string, unknown>>;
  const [code, fields] = LAYOUTS[message.kind];
  bytes[0] = code;
  let end = HEADER_BYTES;
  for (const [name, [at, length]] of Object.entries(fields)) {
    const value = values[name];
    end = at + length;
    if (length === 2) view.setUint16(at, value as number);
    else if (length === 4) view.setUint32(at, value as number);
    else if (length === 8) view.setBigUint64(at, value as bigint);
    else if (length !== TEXT) bytes.set(value as Uint8Array, at);
    else end += new TextEncoder().encodeInto(value as string, bytes.subarray(at)).written;
  }
  return bytes.subarray(0, end);
}

/** Undefined for bytes that are no message; takes any. The message owns its bytes. */
export function decodeMessage(bytes: Uint8Array): Message | undefined {
  const { length } = bytes;
  const kind = KINDS.get(bytes[0] ?? 0) as Message['kind'] | undefined;
  if (kind === undefined || length < HEADER_BYTES) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, length);
  const message: Record<string, unknown> = { kind };
  let end = HEADER_BYTES;
  for (const [name, [at, size]] of Object.entries(LAYOUTS[kind][1])) {
    end = size === TEXT ? length : at + size;
    if (at > length || end > length) return undefined;
    if (size === 2) message[name] = view.getUint16(at);
    else if (size === 4) message[name] = view.getUint32(at);
    else if (size === 8) message[name] = view.getBigUint64(at);
    else if (size !== TEXT) message[name] = Uint8Array.from(bytes.subarray(at, end));
    else if ((message[name] = textOf(bytes.subarray(at))) === undefined) return undefined;
  }
  return end === length ? (message as unknown as Message) : undefined;
}

/** The message about an error. */
export function failedMessage(error: Error): Message {
  const code = error instanceof RefusalError ? error.code : 'EIO';
  return { kind: 'FAILED', text: `${code} ${error.message.replace(` (${code})`, '')}` };
}

/** The error of a FAILED message; its text is of the peer, and `prefix` precedes it. */
export function refusalOfText(text: string, prefix = ''): RefusalError {
  const [, code, sentence] = /^(E[A-Z0-9]{1,20}) ([^]*)$/.exec(text) ?? [];
  if (code === undefined)
    return new RefusalError('EPROTO', 'the server fails without a reason; see its error line');
  return new RefusalError(code as ErrnoName, prefix + sentence!);
}
