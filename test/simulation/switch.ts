/**
 * A switch between hosts, in virtual time: an output port for each host with a rate and a queue of
 * packets, and on the way loss, delay and packets that are late.
 */
import type { Endpoint, Link, LinkInfo, LinkReceiver, PacketBatch } from '../../host/index.js';
import { PACKET_SIZE_LIMIT } from '../../host/link/link.js';
import { EventKind, type EventQueue } from './queue.js';
import type { Random } from './random.js';

/** Ethernet with preamble and gap, IP and UDP around a packet. */
const FRAME_BYTES = 66;
/** As a receiver's link passes CE on: byte 4 of the BTH, forward congestion (FECN). */
const BTH_FECN_BYTE = 4;
const BTH_FECN = 0x80;
const RECEIVE_BUFFER_BYTES = 8 * 2 ** 20;

/** As in test/net/network.ts. */
export interface Line {
  /** Mbit/s of an output port. */
  readonly rate: number;
  /** Packets that wait at an output port; one more is dropped. */
  readonly queue: number;
  /** Milliseconds both ways together. */
  readonly rtt: number;
  /** Share of packets. */
  readonly loss: number;
  readonly late: readonly [share: number, millis: number];
  /** Packets at an output port from which on arriving ones are marked. 0: never. */
  readonly ecn?: number;
  /** Bytes that wait at an output port: what has no room is dropped, however short it is. */
  readonly queueBytes?: number;
  /** Times in which all is lost: milliseconds between them and of them, both on average. */
  readonly bursts?: readonly [between: number, millis: number];
  /** Others flood the output ports: share of the rate, bytes of a packet; times as of bursts. */
  readonly flood?: readonly [share: number, bytes: number, between: number, millis: number];
  /** The first host receives nothing at times, and then what its socket has kept. */
  readonly stalls?: readonly [between: number, millis: number];
}

/** Moments at which something begins and ends, by exponential distributions. */
class Spells {
  #begins: number;
  #ends = -Infinity;
  readonly #random: Random;
  readonly #micros: readonly [between: number, during: number];

  constructor(random: Random, now: number, [between, during]: readonly [number, number]) {
    this.#random = random;
    this.#micros = [between * 1000, during * 1000];
    this.#begins = now + this.#draw(0);
  }

