/**
 * Several channels to one peer that carry side by side, as one. The first one is whose fate they
 * share: it opens, is interrupted and ends for all of them. The others come and go.
 */
import type { ChannelReceiver, DatagramChannel } from './datagram-channel.js';

export class ChannelBundle implements DatagramChannel {
  connections: readonly DatagramChannel[];
  readonly #channels: readonly DatagramChannel[];
  readonly #carrying = new Set<DatagramChannel>();

  /** At least one. */
  constructor(channels: readonly DatagramChannel[]) {
    this.#channels = channels;
    this.connections = [this.#main];
  }

  get bufferedBytes(): number {
    return this.#main.bufferedBytes;
  }

  get #main(): DatagramChannel {
    return this.#channels[0]!;
  }

  start(receiver: ChannelReceiver): void {
    for (const channel of this.#channels) {
      const isMain = channel === this.#main;
      channel.start({
        opened: () => {
          this.#carries(channel, true);
          if (isMain) receiver.opened();
        },
        message: (bytes) => receiver.message(bytes, channel),
        interrupted: (isInterrupted) => {
          this.#carries(channel, !isInterrupted);
          if (isMain) receiver.interrupted(isInterrupted);
        },
        closed: (reason, isLost) => {
          this.#carries(channel, false);
          if (isMain) receiver.closed(reason, isLost);
          else channel.close();
        },
      });
    }
  }

  send(message: Uint8Array): boolean {
    return this.#main.send(message);
  }

  close(): void {
    for (const channel of this.#channels) channel.close();
  }

  #carries(channel: DatagramChannel, does: boolean): void {
    if (does) this.#carrying.add(channel);
    else this.#carrying.delete(channel);
    const carrying = this.#channels.filter((other) => this.#carrying.has(other));
    this.connections = carrying.length > 0 ? carrying : [this.#main];
  }
}
