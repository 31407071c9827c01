/** This machine's network interfaces, as far as Node and the system tell. */
import type { Socket } from 'node:dgram';
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { isIPv6 } from 'node:net';
import { networkInterfaces } from 'node:os';
import { MisuseError } from '../errors/errors.js';
import { systemRefusal } from '../errors/system-refusal.js';
import { Gid } from './endpoint.js';
import { ROCE_PORT, type LinkInfo } from './link.js';
import { createSocket } from './plain-dgram.js';

/** Bytes of the IP and UDP headers before BTH. */
export const IPV4_UDP_OVERHEAD = 20 + 8;
export const IPV6_UDP_OVERHEAD = 40 + 8;

const ETHERNET_MTU = 1500;
const LOOPBACK_MTU = 65536;

/** 0.0.0.0 or ::. */
export function isWildcard(gid: Gid): boolean {
  const [a, b, c, d] = gid.words;
  return a === 0 && b === 0 && d === 0 && (c === 0 || c === 0xffff0000);
}

/** The broadcast address of all networks, or of one of this machine. */
export function isBroadcast({ isIpv4, words }: Gid): boolean {
  const word = words[3]! >>> 0;
  if (!isIpv4 || word === 0xffffffff) return isIpv4;
  const wordOf = (address: string): number => Gid.parse(address).words[3]!;
  const ours = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return ours.some(({ family, address, netmask }) => {
    if (family !== 'IPv4' || netmask === '255.255.255.255') return false;
    return word === (wordOf(address) | ~wordOf(netmask)) >>> 0;
  });
}

/**
 * The interface that has this address. `zone` is its name where the address is link-local. Node
 * lists only interfaces that are up and have a carrier.
 */
export function findInterface(gid: Gid): { name: string; zone: string | undefined } | undefined {
  for (const [name, addresses] of Object.entries(networkInterfaces())) {
    for (const { address, scopeid } of addresses ?? []) {
      if (!Gid.parse(address).equals(gid)) continue;
      return {
        name,
        zone: scopeid ? (process.platform === 'win32' ? `${scopeid}` : name) : undefined,
      };
    }
  }
  return undefined;
}

/** Name of the interface that has this address, also without a carrier; empty: none is known. */
export function interfaceName(gid: Gid): string {
  const listed = findInterface(gid)?.name;
  if (listed !== undefined || gid.isIpv4) return listed ?? '';
  // A line: address, index, length of the prefix, scope, flags, name.
  const address = Buffer.from(gid.bytes).toString('hex');
  const line = readSystemFile('/proc/net/if_inet6').find((each) => each.startsWith(address));
  return line?.split(/\s+/)[5] ?? '';
}

/** Of an interface that is down or has no carrier? Known on Linux. */
function isOfDownInterface(gid: Gid): boolean {
  if (findInterface(gid)) return false;
  if (!gid.isIpv4) return interfaceName(gid) !== '';
  // The routes: each address of this machine has one of its own, in the line after it.
  const lines = readSystemFile('/proc/net/fib_trie').map((line) => line.trim());
  const isRoute = (line: string, at: number): boolean =>
    line === `|-- ${gid}` && lines[at + 1] === '/32 host LOCAL';
  return lines.some(isRoute);
}

/** Its lines; none where the system has no such file. */
function readSystemFile(path: string): string[] {
  try {
    return readFileSync(path, 'latin1').split('\n');
  } catch {
    return [];
  }
}

/**
 * MTU in bytes of the interface that has this address. Node does not tell it: Linux does, in
 * /sys; elsewhere it is taken to be Ethernet's 1500.
 */
export async function interfaceMtu(gid: Gid): Promise<number> {
  const [name, usual] = isLoopback(gid) ? ['lo', LOOPBACK_MTU] : [interfaceName(gid), ETHERNET_MTU];
  if (name === '') return usual;
  const text = await readFile(`/sys/class/net/${name}/mtu`, 'latin1').catch(() => '');
  const mtu = Number.parseInt(text, 10);
  return mtu > IPV6_UDP_OVERHEAD ? mtu : usual;
}

/** A sentence that lists the addresses to choose from. */
export function describeAddresses(): string {
  const found = Object.entries(networkInterfaces()).flatMap(([name, addresses]) =>
    (addresses ?? []).map(({ address, scopeid }) =>
      scopeid ? `${address}%${name}` : `${address} (${name})`,
    ),
  );
  return `This machine has ${found.join(', ') || 'none that Node can see'}`;
}

/** 127.0.0.0/8 (every address answers, only 127.0.0.1 is listed) or ::1. */
export function isLoopback(gid: Gid): boolean {
  if (gid.isIpv4) return gid.bytes[12] === 127;
  const [a, b, c, d] = gid.words;
  return a === 0 && b === 0 && c === 0 && d === 0x01000000;
}

/**
 * Is the IPv4 address in the network of a loopback interface that is up, as 127.0.0.0/8 mostly is?
 * Of IPv6 an interface has single addresses, and some systems list fe80::/64 there as well.
 */
export function isOnLoopback(gid: Gid): boolean {
  if (!gid.isIpv4) return false;
  const networks = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return networks.some(({ address, netmask, internal, family }) => {
    if (!internal || family !== 'IPv4') return false;
    const [ours, mask] = [Gid.parse(address).bytes, Gid.parse(netmask).bytes];
    return ours.every((byte, at) => ((byte ^ gid.bytes[at]!) & mask[at]!) === 0);
  });
}

/** Does this machine have the address? */
export function isOurs(gid: Gid): boolean {
  return isLoopback(gid) || findInterface(gid) !== undefined;
}

/** Why nothing travels, if this machine has lost the address of a device; else undefined. */
export function lostAddress({ local: { gid }, pseudoHeader }: LinkInfo): string | undefined {
  if (pseudoHeader === 'none' || isOurs(gid)) return undefined;
  if (isOfDownInterface(gid)) {
    const remedy = 'bring it up (ip link), or move the device (context.moveTo)';
    return `the interface that has the address ${gid} is down or has no carrier; ${remedy}`;
  }
  const remedy = 'open a device at one that it has, or move this one (context.moveTo)';
  return `this machine no longer has the address ${gid} of the device; ${remedy}`;
}

/** The kind of an address that is not that of one device; undefined: it may be. */
export function sharedKind(gid: Gid): string | undefined {
  if (isWildcard(gid)) return 'the wildcard address';
  if (gid.isMulticast) return 'a multicast group';
  return isBroadcast(gid) ? 'a broadcast address' : undefined;
}

/** Throws MisuseError for an address of several devices: a connection has one peer. */
export function checkUnicast(argument: string, address: string): void {
  const kind = sharedKind(Gid.parse(address));
  if (kind === undefined) return;
  const rule = `connect: ${address} is ${kind}; name the address of a device`;
  throw new MisuseError(argument, rule);
}

/** The address of ours that the system would send from; no packet is sent to find out. */
export async function localAddressTowards(address: string): Promise<string> {
  let socket: Socket | undefined;
  try {
    const opened = createSocket(isIPv6(address) ? 'udp6' : 'udp4');
    socket = opened;
    await new Promise<void>((resolve, reject) => {
      // Not as the callback of connect, which receives failures as well.
      opened.once('error', reject).once('connect', resolve);
      opened.connect(ROCE_PORT, address);
    });
    return opened.address().address;
  } catch (error) {
    throw systemRefusal(`no route to ${address}`, error);
  } finally {
    socket?.close();
  }
}
