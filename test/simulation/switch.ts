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
}

/** Of all output ports. */
export interface SwitchCounters {
  sent: number;
  dropped: number;
  lost: number;
  marked: number;
  queueMax: number;
}

interface Port {
  /** When the last packet that waits will have left. */
  busyUntil: number;
  /** When each packet that waits leaves, the oldest first. */
  readonly leaves: number[];
  head: number;
}

export class Switch {
  readonly counters: SwitchCounters = { sent: 0, dropped: 0, lost: 0, marked: 0, queueMax: 0 };
  readonly queue: EventQueue;
  readonly line: Line;
  /** Nothing passes. */
  isDown = false;
  readonly #random: Random;
  readonly #endpoints: readonly Endpoint[];
  readonly #links: SwitchedLink[] = [];
  readonly #ports: Port[];
  readonly #packets: { bytes: Uint8Array; from: number; to: number }[] = [];
  readonly #free: number[] = [];

  constructor(queue: EventQueue, line: Line, endpoints: readonly Endpoint[], random: Random) {
    this.queue = queue;
    this.line = line;
    this.#endpoints = endpoints;
    this.#random = random;
    this.#ports = endpoints.map(() => ({ busyUntil: 0, leaves: [], head: 0 }));
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
    if (this.isDown || this.#random.chance(line.loss)) {
      counters.lost++;
      return;
    }
    const port = this.#ports[to]!;
    while (port.head < port.leaves.length && port.leaves[port.head]! <= queue.now) port.head++;
    const waiting = port.leaves.length - port.head;
    if (waiting >= line.queue) {
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
    queue.put(port.busyUntil + line.rtt * 500 + late, EventKind.PACKET, slot);
  }

  /** Of a PACKET event. Returns the host that it has reached. */
  deliver(slot: number): number {
    const { bytes, from, to } = this.#packets[slot]!;
    this.#free.push(slot);
    const { receiver } = this.#links[to]!;
    receiver?.packet(bytes, this.#endpoints[from]!);
    receiver?.flush();
    return to;
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
