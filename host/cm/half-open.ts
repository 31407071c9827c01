/** Connections that are not established yet, which peers can make many of. */
import type { Connection } from './connection.js';
import { SourceCounts } from './source-counts.js';

/** The sender of a request. */
export interface Sender {
  /** Its address, as text. */
  readonly source: string;
  /** It has answered from its address: a cookie, or the nonce of an authenticated connection. */
  readonly isProven: boolean;
  /** Verbena, which repeats cookies; not Linux. */
  readonly isOwnKind: boolean;
}

/** Half-open connections of a device. */
export class HalfOpen {
  readonly sources = new SourceCounts();
  size = 0;
  readonly #unproven = new Set<Connection>();
  /** Unproven connections that were accepted, in the order of their REPs. */
  readonly #unready = new Set<Connection>();

  /** Number of connections of unproven addresses. */
  get unproven(): number {
    return this.#unproven.size;
  }

  /** The unproven connection that has waited longest for its RTU. */
  get oldestUnready(): Connection | undefined {
    const [oldest] = this.#unready;
    return oldest;
  }

  add(connection: Connection, { source, isProven }: Sender): void {
    connection.isHalfOpen = true;
    this.size++;
    this.sources.add(source);
    if (!isProven) this.#unproven.add(connection);
  }

  /** Call when the REP of a connection is sent. */
  accepted(connection: Connection): void {
    if (this.#unproven.has(connection)) this.#unready.add(connection);
  }

  /** Call when the peer has answered from its address. */
  prove(connection: Connection): void {
    this.#unproven.delete(connection);
    this.#unready.delete(connection);
  }

  remove(connection: Connection): void {
    connection.isHalfOpen = false;
    this.size--;
    this.sources.remove(connection.peer.gid.toString());
    this.prove(connection);
  }
}
