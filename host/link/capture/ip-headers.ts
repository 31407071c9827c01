/** Headers of captured packets, which a link does not have. */
import { IPV4_UDP_OVERHEAD, IPV6_UDP_OVERHEAD } from '../interface.js';
import type { CapturedPacket } from './dissect.js';
import { viewOf } from './record-writer.js';

/** A datagram with what its headers say. */
export type Datagram = Pick<
  CapturedPacket,
  'payload' | 'source' | 'destination' | 'ipVersion' | 'ipId'
>;

const TTL = 64;
const PROTOCOL_UDP = 17;
const UDP_HEADER_BYTES = 8;

/** Bytes of the IP packet of a datagram. */
export function ipPacketBytes({ payload, ipVersion }: Datagram): number {
  return (ipVersion === 4 ? IPV4_UDP_OVERHEAD : IPV6_UDP_OVERHEAD) + payload.length;
}

/** Fills `ip`, all of whose bytes are the packet's. */
export function writeIpPacket(ip: Uint8Array, datagram: Datagram): void {
  const { payload, source, destination, ipVersion } = datagram;
  if (ipVersion === 4) writeIpv4Header(ip, datagram);
  else writeIpv6Header(ip, datagram);
  const udp = ip.subarray(ip.length - payload.length - UDP_HEADER_BYTES);
  writeUdpHeader(udp, source.port, destination.port);
  udp.set(payload, UDP_HEADER_BYTES);
}

/** `ip` is the whole IP packet. */
function writeIpv4Header(ip: Uint8Array, { source, destination, ipId }: Datagram): void {
  const view = viewOf(ip);
  const dontFragment = 0x4000;
  view.setUint16(0, 0x4500);
  view.setUint16(2, ip.length);
  view.setUint16(4, ipId);
  view.setUint16(6, dontFragment);
  view.setUint8(8, TTL);
  view.setUint8(9, PROTOCOL_UDP);
  view.setUint16(10, 0);
  ip.set(source.gid.bytes.subarray(12), 12);
  ip.set(destination.gid.bytes.subarray(12), 16);
  let sum = 0;
  for (let at = 0; at < 20; at += 2) sum += view.getUint16(at);
  sum = (sum & 0xffff) + (sum >>> 16);
  sum = (sum & 0xffff) + (sum >>> 16);
  view.setUint16(10, ~sum & 0xffff);
}

function writeIpv6Header(ip: Uint8Array, { source, destination }: Datagram): void {
  const view = viewOf(ip);
  view.setUint32(0, 0x60000000);
  view.setUint16(4, ip.length - 40);
  view.setUint8(6, PROTOCOL_UDP);
  view.setUint8(7, TTL);
  ip.set(source.gid.bytes, 8);
  ip.set(destination.gid.bytes, 24);
}

/** `udp` is the whole datagram. The checksum is 0: none. */
function writeUdpHeader(udp: Uint8Array, sourcePort: number, destinationPort: number): void {
  const view = viewOf(udp);
  view.setUint16(0, sourcePort);
  view.setUint16(2, destinationPort);
  view.setUint16(4, udp.length);
  view.setUint16(6, 0);
}
