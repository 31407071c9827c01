/** `rpma_ep`: who waits for connections. */
import type { CmId } from '../cm/cm-id.js';
import { CmEventType } from '../cm/enums.js';
import type { EventChannel } from '../cm/event-channel.js';
import { ConnCfg } from './conn-cfg.js';
import { ConnReq } from './conn-req.js';
import { RpmaError } from './errors.js';
import type { Peer } from './peer.js';

/** `struct rpma_ep`: where connections are asked for (`peer.epListen`). */
export class Ep {
  readonly #peer: Peer;
  readonly #channel: EventChannel;
  readonly #id: CmId;

  /** @internal Use `peer.epListen()`. */
  constructor(peer: Peer, channel: EventChannel, id: CmId) {
    this.#peer = peer;
    this.#channel = channel;
    this.#id = id;
  }

  /** The port that it listens at. */
  get port(): number {
    return this.#id.getSrcPort();
  }

  /**
   * `rpma_ep_next_conn_req`: waits for the next one. Rejects with RpmaError E_NO_EVENT (it is shut
   * down); RefusalError ENOMEM, and then whoever asked is refused.
   */
  async nextConnReq(cfg: ConnCfg = new ConnCfg()): Promise<ConnReq> {
    for (;;) {
      const event = await this.#channel.getEvent();
      if (!event || event.event === CmEventType.DEVICE_REMOVAL) {
        throw new RpmaError('E_NO_EVENT', 'nextConnReq: the end point is shut down');
      }
      if (event.event === CmEventType.CONNECT_REQUEST) return ConnReq.from(this.#peer, event, cfg);
      // A request that nobody took has ended.
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

  /** `rpma_ep_shutdown`: requests that wait are refused; connections stay. */
  shutdown(): void {
    this.#channel.destroy();
  }

  [Symbol.dispose](): void {
    this.shutdown();
  }
}
