/**
 * Connects a link with each member of a room. A newcomer receives an offer from all members that
 * are there; a member that receives none within a few seconds offers itself.
 */
import { timerMillis } from '../base/timer.js';
import type { DataChannelLink } from '../link/channel/data-channel.js';
import { LinkError } from '../errors/errors.js';
import { checkDescription, gidOfDescription } from '../link/rtc/fingerprint.js';
import type { Answerer, Signalling, SignallingRoom } from '../link/signalling/signalling.js';

/** A member that was there offers within that time. */
const PRESENT_MILLIS = 3000;
const RETRY_MILLIS = 500;
const RETRY_MILLIS_MAX = 10_000;
/** A newcomer without a name cannot be looked up again. */
const UNNAMED_ATTEMPTS = 3;

export class Meeting {
  readonly #link: DataChannelLink;
  readonly #room: SignallingRoom;
  readonly #self: string;
  /** How each member of the room is reached. */
  readonly #ways = new Map<string, Signalling>();
  readonly #sought = new Set<string>();
  readonly #timers = new Set<() => void>();
  #leave: (() => void) | undefined;
  #isOver = false;
  /** Why this member is not in the room at the moment, or has no connection with another. */
  lastError: Error | undefined;

  constructor(link: DataChannelLink, room: SignallingRoom) {
    this.#link = link;
    this.#room = room;
    this.#self = `${link.info.local.gid}`;
  }

  /** Resolves when this member is in the room. Rejects with LinkError if the server refuses it. */
  start(): Promise<void> {
    return new Promise((resolve, reject) => {
      const newcomer = (way: Signalling, name?: string): void => {
        if (name === undefined) void this.#greet(way);
        else this.#add(name, way, 0);
      };
      const answer: Answerer = async (offer, from) => {
        if (from !== undefined) checkSender(offer, from);
        return this.#link.answer(offer);
      };
      this.#leave = this.#room.join(this.#self, answer, newcomer, {
        present: (way, name) => this.#add(name, way, PRESENT_MILLIS),
        away: (name) => this.#link.probe(name),
        left: (name) => this.#ways.delete(name),
        joined: () => {
          this.lastError = undefined;
          resolve();
        },
        failed: (error) => void (this.lastError = error),
        refused: (error) => reject((this.lastError = error)),
      });
      if (!this.#room.reportsJoin) resolve();
    });
  }

  stop(): void {
    this.#isOver = true;
    this.#leave?.();
    this.#ways.clear();
    for (const end of this.#timers) end();
  }

  /** The link has lost this member. */
  lost(name: string): void {
    // One side first, so that their offers do not cross.
    const millis = this.#self < name ? RETRY_MILLIS : PRESENT_MILLIS;
    if (this.#ways.has(name)) void this.#seek(name, millis);
  }

  #add(name: string, way: Signalling, millis: number): void {
    this.#ways.set(name, way);
    void this.#seek(name, millis);
  }

  isConnected(name: string): boolean {
    return this.#link.peers.some(({ gid }) => `${gid}` === name);
  }

  /** Offers until the member is connected, or has left the room. */
  async #seek(name: string, firstMillis: number): Promise<void> {
    if (this.#sought.has(name)) return;
    this.#sought.add(name);
    await this.#pause(firstMillis);
    let millis = RETRY_MILLIS;
    for (;;) {
      const way = this.#ways.get(name);
      if (!way || this.#isOver || this.isConnected(name)) break;
      this.lastError = await this.#link.connect(way).then(
        () => undefined,
        (error: LinkError) => error,
      );
      if (!this.lastError) break;
      await this.#pause(millis);
      millis = Math.min(2 * millis, RETRY_MILLIS_MAX);
    }
    this.#sought.delete(name);
  }

  async #greet(way: Signalling): Promise<void> {
    for (let attempt = 1; attempt <= UNNAMED_ATTEMPTS && !this.#isOver; attempt++) {
      try {
        await this.#link.connect(way);
        return;
      } catch {
        await this.#pause(RETRY_MILLIS);
      }
    }
  }

  #pause(millis: number): Promise<void> {
    if (millis === 0 || this.#isOver) return Promise.resolve();
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        this.#timers.delete(end);
        resolve();
      };
      const timer = setTimeout(end, timerMillis(millis));
      this.#timers.add(end);
    });
  }
}

/** A member offers its own connections: else one could take the places of all others. */
function checkSender(offer: unknown, from: string): void {
  const gid = gidOfDescription(checkDescription(offer, 'offer'));
  if (`${gid}` === from) return;
  throw new LinkError('EPROTO', `answer: the offer of ${from} names ${gid}; use its own`);
}
