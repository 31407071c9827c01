/** Common part of both formats of capture files: frames with a time, a length and a link type. */
import { VerbenaError } from '../../errors/errors.js';

/** The file is no capture, or ends in the middle. */
export class PcapError extends VerbenaError {
  override readonly name = 'PcapError';
  /** Byte offset in the file. */
  readonly offset: number;

  constructor(offset: number, sentence: string) {
    super(`at byte ${offset}: ${sentence}`);
    this.offset = offset;
  }
}

/** LINKTYPE_ numbers. */
export const LinkType = {
  NULL: 0,
  ETHERNET: 1,
  RAW: 101,
  LOOP: 108,
  LINUX_SLL: 113,
  IPV4: 228,
  IPV6: 229,
  LINUX_SLL2: 276,
} as const;
export const KNOWN_LINK_TYPES: ReadonlySet<number> = new Set(Object.values(LinkType));

/** Bytes of a capture that are in memory; `base` is the file's offset of the first one. */
export class FileWindow {
  readonly view: DataView;

  constructor(
    readonly bytes: Uint8Array,
    readonly base: number,
  ) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** Bytes from `at` on. */
  leftAt(at: number): number {
    return this.bytes.length - at;
  }

  error(at: number, sentence: string): PcapError {
    return new PcapError(this.base + at, sentence);
  }
}

/** A frame in a window: `offset` counts from the window's first byte. */
export interface Frame {
  readonly offset: number;
  /** Bytes in the file. */
  readonly length: number;
  /** Bytes on the wire. */
  readonly originalLength: number;
  /** Microseconds since 1970, whole. */
  readonly timestampMicros: number;
  readonly linkType: number;
  /** Comments of the file about this frame, a line each; empty: none. */
  readonly comment: string;
}

/** A record or block: where it ends, and the frame in it. */
export interface CaptureRecord {
  readonly end: number;
  readonly frame?: Frame;
}

/** The window ends inside a record; the sentence says it of a file that has no more bytes. */
export interface Incomplete {
  readonly incomplete: string;
}

/** A file format; an object reads one file, from its beginning. */
export interface CaptureFormat {
  /** Of the first interface; -1: no interface is known yet. */
  readonly linkType: number;
  /** Bytes at the beginning of the file that are no record. */
  readonly headerBytes: number;
  /** The record at `at`. `frameNumber`: of the next frame. Throws PcapError. */
  record(window: FileWindow, at: number, frameNumber: number): CaptureRecord | Incomplete;
}
