/** Holds messages until their predecessor between the same two sockets has arrived. */
import type { After } from '../wire/header.js';
import { flowOf, type IncomingMessage } from './message.js';

interface Held {
  readonly message: IncomingMessage;
  readonly connectionIndex: number;
  /** The direct predecessor. */
  readonly after: After;
}

const SHORT = 2 ** 40;

/** The next expected sequence number of a connection. */
export type Expected = (connectionIndex: number) => number;

/** Has that number arrived, even if lower ones have not? */
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

  /** The lowest held sequence number of a connection; Infinity without one. */
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
   * Holds a message that must wait for the predecessor that it names, or for the one before it on
   * its connection. Returns false if the caller may deliver it.
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

  /** Delivers the messages whose predecessor has arrived. */
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

/** Expands the last 40 bits of a number to the nearest to the expected one. */
function wholeOf(short: number, expected: number): number {
  // A connection that does not exist delays no message; without a message nothing is expected.
  if (expected === Infinity || expected === 0) return expected === 0 ? Infinity : short;
  const near = Math.floor(expected / SHORT) * SHORT + short;
  if (near - expected > SHORT / 2) return near - SHORT;
  return expected - near > SHORT / 2 ? near + SHORT : near;
}
