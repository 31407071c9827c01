/** Messages that came before the one of their flow (same two sockets) that belongs in front of them. */
import type { After } from './header.js';
import type { IncomingMessage } from './message.js';

interface Held {
  readonly message: IncomingMessage;
  readonly lane: number;
  /** Directly in front of it. */
  readonly after: After;
  readonly sinceMicros: number;
}

/** The next sequence number of a lane: all below it have come. */
export type Expected = (lane: number) => number;

export class HeldMessages {
  readonly #flows = new Map<number, Held[]>();
  readonly #expected: Expected;
  readonly #deliver: (now: number, message: IncomingMessage) => void;

  constructor(expected: Expected, deliver: (now: number, message: IncomingMessage) => void) {
    this.#expected = expected;
    this.#deliver = deliver;
  }

  get isEmpty(): boolean {
    return this.#flows.size === 0;
  }

  /** When the one that waits longest came; Infinity: none. */
  get oldestMicros(): number {
    let oldest = Infinity;
    for (const [first] of this.#flows.values()) oldest = Math.min(oldest, first!.sinceMicros);
    return oldest;
  }

  /**
   * Takes a message if it has to wait: for the one that it names, or else for the one before it on
   * its lane. False: it is the caller's to deliver.
   */
  take(now: number, lane: number, message: IncomingMessage): boolean {
    const { after } = message.header.extensions;
    const flow = this.#flows.get(flowOf(message));
    if (!flow && !after) return false;
    const last = flow?.filter((held) => held.lane === lane).at(-1);
    const behind = after ?? (last && { lane, sequence: last.message.header.sequence });
    if (!behind || this.#isDelivered(flow, behind)) return false;
    const held = { message, lane, after: behind, sinceMicros: now };
    if (flow) flow.push(held);
    else this.#flows.set(flowOf(message), [held]);
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

  /** Whoever has waited longer than that waits for what was lost. */
  expire(now: number, micros: number): void {
    for (const [key, flow] of this.#flows) {
      if (flow[0]!.sinceMicros + micros > now) continue;
      const message = flow.shift()!.message;
      if (flow.length === 0) this.#flows.delete(key);
      this.#deliver(now, message);
    }
    this.release(now);
  }

  /** Nothing more will come. */
  flush(now: number): void {
    for (const flow of this.#flows.values()) {
      for (const { message } of flow) this.#deliver(now, message);
    }
    this.#flows.clear();
  }

  clear(): void {
    for (const flow of this.#flows.values()) for (const { message } of flow) message.release();
    this.#flows.clear();
  }

  #isDelivered(flow: readonly Held[] | undefined, { lane, sequence }: After): boolean {
    if (this.#expected(lane) <= sequence) return false;
    return !flow?.some((held) => held.lane === lane && held.message.header.sequence === sequence);
  }
}

function flowOf({ header }: IncomingMessage): number {
  return header.sourcePort * 65536 + header.destinationPort;
}
