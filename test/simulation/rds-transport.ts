/**
 * Connections for nodes of reliable datagrams, without devices: each keeps order and loses nothing
 * until it breaks; then messages under way arrive up to some message, and both ends notice it at
 * different times. Memory that is being sent may not change, freed memory is scribbled over.
 */
import { Endpoint } from '../../host/link/endpoint.js';
import type {
  Transport,
  TransportConnection,
  TransportOwner,
  ReceivedPacket,
  Route,
  SendBuffer,
} from '../../host/rds/protocol/transport.js';
import { HEADER_BYTES } from '../../host/rds/wire/constants.js';
import type { RdsCore } from '../../host/rds/protocol/core.js';
import { writeHeader, type RdsHeader } from '../../host/rds/wire/header.js';
import { HAS_HEADER, portsOf, type Bare } from '../../host/rds/wire/header-elision.js';
import type { OutgoingMessage } from '../../host/rds/protocol/message.js';
import type { EventQueue } from './queue.js';
import type { Random } from './random.js';
import { Violation } from './violation.js';

const SENDS = 24;
/** At most this many sends in a row are unsignaled. */
const UNSIGNALLED_MAX = 4;
const LATENCY_MICROS = 50;
/** The time until a silent peer counts as dead. */
const TIMEOUT_MICROS = 2_000_000;
const SCRIBBLE = 0xdb;
/** How often there is no memory on the device that a message has to move to. */
const NO_ROOM_CHANCE = 0.1;

/** All nodes and what is between them. */
export class RdsNetwork {
  readonly queue: EventQueue;
  readonly random: Random;
  readonly transports: SimulatedTransport[] = [];
  /** Pairs of nodes that do not reach each other; `from * 64 + to` with from below to. */
  readonly #cuts = new Set<number>();
  /** Devices that reach no other device: `node * 2 + rail`. */
  readonly #deadDevices = new Set<number>();
  readonly open = new Set<SimulatedConnection>();

  constructor(queue: EventQueue, random: Random) {
    this.queue = queue;
    this.random = random;
  }

  get latencyMicros(): number {
    return LATENCY_MICROS + this.random.below(100);
  }

  /** Does nothing get through between these devices? */
  isCut(one: Place, other: Place): boolean {
    const isDead = [one, other].some((place) => this.#deadDevices.has(deviceOf(place)));
    return isDead || this.#cuts.has(pairOf(one.node, other.node));
  }

  /** A device, or its cable, fails. */
  cutDevice(place: Place): void {
    this.#deadDevices.add(deviceOf(place));
    for (const connection of [...this.open]) {
      const ends = [connection.place, connection.peer].map(deviceOf);
      if (ends.includes(deviceOf(place))) connection.sever();
    }
  }

  healDevice(place: Place): void {
    this.#deadDevices.delete(deviceOf(place));
  }

  cut(one: number, other: number): void {
    this.#cuts.add(pairOf(one, other));
    for (const connection of [...this.open]) {
      const ends = [connection.place.node, connection.peer.node];
      if (ends.includes(one) && ends.includes(other)) connection.sever();
    }
  }

  heal(one: number, other: number): void {
    this.#cuts.delete(pairOf(one, other));
  }

  placeOf({ gid }: Endpoint): Place {
    return { node: gid.bytes[15]! - 1, rail: gid.bytes[13]! };
  }
}

/** A device: one of a node's. */
export interface Place {
  readonly node: number;
  readonly rail: number;
}

function deviceOf({ node, rail }: Place): number {
  return node * 2 + rail;
}

function pairOf(one: number, other: number): number {
  return Math.min(one, other) * 64 + Math.max(one, other);
}

class SimulatedBuffer implements SendBuffer {
  readonly payload: Uint8Array;
  /** The device whose memory it is. */
  readonly rail: number;
  readonly #transport: SimulatedTransport;
  #isFree = false;

  constructor(transport: SimulatedTransport, length: number, rail: number) {
    this.payload = new Uint8Array(length);
    this.rail = rail;
    this.#transport = transport;
    transport.buffersUsed++;
  }

