/** Messages in flight from a node to each port of a peer. */
import { flowOf, type OutgoingMessage } from './message.js';

/**
 * Unacknowledged messages to one port, and bytes of several, beyond which the port counts as slow.
 * Two wake-ups of the reader release that many. If the reader stops, they fit between its threshold
 * and its limit (375 and 500).
 */
const MESSAGES_MAX = 112;
const BYTES_MAX = 4 << 20;

interface Window {
  messages: number;
  bytes: number;
}

export class TransmitWindows {
  readonly #ports = new Map<number, Window>();
  /** The last one that became empty stays: a question and its answer need it again at once. */
  #empty = -1;

  isFull(port: number): boolean {
    const window = this.#ports.get(port);
    return window !== undefined && (window.messages >= MESSAGES_MAX || window.bytes >= BYTES_MAX);
  }

  sent(port: number, bytes: number): void {
    const window = this.#ports.get(port);
    if (window) {
      window.messages++;
      window.bytes += bytes;
    } else this.#ports.set(port, { messages: 1, bytes });
  }

  /** A message is acknowledged. Returns whether that made the window half empty. */
  left(port: number, bytes: number): boolean {
    const window = this.#ports.get(port);
    if (!window) return false;
    const wasFull = isMoreThanHalf(window);
    window.messages--;
    window.bytes -= bytes;
    if (window.messages === 0 && port !== this.#empty) {
      if (this.#ports.get(this.#empty)?.messages === 0) this.#ports.delete(this.#empty);
      this.#empty = port;
    }
    return wasFull && !isMoreThanHalf(window);
  }

  /** The memory of a message came back before its number did. */
  shrank(port: number, bytes: number): void {
    const window = this.#ports.get(port);
    if (window) window.bytes -= bytes;
  }

  clear(): void {
    this.#ports.clear();
  }
}

function isMoreThanHalf({ messages, bytes }: Window): boolean {
  return messages > MESSAGES_MAX / 2 || bytes > BYTES_MAX / 2;
}

/** A message between two ports. */
export interface Numbered {
  connectionIndex: number;
  sequence: number;
}

/** Pairs of ports with unacknowledged messages: the last one, and how many. */
export class Flows {
  readonly #flows = new Map<number, Numbered & { unacked: number }>();
  /** As `TransmitWindows` has it. */
  #empty = -1;

  /** Returns the one before, if it took another connection and the peer may not have it. */
  numbered(connectionIndex: number, message: OutgoingMessage): Numbered | undefined {
    const key = flowOf(message);
    const flow = this.#flows.get(key);
    const { sequence } = message;
    if (!flow) {
      this.#flows.set(key, { connectionIndex, sequence, unacked: 1 });
      return undefined;
    }
    const isElsewhere = flow.connectionIndex !== connectionIndex && flow.unacked > 0;
    const before = isElsewhere
      ? { connectionIndex: flow.connectionIndex, sequence: flow.sequence }
      : undefined;
    flow.connectionIndex = connectionIndex;
    flow.sequence = sequence;
    flow.unacked++;
    return before;
  }

  left(message: OutgoingMessage): void {
    const key = flowOf(message);
    const flow = this.#flows.get(key);
    if (!flow || --flow.unacked > 0 || key === this.#empty) return;
    if (this.#flows.get(this.#empty)?.unacked === 0) this.#flows.delete(this.#empty);
    this.#empty = key;
  }

  clear(): void {
    this.#flows.clear();
  }
}
