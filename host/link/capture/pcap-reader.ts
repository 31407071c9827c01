/**
 * Reads captures, pcap or pcapng: every RoCEv2 packet in them, with its addresses. Every byte of a
 * capture is hostile: a field is read only after a check that it is there.
 *
 * Link types: https://www.tcpdump.org/linktypes.html.
 */
import { checkBytes } from '../../errors/check-bytes.js';
import { checkKeys } from '../../base/options.js';
import { ROCE_PORT } from '../link.js';
import { FileWindow, PcapError, type CaptureFormat } from './capture-file.js';
import { dissect, type CapturedPacket, type SkipReason } from './dissect.js';
import { PCAP_HEADER_BYTES, PcapFormat } from './pcap-format.js';
import { PCAPNG_MAGIC, PcapngFormat } from './pcapng-format.js';

export { PcapError } from './capture-file.js';
export type { CapturedPacket, SkipReason } from './dissect.js';

/** Which packets of a capture are read. */
export interface ReadPcapOptions {
  /** UDP destination port or ports to look for. Default 4791. */
  port?: number | readonly number[];
}

/** A capture: iterating it parses it from the start. */
export interface Capture extends Iterable<CapturedPacket> {
  /** LINKTYPE_ number of its frames; of a pcapng file: of its first interface, -1 without one. */
  readonly linkType: number;
  /** Frames that the last iteration skipped so far, by reason. */
  readonly skipped: ReadonlyMap<SkipReason, number>;
}

/** A hostile stream must not fill the memory with one record. */
const RECORD_BYTES_MAX = 16 * 2 ** 20;

/**
 * Reads a pcap or pcapng file. Throws PcapError when `bytes` does not begin like one, or has a link
 * type that is unknown; the iteration throws it where the file ends inside a record, or a block of
 * a pcapng file is malformed. Nothing else is thrown.
 */
export function readPcap(bytes: Uint8Array, options: ReadPcapOptions = {}): Capture {
  checkBytes('bytes', bytes);
  checkKeys('readPcap', options, 'port');
  const { port = ROCE_PORT } = options;
  return new WholeCapture(bytes, typeof port === 'number' ? [port] : port);
}

class WholeCapture implements Capture {
  readonly linkType: number;
  skipped: ReadonlyMap<SkipReason, number> = new Map();
  readonly #bytes: Uint8Array;
  readonly #ports: readonly number[];

  constructor(bytes: Uint8Array, ports: readonly number[]) {
    this.#bytes = bytes;
    this.#ports = ports;
    const format = formatOf(new FileWindow(bytes, 0));
    if (!format) throw tooShort(bytes.length);
    this.linkType = firstLinkType(format, new FileWindow(bytes, 0));
  }

  *[Symbol.iterator](): Iterator<CapturedPacket> {
    const parser = new CaptureParser(this.#ports);
    this.skipped = parser.skipped;
    parser.push(this.#bytes);
    for (let packet = parser.next(); packet; packet = parser.next()) yield packet;
    parser.end();
  }
}

/** A capture that arrives in pieces: push a piece, then call `next` until it returns undefined. */
export class CaptureParser {
  /** Frames that are no packet to one of the ports. */
  readonly skipped = new Map<SkipReason, number>();
  readonly #ports: Set<number>;
  #window = new FileWindow(new Uint8Array(0), 0);
  #at = 0;
  #format: CaptureFormat | undefined;
  #frameNumber = 1;
  #incomplete = '';

  constructor(ports: readonly number[]) {
    this.#ports = new Set(ports);
  }

  /** From the next frame on packets to this port are found as well. */
  addPort(port: number): void {
    this.#ports.add(port);
  }

  /** Adds bytes, which must stay unchanged. Throws PcapError if a record is longer than 16 MiB. */
  push(bytes: Uint8Array): void {
    const left = this.#window.leftAt(this.#at);
    const base = this.#window.base + this.#at;
    if (left > RECORD_BYTES_MAX) throw new PcapError(base, 'a record has more than 16 MiB');
    let joined = bytes;
    if (left > 0) {
      joined = new Uint8Array(left + bytes.length);
      joined.set(this.#window.bytes.subarray(this.#at));
      joined.set(bytes, left);
    }
    this.#window = new FileWindow(joined, base);
    this.#at = 0;
  }

  /** The bytes so far begin like a capture. */
  get isRecognized(): boolean {
    return this.#format !== undefined;
  }

  /** The next packet; undefined: it is not there yet. Throws PcapError. */
  next(): CapturedPacket | undefined {
    if (!this.#begin()) return undefined;
    for (;;) {
      if (this.#window.leftAt(this.#at) === 0) {
        this.#incomplete = '';
        return undefined;
      }
      const record = this.#format!.record(this.#window, this.#at, this.#frameNumber);
      if ('incomplete' in record) {
        this.#incomplete = record.incomplete;
        return undefined;
      }
      this.#at = record.end;
      if (!record.frame) continue;
      const found = dissect(this.#window, record.frame, this.#frameNumber++, this.#ports);
      if (typeof found !== 'string') return found;
      this.skipped.set(found, (this.skipped.get(found) ?? 0) + 1);
    }
  }

  /** The file ends here. Throws PcapError if that is inside a record. */
  end(): void {
    if (!this.#format) throw tooShort(this.#window.bytes.length);
    if (this.#incomplete !== '') throw this.#window.error(this.#at, this.#incomplete);
  }

  /** Detects the format; false: that needs more bytes. */
  #begin(): boolean {
    if (this.#format) return true;
    this.#format = formatOf(this.#window);
    if (!this.#format) return false;
    this.#at = this.#format.headerBytes;
    return true;
  }
}

/** Undefined: too few bytes to tell. Throws PcapError. */
function formatOf(window: FileWindow): CaptureFormat | undefined {
  if (window.bytes.length < PCAP_HEADER_BYTES) return undefined;
  const isPcapng = window.view.getUint32(0) === PCAPNG_MAGIC;
  return isPcapng ? new PcapngFormat() : new PcapFormat(window);
}

function tooShort(length: number): PcapError {
  return new PcapError(0, `expected a pcap file header of 24 bytes, the file has ${length}`);
}

/** Reads on until an interface is described; a malformed block is for the iteration to report. */
function firstLinkType(format: CaptureFormat, window: FileWindow): number {
  let at = format.headerBytes;
  while (format.linkType < 0 && window.leftAt(at) > 0) {
    const record = format.record(window, at, 1);
    if ('incomplete' in record) break;
    at = record.end;
  }
  return format.linkType;
}
