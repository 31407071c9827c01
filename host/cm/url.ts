/** Addresses of servers: `rdma://host:port`, and `?udp=port` of a device that is not at 4791. */
import { shown } from '../errors/check-whole.js';
import { MisuseError } from '../errors/errors.js';
import { ROCE_PORT } from '../link/link.js';

/** `rdma://host:port` or `rdma://host:port?udp=port`; an IPv6 address in brackets. */
export type RdmaUrl = `rdma://${string}`;

/** A server's address. */
export interface Place {
  readonly address: string;
  /** Of the connection manager; 0: any. */
  readonly port: number;
  /** Of the device; undefined: 4791. */
  readonly udpPort: number | undefined;
}

const URL_PATTERN =
  /^rdma:\/\/(?:\[([^\]]+)\]|([^\s:/?#[\]@]+)):(\d{1,5})\/?(?:\?udp=(\d{1,5}))?$/i;
const PORT_MAX = 65535;

/** Is it a URL of this level, and not `host:port`? */
export function isRdmaUrl(target: unknown): target is RdmaUrl | URL {
  return target instanceof URL || (typeof target === 'string' && /^rdma:/i.test(target));
}

/** Throws MisuseError. */
export function parseUrl(operation: string, url: string | URL): Place {
  const [, ipv6, host, port, udp] = URL_PATTERN.exec(String(url)) ?? [];
  const address = ipv6 ?? host;
  const isInRange = [port, udp].every((one) => Number(one ?? 0) <= PORT_MAX);
  if (address === undefined || !isInRange) {
    const form = 'rdma://HOST:PORT or rdma://HOST:PORT?udp=PORT, as in rdma://127.0.0.1:7471';
    throw new MisuseError('url', `${shown(url)} of ${operation} is not ${form}`);
  }
  return { address, port: Number(port), udpPort: udp === undefined ? undefined : Number(udp) };
}

export function formatUrl({ address, port, udpPort = ROCE_PORT }: Place): RdmaUrl {
  const host = address.includes(':') ? `[${address}]` : address;
  return `rdma://${host}:${port}${udpPort === ROCE_PORT ? '' : `?udp=${udpPort}`}`;
}