  #draw(which: 0 | 1): number {
    // No spell is longer than three times the average.
    const share = Math.min(-Math.log((this.#random.u32() + 1) / 2 ** 32), 3);
    return this.#micros[which] * share;
  }

  /** When the spell ends that this moment belongs to; undefined: it belongs to none. */
  endOf(now: number): number | undefined {
    while (now >= this.#begins) {
      this.#ends = this.#begins + this.#draw(1);
      this.#begins = this.#ends + this.#draw(0);
    }
    return now < this.#ends ? this.#ends : undefined;
  }
}

/** Of all output ports. */
export interface SwitchCounters {
  sent: number;
  dropped: number;
  lost: number;
  marked: number;
  queueMax: number;
  /** Packets longer than `Switch.packetMax`. */
  tooLong: number;
}

interface Port {
  /** When the last packet that waits will have left. */
  busyUntil: number;
  /** When each packet that waits leaves, the oldest first. */
  readonly leaves: number[];
  head: number;
  /** When the next packet of the flood arrives. */
  floodAt: number;
  readonly flood: Spells | undefined;
  readonly bursts: Spells | undefined;
}

export class Switch {
  readonly counters: SwitchCounters = {
    sent: 0,
    dropped: 0,
    lost: 0,
    marked: 0,
    queueMax: 0,
    tooLong: 0,
  };
  readonly queue: EventQueue;
  readonly line: Line;
  /** Nothing passes. */
  isDown = false;
  /** Bytes of a packet, from BTH to ICRC: longer ones vanish. */
  packetMax = Infinity;
  /** Milliseconds both ways together. */
  rtt: number;
  readonly #random: Random;
  readonly #endpoints: readonly Endpoint[];
  readonly #links: SwitchedLink[] = [];
  readonly #ports: Port[];
  readonly #packets: { bytes: Uint8Array; from: number; to: number }[] = [];
  readonly #free: number[] = [];
  readonly #floodRandom: Random;
  readonly #stalls: Spells | undefined;
  /** Bytes in the socket buffer of the first host. */
  #keptBytes = 0;

  constructor(queue: EventQueue, line: Line, endpoints: readonly Endpoint[], random: Random) {
    this.queue = queue;
    this.line = line;
    this.rtt = line.rtt;
    this.#endpoints = endpoints;
    this.#random = random;
    const { flood, bursts, stalls } = line;
    this.#floodRandom = random.split('flood');
    const spells = (name: string, times: readonly [number, number] | undefined) =>
      times && new Spells(random.split(name), queue.now, times);
    this.#ports = endpoints.map((_, port) => ({
      ...{ busyUntil: 0, leaves: [], head: 0, floodAt: queue.now },
      flood: spells(`flood ${port}`, flood && [flood[2], flood[3]]),
      bursts: spells(`bursts ${port}`, bursts),
    }));
    this.#stalls = spells('stalls', stalls);
  }

  link(host: number): Link {
    const link = new SwitchedLink(this, host, this.#endpoints[host]!);
    this.#links[host] = link;
    return link;
  }

  hostOf(endpoint: Endpoint): number {
    return this.#endpoints.findIndex((each) => each.equals(endpoint));
  }

  take(from: number, to: number, bytes: Uint8Array): void {
    const { counters, line, queue } = this;
    counters.sent++;
    const port = this.#ports[to]!;
    const isBurst = port.bursts?.endOf(queue.now) !== undefined;
    if (this.isDown || isBurst || this.#random.chance(line.loss)) {
      counters.lost++;
      return;
    }
    if (bytes.length > this.packetMax) {
      counters.tooLong++;
      return;
    }
    this.#flood(port);
    while (port.head < port.leaves.length && port.leaves[port.head]! <= queue.now) port.head++;
    const waiting = port.leaves.length - port.head;
    if (waiting >= line.queue || !this.#hasRoom(port, queue.now, bytes.length + FRAME_BYTES)) {
      counters.dropped++;
      return;
    }
    counters.queueMax = Math.max(counters.queueMax, waiting + 1);
    const begins = Math.max(port.busyUntil, queue.now);
    port.busyUntil = begins + ((bytes.length + FRAME_BYTES) * 8) / line.rate;
    port.leaves.push(port.busyUntil);
    if (port.head > 4096) (port.leaves.splice(0, port.head), (port.head = 0));
    const late = this.#random.chance(line.late[0]) ? line.late[1] * 1000 : 0;
    const slot = this.#free.pop() ?? this.#packets.length;
    const copy = Uint8Array.from(bytes);
    if (line.ecn && waiting >= line.ecn) {
      counters.marked++;
      copy[BTH_FECN_BYTE]! |= BTH_FECN;
    }
    this.#packets[slot] = { bytes: copy, from, to };
    queue.put(port.busyUntil + this.rtt * 500 + late, EventKind.PACKET, slot);
  }

  #hasRoom({ busyUntil }: Port, now: number, bytes: number): boolean {
    const { queueBytes = Infinity, rate } = this.line;
    return (Math.max(busyUntil - now, 0) * rate) / 8 + bytes <= queueBytes;
  }

  /** Packets of the flood that have arrived since the last one of ours. */
  #flood(port: Port): void {
    const { flood, rate } = this.line;
    if (!flood || !port.flood) return;
    const [share, bytes] = flood;
    const interval = (bytes * 8) / (rate * share);
    const { now } = this.queue;
    // Packets that came long ago have left.
    port.floodAt = Math.max(port.floodAt, now - 2e6);
    while (port.floodAt <= now) {
      const at = port.floodAt;
      // Others have clocks of their own.
      port.floodAt += (interval * this.#floodRandom.u32()) / 2 ** 31;
      if (port.flood.endOf(at) === undefined || !this.#hasRoom(port, at, bytes)) continue;
      port.busyUntil = Math.max(port.busyUntil, at) + (bytes * 8) / rate;
    }
  }

  /** Of a PACKET event. Returns the host that it has reached. */
  deliver(slot: number): number {
    const { bytes, from, to } = this.#packets[slot]!;
    if (to === 0 && this.#isKept(slot, bytes.length)) return to;
    this.#free.push(slot);
    const { receiver } = this.#links[to]!;
    receiver?.packet(bytes, this.#endpoints[from]!);
    receiver?.flush();
    return to;
  }

  /** Does the packet wait for a host that stalls? Dropped where its socket is full. */
  #isKept(slot: number, length: number): boolean {
    const ends = this.#stalls?.endOf(this.queue.now);
    if (ends === undefined) {
      this.#keptBytes = 0;
      return false;
    }
    if (this.#keptBytes > RECEIVE_BUFFER_BYTES) {
      this.counters.dropped++;
      this.#free.push(slot);
      return true;
    }
    this.#keptBytes += length;
    this.queue.put(ends, EventKind.PACKET, slot);
    return true;
  }
}

class SwitchedLink implements Link {
  receiver: LinkReceiver | undefined;
  readonly #network: Switch;
  readonly #host: number;
  readonly info: LinkInfo;

  constructor(network: Switch, host: number, local: Endpoint) {
    this.#network = network;
    this.#host = host;
    this.info = {
      name: 'switched',
      pseudoHeader: 'ip',
      local,
      packetSizeMax: PACKET_SIZE_LIMIT,
      windowBytes: RECEIVE_BUFFER_BYTES / 2,
      receiveBufferBytes: RECEIVE_BUFFER_BYTES,
    };
  }

  async open(receiver: LinkReceiver): Promise<LinkInfo> {
    this.receiver = receiver;
    return this.info;
  }

  send(batch: PacketBatch): void {
    for (let index = 0; index < batch.count; index++) {
      const to = this.#network.hostOf(batch.destinationOf(index));
      this.#network.take(this.#host, to, batch.bytesOf(index));
    }
    batch.release();
  }

  async close(): Promise<void> {
    this.receiver = undefined;
  }
}
