/** Congestion control state of the path to a peer, which all queue pairs to it share. */
import { PathLayout, PathStateLayout, QUEUE_PAIR_PATH } from '#build/abi.js';
import type { EngineMemory } from '../../engine/memory.js';
import { structAt } from '../../engine/struct.js';

/** Of the window: 1/256 packet. */
const WINDOW_UNIT = 256;

/** `qp.pathState()`. Round trips are 0 until one was measured. */
export interface PathState {
  /** Smoothed, its mean deviation, and the least of the last seconds, in microseconds. */
  readonly roundTripMicros: number;
  readonly roundTripVariationMicros: number;
  readonly roundTripLeastMicros: number;
  /** Packets that may be in flight, and that are; of all queue pairs to this peer together. */
  readonly windowPackets: number;
  readonly inFlightPackets: number;
  /** Queue pairs with packets in flight. */
  readonly activeQueuePairs: number;
  /** Of the last thousand packets, 0 to 1. */
  readonly lossShare: number;
  /** Share of recent packets that a switch marked, 0 to 1. */
  readonly markShare: number;
}

/** Undefined: the queue pair has no path (RESET, INIT, ERR, or UD). */
export function readPathState(memory: EngineMemory, queuePair: number): PathState | undefined {
  const path = structAt(memory, PathLayout, queuePair + QUEUE_PAIR_PATH);
  if (path.state === 0) return undefined;
  const state = structAt(memory, PathStateLayout, path.state);
  return {
    roundTripMicros: state.roundTripMicros,
    roundTripVariationMicros: state.variationMicros,
    roundTripLeastMicros: state.roundTripLeast,
    windowPackets: Math.floor(state.window / WINDOW_UNIT),
    inFlightPackets: state.inFlight,
    activeQueuePairs: state.busy,
    lossShare: state.lossShare,
    markShare: state.markShare,
  };
}
