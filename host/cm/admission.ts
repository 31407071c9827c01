/**
 * Which requests of peers become half-open connections: limits, shares of one source address, and
 * places that forged source addresses cannot take.
 */
import type { Connection, Listener } from './connection.js';
import type { CmCore } from './core.js';
import { endUnready } from './endings.js';

/** Age from which an unproven connection without an RTU yields its place to a new request. */
const UNREADY_MICROS = 1e6;

/**
 * `admit`: it becomes a connection. `challenge`: it is answered with a cookie. `refuse`: it is
 * answered with REJ NO_RESOURCES. `drop`: it is not answered; the peer repeats it.
 */
export type Verdict = 'admit' | 'challenge' | 'refuse' | 'drop';

/** The sender of a request. */
export interface Sender {
  /** Its address, as text. */
  readonly source: string;
  /** It has answered from its address: a cookie, or the nonce of an authenticated connection. */
  readonly isProven: boolean;
  /** Verbena, which repeats cookies; not Linux. */
  readonly isOwnKind: boolean;
}

/** Counts by source address. */
export class SourceCounts {
  readonly #counts = new Map<string, number>();

  get size(): number {
    return this.#counts.size;
  }

  of(source: string): number {
    return this.#counts.get(source) ?? 0;
  }

  add(source: string): void {
    this.#counts.set(source, this.of(source) + 1);
  }

  remove(source: string): void {
    const left = this.of(source) - 1;
    if (left === 0) this.#counts.delete(source);
    else this.#counts.set(source, left);
  }
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

/** Places of a listener for requests that wait: a quarter more for proven addresses. */
function placesOf({ backlog }: Listener, isProven: boolean): number {
  return isProven ? backlog + Math.ceil(backlog / 4) : backlog;
}

/** Unproven connections that the device may hold: at most half of the queue pairs left. */
function unprovenMax(core: CmCore): number {
  const { halfOpen, limits } = core;
  const free = limits.queuePairsMax - (core.liveConnections - halfOpen.unproven);
  return Math.max(1, Math.min(limits.unprovenMax, Math.floor(free / 2)));
}

/** Admits, challenges, refuses or drops a new request. May end an older half-open connection. */
export function judge(core: CmCore, now: number, listener: Listener, sender: Sender): Verdict {
  const { halfOpen, limits } = core;
  const { backlog, waiting, waitingOf } = listener;
  const { source, isProven, isOwnKind } = sender;
  const most = unprovenMax(core);
  const isCrowded = 2 * waiting >= backlog || 2 * halfOpen.unproven >= most;
  if (isOwnKind && !isProven && isCrowded) return 'challenge';
  const isFull = waiting >= placesOf(listener, isProven);
  if (isFull || waitingOf.of(source) >= Math.ceil(backlog / 2)) return 'refuse';
  const isBeyond =
    halfOpen.size >= limits.halfOpenMax ||
    halfOpen.sources.of(source) >= limits.halfOpenPerSourceMax ||
    core.connections.size >= limits.connectionsMax;
  if (isBeyond) return 'drop';
  return isProven || halfOpen.unproven < most || displace(core, now) ? 'admit' : 'drop';
}

/**
 * Rejects the oldest unproven connection whose REP is unanswered for UNREADY_MICROS. Returns false
 * if no connection is that old.
 */
function displace(core: CmCore, now: number): boolean {
  const oldest = core.halfOpen.oldestUnready;
  if (!oldest) return false;
  const acceptedMicros = oldest.halfOpenMicros - core.limits.halfOpenMicros;
  if (now - acceptedMicros < UNREADY_MICROS) return false;
  core.counters.displaced++;
  endUnready(core, now, oldest);
  return true;
}
