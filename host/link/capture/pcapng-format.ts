/**
 * pcapng: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng. Reads sections of either byte
 * order with any number of interfaces; blocks without packets are passed over.
 */
import {
  LinkType,
  type CaptureFormat,
  type CaptureRecord,
  type FileWindow,
  type Frame,
  type Incomplete,
} from './capture-file.js';
import { viewOf, type RecordWriter } from './record-writer.js';

/** Type of a section header block: the same in either byte order. */
export const PCAPNG_MAGIC = 0x0a0d0d0a;
const BYTE_ORDER_MAGIC = 0x1a2b3c4d;
/** Block types. */
const INTERFACE = 1;
const OBSOLETE_PACKET = 2;
const SIMPLE_PACKET = 3;
const ENHANCED_PACKET = 6;
/** Type and length in front, length again at the end. */
const BLOCK_BYTES_MIN = 12;
const SECTION_BYTES_MIN = 28;
const INTERFACE_BYTES_MIN = 20;
const PACKET_BYTES_MIN = 32;
const SIMPLE_BYTES_MIN = 16;
/** Where the data of a packet block begins, and the end of one without data. */
const PACKET_DATA = 28;
const SIMPLE_DATA = 12;
/** A hostile file may describe more interfaces than this machine has memory for. */
const INTERFACES_MAX = 65536;
/** Option codes. */
const END_OF_OPTIONS = 0;
const COMMENT = 1;
const INTERFACE_NAME = 2;
const USER_APPLICATION = 4;
const PACKET_FLAGS = 2;
const TIME_RESOLUTION = 9;
const TIME_OFFSET = 14;
/** Values of PACKET_FLAGS. */
const INBOUND = 1;
const OUTBOUND = 2;

interface Interface {
  readonly linkType: number;
  readonly snapLength: number;
  readonly ticksPerSecond: bigint;
  readonly offsetSeconds: bigint;
}

const MICROS = 1_000_000n;
const decoder = new TextDecoder();

export class PcapngFormat implements CaptureFormat {
  readonly headerBytes = 0;
  #linkType = -1;
  #littleEndian = true;
  #interfaces: Interface[] = [];

  get linkType(): number {
    return this.#linkType;
  }

  record(window: FileWindow, at: number, frameNumber: number): CaptureRecord | Incomplete {
    const left = window.leftAt(at);
    if (left < BLOCK_BYTES_MIN) {
      return { incomplete: `expected a block of at least 12 bytes, the file has ${left} more` };
    }
    const type = window.view.getUint32(at, this.#littleEndian);
    if (type === PCAPNG_MAGIC) this.#readByteOrder(window, at);
    const length = this.#u32(window, at + 4);
    if (length < BLOCK_BYTES_MIN || length % 4 !== 0) {
      throw window.error(at, `a block claims ${length} bytes, expected a multiple of 4 from 12 on`);
    }
    if (length > left) {
      const before = type === ENHANCED_PACKET ? `frame ${frameNumber}` : 'a block';
      return { incomplete: `${before} claims ${length} bytes, the file has ${left} more` };
    }
    const end = at + length;
    const again = this.#u32(window, end - 4);
    if (again !== length) {
      throw window.error(end - 4, `a block of ${length} bytes claims ${again} bytes at its end`);
    }
    const frame = this.#read(window, type, at, end);
    return frame ? { end, frame } : { end };
  }

  #read(window: FileWindow, type: number, at: number, end: number): Frame | undefined {
    switch (type) {
      case PCAPNG_MAGIC:
        this.#readSection(window, at, end);
        return undefined;
      case INTERFACE:
        this.#readInterface(window, at, end);
        return undefined;
      case OBSOLETE_PACKET:
      case ENHANCED_PACKET:
        return this.#readPacket(window, type, at, end);
      case SIMPLE_PACKET:
        return this.#readSimple(window, at, end);
      default:
        return undefined;
    }
  }

