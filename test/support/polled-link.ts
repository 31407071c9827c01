/**
 * Drives a link that has `poll` from the event loop, with memory as an engine has it, and takes
 * runs of packets apart for a receiver that wants them one by one.
 */
import type {
  Link,
  LinkInfo,
  LinkMemory,
  LinkReceiver,
  PacketBatch,
} from '../../host/link/link.js';

/** Memory that gives out zeroed addresses and notices what is not given back. */
export class TestMemory implements LinkMemory {
  readonly buffer = new SharedArrayBuffer(4 * 2 ** 20);
  readonly taken = new Map<number, number>();
  #end = 64;

  alloc(bytes: number): number {
    const address = this.#end;
    this.#end += Math.ceil(bytes / 64) * 64;
    if (this.#end > this.buffer.byteLength) throw new RangeError('the test memory is full');
    this.taken.set(address, bytes);
    return address;
  }

  free(address: number): void {
    if (!this.taken.delete(address)) throw new RangeError(`${address} is not taken`);
    if (this.taken.size === 0) this.#end = 64;
  }
}

export interface PolledLinkOptions {
  /** Give the link memory, and take runs of packets from there. */
  memory?: LinkMemory;
  /** Tell the link that every destination is of our own kind. */
  segments?: boolean;
}

export class PolledLink implements Link {
  /** Runs of more than one packet that came. */
  runs = 0;
  readonly #link: Link;
  readonly #options: PolledLinkOptions;
  #turn: NodeJS.Immediate | undefined;
  #opens = false;

  constructor(link: Link, options: PolledLinkOptions = {}) {
    this.#link = link;
    this.#options = options;
  }

  get info(): LinkInfo {
    return this.#link.info;
  }

  async open(receiver: LinkReceiver): Promise<LinkInfo> {
    const { memory } = this.#options;
    const info = await this.#link.open(memory ? this.#split(receiver, memory) : receiver, memory);
    this.#opens = true;
    const turn = (): void => {
      this.#link.poll?.();
      if (this.#opens) this.#turn = setImmediate(turn);
    };
    this.#turn = setImmediate(turn);
    return info;
  }

  send(batch: PacketBatch): void {
    if (this.#options.segments) {
      for (let index = 0; index < batch.count; index++) {
        this.#link.setPeerSegments?.(batch.destinationOf(index), true);
      }
    }
    this.#link.send(batch);
  }

  async close(): Promise<void> {
    this.#opens = false;
    clearImmediate(this.#turn);
    await this.#link.close();
  }

  #split(receiver: LinkReceiver, { buffer }: LinkMemory): LinkReceiver {
    return {
      packet: (bytes, source) => receiver.packet(bytes, source),
      segments: (address, length, segmentSize, source) => {
        if (segmentSize > 0) this.runs++;
        const step = segmentSize || length;
        for (let at = 0; at < length; at += step) {
          const size = Math.min(step, length - at);
          receiver.packet(new Uint8Array(buffer, address + at, size), source);
        }
      },
      flush: () => receiver.flush(),
      failed: (reason) => receiver.failed(reason),
    };
  }
}
