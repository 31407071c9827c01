/**
 * Files in a log of persistent memory: a record with the name, records with the bytes, and an end
 * record. A file without its end record does not exist.
 */
import { createHash } from 'node:crypto';
import * as rpma from '../../rpma/index.js';
import { MisuseError } from '../../errors/errors.js';

/** Of the connection manager: where `serve --pmem` listens. */
export const PMEM_SERVICE = 7474;
/** Bytes of a file in one record. */
export const PIECE_BYTES = 65536;
const [FILE, DATA, END] = [0x46, 0x44, 0x45];
/** Of a data record, besides the piece. */
export const DATA_RECORD_BYTES = 1;
export const END_RECORD_BYTES = 1 + 32;
const NAME_BYTES_MAX = 255;

/** A file that is whole. */
export interface StoredFile {
  readonly name: string;
  readonly bytes: number;
  /** In hexadecimal, of what is there. */
  readonly sha256: string;
}

export function fileRecord(name: string): Uint8Array {
  const bytes = new TextEncoder().encode(name);
  if (bytes.length > NAME_BYTES_MAX)
    throw new MisuseError('file', `must have a name of at most ${NAME_BYTES_MAX} bytes`);
  return Uint8Array.of(FILE, ...bytes);
}

export function dataRecord(piece: Uint8Array): Uint8Array {
  const record = new Uint8Array(1 + piece.length);
  record[0] = DATA;
  record.set(piece, 1);
  return record;
}

/** `sha256`: 32 bytes, of the whole file. */
export function endRecord(sha256: Uint8Array): Uint8Array {
  return Uint8Array.of(END, ...sha256);
}

/** Complete files of a log, with the checksum of their end record. */
export function filesIn(image: Uint8Array): StoredFile[] {
  const files: StoredFile[] = [];
  let name: string | undefined;
  let bytes = 0;
  let hash = createHash('sha256');
  for (const record of rpma.recoverLog(image).records) {
    const content = record.subarray(1);
    if (record[0] === FILE) {
      name = new TextDecoder().decode(content);
      bytes = 0;
      hash = createHash('sha256');
    } else if (record[0] === DATA) {
      bytes += content.length;
      hash.update(content);
    } else if (record[0] === END && name !== undefined) {
      const sha256 = hash.digest('hex');
      if (sha256 === Buffer.from(content).toString('hex')) files.push({ name, bytes, sha256 });
      name = undefined;
    }
  }
  return files;
}
