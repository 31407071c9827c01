/** `rdma_addrinfo`: a host and a service by name, as addresses that ids take. */
import { checkKeys } from '../base/options.js';
import { checkBits, mustBe } from '../errors/check-whole.js';
import { RefusalError } from '../errors/errors.js';
import { isIP } from '../link/ip-address.js';
import { lookupSentence } from '../link/lookup-refusal.js';
import type { CmAddress } from './address.js';
import { PortSpace } from './enums.js';
import { lookup } from './lookup.js';

/** `RAI_…`: flags of AddressHints. */
export const RaiFlag = Object.freeze({
  /** The address is our own, to listen to. */
  PASSIVE: 1,
  /** The node is a numeric address; no name is looked up. */
  NUMERICHOST: 2,
});

/** Search criteria of `getaddrinfo`. */
export interface AddressHints {
  /** Made of RaiFlag. */
  readonly flags?: number;
  /** A PortSpace. Default TCP. */
  readonly portSpace?: number;
}

/** `struct rdma_addrinfo`: what `getaddrinfo` found. */
export interface AddressInfo {
  /** Made of RaiFlag. */
  readonly flags: number;
  /** A PortSpace. */
  readonly portSpace: number;
  /** With RaiFlag.PASSIVE: for `bindAddr`. */
  readonly srcAddr?: CmAddress;
  /** Otherwise: for `resolveAddr`. */
  readonly dstAddr?: CmAddress;
}

const EVERY_FLAG = RaiFlag.PASSIVE | RaiFlag.NUMERICHOST;

/**
 * The address of a host. Rejects with RefusalError ENOENT (no such host), EAGAIN (the resolver does
 * not answer now); with that of the system if it cannot ask.
 */
export async function lookUp(host: string): Promise<string> {
  if (isIP(host) !== 0) return host;
  let cause: unknown;
  try {
    // Null: the name is empty.
    const { address } = (await lookup(host)) as { readonly address: string | null };
    if (address !== null) return address;
  } catch (error) {
    cause = error;
  }
  const { code, sentence } = lookupSentence(host, cause ?? {});
  throw new RefusalError(code, sentence, { cause });
}

/** Of a refusal of `lookUp`, as Linux has it. */
export function lookupErrno({ code }: RefusalError): number {
  return { ENOENT: 2, EAGAIN: 11 }[code as string] ?? 5;
}

/** The info of a numeric node; undefined: the node is a name. Throws MisuseError. */
export function numericInfo(
  node: string,
  service: number | string,
  hints: AddressHints = {},
): AddressInfo | undefined {
  checkKeys('getaddrinfo', hints, 'flags portSpace');
  const { flags = 0, portSpace = PortSpace.TCP } = hints;
  const port = typeof service === 'string' && /^\d{1,5}$/.test(service) ? Number(service) : service;
  if (typeof port !== 'number' || !Number.isInteger(port) || port < 0 || port > 65535) {
    throw mustBe('service', 'a port from 0 to 65535', service);
  }
  checkBits('flags', flags, 'RaiFlag', EVERY_FLAG);
  if (!Object.values<number>(PortSpace).includes(portSpace)) {
    throw mustBe('portSpace', 'a PortSpace', portSpace);
  }
  if (isIP(node) === 0) {
    if (!(flags & RaiFlag.NUMERICHOST)) return undefined;
    throw mustBe('node', 'an IPv4 or IPv6 address', node);
  }
  const where = { address: node, port };
  const isPassive = (flags & RaiFlag.PASSIVE) !== 0;
  return { flags, portSpace, ...(isPassive ? { srcAddr: where } : { dstAddr: where }) };
}

/**
 * `rdma_getaddrinfo`: `node` is a host's name or address, `service` a port. Throws MisuseError;
 * RefusalError ENOENT (no such host), EAGAIN (the resolver does not answer now).
 */
export async function getaddrinfo(
  node: string,
  service: number | string,
  hints: AddressHints = {},
): Promise<AddressInfo> {
  return numericInfo(node, service, hints) ?? numericInfo(await lookUp(node), service, hints)!;
}
