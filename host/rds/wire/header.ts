/**
 * The 48 bytes in front of every fragment (`struct rds_header`), big endian:
 *
 *      0  sequence, 64 bits           24  flags
 *      8  ack, 64 bits                25  credit
 *     16  length of the message, 32   26  0, 32 bits
 *     20  source port, 16             30  checksum, 16 bits: IP's, over the header
 *     22  destination port, 16        32  extension headers, 16 bytes
 */
import { ExtensionType, HEADER_BYTES } from './constants.js';

/** A key and a place of the peer's memory (`RDS_EXTHDR_RDMA_DEST`). */
export interface RdmaDestination {
  readonly rkey: number;
  readonly offset: number;
}

/** Last message that this sender sent before over another connection. */
export interface After {
  readonly connectionIndex: number;
  readonly sequence: number;
  /** The sequence number's last 40 bits only: beside a cookie there is no room for more. */
  readonly isShort?: boolean;
}

export interface Extensions {
  /** `RDS_EXTHDR_RDMA`: the key that an RDMA operation in front of this message used. */
  readonly rdmaRkey?: number;
  readonly rdmaDestination?: RdmaDestination;
  readonly after?: After;
  /** Datagrams of the same ports went by UDP before this message. */
  readonly isAfterUdp?: boolean;
}

export interface RdsHeader {
  /** From 1 on; 0: no message of a socket. */
  readonly sequence: number;
  /** The last sequence number that the sender has received; 0: none. */
  readonly ack: number;
  /** Bytes of the whole message. */
  readonly length: number;
  readonly sourcePort: number;
  readonly destinationPort: number;
  /** Made of HeaderFlag. */
  readonly flags: number;
  readonly credit: number;
  readonly extensions: Extensions;
}

const NO_EXTENSIONS: Extensions = Object.freeze({});
const [EXTENSIONS_AT, CHECKSUM_AT] = [32, 30];
const EXTENSIONS_BYTES = HEADER_BYTES - EXTENSIONS_AT;
const HALF = 2 ** 32;
/** Bytes behind the type of an extension header. */
const EXTENSION_BYTES: Readonly<Record<number, number>> = {
  [ExtensionType.VERSION]: 4,
  [ExtensionType.RDMA]: 4,
  [ExtensionType.RDMA_DEST]: 8,
  [ExtensionType.NPATHS]: 2,
  [ExtensionType.GEN_NUM]: 4,
  [ExtensionType.AFTER]: 9,
  [ExtensionType.AFTER_SHORT]: 6,
  [ExtensionType.AFTER_UDP]: 0,
};
const BYTE = 256;

/** IP's checksum: 0 where the one in `bytes` is right. */
function sumOf(view: DataView, at: number): number {
  // Two 16-bit words at a time: carries between them are folded in at the end, as all others.
  let sum = 0;
  for (let offset = 0; offset < HEADER_BYTES; offset += 4) sum += view.getUint32(at + offset);
  const low = sum >>> 0;
  sum = (low & 0xffff) + (low >>> 16) + Math.floor(sum / HALF);
  sum = (sum & 0xffff) + (sum >>> 16);
  sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}

function setU64(view: DataView, at: number, value: number): void {
  view.setUint32(at, Math.floor(value / HALF));
  view.setUint32(at + 4, value >>> 0);
}

/** Beyond 2^53: undefined. No sender that counts gets there. */
function getU64(view: DataView, at: number): number | undefined {
  const value = view.getUint32(at) * HALF + view.getUint32(at + 4);
  return Number.isSafeInteger(value) ? value : undefined;
}

/** Writes the header to `view` at `at`, with its checksum. */
export function writeHeader(view: DataView, at: number, header: RdsHeader): void {
  setU64(view, at, header.sequence);
  setU64(view, at + 8, header.ack);
  view.setUint32(at + 16, header.length);
  view.setUint16(at + 20, header.sourcePort);
  view.setUint16(at + 22, header.destinationPort);
  view.setUint8(at + 24, header.flags);
  view.setUint8(at + 25, header.credit);
  view.setUint32(at + 26, 0);
  view.setUint16(at + CHECKSUM_AT, 0);
  for (let word = EXTENSIONS_AT; word < HEADER_BYTES; word += 4) view.setUint32(at + word, 0);
  if (header.extensions !== NO_EXTENSIONS) {
    writeExtensions(view, at + EXTENSIONS_AT, header.extensions);
  }
  view.setUint16(at + CHECKSUM_AT, sumOf(view, at));
}

