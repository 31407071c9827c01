/**
 * What client and server tell each other by SEND while pieces travel by WRITE. Big-endian, at most
 * 256 bytes; README.md has the conversation.
 * ```
 *            0        1        2        4                8           12
 *   PIECE    | 1      | 0      | slot   | piece index    | length    | CRC-32 of the piece |
 *   END      | 2      | 0      | 0      | SHA-256 of the file, 32 bytes …
 *   ABANDON  | 3      | 0      | 0      |
 *   ALIVE    | 4      | 0      | 0      |
 *   WRITTEN  | 16     | 0      | slot   | piece index    |
 *   DONE     | 17     | 0      | 0      | SHA-256 of the file, 32 bytes …
 *   FAILED   | 18     | code length     | (u16) | code, sentence: UTF-8 …
 * ```
 */

export const MESSAGE_BYTES_MAX = 256;
const HEADER_BYTES = 4;
const SHA256_BYTES = 32;

const Kind = {
  PIECE: 1,
  END: 2,
  ABANDON: 3,
  ALIVE: 4,
  WRITTEN: 16,
  DONE: 17,
  FAILED: 18,
} as const;

export type Message =
  /** Client: `length` bytes of piece `index` lie in slot `slot` of your region. */
  | { kind: 'PIECE'; slot: number; index: number; length: number; crc: number }
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
  /** Server: it cannot go on. `code` is an ErrnoName. */
  | { kind: 'FAILED'; code: string; sentence: string };

export function encodeMessage(message: Message): Uint8Array {
  const bytes = new Uint8Array(MESSAGE_BYTES_MAX);
  const view = new DataView(bytes.buffer);
  bytes[0] = Kind[message.kind];
  switch (message.kind) {
    case 'PIECE':
      view.setUint16(2, message.slot);
      view.setUint32(4, message.index);
      view.setUint32(8, message.length);
      view.setUint32(12, message.crc);
      return bytes.subarray(0, 16);
    case 'WRITTEN':
      view.setUint16(2, message.slot);
      view.setUint32(4, message.index);
      return bytes.subarray(0, 8);
    case 'END':
    case 'DONE':
      bytes.set(message.sha256, HEADER_BYTES);
      return bytes.subarray(0, HEADER_BYTES + SHA256_BYTES);
    case 'FAILED': {
      const code = new TextEncoder().encodeInto(message.code, bytes.subarray(HEADER_BYTES)).written;
      view.setUint16(2, code);
      // encodeInto stops at a whole character.
      const rest = bytes.subarray(HEADER_BYTES + code);
      const { written } = new TextEncoder().encodeInto(message.sentence, rest);
      return bytes.subarray(0, HEADER_BYTES + code + written);
    }
    default:
      return bytes.subarray(0, HEADER_BYTES);
  }
}

/** Undefined for bytes that are no message; takes any. The message owns its bytes. */
export function decodeMessage(bytes: Uint8Array): Message | undefined {
  const length = bytes.length;
  if (length < HEADER_BYTES || length > MESSAGE_BYTES_MAX) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, length);
  const slot = view.getUint16(2);
  switch (bytes[0]) {
    case Kind.PIECE:
      if (length !== 16) return undefined;
      return {
        kind: 'PIECE',
        slot,
        index: view.getUint32(4),
        length: view.getUint32(8),
        crc: view.getUint32(12),
      };
    case Kind.WRITTEN:
      return length === 8 ? { kind: 'WRITTEN', slot, index: view.getUint32(4) } : undefined;
    case Kind.END:
    case Kind.DONE:
      if (length !== HEADER_BYTES + SHA256_BYTES) return undefined;
      return {
        kind: bytes[0] === Kind.END ? 'END' : 'DONE',
        sha256: Uint8Array.from(bytes.subarray(HEADER_BYTES)),
      };
    case Kind.ABANDON:
      return { kind: 'ABANDON' };
    case Kind.ALIVE:
      return { kind: 'ALIVE' };
    case Kind.FAILED: {
      const codeEnd = HEADER_BYTES + slot;
      if (codeEnd > length) return undefined;
      const text = (from: number, to: number): string =>
        Buffer.from(bytes.subarray(from, to)).toString();
      return {
        kind: 'FAILED',
        code: text(HEADER_BYTES, codeEnd),
        sentence: text(codeEnd, length),
      };
    }
    default:
      return undefined;
  }
}
