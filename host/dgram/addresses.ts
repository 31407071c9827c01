/** Which addresses are this machine's, and which name one machine. */
import { networkInterfaces } from 'node:os';
import { Gid } from '../link/endpoint.js';

/** Nodes of one wildcard socket. */
const ADDRESSES_MAX = 16;

/** 0.0.0.0 or ::. Here, since `interface.ts` loads more than a bound socket needs. */
function isUnspecified({ words: [a, b, c, d] }: Gid): boolean {
  return a === 0 && b === 0 && d === 0 && (c === 0 || c === 0xffff0000);
}

/** This machine's addresses that a socket of a family hears at, when it is bound to all of them. */
export function localAddresses(type: 'udp4' | 'udp6', isIpv6Only: boolean): string[] {
  const found = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return found
    .filter(({ family, scopeid }) => {
      if (family === 'IPv4') return type === 'udp4' || !isIpv6Only;
      // What is link-local has no meaning without its link.
      return type === 'udp6' && !scopeid;
    })
    .map(({ address }) => address)
    .slice(0, ADDRESSES_MAX);
}

/** Does it name one machine? Not a group, no broadcast address, and not all of this machine's. */
export function isUnicast(address: string): boolean {
  const gid = Gid.parse(address);
  if (gid.isMulticast || isUnspecified(gid)) return false;
  if (!gid.isIpv4) return !/^fe[89ab]/i.test(address);
  const words = (text: string): number => Gid.parse(text).words[3]!;
  const word = words(address);
  if (word === 0xffffffff) return false;
  const networks = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return !networks.some(({ family, address: ours, netmask }) => {
    if (family !== 'IPv4' || netmask === '255.255.255.255') return false;
    return word >>> 0 === (words(ours) | ~words(netmask)) >>> 0;
  });
}
