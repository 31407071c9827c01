/**
 * A wire that loses, doubles, re-orders, corrupts and delays packets, and that can be cut. It
 * works on what its own side sends; wrap both sides for faults both ways.
 *
 * Deterministic: what happens to the n-th packet sent depends on the seed and n alone, not on how
 * packets are grouped into batches. (When a timer fires depends on the scheduler.)
 */
import { checkWhole, mustBe } from '../../errors/check-whole.js';
import { checkKeys } from '../../base/options.js';
import { splitmix32 } from '../../base/splitmix32.js';
import { timerMillis } from '../../base/timer.js';
import { CopiedBatch, copyPacket, type CopiedPacket } from './copied-batch.js';
import type { Endpoint, Gid } from '../endpoint.js';
import type { Link, LinkInfo, LinkMemory, LinkReceiver, PacketBatch } from '../link.js';
import { passOnPolling } from '../pass-on.js';
import { checkMember } from '../../errors/check-member.js';

export { splitmix32 };

/** Runs things later, in real or virtual time. */
export interface Scheduler {
  /** Calls `action` once, `delayMicros` from now. Returns what cancels it. */
  schedule(delayMicros: number, action: () => void): () => void;
}

/** Probabilities are per packet, 0 (never, the default) to 1 (always). */
export interface FaultOptions {
  /** Any 32-bit number. Default 1. */
  seed?: number;
  /** The packet is gone. */
  loss?: number;
  /** The packet travels twice, one directly after the other. */
  duplication?: number;
  /** The packet is overtaken by 1 to `reorderDistanceMax` packets sent after it. */
  reordering?: number;
  /** 1 to 3 bits of the packet flip. */
  corruption?: number;
  /** The packet leaves 1 to `delayMicrosMax` microseconds later. */
  delay?: number;
  /** Default 3 packets. */
  reorderDistanceMax?: number;
  /** A packet that waits to be overtaken leaves after this time at the latest. Default 1000. */
  holdMicros?: number;
  /** Default 1000 microseconds. */
  delayMicrosMax?: number;
  /** Default: `setTimeout`, rounded up to milliseconds. */
  scheduler?: Scheduler;
}

/** The options that may change while the link is open. */
export type FaultChances = Pick<
  FaultOptions,
  'loss' | 'duplication' | 'reordering' | 'corruption' | 'delay'
>;

/** Counters of injected faults. A packet can count in several. */
export interface FaultCounters {
  /** Packets that `send` got. */
  offered: number;
  lost: number;
  duplicated: number;
  reordered: number;
  corrupted: number;
  delayed: number;
  /** Lost because of `partition`. */
  partitioned: number;
}

/** A link that drops, duplicates, reorders and corrupts packets by its options. */
export interface FaultLink extends Link {
  readonly counters: Readonly<FaultCounters>;
  /** Other probabilities from the next packet on; those not named stay. Throws MisuseError. */
  change(chances: FaultChances): void;
  /** From now on nothing that we send reaches `peer`; without `peer`, any peer. */
  partition(peer?: Endpoint): void;
  /** Undoes `partition` for `peer`; without `peer`, for all peers. */
  heal(peer?: Endpoint): void;
}

const realTime: Scheduler = {
  schedule(delayMicros, action) {
    const timer = setTimeout(action, timerMillis(Math.ceil(delayMicros / 1000)));
    return () => clearTimeout(timer);
  },
};

/** Wraps `link`. Throws MisuseError when a probability is not in 0..1 or a limit below 1. */
export function faultLink(link: Link, options: FaultOptions = {}): FaultLink {
  const amounts = 'loss duplication reordering corruption delay reorderDistanceMax holdMicros';
  checkKeys('faultLink', options, `seed scheduler delayMicrosMax ${amounts}` as const);
  checkMember('link', link, 'send', 'a link (udpLink, DataChannelLink)');
  return new Faults(link, options);
}

/** Injected faults of one packet. */
interface Fate {
  readonly lost: boolean;
  readonly duplicated: boolean;
  readonly corrupted: boolean;
  /** How many later packets go first; 0: none. */
  readonly overtakenBy: number;
  readonly delayMicros: number;
  /** For which bits flip. */
  readonly random: () => number;
}

