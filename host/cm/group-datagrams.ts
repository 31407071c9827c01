/** Multicast groups of links with IP addresses. */
import { RefusalError } from '../errors/errors.js';
import type { Gid } from '../link/endpoint.js';
import type { LinkInfo } from '../link/link.js';

/** Throws RefusalError EAFNOSUPPORT for a group that the device's address sends nothing to. */
export function checkFamily(group: Gid, { local: { gid }, pseudoHeader }: LinkInfo): void {
  if (pseudoHeader === 'none' || group.isIpv4 === gid.isIpv4) return;
  const family = gid.isIpv4 ? 'IPv4' : 'IPv6';
  const sentence = `joinMulticastEx: ${group} from ${gid}: use an ${family} group`;
  throw new RefusalError('EAFNOSUPPORT', sentence);
}

/**
 * Was a datagram sent to a multicast group? Messages of the connection manager have one receiver.
 * `grh`: what stands before it, as in a receive buffer.
 */
export function isToGroup(grh: Uint8Array): boolean | undefined {
  return grh[0]! >> 4 === 6 ? grh[24] === 0xff : grh[36]! >> 4 === 14;
}
