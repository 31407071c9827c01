/**
 * Which requests of peers become half-open connections: limits, shares of one source address, and
 * places that forged source addresses cannot take.
 */
import type { Listener } from './connection.js';
import type { CmProtocol } from './protocol.js';
import { endUnready } from './endings.js';
import type { Sender } from './half-open.js';

/** Age from which an unproven connection without an RTU yields its place to a new request. */
const UNREADY_MICROS = 1e6;

/**
 * `admit`: it becomes a connection. `challenge`: it is answered with a cookie. `refuse`: it is
 * answered with REJ NO_RESOURCES. `drop`: it is not answered; the peer repeats it.
 */
export type Verdict = 'admit' | 'challenge' | 'refuse' | 'drop';

/** Places of a listener for requests that wait: a quarter more for proven addresses. */
function placesOf({ backlog }: Listener, isProven: boolean): number {
  return isProven ? backlog + Math.ceil(backlog / 4) : backlog;
}

/** Unproven connections that the device may hold: at most half of the queue pairs left. */
function unprovenMax(core: CmProtocol): number {
  const { halfOpen, limits } = core;
  const free = limits.queuePairsMax - (core.liveConnections - halfOpen.unproven);
  return Math.max(1, Math.min(limits.unprovenMax, Math.floor(free / 2)));
}

/** Admits, challenges, refuses or drops a new request. May end an older half-open connection. */
export function judge(core: CmProtocol, now: number, listener: Listener, sender: Sender): Verdict {
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
function displace(core: CmProtocol, now: number): boolean {
  const oldest = core.halfOpen.oldestUnready;
  if (!oldest) return false;
  const acceptedMicros = oldest.halfOpenMicros - core.limits.halfOpenMicros;
  if (now - acceptedMicros < UNREADY_MICROS) return false;
  core.counters.displaced++;
  endUnready(core, now, oldest);
  return true;
}
