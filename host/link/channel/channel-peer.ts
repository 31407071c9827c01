/**
 * One peer of a link over messages: packets into messages, by which channel each of those goes when
 * there are several, and back.
 */
import {
  Frame,
  FrameFlag,
  HEADER_BYTES,
  Kind,
  LENGTH_BYTES,
  ORDER_BYTES,
  readPackets,
} from './channel-frame.js';
import { ChannelConnection } from './channel-connection.js';
import type { ChannelCounters, ChannelLimits } from './channel-limits.js';
import type { DatagramChannel } from './datagram-channel.js';
import type { Endpoint } from '../endpoint.js';
import { MessageOrder } from './message-order.js';

/** Frames that were sent are taken out of those that wait together. */
const SENT_KEPT = 1024;
/** A channel that has so much of its window under way leaves what follows to the next one. */
const SPREAD_PART = 1 / 8;

export class ChannelPeer {
  /** Can it send? */
  isOpen = false;
  /** Does nothing travel at the moment? */
  isInterrupted = false;
  /** Has the other side begun the connection? */
  isAnswer = false;
  /** Called when it is taken out of its link, with why. */
  gone: (reason: string) => void = () => {};
  /** Called when another connection of the same peer has opened before this one. */
  rivalled: () => void = () => {};
  /** Something came since the last turn. */
  isTouched = false;
  /** It may be gone: `link.probe` asks it for an answer. */
  probes = 0;
  /** Messages that came. */
  heard = 0;
  readonly #limits: ChannelLimits;
  readonly #counters: ChannelCounters;
  readonly #packet: (bytes: Uint8Array, peer: ChannelPeer) => void;
  readonly #free: Frame[] = [];
  /** Frames that wait for the window; the last one may still grow. */
  #waiting: Frame[] = [];
  #first = 0;
  #waitingBytes = 0;
  /** Every channel there ever was; those that carry now. */
  readonly #known = new Map<DatagramChannel, ChannelConnection>();
  #connections: readonly ChannelConnection[];
  #carrying: readonly DatagramChannel[] | undefined;
  /** Of the next message, and of those that come, where there are several channels. */
  #order = 0;
  #arrived: MessageOrder | undefined;

  /** `packet`: is called with each that comes; its bytes are only valid during the call. */
  constructor(
    readonly endpoint: Endpoint,
    readonly channel: DatagramChannel,
    limits: ChannelLimits,
    counters: ChannelCounters,
    packet: (bytes: Uint8Array, peer: ChannelPeer) => void,
  ) {
    this.#limits = limits;
    this.#counters = counters;
    this.#packet = packet;
    this.#connections = [this.#connectionOf(channel)];
  }

  /** Copies a packet into the last message. Full messages leave at once, the rest by `flush`. */
  add(packet: Uint8Array): void {
    const { messageBytes, queueBytes } = this.#limits;
    const size = LENGTH_BYTES + packet.length;
    if (HEADER_BYTES + size > messageBytes || this.#waitingBytes + size > queueBytes) {
      this.#counters.dropped++;
      return;
    }
    let frame = this.#waiting[this.#waiting.length - 1];
    if (frame === undefined || !frame.fits(packet.length)) {
      this.#pump();
      frame = this.#free.pop() ?? new Frame(messageBytes);
      this.#waiting.push(frame);
    }
    frame.add(packet);
    this.#waitingBytes += size;
    this.#counters.sent++;
  }

  /** Sends what waits, as far as the window is open. */
  flush(): void {
    this.#pump();
  }

  /** Sends a requested acknowledgement that no packet has carried. */
  acknowledge(): void {
    for (const connection of this.#known.values()) if (connection.ackDue) this.#say(connection, 0);
  }

  /** Wants to hear something by this channel. */
  ask(): void {
    this.#say(this.#connectionOf(this.channel.connections?.[0] ?? this.channel), FrameFlag.ASK);
  }

  #say(connection: ChannelConnection, flags: number): void {
    if (!this.isOpen) return;
    const frame = this.#free.pop() ?? new Frame(this.#limits.messageBytes);
    connection.say(frame, flags);
    this.#recycle(frame);
  }

