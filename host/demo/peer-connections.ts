/** Connections that peers have made: one peer leaves places to the others. */
import type { RdmaConnection } from '../cm/connect.js';
import { Role } from './private-data.js';

/** A session's three, one of an act, and those of the session before that are being closed. */
const PER_PEER_MAX = 8;

/** A connection, or a request that is being accepted. */
export interface Place {
  readonly role: Role;
  connection: RdmaConnection | undefined;
  giveBack(): void;
}

export class PeerConnections {
  readonly #max: number;
  readonly #peers = new Map<string, Set<Place>>();
  #count = 0;

  /** `max`: of all peers together. */
  constructor(max: number) {
    this.#max = max;
  }

  /** Undefined: too many connections, or a second one by which the called peer writes records. */
  take(gid: string, role: Role): Place | undefined {
    const places = this.#peers.get(gid) ?? new Set<Place>();
    const isSecond = role === Role.RECORD && [...places].some((place) => place.role === role);
    if (isSecond || places.size >= PER_PEER_MAX || this.#count >= this.#max) return undefined;
    const place: Place = {
      role,
      connection: undefined,
      giveBack: () => {
        if (!places.delete(place)) return;
        this.#count--;
        if (places.size === 0) this.#peers.delete(gid);
      },
    };
    this.#peers.set(gid, places.add(place));
    this.#count++;
    return place;
  }

  /** Of a peer that is gone: it does not disconnect. */
  close(gid: string): void {
    for (const { connection } of this.#peers.get(gid) ?? []) {
      connection?.close().catch(() => undefined);
    }
  }
}