  #readByteOrder(window: FileWindow, at: number): void {
    const isLittle = window.view.getUint32(at + 8, true) === BYTE_ORDER_MAGIC;
    if (!isLittle && window.view.getUint32(at + 8, false) !== BYTE_ORDER_MAGIC) {
      throw window.error(at + 8, 'expected the byte-order magic 1a2b3c4d of a pcapng section');
    }
    this.#littleEndian = isLittle;
  }

  #readSection(window: FileWindow, at: number, end: number): void {
    need(window, at, end, SECTION_BYTES_MIN, 'a section header');
    const major = window.view.getUint16(at + 12, this.#littleEndian);
    if (major !== 1) throw window.error(at + 12, `expected pcapng version 1, found ${major}`);
    this.#interfaces = [];
  }

  #readInterface(window: FileWindow, at: number, end: number): void {
    need(window, at, end, INTERFACE_BYTES_MIN, 'an interface description');
    if (this.#interfaces.length === INTERFACES_MAX) {
      throw window.error(at, `a section has more than ${INTERFACES_MAX} interfaces`);
    }
    const linkType = window.view.getUint16(at + 8, this.#littleEndian);
    let [ticksPerSecond, offsetSeconds] = [MICROS, 0n];
    for (const { code, offset, length } of this.#options(window, at + 16, end - 4)) {
      if (code === TIME_RESOLUTION && length >= 1) {
        const value = window.bytes[offset]!;
        ticksPerSecond = (value & 0x80 ? 2n : 10n) ** BigInt(value & 0x7f);
      }
      if (code === TIME_OFFSET && length >= 8) {
        offsetSeconds = window.view.getBigInt64(offset, this.#littleEndian);
      }
    }
    const snapLength = this.#u32(window, at + 12);
    this.#interfaces.push({ linkType, snapLength, ticksPerSecond, offsetSeconds });
    if (this.#linkType < 0) this.#linkType = linkType;
  }

  #readPacket(window: FileWindow, type: number, at: number, end: number): Frame {
    need(window, at, end, PACKET_BYTES_MIN, 'a packet block');
    const id =
      type === ENHANCED_PACKET
        ? this.#u32(window, at + 8)
        : window.view.getUint16(at + 8, this.#littleEndian);
    const source = this.#interfaceOf(window, at, id);
    const ticks = (BigInt(this.#u32(window, at + 12)) << 32n) | BigInt(this.#u32(window, at + 16));
    const length = this.#u32(window, at + 20);
    if (length > end - at - PACKET_BYTES_MIN) {
      throw window.error(at + 20, `a block of ${end - at} bytes claims a frame of ${length}`);
    }
    const offset = at + PACKET_DATA;
    return {
      offset,
      length,
      originalLength: this.#u32(window, at + 24),
      timestampMicros: microsOf(ticks, source),
      linkType: source.linkType,
      comment: this.#comment(window, offset + padded(length), end - 4),
    };
  }

  /** A frame without time and options, of the first interface. */
  #readSimple(window: FileWindow, at: number, end: number): Frame {
    need(window, at, end, SIMPLE_BYTES_MIN, 'a simple packet block');
    const { linkType, snapLength } = this.#interfaceOf(window, at, 0);
    const originalLength = this.#u32(window, at + 8);
    const limit = snapLength === 0 ? originalLength : Math.min(originalLength, snapLength);
    const length = Math.min(limit, end - at - SIMPLE_BYTES_MIN);
    const offset = at + SIMPLE_DATA;
    return { offset, length, originalLength, timestampMicros: 0, linkType, comment: '' };
  }

  #interfaceOf(window: FileWindow, at: number, id: number): Interface {
    const found = this.#interfaces[id];
    if (found) return found;
    const known = this.#interfaces.length;
    throw window.error(
      at,
      `a packet is of interface ${id}, and the section has ${known} before it`,
    );
  }

  #comment(window: FileWindow, from: number, end: number): string {
    const lines: string[] = [];
    for (const { code, offset, length } of this.#options(window, from, end)) {
      if (code !== COMMENT) continue;
      lines.push(decoder.decode(window.bytes.subarray(offset, offset + length)));
    }
    return lines.join('\n');
  }

  /** Options from `at` up to `end`; an option that is longer than its block ends them. */
  *#options(window: FileWindow, at: number, end: number) {
    while (end - at >= 4) {
      const code = window.view.getUint16(at, this.#littleEndian);
      const length = window.view.getUint16(at + 2, this.#littleEndian);
      if (code === END_OF_OPTIONS || length > end - at - 4) return;
      yield { code, offset: at + 4, length };
      at += 4 + padded(length);
    }
  }

  #u32(window: FileWindow, at: number): number {
    return window.view.getUint32(at, this.#littleEndian);
  }
}

function need(window: FileWindow, at: number, end: number, bytes: number, what: string): void {
  if (end - at >= bytes) return;
  throw window.error(at, `expected ${what} of at least ${bytes} bytes, found ${end - at}`);
}

/** A hostile resolution or offset may lead beyond any date: Number has no limit there. */
function microsOf(ticks: bigint, { ticksPerSecond, offsetSeconds }: Interface): number {
  const since = ticksPerSecond === MICROS ? ticks : (ticks * MICROS) / ticksPerSecond;
  return Number(since + offsetSeconds * MICROS);
}

function padded(bytes: number): number {
  return (bytes + 3) & ~3;
}

/** Little-endian, microseconds (the default resolution), one interface of raw IP. */
export const pcapngWriter: RecordWriter = {
  hasComments: true,

  fileHeader(name) {
    const section = new Uint8Array(SECTION_BYTES_MIN - 4);
    const view = viewOf(section);
    view.setUint32(8, BYTE_ORDER_MAGIC, true);
    view.setUint16(12, 1, true);
    // The length of the section is unknown.
    view.setBigInt64(16, -1n, true);
    const description = new Uint8Array(16);
    viewOf(description).setUint16(8, LinkType.RAW, true);
    return concat([
      block(PCAPNG_MAGIC, section, option(USER_APPLICATION, 'verbena')),
      block(INTERFACE, description, option(INTERFACE_NAME, name)),
    ]);
  },

  recordBytes(frameBytes, commentBytes) {
    const comment = commentBytes === 0 ? 0 : 4 + padded(commentBytes);
    // Flags, and the end of the options.
    return PACKET_BYTES_MIN + padded(frameBytes) + comment + 8 + 4;
  },

  frameOffset: PACKET_DATA,

  writeRecord(record, { micros, frameBytes, isReceived, comment }) {
    const view = viewOf(record);
    view.setUint32(0, ENHANCED_PACKET, true);
    view.setUint32(4, record.length, true);
    view.setUint32(12, Math.floor(micros / 2 ** 32), true);
    view.setUint32(16, micros % 2 ** 32, true);
    view.setUint32(20, frameBytes, true);
    view.setUint32(24, frameBytes, true);
    let at = PACKET_DATA + padded(frameBytes);
    if (comment.length > 0) {
      view.setUint16(at, COMMENT, true);
      view.setUint16(at + 2, comment.length, true);
      record.set(comment, at + 4);
      at += 4 + padded(comment.length);
    }
    view.setUint16(at, PACKET_FLAGS, true);
    view.setUint16(at + 2, 4, true);
    view.setUint32(at + 4, isReceived ? INBOUND : OUTBOUND, true);
    view.setUint32(record.length - 4, record.length, true);
  },
};

/** A block of `head`, whose first 8 bytes are for type and length, with one option. */
function block(type: number, head: Uint8Array, only: Uint8Array): Uint8Array {
  const bytes = concat([head, only, new Uint8Array(8)]);
  const view = viewOf(bytes);
  view.setUint32(0, type, true);
  view.setUint32(4, bytes.length, true);
  view.setUint32(bytes.length - 4, bytes.length, true);
  return bytes;
}

function option(code: number, text: string): Uint8Array {
  const value = new TextEncoder().encode(text);
  const bytes = new Uint8Array(4 + padded(value.length));
  viewOf(bytes).setUint16(0, code, true);
  viewOf(bytes).setUint16(2, value.length, true);
  bytes.set(value, 4);
  return bytes;
}

function concat(parts: readonly Uint8Array[]): Uint8Array {
  const bytes = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
