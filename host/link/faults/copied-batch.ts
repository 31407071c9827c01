/** Packets copied out of the engine's memory: for wrappers that send other packets, or later. */
import type { Endpoint } from '../endpoint.js';
import type { PacketBatch } from '../link.js';

export interface CopiedPacket {
  readonly bytes: Uint8Array;
  readonly destination: Endpoint;
}

/** A copy of one packet of `batch`, in memory of its own. */
export function copyPacket(batch: PacketBatch, index: number): CopiedPacket {
  return {
    bytes: Uint8Array.from(batch.bytesOf(index)),
    destination: batch.destinationOf(index),
  };
}

/** A batch that owns its memory; its release has no effect. */
export class CopiedBatch implements PacketBatch {
  readonly count: number;
  readonly buffer: ArrayBuffer;
  readonly #packets: readonly CopiedPacket[];
  readonly #addresses: number[] = [];

  constructor(packets: readonly CopiedPacket[]) {
    this.count = packets.length;
    this.#packets = packets;
    let size = 0;
    for (const { bytes } of packets) {
      this.#addresses.push(size);
      size += bytes.length;
    }
    this.buffer = new ArrayBuffer(size);
    packets.forEach(({ bytes }, index) => this.bytesOf(index).set(bytes));
  }

  addressOf(index: number): number {
    return this.#addresses[index]!;
  }

  lengthOf(index: number): number {
    return this.#packets[index]!.bytes.length;
  }

  destinationOf(index: number): Endpoint {
    return this.#packets[index]!.destination;
  }

  bytesOf(index: number): Uint8Array {
    return new Uint8Array(this.buffer, this.addressOf(index), this.lengthOf(index));
  }

  release(): void {
    // The batch owns its memory.
  }
}
