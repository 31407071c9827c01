/** Addresses in the calls of a socket. */
import { checkWhole, shown } from '../../errors/check-whole.js';
import { MisuseError } from '../../errors/errors.js';
import { Endpoint, Gid } from '../../link/endpoint.js';
import { ROCE_PORT } from '../../link/link.js';
import type { IncomingMessage } from '../protocol/message.js';

/** `sockaddr_in`, and the UDP port of the device at that address. */
export interface RdsAddress {
  readonly address: string;
  readonly port: number;
  /** UDP port of that device. Default 4791. */
  readonly udpPort?: number;
}

export function senderOf({ from, header }: IncomingMessage): Required<RdsAddress> {
  return { address: from.gid.toString(), port: header.sourcePort, udpPort: from.port };
}

export function parseGid(address: string): Gid {
  try {
    return Gid.parse(address);
  } catch {
    throw new MisuseError('address', `must be an IPv4 or IPv6 address, got ${shown(address)}`);
  }
}

const endpoints = new Map<string, Endpoint>();
const ENDPOINTS_MAX = 4096;
/** The last address that was parsed: most programs send to the same one again. */
let last = { address: '', udpPort: 0, endpoint: undefined as Endpoint | undefined };

/** Returns the same object for the same address, so that comparing costs nothing. */
export function endpointOf({ address, port, udpPort = ROCE_PORT }: RdsAddress): Endpoint {
  checkWhole('port', port, 0, 65535);
  if (last.endpoint && last.address === address && last.udpPort === udpPort) return last.endpoint;
  const key = `${address} ${udpPort}`;
  let endpoint = endpoints.get(key);
  if (!endpoint) {
    if (endpoints.size >= ENDPOINTS_MAX) endpoints.clear();
    endpoint = new Endpoint(parseGid(address), udpPort);
    endpoints.set(key, endpoint);
  }
  last = { address, udpPort, endpoint };
  return endpoint;
}
