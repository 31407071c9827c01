/**
 * A long way between us and the guest: what this side sends and receives waits for half of a round
 * trip. No kernel here has netem.
 */
import { timerMillis } from '../../../host/base/timer.js';
import { CopiedBatch, copyPacket } from '../../../host/link/faults/copied-batch.js';
import type { Link, LinkInfo, LinkReceiver, PacketBatch } from '../../../host/link/link.js';

export class DelayLink implements Link {
  readonly #link: Link;
  readonly #millis: number;
  readonly #timers = new Set<NodeJS.Timeout>();

  /** `rttMillis`: both ways together. */
  constructor(link: Link, rttMillis: number) {
    this.#link = link;
    this.#millis = rttMillis / 2;
  }

  get info(): LinkInfo {
    const { info } = this.#link;
    return { ...info, name: `delay(${info.name})`, localPath: false };
  }

  async open(receiver: LinkReceiver): Promise<LinkInfo> {
    await this.#link.open({
      packet: (bytes, source, group) => {
        const copy = Uint8Array.from(bytes);
        this.#later(() => {
          receiver.packet(copy, source, group);
          receiver.flush();
        });
      },
      // Delayed packets are processed when their time has come.
      flush: () => undefined,
      failed: (reason) => receiver.failed(reason),
    });
    return this.info;
  }

  send(batch: PacketBatch): void {
    const copies = Array.from({ length: batch.count }, (_, index) => copyPacket(batch, index));
    batch.release();
    this.#later(() => this.#link.send(new CopiedBatch(copies)));
  }

  async close(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
    await this.#link.close();
  }

  /** Timers of one length end in the order in which they were set. */
  #later(action: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      action();
    }, timerMillis(this.#millis));
    this.#timers.add(timer);
  }
}