  free(): void {
    if (this.#isFree) throw new Violation('a send buffer is freed twice');
    this.#isFree = true;
    this.payload.fill(SCRIBBLE);
    this.#transport.buffersUsed--;
  }
}

interface Posted {
  readonly message: OutgoingMessage | undefined;
  readonly sent: Uint8Array;
  /** Where the message begins. */
  readonly start: number;
  readonly immData: number | undefined;
  readonly memory: Uint8Array | undefined;
  /** Says when it is complete, and so that all before it are. */
  readonly isSignalled: boolean;
}

export class SimulatedConnection implements TransportConnection {
  readonly transport: SimulatedTransport;
  readonly place: Place;
  readonly peer: Place;
  readonly owner: TransportOwner;
  marksHeaders = false;
  other: SimulatedConnection | undefined;
  readonly #posted: Posted[] = [];
  #isClosed = false;
  #isSevered = false;
  #arrivesAt = 0;
  #unsignalled = 0;

  constructor(transport: SimulatedTransport, rail: number, peer: Place, owner: TransportOwner) {
    this.transport = transport;
    this.place = { node: transport.index, rail };
    this.peer = peer;
    this.owner = owner;
    transport.network.open.add(this);
  }

  get room(): number {
    return SENDS - this.#posted.length;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  hold(message: OutgoingMessage): boolean {
    const { rail } = this.place;
    if ((message.buffer as SimulatedBuffer).rail === rail) return true;
    if (this.transport.network.random.chance(NO_ROOM_CHANCE)) return false;
    message.moveTo(new SimulatedBuffer(this.transport, message.length, rail));
    return true;
  }

  post(
    message: OutgoingMessage,
    header: RdsHeader,
    from: number,
    length: number,
    bare?: Bare,
  ): void {
    if ((message.buffer as SimulatedBuffer).rail !== this.place.rail) {
      throw new Violation('a message is sent from the memory of another device');
    }
    const payload = message.buffer.payload.subarray(from, from + length);
    this.#send(header, payload, message, bare);
  }

