/**
 * Which requests a server of this process answers. A browser sends them for any page that it shows,
 * also of another site, and wherever the name of that site leads: so each request names the host
 * that its page was loaded from (RFC 9110 7.2), and one from another origin that (RFC 6454 7).
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { isIP } from 'node:net';
import type { Duplex } from 'node:stream';

/** Which pages may ask. */
export interface SiteOptions {
  /**
   * Host names, without a port, under which browsers reach this server. IP addresses and
   * `localhost` always do: no DNS server can make them lead here. Default none.
   */
  readonly hosts?: readonly string[];
  /** Origins of pages of other hosts that may ask, `https://example.com`. Default none. */
  readonly origins?: readonly string[];
}

/** Why a request is not answered. */
export interface SiteRefusal {
  readonly status: 400 | 403 | 421;
  readonly sentence: string;
}

/** Path of a request, beginning with `/`, as it was sent; undefined: its target is no path. */
export function pathOf({ url = '' }: IncomingMessage): string | undefined {
  const path = url.split('?', 1)[0]!;
  return path.startsWith('/') ? path : undefined;
}

/** Query of a request's URL. */
export function queryOf({ url = '' }: IncomingMessage): URLSearchParams {
  const at = url.indexOf('?');
  return new URLSearchParams(at < 0 ? '' : url.slice(at + 1));
}

/** Undefined: `site` answers this request. A program that is no browser sends no Origin. */
export function refusalOfRequest(
  { headers }: IncomingMessage,
  { hosts = [], origins = [] }: SiteOptions,
): SiteRefusal | undefined {
  const { host, origin } = headers;
  const name = host === undefined ? undefined : hostNameOf(host);
  if (host !== undefined && name === undefined) {
    return { status: 400, sentence: 'the Host header is no host' };
  }
  if (name !== undefined && !isOwnName(name) && !hosts.some((own) => own.toLowerCase() === name)) {
    const sentence = `${name} is no name of this server: use its IP address, or list the name`;
    return { status: 421, sentence };
  }
  if (origin === undefined || origins.includes(origin)) return undefined;
  if (host !== undefined && isSameHost(origin, host)) return undefined;
  return { status: 403, sentence: 'a page of another origin may not ask this server' };
}

/** Says why a request is not answered. */
export function refuse(response: ServerResponse, { status, sentence }: SiteRefusal): void {
  response.writeHead(status, { 'content-type': 'text/plain', connection: 'close' });
  response.end(sentence);
}

/** The same for a request that asked for another protocol, and has no response. */
export function refuseUpgrade(socket: Duplex, status: number, sentence: string): void {
  const text = `Content-Type: text/plain\r\nContent-Length: ${Buffer.byteLength(sentence)}`;
  // The peer may be gone, and this socket has no other owner.
  socket.on('error', () => socket.destroy());
  const head = `HTTP/1.1 ${status} Refused\r\n${text}\r\nConnection: close`;
  socket.end(`${head}\r\n\r\n${sentence}`, () => socket.destroy());
}

/** Without port and brackets, in small letters; undefined: this is no host. */
function hostNameOf(host: string): string | undefined {
  const [, inner, plain] = /^(?:\[([\da-fA-F:.]+)\]|([\w.-]+))(?::\d{1,5})?$/.exec(host) ?? [];
  return (inner ?? plain)?.toLowerCase();
}

function isOwnName(name: string): boolean {
  return isIP(name) !== 0 || name === 'localhost' || name.endsWith('.localhost');
}

function isSameHost(origin: string, host: string): boolean {
  try {
    const page = new URL(origin);
    // A proxy may end TLS: the scheme of the page is not ours, and its usual port is left out.
    return page.host !== '' && page.host === new URL(`${page.protocol}//${host}`).host;
  } catch {
    return false;
  }
}
