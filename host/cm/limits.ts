/** What the connection manager may keep, and what it counts. */

/** Limits of one device. What is beyond them is dropped and counted, and leaves nothing behind. */
export interface CmLimits {
  /** Connections of any state. */
  readonly connectionsMax: number;
  /** Requests of others that have not become connections. */
  readonly halfOpenMax: number;
  /** The same of one address. */
  readonly halfOpenPerSourceMax: number;
  /** Ended connections whose late messages are still known. */
  readonly timeWaitMax: number;
}

export const CM_LIMITS: CmLimits = {
  connectionsMax: 65536,
  halfOpenMax: 4096,
  halfOpenPerSourceMax: 2048,
  timeWaitMax: 16384,
};

/** What happened so far. */
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
  };
}
