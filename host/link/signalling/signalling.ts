/**
 * Signalling: how an offer gets to the other side and its answer back, once for every connection.
 * It never travels on the connection that it is about.
 */
import type { LinkError } from '../../errors/errors.js';
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

/**
 * Turns an offer, of any shape, into an answer. `from`: the name of the sender, where the way of
 * signalling vouches for it. Rejects with LinkError.
 */
export type Answerer = (offer: unknown, from?: string) => Promise<Description>;

/** The answering side of signalling. */
export interface SignallingListener {
  /** Until what it returns is called. */
  listen(answer: Answerer): () => void;
}

/** Events of a room besides newcomers, where the room can report them. */
export interface RoomEvents {
  /** A member that was there before this one; it offers to this one by itself. */
  readonly present?: (signalling: Signalling, name: string) => void;
  /** The page of a member seems to be gone: it may be that this member is no more. */
  readonly away?: (name: string) => void;
  /** A member has left the room, or was away for too long. */
  readonly left?: (name: string) => void;
  /** This member is in the room, again after each loss of the server. */
  readonly joined?: () => void;
  /** An attempt to reach the server failed; another one follows. */
  readonly failed?: (error: LinkError) => void;
  /** The server refuses this member before its first `joined`; no attempt follows. */
  readonly refused?: (error: LinkError) => void;
}

/** A room in which each member finds all others. */
export interface SignallingRoom extends SignallingListener {
  /** `join` reports `joined`, `failed` and `refused`. Absent: `join` enters the room at once. */
  readonly reportsJoin?: boolean;
  /**
   * As `listen`, and announces this member; `newcomer` is called for each later announcement of
   * another member, with its name if the room knows it. `name`: unique name of this member, the
   * text of its GID.
   */
  join(
    name: string,
    answer: Answerer,
    newcomer: (signalling: Signalling, name?: string) => void,
    events?: RoomEvents,
  ): () => void;
}
