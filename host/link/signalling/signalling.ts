/**
 * Signalling: how an offer gets to the other side and its answer back, once for every connection.
 * It never travels on the connection that it is about.
 */
import type { Description } from '../rtc/connection.js';

/** The offering side of signalling. */
export interface Signalling {
  /** Name for messages: the address or room to which offers go. */
  readonly name: string;
  /**
   * Sends `offer` to a peer and resolves with its answer, which is hostile. Stops when `signal` is
   * aborted. Rejects with LinkError.
   */
  exchange(offer: Description, signal: AbortSignal): Promise<unknown>;
}

/** Turns an offer, of any shape, into an answer. Rejects with LinkError. */
export type Answerer = (offer: unknown) => Promise<Description>;

/** The answering side of signalling. */
export interface SignallingListener {
  /** Until what it returns is called. */
  listen(answer: Answerer): () => void;
}

/** A place where everybody meets everybody. */
export interface SignallingRoom extends SignallingListener {
  /**
   * As `listen`, and announces this member; `newcomer` is called for each later announcement of
   * another member. `name`: unique name of this member.
   */
  join(name: string, answer: Answerer, newcomer: (signalling: Signalling) => void): () => void;
}
