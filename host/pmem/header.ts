/**
 * The header of a persistent region's file: two copies, one in each of two sectors. The newer valid
 * copy counts, so a power cut leaves an update either complete or absent.
 *
 * ```
 *  0      8 "VERBPMEM"      8  4 version       12  4 generation    16  8 id
 * 24      8 where the bytes of the region begin in the file       32  8 how many they are
 * 40      8 checksum (FNV-1a, 64 bits) of all before               all little-endian
 * ```
 */
import { RefusalError } from '../errors/errors.js';

const MAGIC = 0x4d454d5042524556n;
/**
 * In version 2 all bytes are written before the file gets its name: writing a page again needs no
 * allocation and no conversion of an unwritten extent. Files of version 1 may have been
 * preallocated (posix_fallocate).
 */
export const VERSION = 2;
const VERSION_MIN = 1;
const BODY = 40;
/** Bytes of one copy. */
const COPY = 48;
/** Where the copies lie: in different sectors, and pages, of any disk. */
const COPIES = [0, 4096] as const;
/** Bytes of a file that are read to find its header. */
export const HEADER_BYTES = 8192;
/** The region begins at a multiple of the largest page that Linux has. */
export const DATA_OFFSET = 65536;

export interface PmemHeader {
  readonly version: number;
  /** Counts changes of the header. */
  readonly generation: number;
  /** Identifier of the region, kept when its file is moved. */
  readonly id: bigint;
  readonly dataOffset: number;
  /** Bytes of the region. */
  readonly length: number;
}

/** Bytes to be written, and where. The copy before it stays as it is. */
export function encodeHeader(header: PmemHeader): { bytes: Uint8Array; offset: number } {
  const bytes = new Uint8Array(COPY);
  const view = new DataView(bytes.buffer);
  view.setBigUint64(0, MAGIC, true);
  view.setUint32(8, header.version, true);
  view.setUint32(12, header.generation, true);
  view.setBigUint64(16, header.id, true);
  view.setBigUint64(24, BigInt(header.dataOffset), true);
  view.setBigUint64(32, BigInt(header.length), true);
  view.setBigUint64(BODY, checksum(bytes), true);
  return { bytes, offset: COPIES[header.generation % COPIES.length]! };
}

/**
 * Judges the beginning of a file of `fileBytes` bytes. Throws RefusalError EINVAL (foreign), EPROTO
 * (another version), EIO (damaged, or truncated).
 */
export function decodeHeader(bytes: Uint8Array, fileBytes: number, path: string): PmemHeader {
  const views = COPIES.filter((at) => at + COPY <= bytes.length).map(
    (at) => new DataView(bytes.buffer, bytes.byteOffset + at, COPY),
  );
  const ours = views.filter((view) => view.getBigUint64(0, true) === MAGIC);
  if (ours.length === 0) {
    const sentence = `${path} is no persistent memory of Verbena`;
    throw new RefusalError('EINVAL', `${sentence}: remove it, or take another path`);
  }
  const whole = ours.filter((view) => isWhole(view));
  const foreign = whole.map(versionOf).find((it) => it < VERSION_MIN || it > VERSION);
  if (foreign !== undefined) {
    const sentence = `${path} is of version ${foreign}, and this build reads ${VERSION}`;
    throw new RefusalError('EPROTO', `${sentence}: open it with the build that wrote it`);
  }
  if (whole.length === 0) {
    throw new RefusalError('EIO', `${path}: its header is damaged; restore the file from a copy`);
  }
  const header = whole.map(fieldsOf).reduce((a, b) => (b.generation > a.generation ? b : a));
  if (fileBytes - header.dataOffset < header.length) {
    const has = `${path} is truncated: it has ${fileBytes} bytes`;
    const wanted = header.dataOffset + header.length;
    throw new RefusalError('EIO', `${has} of ${wanted}; restore it from a copy, or remove it`);
  }
  return header;
}

function versionOf(view: DataView): number {
  return view.getUint32(8, true);
}

function fieldsOf(view: DataView): PmemHeader {
  return {
    version: versionOf(view),
    generation: view.getUint32(12, true),
    id: view.getBigUint64(16, true),
    dataOffset: Number(view.getBigUint64(24, true)),
    length: Number(view.getBigUint64(32, true)),
  };
}

/** A checksum proves that it was written whole, not that a friend wrote it. */
function isWhole(view: DataView): boolean {
  const bytes = new Uint8Array(view.buffer, view.byteOffset, COPY);
  if (view.getBigUint64(BODY, true) !== checksum(bytes)) return false;
  const dataOffset = view.getBigUint64(24, true);
  const length = view.getBigUint64(32, true);
  const fits = dataOffset >= BigInt(HEADER_BYTES) && dataOffset <= 2n ** 32n;
  return fits && dataOffset % 4096n === 0n && length > 0n && length <= 2n ** 32n;
}

function checksum(bytes: Uint8Array): bigint {
  let hash = 0xcbf29ce484222325n;
  for (const byte of bytes.subarray(0, BODY)) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  }
  return hash;
}
