/**
 * The network between devices: what the fate of a packet is, and when it arrives. Packets are
 * copied out of the engine's memory when they are sent and into it when they arrive.
 */
import type { Endpoint, Link, LinkInfo, LinkReceiver, PacketBatch } from '../../host/index.js';
import { PACKET_SIZE_LIMIT } from '../../host/link/link.js';
import { Attacker } from './attacker.js';
import type { SimulationOptions } from './options.js';
import { EventKind, type EventQueue } from './queue.js';
import type { Random } from './random.js';
import { Violation } from './violation.js';

/** Ethernet, IP and UDP around a packet: what takes bandwidth besides it. */
const FRAME_BYTES = 66;
/** BTH byte 4, which no ICRC covers: a switch may mark it. */
const CONGESTION_BYTE = 4;
const FECN = 0x80;

export interface NetworkCounters {
  /** Packets that devices sent. */
  sent: number;
  delivered: number;
  lost: number;
  duplicated: number;
  reordered: number;
  corrupted: number;
  delayed: number;
  partitioned: number;
  /** The destination had no receiver. */
  unclaimed: number;
  queueFull: number;
  marked: number;
  /** Sent by the attacker. */
  injected: number;
}

/** From one device to another: its own streams of chance, and its own queue. */
interface Path {
  readonly from: number;
  readonly to: number;
  readonly loss: Random;
  readonly duplication: Random;
  readonly reordering: Random;
  readonly corruption: Random;
  readonly delay: Random;
  readonly jitter: Random;
  readonly attacker: Attacker;
  /** How many cuts are in force. */
  cuts: number;
  /** Number of packets sent on the path. */
  offered: number;
  /** When the wire is free again. */
  busyUntil: number;
}

export class Network {
  readonly counters: NetworkCounters = {
    sent: 0,
    delivered: 0,
    lost: 0,
    duplicated: 0,
    reordered: 0,
    corrupted: 0,
    delayed: 0,
    partitioned: 0,
    unclaimed: 0,
    queueFull: 0,
    marked: 0,
    injected: 0,
  };
  /** Of everything sent: two runs with the same options have the same. */
  hash = 0;
  /** Packets that are on their way. */
  travelling = 0;
  readonly queue: EventQueue;
  readonly options: SimulationOptions;
  readonly #paths: Path[][] = [];
  readonly #links: (SimulatedLink | undefined)[] = [];
  readonly #endpoints: readonly Endpoint[];
  readonly #known = new WeakMap<Endpoint, number>();
  readonly #release: Random;

  // Packets on their way, by slot.
  readonly #bytes: Uint8Array[] = [];
  readonly #views: Uint8Array[] = [];
  readonly #to: number[] = [];
  readonly #from: number[] = [];
  readonly #free: number[] = [];

  constructor(
    queue: EventQueue,
    options: SimulationOptions,
    endpoints: readonly Endpoint[],
    random: Random,
  ) {
    this.queue = queue;
    this.options = options;
    this.#endpoints = endpoints;
    this.#release = random.split('release');
    for (let from = 0; from < endpoints.length; from++) {
      const row: Path[] = [];
      for (let to = 0; to < endpoints.length; to++) {
        const own = random.split('path', from * 64 + to);
        row.push({
          from,
          to,
          loss: own.split('loss'),
          duplication: own.split('duplication'),
          reordering: own.split('reordering'),
          corruption: own.split('corruption'),
          delay: own.split('delay'),
          jitter: own.split('jitter'),
          attacker: new Attacker(options, own.split('attacker'), endpoints[from]!, endpoints[to]!),
          cuts: 0,
          offered: 0,
          busyUntil: 0,
        });
      }
      this.#paths.push(row);
    }
  }

