/**
 * The messages of perftest before and after a measurement, and the notes that Verbena peers add.
 * Sans I/O: bytes to values and back. All input is hostile.
 *
 * Facts from perftest 6.06 and a capture (test/vectors/linux/perftest-ib_write_bw): with -R binary
 * numbers in SENDs, without -R text over TCP; the client sends first, then the server.
 */
import { Gid } from '../../link/endpoint.js';
import { RefusalError } from '../../errors/errors.js';
import { checkNoHello } from '../base/keyed-exchange.js';

/** Address, key and identity of one queue pair (`struct pingpong_dest`). */
export interface PerfDestination {
  /** READs and atomics that it answers at a time. */
  readonly outs: number;
  readonly qpn: number;
  readonly psn: number;
  readonly rkey: number;
  /** Address of the buffer, 64 bits. */
  readonly vaddr: bigint;
  readonly gid: Gid;
}

/**
 * Measurement of a side (`struct bw_report_data`). Peaks and averages are in MiB or Gb a second.
 */
export interface PerfBandwidthReport {
  readonly bytes: number;
  readonly iters: number;
  readonly peak: number;
  readonly average: number;
  /** Millions of messages a second. */
  readonly messageRate: number;
}

/** Bytes of the messages over the connection manager. */
export const VERSION_BYTES = 16;
export const NUMBER_BYTES = 4;
export const MTU_BYTES = 2;
export const DESTINATION_BYTES = 56;
const REPORT_BYTES = 8;
export const NOTE_BYTES = 1024;
/** Over TCP a destination is text, and an end is said by a word. */
export const DESTINATION_TEXT_BYTES = 108;
export const DONE = Buffer.from('done\0', 'latin1');

/** perftest looks at the number in front; the text behind the NUL marks a Verbena peer. */
const VERSION = '6.06\0verbena 1\0\0';
/** Older ones say other things. */
const VERSION_LEAST = 5.7;
const VERSION_TEXT = /^(\d{1,3}\.\d{1,3})[^\0]{0,10}\0/;
const SIGNATURE = '\0verbena 1\0';

function refuse(sentence: string): RefusalError {
  return new RefusalError('EPROTO', sentence);
}

/** Text of a message as it may be printed. */
export function quoted(text: string): string {
  return JSON.stringify(text.slice(0, 40)).replace(/[^\x20-\x7e]/g, '?');
}

export function encodeVersion(): Buffer {
  return Buffer.from(VERSION, 'latin1');
}

/** Throws RefusalError EPROTO for what is no version, or an old one; EACCES for a hello. */
export function decodeVersion(bytes: Uint8Array): { version: string; isOwnKind: boolean } {
  checkNoHello(bytes);
  const text = Buffer.from(bytes).toString('latin1');
  const version = VERSION_TEXT.exec(text)?.[1];
  if (version === undefined) throw refuse(`the peer is not perftest: it sends ${quoted(text)}`);
  if (Number(version) < VERSION_LEAST) {
    throw refuse(`the peer is perftest ${version}; it must be 5.70 or later`);
  }
  return { version, isOwnKind: text.includes(SIGNATURE) };
}

/** An `int`: cycle buffer, cache line. */
export function encodeNumber(value: number): Buffer {
  const bytes = Buffer.alloc(NUMBER_BYTES);
  bytes.writeInt32BE(value);
  return bytes;
}

export function decodeNumber(bytes: Uint8Array): number {
  return Buffer.from(bytes).readInt32BE();
}

/** A member of `enum ibv_mtu`, as a digit. */
export function encodeMtu(mtu: number): Buffer {
  return Buffer.from(`${mtu}\0`, 'latin1');
}

/** Throws RefusalError EPROTO. */
export function decodeMtu(bytes: Uint8Array): number {
  const text = Buffer.from(bytes).toString('latin1');
  if (/^[1-5]\0$/.test(text)) return Number(text[0]);
  throw refuse(`invalid path MTU from peer: ${quoted(text)}`);
}

const NO_LID = 0;
const GID_INDEX = 1;

export function encodeDestination(one: PerfDestination): Buffer {
  const bytes = Buffer.alloc(DESTINATION_BYTES);
  bytes.writeUInt32BE(NO_LID, 0);
  bytes.writeUInt32BE(one.outs, 4);
  bytes.writeUInt32BE(one.qpn, 8);
  bytes.writeUInt32BE(one.psn, 12);
  bytes.writeUInt32BE(one.rkey >>> 0, 16);
  bytes.writeBigUInt64BE(one.vaddr, 24);
  bytes.set(one.gid.bytes, 32);
  bytes.writeUInt32BE(GID_INDEX, 52);
  return bytes;
}

