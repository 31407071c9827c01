/**
 * Signalling: how an offer gets to the other side and its answer back, once for every connection.
 * It never travels on the connection that it is about.
 */
import type { Description } from '../rtc/connection.js';

/** Who offers. */
export interface Signalling {
  /** For humans: who is asked. */
  readonly name: string;
  /**
   * Brings `offer` to somebody; resolves with what came back, which is hostile. Gives up when
   * `signal` is aborted. Rejects with LinkError.
   */
  exchange(offer: Description, signal: AbortSignal): Promise<unknown>;
}

/** Turns an offer, of any shape, into an answer. Rejects with LinkError. */
export type Answerer = (offer: unknown) => Promise<Description>;

/** Who answers. */
export interface SignallingListener {
  /** Until what it returns is called. */
  listen(answer: Answerer): () => void;
}

/** A place where everybody meets everybody. */
export interface SignallingRoom extends SignallingListener {
  /**
   * As `listen`, and says that we are here; `newcomer` is called for everybody who says so later.
   * `name`: ours, which nobody else has.
   */
  join(name: string, answer: Answerer, newcomer: (signalling: Signalling) => void): () => void;
}
