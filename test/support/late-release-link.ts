/**
 * The nastiest link that the contract allows: it reads the packets late, and it releases batches
 * late and in another order. Packets keep their order. It also watches its user: memory that
 * changes between `send` and `release` counts as a violation.
 */
import { splitmix32 } from '../../host/link/faults/fault.js';
import type { Link, LinkInfo, LinkReceiver, PacketBatch } from '../../host/link/link.js';
import type { Endpoint } from '../../host/link/endpoint.js';

export interface LateReleaseOptions {
  seed?: number;
  /** Turns of the event loop that a batch waits before it is read: 1 to this. Default 3. */
  readTurnsMax?: number;
  /** Turns that it waits for its release after that: 1 to this. Default 6. */
  releaseTurnsMax?: number;
}

export class LateReleaseLink implements Link {
  /** Buffers that a user overwrote before their release: "packet 3 of a batch changed …". */
  readonly violations: string[] = [];
  readonly #link: Link;
  readonly #random: () => number;
  readonly #readTurnsMax: number;
  readonly #releaseTurnsMax: number;
  readonly #unread: LateBatch[] = [];
  readonly #unreleased = new Set<LateBatch>();
  #isOpen = false;
  #ticking: NodeJS.Immediate | undefined;

  constructor(link: Link, options: LateReleaseOptions = {}) {
    this.#link = link;
    this.#random = splitmix32(options.seed ?? 1);
    this.#readTurnsMax = options.readTurnsMax ?? 3;
    this.#releaseTurnsMax = options.releaseTurnsMax ?? 6;
  }

  get info(): LinkInfo {
    return { ...this.#link.info, name: `late(${this.#link.info.name})` };
  }

  async open(receiver: LinkReceiver): Promise<LinkInfo> {
    await this.#link.open(receiver);
    this.#isOpen = true;
    return this.info;
  }

  send(batch: PacketBatch): void {
    if (!this.#isOpen) {
      batch.release();
      return;
    }
    const late = new LateBatch(batch, 1 + (this.#random() % this.#readTurnsMax), this.violations);
    this.#unread.push(late);
    this.#ticking ??= setImmediate(() => this.#tick());
  }

  async close(): Promise<void> {
    this.#isOpen = false;
    clearImmediate(this.#ticking);
    this.#ticking = undefined;
    // Afterwards the inner link has let go of everything that it had.
    await this.#link.close();
    const batches = [...this.#unread.splice(0), ...this.#unreleased].reverse();
    this.#unreleased.clear();
    for (const late of batches) late.releaseForGood();
  }

  #tick(): void {
    this.#ticking = undefined;
    for (const late of [...this.#unreleased]) {
      if (!late.innerReleased || --late.turns > 0) continue;
      this.#unreleased.delete(late);
      late.releaseForGood();
    }
    // In order: the first that is not due holds the others up.
    while (this.#unread[0] && --this.#unread[0].turns <= 0) {
      const late = this.#unread.shift()!;
      late.turns = 1 + (this.#random() % this.#releaseTurnsMax);
      this.#unreleased.add(late);
      this.#link.send(late);
    }
    if (this.#unread.length + this.#unreleased.size > 0) {
      this.#ticking ??= setImmediate(() => this.#tick());
    }
  }
}

class LateBatch implements PacketBatch {
  innerReleased = false;
  readonly #batch: PacketBatch;
  readonly #violations: string[];
  readonly #before: readonly Uint8Array[];
  turns: number;

  constructor(batch: PacketBatch, turns: number, violations: string[]) {
    this.#batch = batch;
    this.turns = turns;
    this.#violations = violations;
    this.#before = Array.from({ length: batch.count }, (_, i) => Uint8Array.from(batch.bytesOf(i)));
  }

  get count(): number {
    return this.#batch.count;
  }

  get buffer(): ArrayBufferLike {
    return this.#batch.buffer;
  }

  addressOf(index: number): number {
    return this.#batch.addressOf(index);
  }

  lengthOf(index: number): number {
    return this.#batch.lengthOf(index);
  }

  destinationOf(index: number): Endpoint {
    return this.#batch.destinationOf(index);
  }

  bytesOf(index: number): Uint8Array {
    return this.#batch.bytesOf(index);
  }

  /** The inner link is done; our user does not learn it yet. */
  release(): void {
    if (this.innerReleased) this.#violations.push('the inner link released a batch twice');
    this.innerReleased = true;
  }

  releaseForGood(): void {
    this.#before.forEach((before, index) => {
      if (Buffer.compare(before, this.bytesOf(index)) === 0) return;
      this.#violations.push(
        `packet ${index} of a batch of ${this.count} changed between send and release`,
      );
    });
    this.#batch.release();
  }
}
