/**
 * Reads classic pcap files: every RoCEv2 packet in them, with its addresses. Every byte of a
 * capture is hostile: a field is read only after a check that it is there.
 *
 * Format: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap, link types:
 * https://www.tcpdump.org/linktypes.html.
 */
import { checkKeys } from '../../base/options.js';
import { VerbenaError } from '../../errors/errors.js';
import { Endpoint, Gid } from '../endpoint.js';
import { ROCE_PORT } from '../link.js';

/** The file is no pcap file, or ends in the middle. */
export class PcapError extends VerbenaError {
  override readonly name = 'PcapError';
  /** Byte offset in the file. */
  readonly offset: number;

  constructor(offset: number, sentence: string) {
    super(`at byte ${offset}: ${sentence}`);
    this.offset = offset;
  }
}

/** One UDP datagram to the wanted port. Offsets are in bytes from the start of the file. */
export interface CapturedPacket {
  /** Number of the frame in the file, from 1, as Wireshark counts. */
  readonly frameNumber: number;
  /** Microseconds since 1970, whole. */
  readonly timestampMicros: number;
  readonly source: Endpoint;
  readonly destination: Endpoint;
  readonly ipVersion: 4 | 6;
  /** IPv4 identification; 0 over IPv6. */
  readonly ipId: number;
  /** Time to live, or hop limit. */
  readonly ttl: number;
  /** The UDP payload, BTH to ICRC: a view of the file. */
  readonly payload: Uint8Array;
  readonly frameOffset: number;
  /** Bytes of the frame in the file. */
  readonly frameLength: number;
  /** Where the IP header begins. */
  readonly ipOffset: number;
  readonly udpOffset: number;
  readonly payloadOffset: number;
}

/** Why a frame is no `CapturedPacket`. */
export type SkipReason =
  | 'not IP'
  | 'not UDP'
  | 'another UDP port'
  | 'an IP fragment'
  | 'a malformed header'
  | 'cut short by the capture';

/** Which packets of a capture are read. */
export interface ReadPcapOptions {
  /** UDP destination port or ports to look for. Default 4791. */
  port?: number | readonly number[];
}

/** A capture: iterating it parses it from the start. */
export interface Capture extends Iterable<CapturedPacket> {
  /** LINKTYPE_ number of its frames. */
  readonly linkType: number;
  /** What the last iteration passed over so far, in frames. */
  readonly skipped: ReadonlyMap<SkipReason, number>;
}

export const PCAP_MAGIC_MICROS = 0xa1b2c3d4;
const PCAP_MAGIC_NANOS = 0xa1b23c4d;
const PCAP_MAGIC_MODIFIED = 0xa1b2cd34;
const PCAPNG_MAGIC = 0x0a0d0d0a;
export const FILE_HEADER_SIZE = 24;
export const RECORD_HEADER_SIZE = 16;

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
const KNOWN_LINK_TYPES: ReadonlySet<number> = new Set(Object.values(LinkType));

const ETHERTYPE_IPV4 = 0x0800;
const ETHERTYPE_IPV6 = 0x86dd;
const ETHERTYPES_VLAN = new Set([0x8100, 0x88a8, 0x9100]);
/** AF_INET6 of FreeBSD, macOS, Linux, NetBSD, as a null frame names it. */
const AF_INET = 2;
const AF_INET6 = new Set([10, 24, 28, 30]);

const PROTOCOL_UDP = 17;
/** IPv6 extension headers that may stand before UDP: hop-by-hop, routing, destination options. */
const EXTENSION_HEADERS = new Set([0, 43, 60]);
const FRAGMENT_HEADER = 44;
const EXTENSION_COUNT_MAX = 8;

/**
 * Throws PcapError when `bytes` does not begin like a pcap file with a link type that we know;
 * the iteration throws it where the file ends inside a record. Nothing else is thrown.
 */
export function readPcap(bytes: Uint8Array, options: ReadPcapOptions = {}): Capture {
  checkKeys('readPcap', options, 'port');
  const { port = ROCE_PORT } = options;
  return new CaptureReader(bytes, new Set(typeof port === 'number' ? [port] : port));
}

class CaptureReader implements Capture {
  readonly linkType: number;
  readonly skipped = new Map<SkipReason, number>();
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  readonly #littleEndian: boolean;
  readonly #ticksPerMicro: number;
  readonly #ports: ReadonlySet<number>;

