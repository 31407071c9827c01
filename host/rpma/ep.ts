/** `rpma_ep`: a listener for connection requests. */
import type { AuthOptions } from '../cm/auth-option.js';
import type { CmId } from '../cm/cm-id.js';
import { CmEventType } from '../cm/enums.js';
import type { EventChannel } from '../cm/event-channel.js';
import { MisuseError } from '../errors/errors.js';
import { ConnCfg, checkCfg } from './conn-cfg.js';
import { ConnReq } from './conn-req.js';
import type { PeerResources } from './conn-queues.js';
import { RpmaError } from './errors.js';

/** Options of an end point (`peer.epListen`); librpma has none. */
export interface EpOptions {
  /**
   * Takes connections only that prove a pre-shared key; their packets carry tags. Default: no
   * authentication.
   */
  readonly auth?: AuthOptions;
}

/** `struct rpma_ep`: accepts connection requests (`peer.epListen`). */
export class Ep {
  readonly #peer: PeerResources;
  readonly #channel: EventChannel;
  readonly #id: CmId;
  #auth: AuthOptions | undefined;

  /** @internal Use `peer.epListen()`. */
  constructor(peer: PeerResources, channel: EventChannel, id: CmId, auth: AuthOptions | undefined) {
    this.#peer = peer;
    this.#channel = channel;
    this.#id = id;
    this.#auth = auth;
  }

  /** The port that it listens at. */
  get port(): number {
    return this.#id.getSrcPort();
  }

  /** `rpma_ep_get_fd`: readable while `nextConnReq` has one. As `getFd` of an event channel. */
  getFd(): Promise<number> {
    return this.#channel.getFd();
  }

  /**
   * `rpma_ep_next_conn_req`: waits for the next one. Rejects with RpmaError E_NO_EVENT (it is shut
   * down); MisuseError (`cfg` has `auth`, and this end point has none); RefusalError ENOMEM, and then
   * the request is rejected.
   */
  async nextConnReq(cfg: ConnCfg = new ConnCfg()): Promise<ConnReq> {
    checkCfg(cfg);
    if (cfg.getAuth() && !this.#auth) {
      const rule = 'requires auth of the end point: set it in peer.epListen(…, { auth })';
      throw new MisuseError('cfg', rule);
    }
    for (;;) {
      const event = await this.#channel.getEvent();
      if (!event || event.event === CmEventType.DEVICE_REMOVAL) {
        throw new RpmaError('E_NO_EVENT', 'nextConnReq: the end point is shut down');
      }
      if (event.event === CmEventType.CONNECT_REQUEST) return ConnReq.from(this.#peer, event, cfg);
      // A request that was not accepted has ended.
      if (event.id !== this.#id) event.id.destroy();
    }
  }

  /** Requests until it is shut down. */
  async *[Symbol.asyncIterator](): AsyncGenerator<ConnReq, void, undefined> {
    try {
      for (;;) yield await this.nextConnReq();
    } catch (error) {
      if (!(error instanceof RpmaError)) throw error;
    }
  }

  /**
   * Replaces the keys of an end point with `auth`; established connections keep theirs. A rotation:
   * both keys here, the new one at the clients, then the new one alone here. Throws MisuseError.
   */
  setAuth(auth: AuthOptions): void {
    if (!this.#auth) {
      throw new MisuseError('auth', 'needs an end point of peer.epListen(…, { auth })');
    }
    this.#id.setOption({ auth });
    this.#auth = auth;
  }

  /** `rpma_ep_shutdown`: requests that wait are refused; connections stay. */
  shutdown(): void {
    this.#channel.destroy();
  }

  [Symbol.dispose](): void {
    this.shutdown();
  }
}
