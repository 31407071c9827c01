/** Writer of a capture file format, for `pcapLink` and `verbena sniff`. */

/** A record but for its frame. */
export interface RecordFields {
  /** Microseconds since 1970, whole. */
  readonly micros: number;
  readonly frameBytes: number;
  readonly isReceived: boolean;
  /** UTF-8, at most COMMENT_BYTES_MAX; empty: none. */
  readonly comment: Uint8Array;
}

/** Frames are raw IP packets. */
export interface RecordWriter {
  readonly hasComments: boolean;
  /** `name`: of the link or interface. */
  fileHeader(name: string): Uint8Array;
  /** Length of a record with a frame of that many bytes. */
  recordBytes(frameBytes: number, commentBytes: number): number;
  /** Where the frame begins in its record. */
  readonly frameOffset: number;
  /** Fills in all of the record but the frame. The record's bytes are 0 before. */
  writeRecord(record: Uint8Array, fields: RecordFields): void;
}

export const COMMENT_BYTES_MAX = 2048;
const NO_BYTES = new Uint8Array(0);
const encoder = new TextEncoder();

/** UTF-8 of a comment, cut where it is too long. */
export function commentBytes(text: string): Uint8Array {
  if (text === '') return NO_BYTES;
  const bytes = new Uint8Array(COMMENT_BYTES_MAX);
  return bytes.subarray(0, encoder.encodeInto(text, bytes).written);
}

export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