/** A packet that waits to be overtaken. */
interface Held {
  readonly copies: readonly CopiedPacket[];
  overtakenBy: number;
  cancel: () => void;
}

class Faults implements FaultLink {
  readonly counters: FaultCounters = {
    offered: 0,
    lost: 0,
    duplicated: 0,
    reordered: 0,
    corrupted: 0,
    delayed: 0,
    partitioned: 0,
  };
  readonly #link: Link;
  #options: Required<FaultOptions>;
  /** No fault has a chance. */
  #harmless: boolean;
  #held: Held[] = [];
  /** Cancels what is delayed. */
  readonly #delayed = new Set<() => void>();
  #partitionedFromAll = false;
  readonly #partitionedFrom = new Set<string>();

  constructor(link: Link, options: FaultOptions) {
    this.#link = link;
    this.#options = {
      seed: options.seed ?? 1,
      loss: probability('loss', options.loss),
      duplication: probability('duplication', options.duplication),
      reordering: probability('reordering', options.reordering),
      corruption: probability('corruption', options.corruption),
      delay: probability('delay', options.delay),
      reorderDistanceMax: atLeastOne('reorderDistanceMax', options.reorderDistanceMax ?? 3),
      holdMicros: atLeastOne('holdMicros', options.holdMicros ?? 1000),
      delayMicrosMax: atLeastOne('delayMicrosMax', options.delayMicrosMax ?? 1000),
      scheduler: options.scheduler ?? realTime,
    };
    this.#harmless = isHarmless(this.#options);
    Object.assign(this, passOnPolling(link));
  }

  get wakeDescriptor(): number | undefined {
    return this.#link.wakeDescriptor;
  }

  get info(): LinkInfo {
    const { integrity: _, ...info } = this.#link.info;
    return { ...info, name: `fault(${info.name})`, localPath: false };
  }

  async open(receiver: LinkReceiver, memory?: LinkMemory): Promise<LinkInfo> {
    await this.#link.open(receiver, memory);
    return this.info;
  }

  send(batch: PacketBatch): void {
    const fates: (Fate | undefined)[] = [];
    // Packets that wait are overtaken by these: then the batch cannot pass as it is either.
    let untouched = this.#held.length === 0;
    for (let index = 0; index < batch.count; index++) {
      const fate = this.#fate(batch.destinationOf(index));
      if (fate) untouched = false;
      fates.push(fate);
    }
    if (untouched) {
      this.#link.send(batch);
      return;
    }
    const leaving: CopiedPacket[] = [];
    fates.forEach((fate, index) => this.#apply(fate, batch, index, leaving));
    batch.release();
    this.#sendCopies(leaving);
  }

  join(group: Gid): void {
    this.#link.join?.(group);
  }

  leave(group: Gid): void {
    this.#link.leave?.(group);
  }

  async close(): Promise<void> {
    for (const held of this.#held) held.cancel();
    for (const cancel of this.#delayed) cancel();
    this.#held = [];
    this.#delayed.clear();
    await this.#link.close();
  }

  change(chances: FaultChances): void {
    const changed = Object.entries(chances).map(([name, value]) => [
      name,
      probability(name, value),
    ]);
    this.#options = { ...this.#options, ...(Object.fromEntries(changed) as FaultChances) };
    this.#harmless = isHarmless(this.#options);
  }

  partition(peer?: Endpoint): void {
    if (peer) this.#partitionedFrom.add(peer.toString());
    else this.#partitionedFromAll = true;
  }

  heal(peer?: Endpoint): void {
    if (peer) {
      this.#partitionedFrom.delete(peer.toString());
    } else {
      this.#partitionedFromAll = false;
      this.#partitionedFrom.clear();
    }
  }

  /** Draws the fate of the next packet; undefined: it passes unharmed. */
  #fate(destination: Endpoint): Fate | undefined {
    this.counters.offered++;
    const partitioned = this.#isPartitioned(destination);
    if (this.#harmless && !partitioned) return undefined;
    const { seed, loss, duplication, reordering, corruption, delay } = this.#options;
    // A generator of its own for each packet: switching one fault on does not shift the others.
    const random = splitmix32(Math.imul(this.counters.offered, 0x85ebca6b) ^ seed);
    const happens = (chance: number): boolean => random() < chance * 2 ** 32;
    const lost = happens(loss);
    const duplicated = happens(duplication);
    const reordered = happens(reordering);
    const corrupted = happens(corruption);
    const delayed = happens(delay);
    const overtakenBy = 1 + (random() % this.#options.reorderDistanceMax);
    const delayMicros = 1 + (random() % this.#options.delayMicrosMax);
    if (partitioned) {
      this.counters.partitioned++;
    } else if (lost) {
      this.counters.lost++;
    } else if (!duplicated && !reordered && !corrupted && !delayed) {
      return undefined;
    } else {
      return {
        lost: false,
        duplicated,
        corrupted,
        overtakenBy: reordered ? overtakenBy : 0,
        delayMicros: delayed ? delayMicros : 0,
        random,
      };
    }
    return LOST;
  }

  #isPartitioned(destination: Endpoint): boolean {
    if (this.#partitionedFromAll) return true;
    return this.#partitionedFrom.size > 0 && this.#partitionedFrom.has(destination.toString());
  }

  /** Adds to `leaving` what packet `index` becomes, and the packets that it overtakes. */
  #apply(fate: Fate | undefined, batch: PacketBatch, index: number, leaving: CopiedPacket[]): void {
    if (fate?.lost) return;
    const packet = copyPacket(batch, index);
    if (fate?.corrupted) {
      this.counters.corrupted++;
      flipBits(packet.bytes, fate.random);
    }
    if (fate?.duplicated) this.counters.duplicated++;
    const copies = fate?.duplicated ? [packet, packet] : [packet];
    if (fate && fate.delayMicros > 0) {
      this.counters.delayed++;
      this.#delay(copies, fate.delayMicros);
    } else if (fate && fate.overtakenBy > 0) {
      this.counters.reordered++;
      this.#hold(copies, fate.overtakenBy);
    } else {
      leaving.push(...copies);
      this.#overtake(leaving);
    }
  }

  #delay(copies: readonly CopiedPacket[], delayMicros: number): void {
    const cancel = this.#options.scheduler.schedule(delayMicros, () => {
      this.#delayed.delete(cancel);
      this.#sendCopies(copies);
    });
    this.#delayed.add(cancel);
  }

  #hold(copies: readonly CopiedPacket[], overtakenBy: number): void {
    const held: Held = { copies, overtakenBy, cancel: () => undefined };
    this.#held.push(held);
    held.cancel = this.#options.scheduler.schedule(this.#options.holdMicros, () => {
      this.#held = this.#held.filter((other) => other !== held);
      this.#sendCopies(copies);
    });
  }

  /** One packet left: those that have been overtaken often enough follow it. */
  #overtake(leaving: CopiedPacket[]): void {
    if (this.#held.length === 0) return;
    const waiting: Held[] = [];
    for (const held of this.#held) {
      if (--held.overtakenBy > 0) {
        waiting.push(held);
      } else {
        held.cancel();
        leaving.push(...held.copies);
      }
    }
    this.#held = waiting;
  }

  #sendCopies(packets: readonly CopiedPacket[]): void {
    if (packets.length > 0) this.#link.send(new CopiedBatch(packets));
  }
}

function isHarmless(options: Required<FaultOptions>): boolean {
  const { loss, duplication, reordering, corruption, delay } = options;
  return loss + duplication + reordering + corruption + delay === 0;
}

const LOST: Fate = {
  lost: true,
  duplicated: false,
  corrupted: false,
  overtakenBy: 0,
  delayMicros: 0,
  random: () => 0,
};

function flipBits(bytes: Uint8Array, random: () => number): void {
  if (bytes.length === 0) return;
  // Distinct bits: a bit that flips twice would be whole again.
  const bits = new Set<number>();
  const wanted = Math.min(1 + (random() % 3), bytes.length * 8);
  while (bits.size < wanted) bits.add(random() % (bytes.length * 8));
  for (const bit of bits) bytes[bit >> 3]! ^= 1 << (bit & 7);
}

function probability(name: string, value = 0): number {
  if (value >= 0 && value <= 1) return value;
  throw mustBe(name, 'a probability from 0 to 1', value);
}

function atLeastOne(name: string, value: number): number {
  checkWhole(name, value, 1);
  return value;
}
