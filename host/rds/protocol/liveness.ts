/**
 * Detects dead peers. A heartbeat is a SEND: the peer's transport acknowledges it even while the
 * peer's reading thread is busy. So a peer lives while it sends messages, ACKs or RNR NAKs.
 */

import { sendHeartbeat } from './hello.js';
import type { Connection } from './connection.js';
import type { PathNode } from './path-node.js';
import { isSameRoute, type Routes } from './routes.js';

/** Heartbeats per `heartbeatMicros`, the time after which a silent peer counts as dead. */
export const BEATS = 3;
/** Limit in `heartbeatMicros` for a peer that is too busy to accept another connection. */
export const BUSY_BEATS = 12;

type Connections = readonly (Connection | undefined)[];

export class Liveness {
  /** When the next heartbeat is due; 0: no heartbeat. */
  dueMicros = 0;
  #heardMicros = 0;
  #doesPeerBeat = false;

  /** A connection was established. */
  begin(now: number, isFirst: boolean): void {
    this.#heardMicros = now;
    if (isFirst) this.#doesPeerBeat = false;
  }

  /** The peer sent a message or an acknowledgement. */
  heard(now: number): void {
    this.#heardMicros = now;
  }

  /** When the peer sent the last message or acknowledgement. */
  get heardMicros(): number {
    return this.#heardMicros;
  }

  /** The peer sends heartbeats of its own. */
  beaten(): void {
    this.#doesPeerBeat = true;
  }

  /** Sends a heartbeat if one is due; ends the connections to a dead peer. */
  advance(now: number, node: PathNode, routes: Routes, connections: Connections): void {
    if (this.dueMicros === 0 || this.dueMicros > now) return;
    const { heartbeatMicros, parameters } = node;
    const [connection] = connections;
    const lateMicros = now - this.dueMicros;
    // Set again by `begin` when the connection is up.
    this.dueMicros = 0;
    if (connection?.state !== 'UP') return;
    // A node that was busy itself has not read the messages that arrived meanwhile.
    const isOwnFault = lateMicros > heartbeatMicros / BEATS;
    if (isOwnFault || connections.some((other) => other?.isPeerBusy)) this.#heardMicros = now;
    const isSilent = this.#doesPeerBeat && now - this.#heardMicros > heartbeatMicros;
    if (!connection.isDeaf && !isSilent) {
      this.dueMicros = now + heartbeatMicros / BEATS;
      if (parameters.Heartbeat !== 0) sendHeartbeat(connection, now);
      return;
    }
    const { route } = connection;
    routes.failed(route);
    // All connections on the same route end together.
    for (const other of connections) {
      if (other?.state === 'UP' && isSameRoute(other.route, route)) other.break(now);
    }
  }
}
