/**
 * Addresses inside messages: service ids, the header that rdma_cm puts in front of private data
 * (IBA Annex A11), and what our own kind says of itself in the CA GUID.
 */
import { PortSpace } from './enums.js';
import { checkWhole } from '../errors/check-whole.js';
import { Endpoint, Gid } from '../link/endpoint.js';
import { ROCE_PORT, type LinkInfo } from '../link/link.js';
import { parseGid } from '../verbs/queues/address-attributes.js';
import { checkObject } from '../base/options.js';

/** `sockaddr`, and the UDP port that the device there has. */
export interface CmAddress {
  /** An IPv4 or IPv6 address. */
  readonly address: string;
  /** A port of the id's port space. */
  readonly port: number;
  /** Where the other device is not at 4791. Default 4791. */
  readonly udpPort?: number;
}

/** The endpoint of a device. Throws MisuseError for an invalid port. */
export function checkTarget(target: CmAddress): Endpoint {
  checkObject('a connection', target, 'target');
  const { address, port, udpPort = ROCE_PORT } = target;
  for (const [name, value] of Object.entries({ port, udpPort })) {
    checkWhole(name, value, 1, 65535);
  }
  return new Endpoint(parseGid('address', address), udpPort);
}

/** A port of a port space as a service id: prefix, port space, port. */
export function serviceIdOf(portSpace: number, port: number): bigint {
  return (BigInt(portSpace) << 16n) | BigInt(port);
}

/** Is it a service of datagrams? Others have connections. */
export function isDatagramService(serviceId: bigint): boolean {
  return serviceId >> 16n === BigInt(PortSpace.UDP);
}

/** Bytes of the header in the private data of REQ and SIDR_REQ. */
export const IP_CM_BYTES = 36;

/** The addresses of both sides in IP's terms. */
export interface IpCmHeader {
  readonly source: Gid;
  readonly target: Gid;
  readonly sourcePort: number;
}

export function buildIpCm({ source, target, sourcePort }: IpCmHeader): Uint8Array {
  const header = new Uint8Array(IP_CM_BYTES);
  header[1] = source.isIpv4 ? 0x40 : 0x60;
  header.set([sourcePort >> 8, sourcePort & 255], 2);
  // An IPv4 address is the last four bytes behind zeros, not an IPv4-mapped one.
  for (const [gid, at] of [
    [source, 4],
    [target, 20],
  ] as const) {
    if (gid.isIpv4) header.set(gid.bytes.subarray(12), at + 12);
    else header.set(gid.bytes, at);
  }
  return header;
}

function readAddress(bytes: Uint8Array, isIpv4: boolean): Gid {
  if (!isIpv4) return new Gid(bytes);
  const mapped = new Uint8Array(16);
  mapped.set([0xff, 0xff], 10);
  mapped.set(bytes.subarray(12), 12);
  return new Gid(mapped);
}

/** Undefined: the private data does not begin with such a header. */
export function parseIpCm(privateData: Uint8Array): IpCmHeader | undefined {
  if (privateData.length < IP_CM_BYTES || privateData[0] !== 0) return undefined;
  const family = privateData[1]! >> 4;
  if (family !== 4 && family !== 6) return undefined;
  return {
    source: readAddress(privateData.subarray(4, 20), family === 4),
    target: readAddress(privateData.subarray(20, 36), family === 4),
    sourcePort: (privateData[2]! << 8) | privateData[3]!,
  };
}

/** Properties of the adapter of the other side. */
export interface PeerTraits {
  /** The GUID encodes it: the peer is of our own kind. */
  readonly isOwnKind: boolean;
  readonly udpPort: number;
  readonly receiveBufferBytes: number;
  /** Packets that it keeps when they come ahead; 0: go-back-N. */
  readonly reorderPackets: number;
  /** The link between it and us keeps bytes whole, as far as it sees. */
  readonly skipsIcrc: boolean;
}

/** `VERB`: the first byte marks a locally administered EUI-64 of one adapter. */
const OWN_KIND = 0x56455242n;
/** The default of a Linux UDP socket. */
const LINUX_RECEIVE_BUFFER_BYTES = 212992;
const LINUX: PeerTraits = {
  isOwnKind: false,
  udpPort: ROCE_PORT,
  receiveBufferBytes: LINUX_RECEIVE_BUFFER_BYTES,
  reorderPackets: 0,
  skipsIcrc: false,
};

/** Rounded down; at least 1. */
function log2(value: number): number {
  return Math.max(1, Math.min(31, Math.floor(Math.log2(value))));
}

/** In the last byte: no ICRC is needed (`PeerTraits.skipsIcrc`). */
const SKIPS_ICRC = 0x80;

/** `| V E R B | UDP port, 16 bits | log2 of the receive buffer | 1 + log2 of packets kept, or 0 |` */
export function caGuidOf(info: LinkInfo, reorderPackets: number, skipsIcrc = false): bigint {
  const packets = reorderPackets === 0 ? 0 : 1 + Math.floor(Math.log2(reorderPackets));
  const kept = packets | (skipsIcrc ? SKIPS_ICRC : 0);
  const encoded = (info.local.port << 16) | (log2(info.receiveBufferBytes) << 8) | kept;
  return (OWN_KIND << 32n) | BigInt(encoded >>> 0);
}

/** A GUID without valid values means Linux. */
export function traitsOf(caGuid: bigint): PeerTraits {
  if (caGuid >> 32n !== OWN_KIND) return LINUX;
  const encoded = Number(caGuid & 0xffffffffn);
  const udpPort = encoded >>> 16;
  const buffer = (encoded >>> 8) & 255;
  const kept = encoded & 255 & ~SKIPS_ICRC;
  if (udpPort === 0 || buffer < 1 || buffer > 31 || kept > 14) return LINUX;
  return {
    isOwnKind: true,
    udpPort,
    receiveBufferBytes: 2 ** buffer,
    reorderPackets: kept === 0 ? 0 : 2 ** (kept - 1),
    skipsIcrc: (encoded & SKIPS_ICRC) !== 0,
  };
}
