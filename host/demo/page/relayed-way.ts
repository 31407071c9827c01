/** Our way to a peer through a relay that loses datagrams, and beside it a reliable channel's. */
import type { Signalling } from '../../link/signalling/signalling.js';
import type { EchoChannel } from '../echo-channel.js';
import {
  RelayedSignalling,
  askForRelay,
  type Impairment,
  type RelayStatus,
} from '../relayed-signalling.js';

/** How both connections are made. */
export interface Ways {
  /** Our packets go by `signalling`'s connection from now on; without one, by one of their own. */
  lead(through: (direct: Signalling) => Signalling): Promise<unknown>;
  reliable(through: (direct: Signalling) => Signalling): Promise<EchoChannel>;
}

export class RelayedWay {
  /** Of its own connection, through a relay of its own. */
  readonly reliable: EchoChannel;
  readonly #url: URL;
  readonly #ways: Ways;
  readonly #relays: readonly RelayStatus[];

  private constructor(url: URL, ways: Ways, relays: readonly RelayStatus[], reliable: EchoChannel) {
    this.#url = url;
    this.#ways = ways;
    this.#relays = relays;
    this.reliable = reliable;
  }

  /** `url`: where the server makes relays. Rejects with LinkError. */
  static async open(url: URL, ways: Ways): Promise<RelayedWay> {
    const [ours, theirs] = [await askForRelay(url), await askForRelay(url)];
    const reliable = await ways.reliable((direct) => new RelayedSignalling(direct, theirs));
    try {
      await ways.lead((direct) => new RelayedSignalling(direct, ours));
    } catch (error) {
      reliable.close();
      throw error;
    }
    return new RelayedWay(url, ways, [ours, theirs], reliable);
  }

  /** Both are impaired so from now on. Returns how many datagrams of ours were dropped so far. */
  async impair(impairment: Impairment): Promise<number> {
    const [ours] = await Promise.all(
      this.#relays.map(({ id }) => askForRelay(this.#url, id, impairment)),
    );
    return ours!.dropped;
  }

  /** Nothing is lost any more, and packets go the direct way again. */
  async leave(): Promise<void> {
    this.reliable.close();
    await this.impair({ loss: 0 });
    await this.#ways.lead((direct) => direct);
  }
}
