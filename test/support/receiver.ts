/** A `LinkReceiver` that keeps what it gets. */
import type { Endpoint, Gid } from '../../host/link/endpoint.js';
import type { LinkReceiver, PacketBatch } from '../../host/link/link.js';

/** Only detects a hang: a process may get no time for seconds on a busy machine. */
const HANG_MILLIS = 20_000;

export interface ReceivedPacket {
  bytes: Uint8Array;
  source: Endpoint;
}

export class RecordingReceiver implements LinkReceiver {
  readonly received: ReceivedPacket[] = [];
  readonly failures: Error[] = [];
  /** Of each packet. */
  readonly groups: (Gid | undefined)[] = [];
  flushCount = 0;
  /** Packets that came since the last flush. */
  unflushed = 0;

  packet(bytes: Uint8Array, source: Endpoint, group?: Gid): void {
    this.received.push({ bytes: Uint8Array.from(bytes), source });
    this.groups.push(group);
    this.unflushed++;
  }

  flush(): void {
    this.flushCount++;
    this.unflushed = 0;
  }

  failed(reason: Error): void {
    this.failures.push(reason);
  }

  /** The packets' bytes, in the order in which they came. */
  get bytes(): Uint8Array[] {
    return this.received.map(({ bytes }) => bytes);
  }

  /** Waits until `count` packets have come and been flushed, at most `limitMillis`. */
  async until(count: number, limitMillis = HANG_MILLIS): Promise<void> {
    await eventually(() => this.received.length >= count && this.unflushed === 0, limitMillis);
  }
}

/** One that also takes whole batches. */
export class BatchReceiver extends RecordingReceiver {
  batchCount = 0;

  packets(batch: PacketBatch, source: Endpoint): void {
    this.batchCount++;
    for (let index = 0; index < batch.count; index++) this.packet(batch.bytesOf(index), source);
  }
}

/** Waits until `condition` holds; fails after `limitMillis`. */
export async function eventually(
  condition: () => boolean,
  limitMillis = HANG_MILLIS,
): Promise<void> {
  const end = performance.now() + limitMillis;
  while (!condition()) {
    if (performance.now() > end) throw new Error(`not within ${limitMillis} ms: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

/** Long enough for a packet that is under way on this machine to arrive. */
export function settle(millis = 30): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, millis));
}
