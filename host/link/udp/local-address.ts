/** Common part of the UDP links before there is a socket: options, address, refusals. */
import { checkKeys } from '../../base/options.js';
import { checkWhole, mustBe } from '../../errors/check-whole.js';
import { LinkError } from '../../errors/errors.js';
import { systemSentence } from '../../errors/system-refusal.js';
import { Gid, type Endpoint } from '../endpoint.js';
import {
  describeAddresses,
  findInterface,
  interfaceMtu,
  IPV4_UDP_OVERHEAD,
  IPV6_UDP_OVERHEAD,
  sharedKind,
} from '../interface.js';
import { PACKET_SIZE_LIMIT, ROCE_PORT, type LinkInfo } from '../link.js';
import { describeHolder } from './port-holder.js';
import type { UdpOptions } from './udp-options.js';

const SOCKET_BUFFER_BYTES = 4 * 2 ** 20;
const PEER_RECEIVE_BUFFER_BYTES = 212992;
const SEND_SOCKETS_MAX = 64;
const DSCP_MAX = 63;

/** Options of a UDP link, checked and complete. */
export interface LocalAddress {
  readonly gid: Gid;
  /** `%eth0` if the address has a zone, else empty. */
  readonly zone: string;
  readonly port: number;
  /** Undefined: what the interface leaves. */
  readonly packetSizeMax: number | undefined;
  readonly socketBufferBytes: number;
  readonly peerReceiveBufferBytes: number;
  readonly reusePort: boolean;
  readonly sendSockets: number;
  readonly dscp: number;
  readonly wakeDescriptor: number | undefined;
}

/** Throws MisuseError when `address` is no IP address or a number is out of range. */
export function checkUdpOptions(options: UdpOptions): LocalAddress {
  const sizes = 'packetSizeMax socketBufferBytes peerReceiveBufferBytes sendSockets dscp';
  checkKeys('UdpLink', options, `address port reusePort wakeDescriptor ${sizes}` as const);
  const {
    port = ROCE_PORT,
    packetSizeMax,
    socketBufferBytes = SOCKET_BUFFER_BYTES,
    peerReceiveBufferBytes = PEER_RECEIVE_BUFFER_BYTES,
    reusePort = false,
    sendSockets = 0,
    dscp = 0,
    wakeDescriptor,
  } = options;
  const gid = parseAddress(options.address);
  const zone = /%.*$/.exec(options.address)?.[0] ?? '';
  checkWhole('port', port, 0, 65535);
  checkWhole('packetSizeMax', packetSizeMax ?? PACKET_SIZE_LIMIT, 1, PACKET_SIZE_LIMIT);
  checkWhole('socketBufferBytes', socketBufferBytes, 1, 2 ** 30);
  checkWhole('sendSockets', sendSockets, 0, SEND_SOCKETS_MAX);
  checkWhole('dscp', dscp, 0, DSCP_MAX);
  checkWhole('peerReceiveBufferBytes', peerReceiveBufferBytes, 1, 2 ** 31);
  const buffers = { socketBufferBytes, peerReceiveBufferBytes };
  const sockets = { reusePort, sendSockets, dscp, wakeDescriptor };
  return { gid, zone, port, packetSizeMax, ...buffers, ...sockets };
}

/**
 * The address as it is to be bound, with the zone that a link-local one has and the longest packet
 * that its interface carries. Rejects with LinkError EADDRNOTAVAIL for a wildcard.
 */
export async function findLocalAddress(
  local: LocalAddress,
): Promise<LocalAddress & { readonly packetSizeMax: number }> {
  const { gid } = local;
  // The kernel binds groups and broadcast addresses as well, but no packet may come from one.
  const kind = sharedKind(gid);
  if (kind !== undefined) {
    throw new LinkError(
      'EADDRNOTAVAIL',
      `${gid} is ${kind} and cannot be bound: the ICRC covers the address that a packet is ` +
        `sent from, so choose one. ${describeAddresses()}`,
    );
  }
  const found = findInterface(gid);
  const zone = local.zone === '' && found?.zone ? `%${found.zone}` : local.zone;
  const overhead = gid.isIpv4 ? IPV4_UDP_OVERHEAD : IPV6_UDP_OVERHEAD;
  const fits = Math.min(PACKET_SIZE_LIMIT, (await interfaceMtu(gid)) - overhead);
  return { ...local, zone, packetSizeMax: local.packetSizeMax ?? fits };
}

/**
 * The options of a link that goes to `address`. Throws MisuseError for no IP address, and for no
 * port; LinkError EOPNOTSUPP for another family, and where a zone or more sockets are in use.
 */
export function movedTo(local: LocalAddress, address: string, port: number): LocalAddress {
  const gid = parseAddress(address);
  checkWhole('port', port, 0, 65535);
  const isOther = gid.isIpv4 !== local.gid.isIpv4;
  const reason = isOther
    ? `${gid} is of another family than ${local.gid}`
    : local.zone !== '' || local.reusePort || local.sendSockets > 0
      ? 'a zone, a name or sendSockets bind this device to its address'
      : undefined;
  if (reason === undefined) return { ...local, gid, port };
  const remedy = 'close this device and open one at that address';
  throw new LinkError('EOPNOTSUPP', `moveTo: ${reason}; ${remedy}`);
}

/** At another address. The engine's memory is made for packets as long as those of the first one. */
export function movedInfo(info: LinkInfo, local: Endpoint, packetSizeMax: number): LinkInfo {
  return { ...info, local, packetSizeMax: Math.min(info.packetSizeMax, packetSizeMax) };
}

/** The refusal that says what to do about an address that cannot be bound. */
export async function explainBind(
  { gid, zone, port }: LocalAddress,
  error: Error & { readonly code?: string },
): Promise<LinkError> {
  const options = { cause: error };
  switch (error.code) {
    case 'EADDRINUSE': {
      const holder = await describeHolder(gid, port);
      const free = `${gid}` === '127.0.0.2' ? '127.0.0.3' : '127.0.0.2';
      const other = gid.isIpv4 ? ` such as ${free}` : '';
      return new LinkError(
        'EADDRINUSE',
        `port ${port} on ${gid} is ${holder}: bind another local address${other} ` +
          `(option address; --bind) or another UDP port (option port; --udp-port, --port)`,
        options,
      );
    }
    case 'EADDRNOTAVAIL':
    case 'EINVAL': {
      const sentence = `${gid}${zone} is no address of this machine. ${describeAddresses()}`;
      return new LinkError('EADDRNOTAVAIL', sentence, options);
    }
    default: {
      const what = `cannot open port ${port} on ${gid}`;
      const { code, sentence } = systemSentence(what, error) ?? {
        code: 'EIO',
        sentence: `${what}: ${error.message}`,
      };
      return new LinkError(code, sentence, options);
    }
  }
}

function parseAddress(text: string): Gid {
  try {
    return Gid.parse(text);
  } catch {
    throw mustBe('address', 'an IPv4 or IPv6 address', text);
  }
}
