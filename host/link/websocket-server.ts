/** Node's side of WebSocketLink: takes the upgrades of an HTTP server. */
import type { IncomingMessage, Server } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Socket } from './websocket-channel.js';
import { load } from './websocket-class.js';
import { MESSAGE_BYTES, type WebSocketLink } from './websocket.js';

/**
 * From now on who opens a WebSocket at `path` of this server is a peer of `link`. Returns what ends
 * that; connections stay. Rejects with LinkError EOPNOTSUPP (no ws).
 */
export async function acceptUpgrades(
  link: WebSocketLink,
  server: Server,
  path: string,
): Promise<() => void> {
  const { WebSocketServer } = await load();
  const sockets = new WebSocketServer({ noServer: true, maxPayload: MESSAGE_BYTES });
  const upgrade = (request: IncomingMessage, socket: Duplex, head: Buffer): void => {
    const { pathname } = new URL(request.url ?? '/', 'http://server');
    if (pathname !== path) return;
    sockets.handleUpgrade(request, socket, head, (made) => {
      // Who is refused is told by the socket's end.
      link.accept(made as unknown as Socket).catch(() => undefined);
    });
  };
  server.on('upgrade', upgrade);
  return () => {
    server.off('upgrade', upgrade);
    sockets.close();
  };
}
