/** Classic pcap: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap. */
import {
  KNOWN_LINK_TYPES,
  LinkType,
  type CaptureFormat,
  type CaptureRecord,
  type FileWindow,
  type Incomplete,
} from './capture-file.js';
import { viewOf, type RecordWriter } from './record-writer.js';

const MAGIC_MICROS = 0xa1b2c3d4;
const MAGIC_NANOS = 0xa1b23c4d;
const MAGIC_MODIFIED = 0xa1b2cd34;
export const PCAP_HEADER_BYTES = 24;
const RECORD_HEADER_BYTES = 16;
const SNAP_LENGTH = 262144;

export class PcapFormat implements CaptureFormat {
  readonly linkType: number;
  readonly headerBytes = PCAP_HEADER_BYTES;
  readonly #littleEndian: boolean;
  readonly #ticksPerMicro: number;

  /** `window` has the file's first 24 bytes. Throws PcapError. */
  constructor(window: FileWindow) {
    const { view } = window;
    const magic = view.getUint32(0, false);
    const swapped = view.getUint32(0, true);
    const micros = magic === MAGIC_MICROS || swapped === MAGIC_MICROS;
    const nanos = magic === MAGIC_NANOS || swapped === MAGIC_NANOS;
    if (!micros && !nanos) throw window.error(0, describeMagic(magic, swapped));
    this.#littleEndian = swapped === MAGIC_MICROS || swapped === MAGIC_NANOS;
    this.#ticksPerMicro = nanos ? 1000 : 1;
    const major = view.getUint16(4, this.#littleEndian);
    if (major !== 2) throw window.error(4, `expected pcap version 2, found ${major}`);
    // The upper half says whether frames end with a checksum.
    this.linkType = view.getUint32(20, this.#littleEndian) & 0xffff;
    if (!KNOWN_LINK_TYPES.has(this.linkType)) {
      const known = [...KNOWN_LINK_TYPES].join(', ');
      throw window.error(20, `link type ${this.linkType} is unknown, expected one of ${known}`);
    }
  }

  record(window: FileWindow, at: number, frameNumber: number): CaptureRecord | Incomplete {
    const left = window.leftAt(at);
    if (left < RECORD_HEADER_BYTES) {
      return { incomplete: `expected a record header of 16 bytes, the file has ${left} more` };
    }
    const u32 = (offset: number): number => window.view.getUint32(offset, this.#littleEndian);
    const length = u32(at + 8);
    const rest = left - RECORD_HEADER_BYTES;
    if (length > rest) {
      const incomplete = `frame ${frameNumber} claims ${length} bytes, the file has ${rest} more`;
      return { incomplete };
    }
    const offset = at + RECORD_HEADER_BYTES;
    const frame = {
      offset,
      length,
      originalLength: u32(at + 12),
      timestampMicros: u32(at) * 1e6 + Math.floor(u32(at + 4) / this.#ticksPerMicro),
      linkType: this.linkType,
      comment: '',
    };
    return { end: offset + length, frame };
  }
}

function describeMagic(magic: number, swapped: number): string {
  if (magic === MAGIC_MODIFIED || swapped === MAGIC_MODIFIED) {
    return 'this is a "modified" pcap file, expected pcap: convert it with "editcap -F pcap in out"';
  }
  const found = magic.toString(16).padStart(8, '0');
  return (
    'expected the magic number of a pcap file (a1b2c3d4 or a1b23c4d) or of a pcapng file ' +
    `(0a0d0d0a), found ${found}`
  );
}

/** Little-endian, microseconds, raw IP; the format has no comments. */
export const pcapWriter: RecordWriter = {
  hasComments: false,

  fileHeader() {
    const bytes = new Uint8Array(PCAP_HEADER_BYTES);
    const view = viewOf(bytes);
    view.setUint32(0, MAGIC_MICROS, true);
    view.setUint16(4, 2, true);
    view.setUint16(6, 4, true);
    view.setUint32(16, SNAP_LENGTH, true);
    view.setUint32(20, LinkType.RAW, true);
    return bytes;
  },

  recordBytes: (frameBytes) => RECORD_HEADER_BYTES + frameBytes,

  frameOffset: RECORD_HEADER_BYTES,

  writeRecord(record, { micros, frameBytes }) {
    const view = viewOf(record);
    view.setUint32(0, Math.floor(micros / 1e6), true);
    view.setUint32(4, micros % 1e6, true);
    view.setUint32(8, frameBytes, true);
    view.setUint32(12, frameBytes, true);
  },
};