/** Numbers are cut to what they can be. */
export function decodeDestination(bytes: Uint8Array): PerfDestination {
  const view = Buffer.from(bytes);
  return {
    outs: view.readUInt32BE(4),
    qpn: view.readUInt32BE(8) & 0xffffff,
    psn: view.readUInt32BE(12) & 0xffffff,
    rkey: view.readUInt32BE(16),
    vaddr: view.readBigUInt64BE(24),
    gid: new Gid(Uint8Array.from(view.subarray(32, 48))),
  };
}

const hex = (value: number | bigint, digits: number): string =>
  value.toString(16).padStart(digits, '0');

export function encodeDestinationText(one: PerfDestination): Buffer {
  const gid = [...one.gid.bytes].map((byte) => hex(byte, 2));
  const numbers = [hex(NO_LID, 4), hex(one.outs, 4), hex(one.qpn, 6), hex(one.psn, 6)];
  const memory = [hex(one.rkey >>> 0, 8), hex(one.vaddr, 16)];
  const text = [...numbers, ...memory, ...gid, hex(0, 8)].join(':');
  const bytes = Buffer.alloc(DESTINATION_TEXT_BYTES);
  bytes.write(`${text}:`, 'latin1');
  return bytes;
}

const HEX = (digits: number): string => `([\\da-f]{${digits}})`;
const DESTINATION_TEXT = new RegExp(
  `^${[4, 4, 6, 6, 8, 16].map(HEX).join(':')}:((?:[\\da-f]{2}:){16})${HEX(8)}:\\0*$`,
);

/** Throws RefusalError EPROTO for anything else than `encodeDestinationText` makes. */
export function decodeDestinationText(bytes: Uint8Array): PerfDestination {
  const text = Buffer.from(bytes).toString('latin1');
  const found = DESTINATION_TEXT.exec(text);
  if (!found) throw refuse(`invalid destination from peer: ${quoted(text)}`);
  const [, , outs = '', qpn = '', psn = '', rkey = '', vaddr = '', gid = ''] = found;
  return {
    outs: parseInt(outs, 16),
    qpn: parseInt(qpn, 16),
    psn: parseInt(psn, 16),
    rkey: parseInt(rkey, 16),
    vaddr: BigInt(`0x${vaddr}`),
    gid: new Gid(Uint8Array.from(Buffer.from(gid.replaceAll(':', ''), 'hex'))),
  };
}

const NO_REPORT: PerfBandwidthReport = {
  bytes: 0,
  iters: 0,
  peak: 0,
  average: 0,
  messageRate: 0,
};

/** Five messages of 8 bytes. */
export function encodeReport(report: PerfBandwidthReport = NO_REPORT): Buffer[] {
  const number = (value: number): Buffer => {
    const bytes = Buffer.alloc(REPORT_BYTES);
    bytes.writeBigUInt64BE(BigInt(value));
    return bytes;
  };
  const real = (value: number): Buffer => {
    const bytes = Buffer.alloc(REPORT_BYTES);
    bytes.writeDoubleBE(value);
    return bytes;
  };
  const { bytes, iters, peak, average, messageRate } = report;
  return [number(bytes), number(iters), real(peak), real(average), real(messageRate)];
}

/** perftest's server has measured nothing and says what happens to be there. */
export function decodeReport(messages: readonly Uint8Array[]): PerfBandwidthReport {
  const view = Buffer.concat(messages);
  const number = (at: number): number => Number(view.readBigUInt64BE(at));
  const real = (at: number): number => {
    const value = view.readDoubleBE(at);
    return Number.isFinite(value) ? value : 0;
  };
  return {
    bytes: number(0),
    iters: number(8),
    peak: real(16),
    average: real(24),
    messageRate: real(32),
  };
}

/** Something that only our own kind says: JSON, filled up with NULs. */
export function encodeNote(note: object): Buffer {
  const text = Buffer.from(JSON.stringify(note));
  if (text.length >= NOTE_BYTES)
    throw refuse(`a note of ${text.length} bytes exceeds ${NOTE_BYTES} bytes`);
  const bytes = Buffer.alloc(NOTE_BYTES);
  bytes.set(text);
  return bytes;
}

/** Throws RefusalError EPROTO for what is no JSON object. */
export function decodeNote(bytes: Uint8Array): { readonly [name: string]: unknown } {
  const text = Buffer.from(bytes).toString().replace(/\0+$/, '');
  try {
    const value = JSON.parse(text) as unknown;
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
      return value as { readonly [name: string]: unknown };
    }
  } catch {
    // Told below.
  }
  throw refuse(`invalid note from peer: ${quoted(text)}`);
}

/** A number of a note; `otherwise` if the note has no such number. */
export function numberOf(value: unknown, otherwise = 0): number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : otherwise;
}