function writeExtensions(view: DataView, start: number, extensions: Extensions): void {
  const { rdmaRkey, rdmaDestination, after, isAfterUdp } = extensions;
  let at = start;
  if (rdmaRkey !== undefined) {
    view.setUint8(at, ExtensionType.RDMA);
    view.setUint32(at + 1, rdmaRkey);
    at += 5;
  }
  if (rdmaDestination) {
    view.setUint8(at, ExtensionType.RDMA_DEST);
    view.setUint32(at + 1, rdmaDestination.rkey);
    view.setUint32(at + 5, rdmaDestination.offset);
    at += 9;
    if (after && at + 7 <= start + EXTENSIONS_BYTES) {
      view.setUint8(at, ExtensionType.AFTER_SHORT);
      view.setUint8(at + 1, after.connectionIndex);
      view.setUint8(at + 2, Math.floor(after.sequence / HALF) % BYTE);
      view.setUint32(at + 3, after.sequence >>> 0);
      at += 7;
    }
  } else if (after) {
    view.setUint8(at, ExtensionType.AFTER);
    view.setUint8(at + 1, after.connectionIndex);
    setU64(view, at + 2, after.sequence);
    at += 10;
  }
  if (isAfterUdp && at < start + EXTENSIONS_BYTES) view.setUint8(at, ExtensionType.AFTER_UDP);
}

/**
 * The header of a fragment; undefined: it has none, its checksum is wrong (0 stands for one that
 * was not made), or a number is beyond what any peer counts to. Extension headers end where one is
 * not known, as Linux has it. `known`: a view of `bytes`.
 */
export function readHeader(bytes: Uint8Array, known?: DataView): RdsHeader | undefined {
  if (bytes.length < HEADER_BYTES) return undefined;
  const view = known ?? new DataView(bytes.buffer, bytes.byteOffset, HEADER_BYTES);
  if (view.getUint16(CHECKSUM_AT) !== 0 && sumOf(view, 0) !== 0) return undefined;
  const sequence = getU64(view, 0);
  const ack = getU64(view, 8);
  if (sequence === undefined || ack === undefined) return undefined;
  return {
    sequence,
    ack,
    length: view.getUint32(16),
    sourcePort: view.getUint16(20),
    destinationPort: view.getUint16(22),
    flags: view.getUint8(24),
    credit: view.getUint8(25),
    extensions: bytes[EXTENSIONS_AT] === 0 ? NO_EXTENSIONS : readExtensions(view),
  };
}

function readExtensions(view: DataView): Extensions {
  const found: { -readonly [Name in keyof Extensions]: Extensions[Name] } = {};
  for (let at = EXTENSIONS_AT; at < HEADER_BYTES;) {
    const type = view.getUint8(at);
    const length = EXTENSION_BYTES[type];
    if (length === undefined || at + 1 + length > HEADER_BYTES) break;
    at++;
    if (type === ExtensionType.RDMA) found.rdmaRkey = view.getUint32(at);
    if (type === ExtensionType.RDMA_DEST) {
      found.rdmaDestination = { rkey: view.getUint32(at), offset: view.getUint32(at + 4) };
    }
    if (type === ExtensionType.AFTER) {
      const sequence = getU64(view, at + 1);
      if (sequence !== undefined) found.after = { connectionIndex: view.getUint8(at), sequence };
    }
    if (type === ExtensionType.AFTER_UDP) found.isAfterUdp = true;
    if (type === ExtensionType.AFTER_SHORT) {
      const sequence = view.getUint8(at + 1) * HALF + view.getUint32(at + 2);
      found.after = { connectionIndex: view.getUint8(at), sequence, isShort: true };
    }
    at += length;
  }
  return found;
}

/** Of what is no message of a socket. */
export function nodeHeader(length: number, flags: number, ack: number): RdsHeader {
  return {
    sequence: 0,
    ack,
    length,
    sourcePort: 0,
    destinationPort: 0,
    flags,
    credit: 0,
    extensions: NO_EXTENSIONS,
  };
}

/** No extension headers: the same object always, so that most headers cost nothing more. */
export function noExtensions(): Extensions {
  return NO_EXTENSIONS;
}
