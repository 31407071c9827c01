/** A `PacketBatch` over a plain buffer, in place of the engine's memory. */
import type { Endpoint } from '../../host/link/endpoint.js';
import type { PacketBatch } from '../../host/link/link.js';
import { BTH_SLOT_BYTE } from '../../host/link/udp/message-header.js';

export interface TestPacket {
  bytes: Uint8Array;
  to: Endpoint;
}

export interface TestBatchOptions {
  /** Lie in shared memory, as an engine with threads does. */
  shared?: boolean;
  /** Called at each release. */
  onRelease?: () => void;
}

/** Value with which the memory is overwritten at the release. */
const OVERWRITTEN = 0xee;

/**
 * Packets one after the other, as an engine lays them out. At the release the memory is
 * overwritten at once, so that a link that reads later delivers other bytes.
 */
export class TestBatch implements PacketBatch {
  readonly count: number;
  readonly buffer: ArrayBufferLike;
  /** How often the link called `release`: at last, 1. */
  releaseCount = 0;
  /** How often the link asked for something after the release: to stay 0. */
  readsAfterRelease = 0;
  readonly #packets: readonly TestPacket[];
  readonly #addresses: number[] = [];
  readonly #onRelease: () => void;

  constructor(packets: readonly TestPacket[], options: TestBatchOptions = {}) {
    this.count = packets.length;
    this.#packets = packets;
    this.#onRelease = options.onRelease ?? (() => undefined);
    // Not at address 0: an engine's never are.
    let size = 64;
    for (const { bytes } of packets) {
      this.#addresses.push(size);
      size += bytes.length;
    }
    this.buffer = options.shared ? new SharedArrayBuffer(size) : new ArrayBuffer(size);
    packets.forEach(({ bytes }, index) => this.bytesOf(index).set(bytes));
  }

  addressOf(index: number): number {
    this.#use();
    return this.#addresses[index]!;
  }

  lengthOf(index: number): number {
    this.#use();
    return this.#packets[index]!.bytes.length;
  }

  destinationOf(index: number): Endpoint {
    this.#use();
    return this.#packets[index]!.to;
  }

  bytesOf(index: number): Uint8Array {
    return new Uint8Array(this.buffer, this.addressOf(index), this.lengthOf(index));
  }

  release(): void {
    this.releaseCount++;
    new Uint8Array(this.buffer).fill(OVERWRITTEN);
    this.#onRelease();
  }

  #use(): void {
    if (this.releaseCount > 0) this.readsAfterRelease++;
  }
}

/**
 * `length` bytes that differ with `salt`, and from their neighbours; but for the byte that says which
 * process of a device a packet is for: they are all for one.
 */
export function pattern(length: number, salt: number): Uint8Array {
  return Uint8Array.from({ length }, (_, index) =>
    index === BTH_SLOT_BYTE ? 1 : (index * 7 + (index >> 8) + salt * 31) & 255,
  );
}
