/**
 * A link over WebSockets: where there is no WebRTC. Every loss is TCP's to repair, and what is behind
 * it waits. A side's address is a random number that it says first, and that only the two of them
 * know: over wss as good as TLS, over ws no secret at all.
 */
import { checkWhole } from '../../errors/check-whole.js';
import { checkKeys } from '../../base/options.js';
import { checkMillis, timerMillis } from '../../base/timer.js';
import { LinkError, MisuseError } from '../../errors/errors.js';
import { ChannelLink, packetSizeOf } from './channel-link.js';
import type { Endpoint, Gid } from '../endpoint.js';
import { randomGid } from '../random-address.js';
import { WebSocketChannel, type Socket } from './websocket-channel.js';
import { openSocket } from './websocket-class.js';

/** How a WebSocket link behaves. */
export interface WebSocketOptions {
  /** 256, 512, 1024, 2048 or 4096. Default 4096. */
  readonly pathMtuBytes?: number;
  /** Default 256. */
  readonly peersMax?: number;
  /** How long a connection may take. Default 10 s. */
  readonly openMillis?: number;
  /** Default: a random one, for each `open` another. */
  readonly address?: Gid;
}

/** Longest message: a header of TCP is nothing to it. */
export const MESSAGE_BYTES = 65536;
const WINDOW_BYTES = 2 ** 18;
const QUEUE_BYTES = 2 ** 20;
/** More than the window: what is under way may be taken for lost, and a probe follows. */
const BUFFERED_BYTES_MAX = 2 ** 19;
const PEERS_MAX = 256;
const OPEN_MILLIS = 10_000;

/** Addresses that links of this process have. */
const taken = new Set<string>();

/** A link over WebSockets, where there is no WebRTC. */
export class WebSocketLink extends ChannelLink {
  readonly #openMillis: number;
  readonly #wanted: Gid | undefined;

  /** Throws MisuseError for options out of range. */
  constructor(options: WebSocketOptions = {}) {
    checkKeys('WebSocketLink', options, 'pathMtuBytes peersMax openMillis address');
    const peersMax = options.peersMax ?? PEERS_MAX;
    const openMillis = options.openMillis ?? OPEN_MILLIS;
    for (const [name, value] of Object.entries({ peersMax, openMillis })) {
      checkWhole(name, value, 1);
    }
    checkMillis('openMillis', openMillis);
    super('websocket', packetSizeOf(options.pathMtuBytes ?? 4096), {
      messageBytes: MESSAGE_BYTES,
      receiveBytes: MESSAGE_BYTES,
      windowBytes: WINDOW_BYTES,
      queueBytes: QUEUE_BYTES,
      bufferedBytesMax: BUFFERED_BYTES_MAX,
      peersMax,
      openMillis,
      // TCP has given up: nothing comes back.
      returnMillis: 0,
      // There are never two connections to one address.
      askMillis: 0,
    });
    this.#openMillis = openMillis;
    this.#wanted = options.address;
  }

  /**
   * Connects to the server of `url` (ws:, wss:; in a page it may be relative). Resolves with its
   * address. Rejects with LinkError ECONNRESET (no server), ETIMEDOUT, EPROTO, EADDRINUSE (its
   * address is that of another peer), ENOSPC, EOPNOTSUPP (no ws).
   */
  async connect(url: string | URL): Promise<Endpoint> {
    if (!this.isOpen) throw new MisuseError('link', 'is not open: openDevice opens it');
    return this.accept(await openSocket(url));
  }

  /**
   * Takes a WebSocket of our own server, once it is open, or is about to. `claimed` is called with
   * the address that the peer says, before it is compared with others. Rejects as `connect`.
   */
  async accept(socket: Socket, claimed?: (gid: string) => Promise<void>): Promise<Endpoint> {
    if (!this.isOpen) throw new MisuseError('link', 'is not open: openDevice opens it');
    const channel = new WebSocketChannel(socket, this.info.local.gid);
    try {
      const gid = await within(channel.address, this.#openMillis);
      await claimed?.(`${gid}`);
      // The address is not proved, so the peer that has it first keeps it.
      if (this.peers.some((peer) => peer.gid.equals(gid))) {
        throw new LinkError(
          'EADDRINUSE',
          `connect: ${gid} is the address of another peer; use another`,
        );
      }
      return await this.addPeer(gid, channel);
    } catch (error) {
      channel.close();
      throw error;
    }
  }

  protected async takeAddress(): Promise<Gid> {
    const gid = this.#wanted ?? randomGid();
    if (taken.has(gid.toString())) {
      throw new LinkError(
        'EADDRINUSE',
        `open: [${gid}]:4791 is the address of another link; close it`,
      );
    }
    taken.add(gid.toString());
    return gid;
  }

  protected releaseAddress(): void {
    taken.delete(this.info.local.gid.toString());
  }

  protected seekAgain(): void {
    // Nothing gets lost without being over.
  }
}

function within<Value>(value: Promise<Value>, millis: number): Promise<Value> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      const seconds = millis / 1000;
      reject(
        new LinkError(
          'ETIMEDOUT',
          `connect: the peer of the WebSocket sent no address within ${seconds} s; check that it runs`,
        ),
      );
    }, timerMillis(millis));
    value.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
