/** Messages that came before one of their flow (same two sockets) that belongs in front of them. */
import type { After } from '../wire/header.js';
import { flowOf, type IncomingMessage } from './message.js';

interface Held {
  readonly message: IncomingMessage;
  readonly connectionIndex: number;
  /** The direct predecessor. */
  readonly after: After;
}

const SHORT = 2 ** 40;

/** The next sequence number of a connection: all below it have come. */
export type Expected = (connectionIndex: number) => number;

/** Has it come, whatever has not before it? */
export type Has = (connectionIndex: number, sequence: number) => boolean;

export class ReorderBuffer {
  readonly #flows = new Map<number, Held[]>();
  readonly #expected: Expected;
  readonly #has: Has;
  readonly #deliver: (now: number, message: IncomingMessage) => void;

  constructor(
    expected: Expected,
    has: Has,
    deliver: (now: number, message: IncomingMessage) => void,
  ) {
    this.#expected = expected;
    this.#has = has;
    this.#deliver = deliver;
  }

  get isEmpty(): boolean {
    return this.#flows.size === 0;
  }

  /** The lowest sequence number of a connection that waits; Infinity: none. */
  lowest(connectionIndex: number): number {
    let lowest = Infinity;
    for (const flow of this.#flows.values()) {
      for (const held of flow) {
        if (held.connectionIndex === connectionIndex)
          lowest = Math.min(lowest, held.message.header.sequence);
      }
    }
    return lowest;
  }

  /**
   * Takes a message if it has to wait: for the one that it names, or else for the one before it on
   * its connection. False: it is the caller's to deliver.
   */
  take(connectionIndex: number, message: IncomingMessage): boolean {
    const { after } = message.header.extensions;
    if (!after && this.isEmpty) return false;
    const flow = this.#flows.get(flowOf(message.header));
    if (!flow && !after) return false;
    const last = flow?.filter((held) => held.connectionIndex === connectionIndex).at(-1);
    const behind = after ?? (last && { connectionIndex, sequence: last.message.header.sequence });
    if (!behind || this.#isDelivered(flow, behind)) return false;
    const held = { message, connectionIndex, after: behind };
    if (flow) flow.push(held);
    else this.#flows.set(flowOf(message.header), [held]);
    return true;
  }

  /** A message came: others may have waited for it. */
  release(now: number): void {
    for (const [key, flow] of this.#flows) {
      for (let index = 0; index < flow.length;) {
        const { message, after } = flow[index]!;
        if (!this.#isDelivered(flow, after)) index++;
        else {
          flow.splice(index, 1);
          this.#deliver(now, message);
          index = 0;
        }
      }
      if (flow.length === 0) this.#flows.delete(key);
    }
  }

  /** Drops all messages: their predecessors are lost, and none of them is acknowledged. */
  clear(): void {
    for (const flow of this.#flows.values()) for (const { message } of flow) message.release();
    this.#flows.clear();
  }

  #isDelivered(flow: readonly Held[] | undefined, after: After): boolean {
    const { connectionIndex } = after;
    const expected = this.#expected(connectionIndex);
    const sequence = after.isShort ? wholeOf(after.sequence, expected) : after.sequence;
    if (expected <= sequence && !this.#has(connectionIndex, sequence)) return false;
    return !flow?.some(
      (held) =>
        held.connectionIndex === connectionIndex && held.message.header.sequence === sequence,
    );
  }
}

/** The number with these last 40 bits that is nearest to what is expected. */
function wholeOf(short: number, expected: number): number {
  // A connection that does not exist delays no message; without a message nothing is expected.
  if (expected === Infinity || expected === 0) return expected === 0 ? Infinity : short;
  const near = Math.floor(expected / SHORT) * SHORT + short;
  if (near - expected > SHORT / 2) return near - SHORT;
  return expected - near > SHORT / 2 ? near + SHORT : near;
}