  /** A message came by this channel, of which there may be several. */
  receive(message: Uint8Array, channel = this.channel): void {
    this.#counters.messagesReceived++;
    const [kind, flags = 0] = message;
    const isKnown = kind === Kind.PACKETS || kind === Kind.ACKNOWLEDGE;
    if (!isKnown || message.length < HEADER_BYTES || message.length > this.#limits.receiveBytes) {
      this.#counters.malformed++;
      return;
    }
    const connection = this.#connectionOf(channel);
    const at = (offset: number): number => message[offset]! | (message[offset + 1]! << 8);
    if (flags & FrameFlag.SEEN) connection.acknowledged(at(4));
    if (flags & FrameFlag.ASK) connection.ackDue = true;
    if (kind === Kind.ACKNOWLEDGE) return;
    connection.see(at(2));
    if (!(flags & FrameFlag.ORDERED)) {
      this.#open(message);
      return;
    }
    const end = message.length - ORDER_BYTES;
    if (end < HEADER_BYTES || !this.channel.connections) {
      this.#counters.malformed++;
      return;
    }
    this.#arrived ??= new MessageOrder((kept) => this.#open(kept));
    this.#arrived.receive(at(end), at(end + 2), message.subarray(0, end));
  }

  #open(message: Uint8Array): void {
    const isWhole = readPackets(message, (bytes) => this.#packet(bytes, this));
    if (!isWhole) this.#counters.malformed++;
  }

  /** Forgets what waits. */
  stop(): void {
    for (const connection of this.#known.values()) connection.stop();
    this.#arrived?.stop();
    this.isOpen = false;
    this.#waiting = [];
    this.#first = 0;
    this.#waitingBytes = 0;
  }

  #connectionOf(channel: DatagramChannel): ChannelConnection {
    let connection = this.#known.get(channel);
    if (!connection) {
      connection = new ChannelConnection(channel, this.#limits, this.#counters, () => this.#pump());
      this.#known.set(channel, connection);
    }
    return connection;
  }

  #pump(): void {
    if (!this.isOpen) return;
    const { connections } = this.channel;
    if (connections !== this.#carrying) {
      this.#carrying = connections;
      this.#connections = connections!.map((channel) => this.#connectionOf(channel));
    }
    while (this.#first < this.#waiting.length) {
      const frame = this.#waiting[this.#first]!;
      const connection = this.#roomiest(frame.length);
      if (!connection) break;
      this.#first++;
      this.#waitingBytes -= frame.length - HEADER_BYTES;
      this.#send(frame, connection);
      this.#recycle(frame);
    }
    const isClosed = this.#first < this.#waiting.length;
    for (const connection of this.#connections) connection.wait(isClosed);
    if (!isClosed || this.#first >= SENT_KEPT) {
      this.#waiting.splice(0, this.#first);
      this.#first = 0;
    }
  }

  /**
   * Channel for a packet of `length` bytes; undefined: none has room. Light load stays on the first
   * channel, which is then awake; more load spreads. A stalled channel has its share in flight and
   * gets no more. A channel with a backlog is used only if no other has room.
   */
  #roomiest(length: number): ChannelConnection | undefined {
    const { windowBytes } = this.#limits;
    const now = performance.now();
    let roomiest: ChannelConnection | undefined;
    let least = Infinity;
    for (const connection of this.#connections) {
      if (!connection.hasRoom(length)) continue;
      const backlog = connection.backlog(now);
      const load = backlog === 0 ? connection.underWayBytes : windowBytes + backlog;
      if (load < windowBytes * SPREAD_PART) return connection;
      if (load < least) [roomiest, least] = [connection, load];
    }
    return roomiest;
  }

  #send(frame: Frame, connection: ChannelConnection): void {
    if (this.#connections.length === 1) {
      connection.send(frame, 0);
      return;
    }
    const order = this.#order;
    this.#order = (order + 1) & 0xffff;
    frame.place(order, connection.lastOrder ?? order);
    connection.lastOrder = order;
    connection.send(frame, FrameFlag.ORDERED);
  }

  #recycle(frame: Frame): void {
    frame.reset();
    this.#free.push(frame);
  }
}
