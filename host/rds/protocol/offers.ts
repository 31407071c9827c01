/**
 * Transport connections that this node has accepted and whose requester has not answered yet. A
 * request can have a forged source address, so it replaces and changes nothing until then.
 */
import type { Handshake } from '../wire/handshake.js';
import type { Route, TransportConnection } from './transport.js';

/** Of one connection; a further one displaces the oldest. */
const OFFERS_MAX = 4;

export interface Offer {
  readonly transportConnection: TransportConnection;
  readonly request: Handshake;
  readonly route: Route;
}

export class Offers {
  #all: Offer[] = [];

  get isEmpty(): boolean {
    return this.#all.length === 0;
  }

  add(offer: Offer): void {
    this.#all.push(offer);
    if (this.#all.length > OFFERS_MAX) this.#all.shift()!.transportConnection.close();
  }

  /** Removes the offer of `transportConnection`, which is not closed. */
  take(transportConnection: TransportConnection): Offer | undefined {
    const at = this.#all.findIndex((offer) => offer.transportConnection === transportConnection);
    return at < 0 ? undefined : this.#all.splice(at, 1)[0];
  }

  /** The same; the requester has answered, so that it has given up its earlier requests. */
  takeProven(transportConnection: TransportConnection): Offer | undefined {
    const at = this.#all.findIndex((offer) => offer.transportConnection === transportConnection);
    if (at < 0) return undefined;
    const [proven, ...earlier] = this.#all.splice(0, at + 1).reverse();
    for (const each of earlier) each.transportConnection.close();
    return proven;
  }

  /** Closes all but those of one incarnation of the peer. */
  clear(incarnation?: number): void {
    const isKept = ({ request: { own } }: Offer): boolean =>
      own !== undefined && own.incarnation === incarnation;
    const gone = this.#all.filter((offer) => !isKept(offer));
    this.#all = this.#all.filter(isKept);
    for (const { transportConnection } of gone) transportConnection.close();
  }
}
