/**
 * The journal beside NAME.part: the version of the file, and the pieces that
 * are on the disk, as readable text:
 * ```
 *   {"verbena":1,"name":"a.iso","size":5242880,"mtimeNs":"1718000000000000000","pieceBytes":1048576}
 *   0 9f3a1c07 5d2b8e44
 *   1 00b1f2aa 0c7711d9
 * ```
 * A line is a piece's index, the CRC-32 of its bytes, and the CRC-32 of the line up to there. It is
 * appended after the piece is synced, so a piece that has a line is there; a line that is torn, and
 * what follows it, does not count. The last line is `closed` if no sync of the part failed and the
 * whole part is synced; it is removed when the part is opened.
 */
import { crc32 } from './crc32.js';

const VERSION = 1;
/** A longer line is no entry. */
const LINE_BYTES_MAX = 64;
/** Last line of the journal of a part that was closed in order. */
export const CLOSED_LINE = 'closed\n';

/** Which version of which file, cut how. */
export interface FileVersion {
  readonly name: string;
  readonly size: number;
  readonly mtimeNs: string;
  readonly pieceBytes: number;
}

export interface JournalEntry {
  readonly index: number;
  readonly crc: number;
}

export interface Journal {
  readonly version: FileVersion;
  readonly entries: readonly JournalEntry[];
  /** Bytes up to the end of the last line that records a piece. */
  readonly validBytes: number;
  /** True: the part was closed in order. */
  readonly isClosed: boolean;
}

export function formatJournalHeader({ name, size, mtimeNs, pieceBytes }: FileVersion): string {
  return `${JSON.stringify({ verbena: VERSION, name, size, mtimeNs, pieceBytes })}\n`;
}

export function formatJournalEntry({ index, crc }: JournalEntry): string {
  const line = `${index} ${hex(crc)}`;
  return `${line} ${hex(crc32(line))}\n`;
}

/** Undefined when `bytes` do not begin with a header. Takes any bytes. */
export function parseJournal(bytes: Uint8Array): Journal | undefined {
  const headerEnd = bytes.indexOf(0x0a);
  if (headerEnd < 0) return undefined;
  const version = parseHeader(new TextDecoder().decode(bytes.subarray(0, headerEnd)));
  if (!version) return undefined;
  const pieceCount = Math.ceil(version.size / version.pieceBytes);
  const entries: JournalEntry[] = [];
  let at = headerEnd + 1;
  for (;;) {
    const end = bytes.indexOf(0x0a, at);
    if (end < 0) break;
    const entry = parseEntry(latin1(bytes.subarray(at, end)));
    if (!entry || entry.index >= pieceCount) break;
    entries.push(entry);
    at = end + 1;
  }
  const isClosed = latin1(bytes.subarray(at, at + 16)) === CLOSED_LINE;
  return { version, entries, validBytes: at, isClosed };
}

/** A line of a journal is short, but for one that is not ours. */
function latin1(bytes: Uint8Array): string {
  return String.fromCharCode(...bytes.subarray(0, LINE_BYTES_MAX));
}

function parseHeader(line: string): FileVersion | undefined {
  let header: Partial<Record<keyof FileVersion | 'verbena', unknown>> | null;
  try {
    header = JSON.parse(line) as typeof header;
  } catch {
    return undefined;
  }
  if (typeof header !== 'object' || header === null || header.verbena !== VERSION) return undefined;
  const { name, size, mtimeNs, pieceBytes } = header;
  if (typeof name !== 'string' || typeof mtimeNs !== 'string') return undefined;
  if (typeof size !== 'number' || typeof pieceBytes !== 'number' || !(pieceBytes > 0)) {
    return undefined;
  }
  return { name, size, mtimeNs, pieceBytes };
}

function parseEntry(line: string): JournalEntry | undefined {
  const [, text = '', index, crc = '', check = ''] =
    /^((\d{1,10}) ([0-9a-f]{8})) ([0-9a-f]{8})$/.exec(line) ?? [];
  if (text === '' || crc32(text) !== parseInt(check, 16)) return undefined;
  return { index: Number(index), crc: parseInt(crc, 16) };
}

function hex(value: number): string {
  return value.toString(16).padStart(8, '0');
}
