/** Limits and counters of the connection manager. */

/** Limits of one device. What is beyond them is dropped and counted, and leaves nothing behind. */
export interface CmLimits {
  /** Connections of any state. */
  readonly connectionsMax: number;
  /** Requests of others that have not become connections. */
  readonly halfOpenMax: number;
  /** The same of one address. */
  readonly halfOpenPerSourceMax: number;
  /** Limit of half-open connections of unproven addresses (admission.ts). */
  readonly unprovenMax: number;
  /** Queue pairs of the device. Unproven requests take half of those that are free. */
  readonly queuePairsMax: number;
  /** Longest time from a REP until its RTU, or until the peer's first packet. */
  readonly halfOpenMicros: number;
  /** Ended connections whose late messages are still known. */
  readonly timeWaitMax: number;
}

export const CM_LIMITS: CmLimits = {
  connectionsMax: 65536,
  halfOpenMax: 4096,
  // A device has queue pairs for 512 connections by default: no address takes most of them.
  halfOpenPerSourceMax: 128,
  unprovenMax: 256,
  queuePairsMax: 65536,
  halfOpenMicros: 10e6,
  timeWaitMax: 16384,
};

/**
 * Retransmissions of a REP, or of a DREQ after it, before the peer's first answer. A real peer
 * repeats its REQ; the victim of a forged source address receives at most three datagrams.
 */
export const UNHEARD_RETRIES = 2;

/** Counters of the connection manager. */
export interface CmCounters {
  sent: number;
  received: number;
  /** Sent again because no answer came. */
  retransmitted: number;
  /** No message at all. */
  malformed: number;
  /** For no connection that is here, or from another address than it is with, or out of turn. */
  unmatched: number;
  /** Came before, and was answered as before. */
  duplicates: number;
  /** Requests that met a limit: nothing was answered. */
  dropped: number;
  /** Requests that were refused without leaving anything behind. */
  refused: number;
  /** Requests that were answered with a cookie, without state. */
  challenged: number;
  /** Unproven half-open connections that yielded their place to a new request. */
  displaced: number;
  /** Connections that ended for lack of a sign of life (keep-alive.ts). */
  lost: number;
  /** Authenticated connections and listeners: messages without a right tag. */
  unauthentic: number;
}

export function noCounts(): CmCounters {
  return {
    sent: 0,
    received: 0,
    retransmitted: 0,
    malformed: 0,
    unmatched: 0,
    duplicates: 0,
    dropped: 0,
    refused: 0,
    challenged: 0,
    displaced: 0,
    lost: 0,
    unauthentic: 0,
  };
}

/**
 * A DREQ is repeated for 1.25 s, whatever the response time that was agreed on: a peer that died or
 * is unreachable must not delay `close`. A peer that misses all of them ends by keep-alive.
 */
export const DREQ_RETRIES = 4;
export const DREQ_INTERVAL_MICROS = 250_000;
