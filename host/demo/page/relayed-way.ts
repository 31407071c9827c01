/** Our way to a peer through a relay that loses datagrams, and beside it a reliable channel's. */
import type { Signalling } from '../../link/signalling/signalling.js';
import type { EchoChannel } from '../echo-channel.js';
import {
  RelayedSignalling,
  askForRelay,
  endRelay,
  type Impairment,
  type RelayStatus,
} from '../relayed-signalling.js';

/** Longer than a closing connection's last packets take. */
const CLOSE_MILLIS = 2000;

/** How both connections are made. */
export interface Ways {
  /** From now on packets of this page use that number of connections of the signalling. */
  lead(through: (direct: Signalling) => Signalling, connections: number): Promise<unknown>;
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

  /**
   * `url`: where the server makes relays, one for each connection of ours and one for the reliable
   * channel. Rejects with LinkError.
   */
  static async open(url: URL, ways: Ways, connections: number): Promise<RelayedWay> {
    const relays: RelayStatus[] = [];
    let reliable: EchoChannel | undefined;
    try {
      while (relays.length <= connections) relays.push(await askForRelay(url));
      const [ours, theirs] = [relays.slice(0, -1), relays.at(-1)!];
      reliable = await ways.reliable((direct) => new RelayedSignalling(direct, theirs));
      await ways.lead((direct) => new RelayedSignalling(direct, ...ours), connections);
      return new RelayedWay(url, ways, [...ours, theirs], reliable);
    } catch (error) {
      reliable?.close();
      for (const { id } of relays) endRelay(url, id).catch(() => undefined);
      throw error;
    }
  }

  /** Both are impaired so from now on. Returns how many datagrams of ours were dropped so far. */
  async impair(impairment: Impairment): Promise<number> {
    const relays = await Promise.all(
      this.#relays.map(({ id }) => askForRelay(this.#url, id, impairment)),
    );
    return relays.slice(0, -1).reduce((sum, { dropped }) => sum + dropped, 0);
  }

  /** Nothing is lost any more, and packets go the direct way again. */
  async leave(): Promise<void> {
    this.reliable.close();
    await this.impair({ loss: 0 });
    await this.#ways.lead((direct) => direct, 1);
    // The relays notify the other side that their connections are closed.
    setTimeout(() => {
      for (const { id } of this.#relays) endRelay(this.#url, id).catch(() => undefined);
    }, CLOSE_MILLIS);
  }
}
