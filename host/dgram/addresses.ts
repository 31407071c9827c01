/** Which addresses are this machine's, and which name one machine. */
import { isIP } from 'node:net';
import { networkInterfaces } from 'node:os';
import { Gid } from '../link/endpoint.js';
import { isBroadcast } from '../link/interface.js';

/** Nodes of one wildcard socket. */
const ADDRESSES_MAX = 16;

/** 0.0.0.0 or ::. Here, since `interface.ts` loads more than a bound socket needs. */
function isUnspecified({ words: [a, b, c, d] }: Gid): boolean {
  return a === 0 && b === 0 && d === 0 && (c === 0 || c === 0xffff0000);
}

/**
 * This machine's addresses at which a socket of a family receives when it is bound to all of them.
 */
export function localAddresses(type: 'udp4' | 'udp6', isIpv6Only: boolean): string[] {
  const found = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return found
    .filter(({ family, scopeid }) => {
      if (family === 'IPv4') return type === 'udp4' || !isIpv6Only;
      // A link-local address has no meaning without its link.
      return type === 'udp6' && !scopeid;
    })
    .map(({ address }) => address)
    .slice(0, ADDRESSES_MAX);
}

/** Limit of the devices of a node besides its own: each has an engine and a thread. */
export const RESERVES_MAX = 3;

/**
 * Addresses of the same family over which messages of the node at `address` go if its own address
 * fails: those of `setting`, or by default one of each other interface. A node at a loopback address
 * has none by default: that interface does not fail.
 */
export function reserveAddresses(
  address: string,
  setting: 'auto' | 'off' | readonly string[],
): string[] {
  if (setting === 'off') return [];
  const family = isIP(address);
  const isOther = (other: string): boolean => other !== address && isIP(other) === family;
  if (setting !== 'auto') return setting.filter(isOther).slice(0, RESERVES_MAX);
  const usable = Object.values(networkInterfaces()).map((addresses = []) =>
    addresses.filter(({ internal, scopeid }) => !internal && !scopeid),
  );
  const others = usable.filter((all) => !all.some((each) => each.address === address));
  // An address of no interface is one of 127.0.0.0/8.
  if (others.length === usable.length) return [];
  const first = others.map((all) => all.find((each) => isOther(each.address))?.address);
  return first.filter((each) => each !== undefined).slice(0, RESERVES_MAX);
}

/** Has an interface this address now? All of 127.0.0.0/8 is local. */
export function isLocal(address: string): boolean {
  const gid = Gid.parse(address);
  if (gid.isIpv4 && gid.bytes[12] === 127) return true;
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return all.some((each) => Gid.parse(each.address).equals(gid));
}

/** Does it name one machine? Not a group, no broadcast address, and not all of this machine's. */
export function isUnicast(address: string): boolean {
  const gid = Gid.parse(address);
  if (gid.isMulticast || isUnspecified(gid)) return false;
  if (!gid.isIpv4) return !/^fe[89ab]/i.test(address);
  return !isBroadcast(gid);
}
