/** Messages that came before one of another lane that belongs in front of them. */
import type { After } from './header.js';
import type { IncomingMessage } from './message.js';

interface Held {
  readonly message: IncomingMessage;
  /** Undefined: it only waits for those of its flow in front of it. */
  readonly after: After | undefined;
  readonly sinceMicros: number;
}

export class HeldMessages {
  readonly #flows = new Map<number, Held[]>();
  /** What came of each lane: the next sequence number. */
  readonly #expected: number[] = [];
  readonly #deliver: (now: number, message: IncomingMessage) => void;

  constructor(deliver: (now: number, message: IncomingMessage) => void) {
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

  hasFlowOf(message: IncomingMessage): boolean {
    return this.#flows.size > 0 && this.#flows.has(flowOf(message));
  }

  add(now: number, message: IncomingMessage, after: After | undefined): void {
    const key = flowOf(message);
    const flow = this.#flows.get(key);
    const held = { message, after, sinceMicros: now };
    if (flow) flow.push(held);
    else this.#flows.set(key, [held]);
  }

  /** On that lane all below `expected` has come. */
  came(now: number, lane: number, expected: number): void {
    this.#expected[lane] = expected;
    for (const key of [...this.#flows.keys()]) this.#release(now, key, Infinity);
  }

  /** Whoever waits longer than that waits for what was lost. */
  expire(now: number, micros: number): void {
    for (const key of [...this.#flows.keys()]) this.#release(now, key, now - micros);
  }

  /** Nothing more will come. */
  flush(now: number): void {
    for (const flow of this.#flows.values()) {
      for (const { message } of flow) this.#deliver(now, message);
    }
    this.#flows.clear();
    this.#expected.length = 0;
  }

  clear(): void {
    for (const flow of this.#flows.values()) for (const { message } of flow) message.release();
    this.#flows.clear();
  }

  #release(now: number, key: number, until: number): void {
    const flow = this.#flows.get(key)!;
    for (let first = flow[0]; first; first = flow[0]) {
      const { after, sinceMicros, message } = first;
      const isEarly = after && (this.#expected[after.lane] ?? 0) <= after.sequence;
      if (isEarly && (until === Infinity || sinceMicros > until)) break;
      flow.shift();
      this.#deliver(now, message);
    }
    if (flow.length === 0) this.#flows.delete(key);
  }
}

function flowOf({ header }: IncomingMessage): number {
  return header.sourcePort * 65536 + header.destinationPort;
}