  postCopy(header: RdsHeader, payload: Uint8Array): void {
    this.#send(header, payload, undefined);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    const { network } = this.transport;
    network.open.delete(this);
    for (const { message } of this.#posted.splice(0)) message?.letGo();
    const { other } = this;
    if (other) network.queue.plan(network.queue.now + network.latencyMicros, () => other.fall());
  }

  /** Nothing gets through any more; each end notices in its time. */
  sever(): void {
    if (this.#isSevered) return;
    this.#isSevered = true;
    const { queue, random } = this.transport.network;
    queue.plan(queue.now + random.below(1_000_000), () => this.fall());
    this.other?.sever();
  }

  /** The end notices that it is over. */
  fall(isAbsent = false): void {
    if (this.#isClosed) return;
    this.transport.call((core) => this.owner.down(core.now, this, isAbsent));
    this.close();
  }

  #send(
    header: RdsHeader,
    payload: Uint8Array,
    message: OutgoingMessage | undefined,
    bare?: Bare,
  ): void {
    if (this.#isClosed) throw new Violation('a closed connection is sent to');
    if (this.room === 0) throw new Violation('more is sent than there is room for');
    const start = bare ? 0 : HEADER_BYTES;
    const sent = new Uint8Array(start + payload.length);
    if (!bare) writeHeader(new DataView(sent.buffer), 0, header);
    sent.set(payload, start);
    const marked = this.marksHeaders ? HAS_HEADER : undefined;
    const immData = bare === 'but ports' ? portsOf(header) : bare ? undefined : marked;
    const isAwaited = header.sequence === 0 || message?.isRetransmitted === true;
    const isSignalled = isAwaited || ++this.#unsignalled >= UNSIGNALLED_MAX;
    if (isSignalled) this.#unsignalled = 0;
    const posted = { message, sent, start, immData, memory: message && payload, isSignalled };
    this.#posted.push(posted);
    const { network } = this.transport;
    // In order, whatever the latency.
    this.#arrivesAt = Math.max(this.#arrivesAt, network.queue.now + network.latencyMicros);
    network.queue.plan(this.#arrivesAt, () => this.#arrive(posted));
  }

  #arrive(posted: Posted): void {
    const { other } = this;
    // A transport ends with its node, and acknowledges no packet.
    if (this.#isSevered || !other || other.transport.isDead) return;
    // After a report of its arrival the owner may change it, complete or not.
    const { memory, sent, start } = posted;
    if (memory && Buffer.compare(memory, sent.subarray(start)) !== 0 && !this.#isClosed) {
      throw new Violation('memory changed while it was being sent');
    }
    if (!other.isClosed) other.take(posted.sent.slice(), posted.immData);
    const { network } = this.transport;
    network.queue.plan(this.#arrivesAt + LATENCY_MICROS, () => this.#complete(posted));
  }

  take(bytes: Uint8Array, immData: number | undefined): void {
    const packet = this.transport.packet(bytes, immData);
    this.transport.call((core) => this.owner.received(core.now, this, packet));
  }

  #complete(posted: Posted): void {
    if (this.#isClosed || this.#isSevered || !posted.isSignalled) return;
    const count = this.#posted.indexOf(posted) + 1;
    if (count === 0) throw new Violation('completions out of order');
    for (const { message } of this.#posted.splice(0, count)) message?.letGo();
    this.transport.call((core) => this.owner.sent(core.now, this));
  }
}

/** A core with the time at which it is called. */
export interface Turn {
  readonly now: number;
  readonly core: RdsCore;
}

export class SimulatedTransport implements Transport {
  readonly network: RdsNetwork;
  readonly index: number;
  readonly buffersMax: number;
  receiveBytesMax = 2 ** 30;
  core!: RdsCore;
  buffersUsed = 0;
  receivesHeld = 0;
  connectionsMost = 0;
  isDead = false;
  #timer = 0;

  constructor(network: RdsNetwork, index: number, buffersMax: number) {
    this.network = network;
    this.index = index;
    this.buffersMax = buffersMax;
  }

  random(): number {
    return this.network.random.u32();
  }

  allocate(length: number, _fragmentBytes: number, from: number): SendBuffer | undefined {
    const isFull = this.buffersUsed >= this.buffersMax;
    return isFull ? undefined : new SimulatedBuffer(this, length, from);
  }

  packet(bytes: Uint8Array, immData: number | undefined): ReceivedPacket {
    this.receivesHeld++;
    let isHeld = true;
    const release = (): void => {
      if (!isHeld) throw new Violation('a receive is released twice');
      isHeld = false;
      this.receivesHeld--;
      bytes.fill(SCRIBBLE);
    };
    return { bytes, immData, memoryBytes: bytes.length, release };
  }

  /** Calls the core, and plans what it wants next. */
  call(use: (turn: Turn) => void): void {
    if (this.isDead) return;
    const { queue } = this.network;
    use({ now: queue.now, core: this.core });
    const next = this.core.nextMicros;
    if (next === 0 || (this.#timer !== 0 && this.#timer <= next)) return;
    this.#timer = next;
    queue.plan(next, () => {
      if (this.#timer === next) this.#timer = 0;
      this.call(({ now, core }) => core.advance(now));
    });
  }

  connect(
    { from, to }: Route,
    _traffic: number,
    privateData: Uint8Array,
    owner: TransportOwner,
  ): TransportConnection {
    const { network } = this;
    const { queue } = network;
    const peer = network.placeOf(to);
    const connection = new SimulatedConnection(this, from, peer, owner);
    queue.plan(queue.now + network.latencyMicros, () => {
      const target = network.transports[peer.node]!;
      if (target.isDead || network.isCut(connection.place, peer)) {
        queue.plan(queue.now + TIMEOUT_MICROS, () => connection.fall(true));
      } else target.#asked(this, connection, privateData);
    });
    return connection;
  }

  #asked(from: SimulatedTransport, asking: SimulatedConnection, privateData: Uint8Array): void {
    const { network } = this;
    const { queue } = network;
    this.call(({ now, core }) => {
      const { place, peer } = asking;
      const address = from.core.addresses[place.rail]!;
      const acceptance = core.request(now, address, privateData, peer.rail);
      if (!acceptance) {
        queue.plan(now + network.latencyMicros, () => asking.fall());
        return;
      }
      const { connection: accepting, privateData: answer } = acceptance;
      const connection = new SimulatedConnection(this, peer.rail, place, accepting);
      core.accepted(now, acceptance, connection, privateData);
      queue.plan(now + network.latencyMicros, () => {
        // The active side may have closed it meanwhile.
        if (asking.isClosed || network.isCut(place, peer)) {
          asking.fall();
          connection.fall();
          return;
        }
        connection.other = asking;
        asking.other = connection;
        from.call((turn) => asking.owner.up(turn.now, asking, answer));
        queue.plan(queue.now + network.latencyMicros, () => {
          if (connection.isClosed) return;
          this.call((turn) => connection.owner.up(turn.now, connection, undefined));
        });
      });
    });
  }
}
