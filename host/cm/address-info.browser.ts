/** Stands in for address-info.ts in a page, which has no names: checks are for the types. */
import { RefusalError } from '../errors/errors.js';
import { isIP } from '../link/ip-address.js';
import type { AddressHints, AddressInfo } from './address-info.js';
import { PortSpace } from './enums.js';

export const RaiFlag = Object.freeze({ PASSIVE: 1, NUMERICHOST: 2 });

/** Throws RefusalError ENOENT. */
function checkAddress(host: string): void {
  if (isIP(host) !== 0) return;
  throw new RefusalError(
    'ENOENT',
    `getaddrinfo: the host ${host} is a name; use an address in a page`,
  );
}

// Rejects, and does not throw.
// eslint-disable-next-line @typescript-eslint/require-await
export async function lookUp(host: string): Promise<string> {
  checkAddress(host);
  return host;
}

/** ENOENT. */
export const lookupErrno = (): number => 2;

export function numericInfo(
  node: string,
  service: number | string,
  { flags = 0, portSpace = PortSpace.TCP }: AddressHints = {},
): AddressInfo {
  checkAddress(node);
  const where = { address: node, port: Number(service) };
  return {
    flags,
    portSpace,
    ...(flags & RaiFlag.PASSIVE ? { srcAddr: where } : { dstAddr: where }),
  };
}

// eslint-disable-next-line @typescript-eslint/require-await
export async function getaddrinfo(
  node: string,
  service: number | string,
  hints?: AddressHints,
): Promise<AddressInfo> {
  return numericInfo(node, service, hints);
}
