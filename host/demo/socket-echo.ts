/** WebSockets that echo messages: what ours are compared with, where there is no WebRTC. */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { WebSocketServer } from 'ws';
import { refuseUpgrade } from '../link/channel/http-site.js';
import { SourceShares } from '../link/source-shares.js';
import { load } from '../link/channel/websocket-class.js';
import { PIECE_BYTES, replyTo } from './echo-channel.js';

/** Unread by the peer: beyond this nothing more is read from it. */
const BUFFERED_BYTES_MAX = 2 ** 18;
/** Sockets at once, in all and of one source. */
const SOCKETS_MAX = 64;
const SOCKETS_PER_SOURCE = 32;
/** Nothing came and nothing left for so long. */
const IDLE_MILLIS = 60_000;

export class SocketEcho {
  readonly #server: WebSocketServer;
  readonly #shares = new SourceShares(SOCKETS_MAX, SOCKETS_PER_SOURCE);

  private constructor(server: WebSocketServer) {
    this.#server = server;
  }

  /** Rejects with LinkError EOPNOTSUPP (no ws). */
  static async open(): Promise<SocketEcho> {
    const { WebSocketServer } = await load();
    return new SocketEcho(new WebSocketServer({ noServer: true, maxPayload: PIECE_BYTES }));
  }

  /** Takes one upgrade. */
  take(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const giveBack = this.#shares.take(request.socket.remoteAddress);
    if (!giveBack) return refuseUpgrade(socket, 503, 'there are enough WebSockets already');
    socket.once('close', giveBack);
    this.#server.handleUpgrade(request, socket, head, (client) => {
      const idle = setTimeout(() => client.terminate(), IDLE_MILLIS);
      const sent = (): void => {
        idle.refresh();
        if (client.isPaused && client.bufferedAmount < BUFFERED_BYTES_MAX) client.resume();
      };
      client.on('message', (data: Buffer) => {
        idle.refresh();
        const reply = replyTo(data);
        if (reply) client.send(reply, sent);
        if (client.bufferedAmount >= BUFFERED_BYTES_MAX) client.pause();
      });
      client.on('error', () => client.terminate());
      client.once('close', () => clearTimeout(idle));
    });
  }
}
