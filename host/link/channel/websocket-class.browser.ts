/** Stands in for websocket-class.ts in a browser. */
import type { Socket } from './websocket-channel.js';

export function openSocket(url: string | URL): Promise<Socket> {
  const { WebSocket, location } = globalThis as unknown as {
    WebSocket: new (url: string | URL) => Socket;
    location: { readonly href: string };
  };
  const absolute = new URL(url, location.href);
  absolute.protocol = absolute.protocol.replace('http', 'ws');
  return Promise.resolve(new WebSocket(absolute));
}