  /** A link for device `index`, to be opened; the one before must be closed. */
  link(index: number): SimulatedLink {
    const link = new SimulatedLink(this, index, this.#endpoints[index]!);
    this.#links[index] = link;
    return link;
  }

  /** From now on nothing that `from` sends reaches `to`, until `heal` was called as often. */
  cut(from: number, to: number): void {
    this.#paths[from]![to]!.cuts++;
  }

  heal(from: number, to: number): void {
    this.#paths[from]![to]!.cuts--;
  }

  /** Is either direction cut now? */
  isCut(one: number, other: number): boolean {
    return this.#paths[one]![other]!.cuts + this.#paths[other]![one]!.cuts > 0;
  }

  /** Delivers the packet of a PACKET event, and its followers of the same time and device. */
  deliver(slot: number): number {
    const to = this.#to[slot]!;
    const link = this.#links[to];
    this.#handOver(link, slot);
    while (this.queue.nextIs(EventKind.PACKET) && this.#to[this.queue.nextArgument] === to) {
      this.queue.take();
      this.#handOver(link, this.queue.argument);
    }
    link?.receiver?.flush();
    return to;
  }

  #handOver(link: SimulatedLink | undefined, slot: number): void {
    this.travelling--;
    if (link?.receiver) {
      this.counters.delivered++;
      link.delivered++;
      link.receiver.packet(this.#views[slot]!, this.#endpoints[this.#from[slot]!]!);
    } else {
      this.counters.unclaimed++;
    }
    // Not before: the receiver may send while it makes room.
    this.#free.push(slot);
  }

  /** The device with the address `destination`; -1: no device has it. */
  indexOf(destination: Endpoint): number {
    let index = this.#known.get(destination);
    if (index === undefined) {
      index = this.#endpoints.findIndex((endpoint) => endpoint.equals(destination));
      this.#known.set(destination, index);
    }
    return index;
  }

  /** One packet leaves device `from`. */
  take(from: number, to: number, bytes: Uint8Array): void {
    this.counters.sent++;
    this.#record(from, to, bytes);
    const path = this.#paths[from]?.[to];
    if (!path) throw new Violation(`device ${from} sends to an unknown address`);
    const { options, counters } = this;
    this.#inject(path, bytes);
    if (path.cuts > 0) {
      counters.partitioned++;
      return;
    }
    if (options.lossPeriod > 0 && ++path.offered % options.lossPeriod === 0) {
      counters.lost++;
      return;
    }
    if (options.loss > 0 && path.loss.chance(options.loss)) {
      counters.lost++;
      return;
    }
    let leaves = this.queue.now;
    let marked = false;
    if (options.bytesPerMicro > 0) {
      const waits = Math.max(path.busyUntil - leaves, 0);
      if (options.queueBytes > 0 && waits * options.bytesPerMicro > options.queueBytes) {
        counters.queueFull++;
        return;
      }
      marked = options.markBytes > 0 && waits * options.bytesPerMicro > options.markBytes;
      leaves += waits + (bytes.length + FRAME_BYTES) / options.bytesPerMicro;
      path.busyUntil = leaves;
    }
    if (marked) counters.marked++;
    this.#send(path, bytes, leaves, marked);
    if (options.duplication > 0 && path.duplication.chance(options.duplication)) {
      counters.duplicated++;
      this.#send(path, bytes, leaves, marked);
    }
  }

  /** Injects a packet of the attacker, a little later than the one that it has seen. */
  #inject(path: Path, bytes: Uint8Array): void {
    const packet = path.attacker.inject(bytes);
    if (!packet) return;
    this.counters.injected++;
    const slot = this.#put(path, packet);
    this.travelling++;
    this.queue.put(this.queue.now + this.options.latencyMicros, EventKind.PACKET, slot);
  }

  #send(path: Path, bytes: Uint8Array, leaves: number, marked: boolean): void {
    const { options, counters } = this;
    let arrives = leaves + options.latencyMicros;
    if (options.reordering > 0 && path.reordering.chance(options.reordering)) {
      counters.reordered++;
      arrives += 1 + path.reordering.below(options.reorderMicros);
    }
    if (options.delay > 0 && path.delay.chance(options.delay)) {
      counters.delayed++;
      arrives += path.delay.exponential(options.delayMicros);
    }
    if (options.jitterMicros > 0) arrives += path.jitter.exponential(options.jitterMicros);
    const slot = this.#put(path, bytes);
    if (marked) this.#views[slot]![CONGESTION_BYTE]! |= FECN;
    if (options.corruption > 0 && path.corruption.chance(options.corruption)) {
      counters.corrupted++;
      flipBits(this.#views[slot]!, path.corruption);
    }
    this.travelling++;
    this.queue.put(arrives, EventKind.PACKET, slot);
  }

