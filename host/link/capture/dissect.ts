/** Finds the UDP datagram in a captured frame. Every byte is hostile: it is read after a check. */
import { Endpoint, Gid } from '../endpoint.js';
import { KNOWN_LINK_TYPES, LinkType, type FileWindow, type Frame } from './capture-file.js';

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
  /** Comments of a pcapng file about this packet, a line each; empty: none. */
  readonly comment: string;
}

/** Why a frame is no `CapturedPacket`. */
export type SkipReason =
  | 'not IP'
  | 'not UDP'
  | 'another UDP port'
  | 'an IP fragment'
  | 'a malformed header'
  | 'of an unknown link type'
  | 'cut short by the capture';

const ETHERTYPE_IPV4 = 0x0800;
const ETHERTYPE_IPV6 = 0x86dd;
const ETHERTYPES_VLAN = new Set([0x8100, 0x88a8, 0x9100]);
/** AF_INET6 of FreeBSD, macOS, Linux, NetBSD, as a null frame names it. */
const AF_INET = 2;
const AF_INET6 = new Set([10, 24, 28, 30]);

const PROTOCOL_UDP = 17;
const UDP_HEADER_BYTES = 8;
/** IPv6 extension headers that may stand before UDP: hop-by-hop, routing, destination options. */
const EXTENSION_HEADERS = new Set([0, 43, 60]);
const FRAGMENT_HEADER = 44;
const EXTENSION_COUNT_MAX = 8;

/** A window's frame as a datagram to one of `ports`. `frameNumber`: the frame's. */
export function dissect(
  window: FileWindow,
  frame: Frame,
  frameNumber: number,
  ports: ReadonlySet<number>,
): CapturedPacket | SkipReason {
  if (!KNOWN_LINK_TYPES.has(frame.linkType)) return 'of an unknown link type';
  const cut = frame.originalLength > frame.length;
  const bytes = window.bytes.subarray(frame.offset, frame.offset + frame.length);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const ip = networkHeader(view, frame.linkType);
  if (ip === undefined) return 'not IP';
  const found = datagramAt(view, ip, ports);
  if (typeof found === 'string') {
    return cut && found === 'a malformed header' ? 'cut short by the capture' : found;
  }
  const { udp, udpLength } = found;
  const ipv4 = view.getUint8(ip) >> 4 === 4;
  const frameOffset = window.base + frame.offset;
  return {
    frameNumber,
    timestampMicros: frame.timestampMicros,
    frameOffset,
    frameLength: frame.length,
    source: new Endpoint(gidAt(bytes, ip, ipv4, 0), view.getUint16(udp)),
    destination: new Endpoint(gidAt(bytes, ip, ipv4, 1), view.getUint16(udp + 2)),
    ipVersion: ipv4 ? 4 : 6,
    ipId: ipv4 ? view.getUint16(ip + 4) : 0,
    ttl: view.getUint8(ip + (ipv4 ? 8 : 7)),
    payload: bytes.subarray(udp + UDP_HEADER_BYTES, udp + udpLength),
    ipOffset: frameOffset + ip,
    udpOffset: frameOffset + udp,
    payloadOffset: frameOffset + udp + UDP_HEADER_BYTES,
    comment: frame.comment,
  };
}

/** The UDP header in the IP packet at `ip`, all of whose datagram is in the frame. */
function datagramAt(
  frame: DataView,
  ip: number,
  ports: ReadonlySet<number>,
): { udp: number; udpLength: number } | SkipReason {
  const length = frame.byteLength;
  if (ip >= length) return 'a malformed header';
  const datagram = transportHeader(frame, ip);
  if (typeof datagram === 'string') return datagram;
  const { udp, end } = datagram;
  if (end - udp < UDP_HEADER_BYTES || length - udp < UDP_HEADER_BYTES) return 'a malformed header';
  if (!ports.has(frame.getUint16(udp + 2))) return 'another UDP port';
  const udpLength = frame.getUint16(udp + 4);
  const fits = udpLength >= UDP_HEADER_BYTES && udp + udpLength <= Math.min(end, length);
  return fits ? { udp, udpLength } : 'a malformed header';
}

/** Address `index` (0 source, 1 destination) of the IP header at `ip`. */
function gidAt(frame: Uint8Array, ip: number, ipv4: boolean, index: number): Gid {
  if (!ipv4) {
    const at = ip + 8 + 16 * index;
    return new Gid(frame.subarray(at, at + 16));
  }
  const at = ip + 12 + 4 * index;
  const bytes = new Uint8Array(16).fill(0xff, 10, 12);
  bytes.set(frame.subarray(at, at + 4), 12);
  return new Gid(bytes);
}

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