  constructor(bytes: Uint8Array, ports: ReadonlySet<number>) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#ports = ports;
    if (bytes.length < FILE_HEADER_SIZE) {
      throw new PcapError(
        0,
        `expected a pcap file header of 24 bytes, the file has ${bytes.length}`,
      );
    }
    const magic = this.#view.getUint32(0, false);
    const swapped = this.#view.getUint32(0, true);
    if (magic === PCAPNG_MAGIC) {
      throw new PcapError(
        0,
        'expected pcap, found pcapng: convert it with "editcap -F pcap in.pcapng out.pcap"',
      );
    }
    const micros = magic === PCAP_MAGIC_MICROS || swapped === PCAP_MAGIC_MICROS;
    const nanos = magic === PCAP_MAGIC_NANOS || swapped === PCAP_MAGIC_NANOS;
    if (!micros && !nanos) throw new PcapError(0, describeMagic(magic, swapped));
    this.#littleEndian = swapped === PCAP_MAGIC_MICROS || swapped === PCAP_MAGIC_NANOS;
    this.#ticksPerMicro = nanos ? 1000 : 1;
    const major = this.#view.getUint16(4, this.#littleEndian);
    if (major !== 2) throw new PcapError(4, `expected pcap version 2, found ${major}`);
    // The upper half says whether frames end with a checksum.
    this.linkType = this.#view.getUint32(20, this.#littleEndian) & 0xffff;
    if (!KNOWN_LINK_TYPES.has(this.linkType)) {
      const known = [...KNOWN_LINK_TYPES].join(', ');
      throw new PcapError(20, `link type ${this.linkType} is unknown, expected one of ${known}`);
    }
  }

  *[Symbol.iterator](): Iterator<CapturedPacket> {
    this.skipped.clear();
    let at = FILE_HEADER_SIZE;
    for (let frameNumber = 1; at < this.#bytes.length; frameNumber++) {
      const left = this.#bytes.length - at;
      if (left < RECORD_HEADER_SIZE) {
        throw new PcapError(at, `expected a record header of 16 bytes, the file has ${left} more`);
      }
      const length = this.#u32(at + 8);
      if (length > left - RECORD_HEADER_SIZE) {
        throw new PcapError(
          at,
          `frame ${frameNumber} claims ${length} bytes, the file has ` +
            `${left - RECORD_HEADER_SIZE} more`,
        );
      }
      const frameOffset = at + RECORD_HEADER_SIZE;
      const found = this.#dissect(frameOffset, length, this.#u32(at + 12) > length);
      if (typeof found === 'string') {
        this.skipped.set(found, (this.skipped.get(found) ?? 0) + 1);
      } else {
        const fraction = Math.floor(this.#u32(at + 4) / this.#ticksPerMicro);
        const timestampMicros = this.#u32(at) * 1e6 + fraction;
        yield { frameNumber, timestampMicros, frameOffset, frameLength: length, ...found };
      }
      at = frameOffset + length;
    }
  }

  #dissect(frameOffset: number, length: number, cut: boolean): Dissected | SkipReason {
    const frame = new DataView(this.#view.buffer, this.#view.byteOffset + frameOffset, length);
    const ip = networkHeader(frame, this.linkType);
    if (ip === undefined) return 'not IP';
    if (ip >= length) return cut ? 'cut short by the capture' : 'a malformed header';
    const datagram = transportHeader(frame, ip);
    if (typeof datagram === 'string') {
      return cut && datagram === 'a malformed header' ? 'cut short by the capture' : datagram;
    }
    const { udp, end } = datagram;
    if (end - udp < 8) return 'a malformed header';
    if (length - udp < 8) return cut ? 'cut short by the capture' : 'a malformed header';
    const destinationPort = frame.getUint16(udp + 2);
    if (!this.#ports.has(destinationPort)) return 'another UDP port';
    const udpLength = frame.getUint16(udp + 4);
    if (udpLength < 8 || udp + udpLength > end) return 'a malformed header';
    if (udp + udpLength > length) return cut ? 'cut short by the capture' : 'a malformed header';
    const ipv4 = frame.getUint8(ip) >> 4 === 4;
    const ipOffset = frameOffset + ip;
    const udpOffset = frameOffset + udp;
    return {
      source: new Endpoint(this.#gid(ipOffset, ipv4, 0), frame.getUint16(udp)),
      destination: new Endpoint(this.#gid(ipOffset, ipv4, 1), destinationPort),
      ipVersion: ipv4 ? 4 : 6,
      ipId: ipv4 ? frame.getUint16(ip + 4) : 0,
      ttl: frame.getUint8(ip + (ipv4 ? 8 : 7)),
      payload: this.#bytes.subarray(udpOffset + 8, udpOffset + udpLength),
      ipOffset,
      udpOffset,
      payloadOffset: udpOffset + 8,
    };
  }

  /** Address `index` (0 source, 1 destination) of the IP header at `ipOffset`. */
  #gid(ipOffset: number, ipv4: boolean, index: number): Gid {
    if (!ipv4) {
      const at = ipOffset + 8 + 16 * index;
      return new Gid(this.#bytes.subarray(at, at + 16));
    }
    const at = ipOffset + 12 + 4 * index;
    const bytes = new Uint8Array(16).fill(0xff, 10, 12);
    bytes.set(this.#bytes.subarray(at, at + 4), 12);
    return new Gid(bytes);
  }

  #u32(at: number): number {
    return this.#view.getUint32(at, this.#littleEndian);
  }
}

type Dissected = Omit<
  CapturedPacket,
  'frameNumber' | 'timestampMicros' | 'frameOffset' | 'frameLength'
>;

/** Where the IP header begins in `frame`; may lie behind its end. Undefined: no IP in it. */
function networkHeader(frame: DataView, linkType: number): number | undefined {
  switch (linkType) {
    case LinkType.ETHERNET: {
      const type = u16(frame, 12);
      if (ETHERTYPES_VLAN.has(type)) return isIpType(u16(frame, 16)) ? 18 : undefined;
      return isIpType(type) ? 14 : undefined;
    }
    case LinkType.LINUX_SLL:
      return isIpType(u16(frame, 14)) ? 16 : undefined;
    case LinkType.LINUX_SLL2:
      return isIpType(u16(frame, 0)) ? 20 : undefined;
    case LinkType.NULL:
    case LinkType.LOOP: {
      if (frame.byteLength < 4) return undefined;
      // In the byte order of the machine that captured; the family is below 256 in either.
      const families = [frame.getUint32(0, true), frame.getUint32(0, false)];
      const isIp = families.some((family) => family === AF_INET || AF_INET6.has(family));
      return isIp ? 4 : undefined;
    }
    default:
      return 0;
  }
}

/** Where UDP begins and the IP packet ends (which may lie behind the frame's end). */
function transportHeader(frame: DataView, ip: number): { udp: number; end: number } | SkipReason {
  const version = frame.getUint8(ip) >> 4;
  if (version === 4) return ipv4Transport(frame, ip);
  if (version === 6) return ipv6Transport(frame, ip);
  return 'not IP';
}

function ipv4Transport(frame: DataView, ip: number): { udp: number; end: number } | SkipReason {
  if (frame.byteLength - ip < 20) return 'a malformed header';
  const headerLength = (frame.getUint8(ip) & 15) * 4;
  const totalLength = frame.getUint16(ip + 2);
  if (headerLength < 20 || totalLength < headerLength) return 'a malformed header';
  if (frame.getUint8(ip + 9) !== PROTOCOL_UDP) return 'not UDP';
  // More fragments, or an offset.
  if ((frame.getUint16(ip + 6) & 0x3fff) !== 0) return 'an IP fragment';
  return { udp: ip + headerLength, end: ip + totalLength };
}

function ipv6Transport(frame: DataView, ip: number): { udp: number; end: number } | SkipReason {
  if (frame.byteLength - ip < 40) return 'a malformed header';
  const end = ip + 40 + frame.getUint16(ip + 4);
  let next = frame.getUint8(ip + 6);
  let at = ip + 40;
  for (let count = 0; EXTENSION_HEADERS.has(next); count++) {
    if (count === EXTENSION_COUNT_MAX || at + 8 > end || at + 8 > frame.byteLength) {
      return 'a malformed header';
    }
    next = frame.getUint8(at);
    at += 8 * (1 + frame.getUint8(at + 1));
  }
  if (next === FRAGMENT_HEADER) return 'an IP fragment';
  return next === PROTOCOL_UDP ? { udp: at, end } : 'not UDP';
}

/** Big-endian, 0 where the frame ends before. */
function u16(frame: DataView, at: number): number {
  return at + 2 <= frame.byteLength ? frame.getUint16(at) : 0;
}

function isIpType(etherType: number): boolean {
  return etherType === ETHERTYPE_IPV4 || etherType === ETHERTYPE_IPV6;
}

function describeMagic(magic: number, swapped: number): string {
  if (magic === PCAP_MAGIC_MODIFIED || swapped === PCAP_MAGIC_MODIFIED) {
    return 'this is a "modified" pcap file, expected pcap: convert it with "editcap -F pcap in out"';
  }
  const found = magic.toString(16).padStart(8, '0');
  return `expected the magic number of a pcap file (a1b2c3d4 or a1b23c4d), found ${found}`;
}
