/** Stands in for websocket-class.ts in a browser. */
import { LinkError } from '../../errors/errors.js';
import type { Socket } from './websocket-channel.js';

interface Scope {
  readonly WebSocket?: new (url: URL) => Socket;
  readonly location: { readonly href: string };
}
const scope = globalThis as unknown as Scope;

export function absoluteUrl(url: string | URL): URL {
  const absolute = new URL(url, scope.location.href);
  absolute.protocol = absolute.protocol.replace('http', 'ws');
  return absolute;
}

/** Browsers report no status. */
export function isRefusal(): boolean {
  return false;
}

/** Rejects with LinkError EOPNOTSUPP. */
export async function openSocket(url: string | URL): Promise<Socket> {
  const { WebSocket } = scope;
  if (WebSocket) return new WebSocket(absoluteUrl(url));
  throw new LinkError('EOPNOTSUPP', 'connect: WebSocket is missing in this browser; use another');
}
