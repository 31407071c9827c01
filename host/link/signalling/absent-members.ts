/**
 * Members without a WebSocket, and messages for them: each costs a process a place, counted per
 * source, and bytes. A WebSocket that is opened, joins a room and ends leaves one behind.
 */
import { SourceShares } from '../source-shares.js';
import type { Proven } from './bus-relays.js';

/** Messages that wait for a member. */
const MESSAGES_MAX = 16;
/** Characters of the messages that wait for a member, and for all of a process. */
const MEMBER_LENGTH_MAX = 2 ** 18;
const LENGTH_MAX = 2 ** 25;

/** One member without a WebSocket. */
export interface Absence {
  /** Keeps a message for the member. False: too many wait. */
  keep(message: Proven): boolean;
  /** The absence is over: its messages. */
  end(): Proven[];
}

/** Absent members of one process, in all rooms. */
export class AbsentMembers {
  readonly #places: SourceShares;
  readonly #lengthMax: number;
  #length = 0;

  /** `max`, `perSource`: members in all, and of one source. */
  constructor(max: number, perSource: number, lengthMax = LENGTH_MAX) {
    this.#places = new SourceShares(max, perSource);
    this.#lengthMax = lengthMax;
  }

  /** `address`: from which the member came. Undefined: too many members are absent. */
  enter(address: string | undefined): Absence | undefined {
    const giveBack = this.#places.take(address);
    if (!giveBack) return undefined;
    // As text, whose size is known: a parsed message takes many times its length.
    let texts: string[] = [];
    let length = 0;
    return {
      keep: (message) => {
        const text = JSON.stringify(message);
        if (texts.length === MESSAGES_MAX || length + text.length > MEMBER_LENGTH_MAX) return false;
        if (this.#length + text.length > this.#lengthMax) return false;
        texts.push(text);
        length += text.length;
        this.#length += text.length;
        return true;
      },
      end: () => {
        giveBack();
        this.#length -= length;
        const messages = texts.map((text) => JSON.parse(text) as Proven);
        [texts, length] = [[], 0];
        return messages;
      },
    };
  }
}
