/** What of a node is on its way to each port of a peer. */

/** Unacknowledged messages to one port, and bytes of several, beyond which it counts as slow. */
const MESSAGES_MAX = 64;
const BYTES_MAX = 4 << 20;

interface Window {
  messages: number;
  bytes: number;
}

export class Windows {
  readonly #ports = new Map<number, Window>();

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
    if (window.messages === 0) this.#ports.delete(port);
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

/** Two ports with unacknowledged messages between them. */
export interface Flow {
  readonly lane: number;
  readonly sequence: number;
  unacked: number;
}
