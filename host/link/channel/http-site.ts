/**
 * Which requests a server of this process answers. A browser sends them for any page that it shows,
 * also of another site, and wherever the name of that site leads: so each request names the host
 * that its page was loaded from (RFC 9110 7.2), and one from another origin that (RFC 6454 7).
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { isIP } from 'node:net';
import type { Duplex } from 'node:stream';
import { shown } from '../../errors/check-whole.js';
import { MisuseError } from '../../errors/errors.js';

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

/**
 * Copies the options: later changes have no effect. Throws MisuseError. A text in place of an array
 * would permit every origin that it contains.
 */
export function checkSite(operation: string, { hosts, origins }: SiteOptions): SiteOptions {
  const name = `${operation}: must be an array of host names without a port, as ['example.com']`;
  const origin = `${operation}: must be an array of origins, as ['https://example.com']`;
  return {
    hosts: checkList('hosts', hosts, name, isHostName),
    origins: checkList('origins', origins, origin, isOrigin),
  };
}

function checkList(
  argument: string,
  list: readonly string[] | undefined,
  rule: string,
  isValid: (text: string) => boolean,
): readonly string[] {
  if (list === undefined) return [];
  if (!Array.isArray(list)) throw new MisuseError(argument, `${rule}, got ${shown(list)}`);
  for (const text of list as unknown[]) {
    if (typeof text === 'string' && isValid(text)) continue;
    throw new MisuseError(argument, `${rule}, got ${shown(text)} in it`);
  }
  return [...(list as string[])];
}

function isHostName(text: string): boolean {
  return hostNameOf(text) === text.toLowerCase();
}

/** As a browser sends it: without a path or a slash at the end. Pages of files have `null`. */
function isOrigin(text: string): boolean {
  if (text === 'null') return true;
  try {
    const { protocol, host } = new URL(text);
    return host !== '' && `${protocol}//${host}` === text;
  } catch {
    return false;
  }
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

/** Paths of the upgrade listeners that this library has on a server. */
const upgradePaths = new WeakMap<Server, string[]>();

/** An upgrade listener of a server, for requests of one path. Returns what removes it. */
export function onUpgrade(
  server: Server,
  path: string,
  take: (request: IncomingMessage, socket: Duplex, head: Buffer) => void,
): () => void {
  const paths = upgradePaths.get(server) ?? [];
  upgradePaths.set(server, paths);
  const listener = (request: IncomingMessage, socket: Duplex, head: Buffer): void => {
    const asked = pathOf(request);
    if (asked === path) return take(request, socket, head);
    // Another library's listener may know the path. Of ours one answers.
    const isKnown = paths.includes(asked ?? '') || server.listenerCount('upgrade') > paths.length;
    if (isKnown || socket.writableEnded) return;
    refuseUpgrade(socket, 404, 'there is no WebSocket at this path');
  };
  paths.push(path);
  server.on('upgrade', listener);
  return () => {
    paths.splice(paths.indexOf(path), 1);
    server.off('upgrade', listener);
  };
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
