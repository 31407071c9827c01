/** Connections of a peer of the demo: one to each other peer, several side by side for a race. */
import { BundleConnector } from '../link/rtc/bundle.js';
import type { Description, RtcConnection, RtcConnector } from '../link/rtc/connection.js';
import type { Gid } from '../link/endpoint.js';

/** Each sends some 12 KB before its first acknowledgement: together more than a frame of 64 KiB. */
export const WIDE = 6;

export class WideConnector implements RtcConnector {
  readonly #connector: RtcConnector;
  readonly #bundler: BundleConnector;
  #isWide = false;

  constructor(connector: RtcConnector) {
    this.#connector = connector;
    this.#bundler = new BundleConnector(connector, WIDE);
  }

  address(): Promise<Gid> {
    return this.#connector.address();
  }

  offer(): Promise<RtcConnection> {
    return (this.#isWide ? this.#bundler : this.#connector).offer();
  }

  /** As many as are offered. */
  answer(offer: Description): Promise<RtcConnection> {
    return (offer.more ? this.#bundler : this.#connector).answer(offer);
  }

  /** An offer that `start` makes before it returns has WIDE connections. */
  widely<Value>(start: () => Value): Value {
    this.#isWide = true;
    try {
      return start();
    } finally {
      this.#isWide = false;
    }
  }
}