  /** Copies a packet into a slot. */
  #put(path: Path, bytes: Uint8Array): number {
    let slot = this.#free.pop();
    if (slot === undefined) {
      slot = this.#bytes.length;
      this.#bytes.push(new Uint8Array(PACKET_SIZE_LIMIT));
      this.#views.push(this.#bytes[slot]!);
      this.#to.push(0);
      this.#from.push(0);
    }
    // Most packets are as long as the last one that lay here.
    if (this.#views[slot]!.length !== bytes.length) {
      this.#views[slot] = this.#bytes[slot]!.subarray(0, bytes.length);
    }
    this.#views[slot]!.set(bytes);
    this.#to[slot] = path.to;
    this.#from[slot] = path.from;
    return slot;
  }

  /** The ICRC stands for the whole packet. */
  #record(from: number, to: number, bytes: Uint8Array): void {
    const end = bytes.length;
    const icrc = bytes[end - 4]! | (bytes[end - 3]! << 8) | (bytes[end - 2]! << 16);
    let hash = this.hash ^ Math.floor(this.queue.now);
    hash = Math.imul((hash << 5) ^ (hash >>> 27) ^ icrc, 0x9e3779b1);
    this.hash = Math.imul(hash ^ (from << 20) ^ (to << 24) ^ end ^ bytes[end - 1]!, 0x85ebca6b);
  }

  /** A link keeps what it has read for a while. */
  keep(batch: PacketBatch, link: SimulatedLink): void {
    const copies: Uint8Array[] = [];
    for (let index = 0; index < batch.count; index++) {
      copies.push(Uint8Array.from(batch.bytesOf(index)));
    }
    const release = (): void => {
      if (!link.kept.delete(release)) return;
      copies.forEach((copy, index) => {
        if (Buffer.compare(copy, batch.bytesOf(index)) === 0) return;
        throw new Violation(`packet ${index} of a batch changed before its release`);
      });
      batch.release();
      link.released();
    };
    link.kept.add(release);
    const { now } = this.queue;
    this.queue.plan(now + this.#release.between(0, this.options.lateReleaseMicros), release);
  }
}

/** One device's end of the network. */
export class SimulatedLink implements Link {
  receiver: LinkReceiver | undefined;
  /** A batch was released: packets that waited for its buffer were sent. */
  released: () => void = () => {};
  /** Packets that the device sent, and that were handed to it. */
  sent = 0;
  delivered = 0;
  /** Releases that are to come. */
  readonly kept = new Set<() => void>();
  readonly info: LinkInfo;
  readonly #network: Network;
  readonly #index: number;
  #closed = false;
  #lastDestination: Endpoint | undefined;
  #lastIndex = -1;

  constructor(network: Network, index: number, local: Endpoint) {
    this.#network = network;
    this.#index = index;
    const { options } = network;
    this.info = {
      name: 'simulated',
      pseudoHeader: options.pseudoHeader === 'none' ? 'none' : 'ip',
      local,
      packetSizeMax: PACKET_SIZE_LIMIT,
      windowBytes: options.windowBytes,
      receiveBufferBytes: 2 * options.windowBytes,
    };
  }

  async open(receiver: LinkReceiver): Promise<LinkInfo> {
    this.receiver = receiver;
    return this.info;
  }

  send(batch: PacketBatch): void {
    if (this.#closed) throw new Violation(`device ${this.#index} sends after it was closed`);
    this.sent += batch.count;
    for (let index = 0; index < batch.count; index++) {
      const destination = batch.destinationOf(index);
      if (destination !== this.#lastDestination) {
        this.#lastDestination = destination;
        this.#lastIndex = this.#network.indexOf(destination);
      }
      this.#network.take(this.#index, this.#lastIndex, batch.bytesOf(index));
    }
    if (this.#network.options.lateReleaseMicros > 0) this.#network.keep(batch, this);
    else batch.release();
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.receiver = undefined;
    this.kept.clear();
  }
}

/** Distinct bits: one that flips twice would be whole again. */
function flipBits(bytes: Uint8Array, random: Random): void {
  const bits = new Set<number>();
  const wanted = random.between(1, 3);
  while (bits.size < wanted) bits.add(random.below(bytes.length * 8));
  for (const bit of bits) bytes[bit >> 3]! ^= 1 << (bit & 7);
}
