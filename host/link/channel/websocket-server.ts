/** Node's side of WebSocketLink: takes the upgrades of an HTTP server. */
import { mustBe } from '../../errors/check-whole.js';
import type { Server } from 'node:http';
import type { WebSocket } from 'ws';
import { checkKeys, checkObject } from '../../base/options.js';
import { checkMillis, timerMillis } from '../../base/timer.js';
import {
  checkSite,
  onUpgrade,
  refusalOfRequest,
  refuseUpgrade,
  type SiteOptions,
} from './http-site.js';
import { SourceShares } from '../source-shares.js';
import type { Socket } from './websocket-channel.js';
import { load } from './websocket-class.js';
import { MESSAGE_BYTES, type WebSocketLink } from './websocket.js';

/** Which WebSockets are taken, and how many. */
export interface UpgradeOptions extends SiteOptions {
  /** Sockets at once. Default 256. */
  readonly socketsMax?: number;
  /** Sockets at once of one source: an IPv4 address, or an IPv6 network of 64 bits. Default 32. */
  readonly socketsPerSource?: number;
  /** A socket that answers no ping for so long is ended. Default 20 s. */
  readonly aliveMillis?: number;
}

const SOCKETS_MAX = 256;
const SOCKETS_PER_SOURCE = 32;
const ALIVE_MILLIS = 20_000;
/** How long the holder of an address has for an answer when a newcomer has the same. */
const PROBE_MILLIS = 2000;
/** How long a socket that was refused has for reading why. */
const REFUSED_MILLIS = 1000;

/**
 * Each WebSocket that opens at `path` of this server becomes a peer of `link`. Pages of other sites,
 * and more sockets than `options` allow, are refused with an HTTP status. Upgrades at other paths are
 * for other listeners; without any they are refused. The result ends that; connections stay. Throws
 * MisuseError; rejects with LinkError EOPNOTSUPP (no ws).
 */
export async function acceptUpgrades(
  link: WebSocketLink,
  server: Server,
  path: string,
  options: UpgradeOptions = {},
): Promise<() => void> {
  checkObject('acceptUpgrades', server, 'server');
  checkKeys('acceptUpgrades', options, 'hosts origins socketsMax socketsPerSource aliveMillis');
  const site = checkSite('acceptUpgrades', options);
  const { socketsMax = SOCKETS_MAX, socketsPerSource = SOCKETS_PER_SOURCE } = options;
  for (const [name, value] of Object.entries({ socketsMax, socketsPerSource })) {
    if (!Number.isInteger(value) || value < 1) {
      throw mustBe(name, 'a whole number above 0', value);
    }
  }
  const { aliveMillis = ALIVE_MILLIS } = options;
  checkMillis('aliveMillis', aliveMillis, 1);
  const { WebSocketServer } = await load();
  const sockets = new WebSocketServer({ noServer: true, maxPayload: MESSAGE_BYTES });
  const shares = new SourceShares(socketsMax, socketsPerSource);
  const peers = new Peers(link, aliveMillis);
  const remove = onUpgrade(server, path, (request, socket, head) => {
    const refusal = refusalOfRequest(request, site);
    if (refusal) return refuseUpgrade(socket, refusal.status, refusal.sentence);
    const giveBack = shares.take(request.socket.remoteAddress);
    if (!giveBack) return refuseUpgrade(socket, 503, 'there are enough WebSockets already');
    socket.once('close', giveBack);
    sockets.handleUpgrade(request, socket, head, (made) => peers.enter(made));
  });
  return () => {
    remove();
    sockets.close();
  };
}

/** The sockets of a link, and whether their peers are there. */
class Peers {
  readonly #link: WebSocketLink;
  readonly #aliveMillis: number;
  /** The socket of each address. */
  readonly #holders = new Map<string, WebSocket>();

  constructor(link: WebSocketLink, aliveMillis: number) {
    this.#link = link;
    this.#aliveMillis = aliveMillis;
  }

  enter(socket: WebSocket): void {
    let isHeard = true;
    const hear = (): void => void (isHeard = true);
    const look = (): void => {
      if (!isHeard) return socket.terminate();
      isHeard = false;
      socket.ping();
    };
    // Timers run before sockets are read: behind a pause of this process, answers are still unread.
    const looking = setInterval(() => setImmediate(look), timerMillis(this.#aliveMillis / 2));
    looking.unref();
    socket.on('pong', hear).on('message', hear);
    socket.on('error', () => socket.terminate());
    socket.once('close', () => clearInterval(looking));
    this.#accept(socket).catch(() => {
      // The end of the socket says that it was refused; one that does not read it is cut off.
      setTimeout(() => socket.terminate(), REFUSED_MILLIS).unref();
    });
  }

  async #accept(socket: WebSocket): Promise<void> {
    const claimed = async (address: string): Promise<void> => {
      const holder = this.#holders.get(address);
      if (holder) await probe(holder);
    };
    const { gid } = await this.#link.accept(socket as unknown as Socket, claimed);
    const address = gid.toString();
    this.#holders.set(address, socket);
    socket.once('close', () => {
      if (this.#holders.get(address) === socket) this.#holders.delete(address);
    });
  }
}

/** Ends a socket without a living peer: its process is stopped, or its network is gone. */
function probe(socket: WebSocket): Promise<void> {
  return new Promise((resolve) => {
    const over = (): void => {
      clearTimeout(timer);
      socket.off('pong', over).off('close', over);
      resolve();
    };
    const timer = setTimeout(() => socket.terminate(), PROBE_MILLIS);
    socket.on('pong', over).on('close', over);
    socket.ping();
  });
}
