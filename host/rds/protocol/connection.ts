/**
 * A connection of a path. It outlives its transport connection: messages get their sequence numbers
 * here, wait until the peer acknowledges them, and are retransmitted on the next one.
 */
import type { Due } from '../../cm/deadlines.js';
import type { Endpoint } from '../../link/endpoint.js';
import { ReceivedSequences } from './received-sequences.js';
import { Backoff } from '../../base/backoff.js';
import type { TransportConnection, TransportOwner, ReceivedPacket, Route } from './transport.js';
import {
  CONGESTION_MAP_BYTES,
  FRAGMENT_BYTES,
  HEADER_BYTES,
  HeaderFlag,
  LARGE_FRAGMENT_BYTES,
  MEDIUM_BYTES,
} from '../wire/constants.js';
import { buildHandshake, parseHandshake, type Handshake } from '../wire/handshake.js';
import { nodeHeader, readHeader, type RdsHeader } from '../wire/header.js';
import { IncomingMessage, OutgoingMessage, toSendAgain } from './message.js';
import { HAS_HEADER, HeaderElision } from '../wire/header-elision.js';
import type { ConnectionRecord, Incarnations, PathRecord } from '../sharing/shared-state.js';
import { Offers } from './offers.js';
import type { PathNode } from './path-node.js';
import { Reassembly } from './reassembly.js';
import type { Routes } from './routes.js';
import { countSend } from './statistics.js';

type ConnectionState = 'DOWN' | 'CONNECTING' | 'ACCEPTING' | 'UP';

/** Messages between two requests for an acknowledgement (`max_unacked_packets`). */
const ASK_EVERY = 8;
/** Messages after which an acknowledgement is sent without a request: a quarter of a window. */
const ACK_EVERY = 16;
/** How long an acknowledgement waits for a message of the other direction. */
const ACK_DELAY_MICROS = 1000;
/** Queued control messages: more than a node sends when a connection comes up. */
const CONTROLS_MAX = 1024;
/** Messages of all sockets of a node that a peer may not have acknowledged. */
const RESTORED_MAX = 1 << 16;

/** The path of a connection: its node, its peer, and the order across its connections. */
export interface ConnectionPath {
  readonly node: PathNode;
  readonly peer: Endpoint;
  readonly routes: Routes;
  readonly record: PathRecord | undefined;
  readonly incarnations: Incarnations;
  /** Index of the node's address by which the peer knows it. */
  readonly home: number;
  /** Incarnation of this node as the peer knows it. */
  readonly incarnation: number;
  readonly isOwnKind: boolean;
  /** If both nodes request a connection at the same time, this node's request remains. */
  readonly isFirst: boolean;
  /** This node's token at the peer; 0: it has none. */
  readonly peerToken: number;
  readonly isAdmitted: boolean;
  acknowledgeable(connection: number, received: number): number;
  acknowledged(message: OutgoingMessage): void;
  answered(now: number, reply: Handshake): void;
  /** Is that the handshake of another node than the peer is known as, such as a later start? */
  isAnother(reply: Handshake): boolean;
  /** Of this node, once it has given up the messages in flight. */
  readonly nextGeneration: number;
  canceled(message: OutgoingMessage): void;
  congestionMap(now: number, bytes: Uint8Array): void;
  connectionDown(now: number, connection: Connection, isAbsent: boolean): void;
  connectionUp(now: number, connection: Connection): void;
  control(now: number, payload: Uint8Array): boolean;
  deliver(now: number, connection: Connection, message: IncomingMessage): void;
  heard(now: number): void;
  lost(message: OutgoingMessage): void;
  numbered(connection: Connection, message: OutgoingMessage): void;
  protocolError(now: number): void;
}

export class Connection implements TransportOwner, Due {
  dueMicros = 0;
  heapIndex = -1;
  state: ConnectionState = 'DOWN';
  readonly index: number;
  /** Route of the transport connection, or of the last one. */
  route: Route;
  readonly #path: ConnectionPath;
  readonly #record: ConnectionRecord | undefined;
  #transportConnection: TransportConnection | undefined;
  readonly #offers = new Offers();
  /** Messages to send, and messages in flight. */
  #queue: OutgoingMessage[] = [];
  readonly #unacked: OutgoingMessage[] = [];
  #sequence: number;
  readonly receivedSequences: ReceivedSequences;
  #receivedUnacked = 0;
  #sentUnasked = 0;
  readonly #incoming = new Reassembly();
  /** Headers of the transport connection, for elision. */
  readonly #sentHeaders = new HeaderElision();
  readonly #receivedHeaders = new HeaderElision();
  #controls: Uint8Array[] = [];
  #ackMicros = 0;
  #reconnectMicros = 0;
  readonly #backoff = new Backoff();

  constructor(path: ConnectionPath, index: number) {
    this.#path = path;
    this.route = path.routes.current;
    this.index = index;
    this.#record = path.record?.connection(index);
    this.#sequence = this.#record?.next || path.node.firstSequence;
    this.receivedSequences = new ReceivedSequences(this.#record);
  }

  readonly #kept = (now: number, sequence: number): void => {
    if (this.receivedSequences.keep(sequence)) this.acknowledgeSoon(now);
  };

  /** Restores a message of the former owner, in order. Missing numbers become gaps. */
  restore(message: OutgoingMessage): void {
    const { sequence } = message;
    // A number farther than RESTORED_MAX from the others was not assigned by this node.
    const isOurs = sequence < this.#sequence && sequence > this.#sequence - RESTORED_MAX;
    if (!isOurs) return message.done(true);
    this.fillTo(sequence);
    message.isRetransmitted = true;
    this.#queue.push(message);
  }

  /** Queues gaps from the last restored message up to `end`. */
  fillTo(end = this.#sequence): void {
    for (let gap = (this.#queue.at(-1)?.sequence ?? end) + 1; gap < end; gap++) {
      this.#queue.push(OutgoingMessage.gap(gap));
    }
  }

  /** Messages queued or in flight. */
  get pending(): number {
    return this.#queue.length + this.#unacked.length;
  }

  get peer(): Endpoint {
    return this.#path.peer;
  }

  get isOwnKind(): boolean {
    return this.#path.isOwnKind;
  }

  /** Payload of one SEND. */
  get fragmentBytes(): number {
    if (this.index === 2) return LARGE_FRAGMENT_BYTES;
    return this.index === 1 ? MEDIUM_BYTES : FRAGMENT_BYTES;
  }

  /**
   * Private data of the connection manager's messages for this connection. The answer to `request`
   * says what holds once the requester has answered.
   */
  handshake(request?: Handshake): Uint8Array {
    const { node, peer, home, incarnations, incarnation, isOwnKind } = this.#path;
    const { index, route } = this;
    const isAnew = request !== undefined && this.#path.isAnother(request);
    const generation = isAnew ? this.#path.nextGeneration : incarnations.generation;
    // Peers of another kind take credits for what they are.
    const hasToken = isOwnKind && route.from !== home && !isAnew;
    const token = hasToken ? this.#path.peerToken : 0;
    return buildHandshake({
      source: node.addresses[home]!.gid,
      target: peer.gid,
      ack: isAnew ? 0 : this.#path.acknowledgeable(index, this.receivedSequences.safe),
      own: { connectionIndex: index, incarnation, generation, token },
    });
  }

  connect(now: number): void {
    if (this.state !== 'DOWN') return;
    this.state = 'CONNECTING';
    this.#reconnectMicros = 0;
    const { node, routes } = this.#path;
    this.route = routes.current;
    this.#transportConnection = node.transport.connect(
      this.route,
      this.index,
      this.handshake(),
      this,
    );
    this.#plan(now);
  }

  /** Accepts the peer's request: it replaces the transport connection once the peer answers. */
  accept(
    now: number,
    transportConnection: TransportConnection,
    request: Handshake,
    route: Route,
  ): void {
    this.#offers.add({ transportConnection, request, route });
    if (this.state !== 'DOWN') return;
    this.state = 'ACCEPTING';
    this.#reconnectMicros = 0;
    this.#plan(now);
  }

  /** The peer has answered on a transport connection that this node accepted. */
  #proven(now: number, transportConnection: TransportConnection): void {
    const offer = this.#offers.takeProven(transportConnection);
    if (!offer) return;
    this.#path.answered(now, offer.request);
    this.#end(now);
    this.route = offer.route;
    this.state = 'ACCEPTING';
    this.#transportConnection = transportConnection;
    this.#reconnectMicros = 0;
    this.#begin(offer.request);
    this.#plan(now);
  }

  /** Queues a message. */
  push(now: number, message: OutgoingMessage): void {
    message.sequence = this.#sequence++;
    if (this.#record) this.#record.next = this.#sequence;
    this.#path.numbered(this, message);
    message.owner?.numbered?.(message, this.index);
    this.#queue.push(message);
    this.pump(now);
  }

  /** Queues a congestion map in front, without a number; replaces an older queued one. */
  pushFirst(now: number, message: OutgoingMessage): void {
    // Never between the fragments of a message.
    const at = this.#queue[0] && this.#queue[0].posted > 0 ? 1 : 0;
    const former = this.#queue[at]?.flags === message.flags ? this.#queue[at] : undefined;
    this.#queue.splice(at, former ? 1 : 0, message);
    former?.done(false);
    this.pump(now);
  }

  /** Queues a control message for `pump`; the next transport connection starts from new ones. */
  say(payload: Uint8Array): void {
    if (this.state === 'UP') this.#controls.push(payload);
  }

  /** The peer discards every message of this connection. */
  get isDeaf(): boolean {
    return this.#controls.length >= CONTROLS_MAX;
  }

  /** The peer has no receive request for the messages in flight (RNR NAK). */
  get isPeerBusy(): boolean {
    return this.state === 'UP' && this.#transportConnection?.isPeerBusy === true;
  }

  /** Gives up all unacknowledged messages. */
  giveUp(now: number): number {
    this.#offers.clear();
    return this.#giveUp(now);
  }

  #giveUp(now: number): number {
    this.#end(now);
    this.#reconnectMicros = 0;
    this.#backoff.reset();
    const lost = [...this.#unacked.splice(0), ...this.#queue.splice(0)];
    for (const message of lost) this.#path.lost(message);
    this.#plan(now);
    return lost.length;
  }

  /** The peer has become another node. */
  forget(now: number): number {
    this.#offers.clear(this.#path.incarnations.incarnation);
    const lost = this.#giveUp(now);
    this.receivedSequences.forget();
    return lost;
  }

  /** The peer is silent. */
  break(now: number): void {
    this.#end(now);
    this.#path.connectionDown(now, this, false);
    this.#plan(now);
  }

  /** Cancels the messages that `isMeant` selects, except partly sent ones; returns their number. */
  cancel(now: number, isMeant: (message: OutgoingMessage) => boolean): number {
    let count = 0;
    for (const list of [this.#unacked, this.#queue]) {
      list.forEach((message, index) => {
        const isHalfSent = list === this.#queue && message.posted > 0;
        if (isHalfSent || !isMeant(message)) return;
        list[index] = message.withdrawn();
        this.#path.canceled(message);
        message.isCanceled = true;
        message.done(true);
        count++;
      });
    }
    this.pump(now);
    return count;
  }

  /** Sends as many messages as the transport takes. */
  pump(now: number): void {
    const transportConnection = this.#transportConnection;
    if (this.state !== 'UP' || !transportConnection) return;
    while (this.#controls.length > 0 && transportConnection.room > 0) {
      const payload = this.#controls.shift()!;
      const { length } = payload;
      // Signaled if it has a callback: its completion is a sign of life for `sent`.
      transportConnection.postCopy(this.#headerOf(length, HeaderFlag.CONTROL), payload, () => {});
    }
    for (let message = this.#queue[0]; message; message = this.#queue[0]) {
      if (!message.isThere && !this.isOwnKind) {
        // Linux ignores a gap.
        this.#queue.shift();
        this.#path.acknowledged(message);
        continue;
      }
      if (message.isThere && !transportConnection.hold(message)) {
        this.acknowledgeSoon(now);
        break;
      }
      while (message.posted < message.fragments(this.fragmentBytes)) {
        if (transportConnection.room === 0) return;
        this.#post(transportConnection, message);
      }
      this.#queue.shift();
      if (message.flags & HeaderFlag.CONG_BITMAP) message.done(false);
      else this.#unacked.push(message);
    }
    if (this.#receivedUnacked >= ACK_EVERY && transportConnection.room > 0)
      this.#sendAck(transportConnection);
    this.#plan(now);
  }

  // TransportOwner

  up(now: number, transportConnection: TransportConnection, answer: Uint8Array | undefined): void {
    this.#proven(now, transportConnection);
    if (transportConnection !== this.#transportConnection || this.state === 'UP') return;
    if (answer) {
      const { gid } = this.#path.peer;
      const reply = parseHandshake(answer, gid.isIpv4);
      if (!reply) return this.#fail(now);
      this.#path.answered(now, reply);
      // Another node answered the request: messages queued for the former node are dropped.
      if (transportConnection !== this.#transportConnection) return;
      // The peer accepted this node's request: if both asked, one of the two remains.
      if (this.isOwnKind && this.#path.isFirst) this.#offers.clear();
      this.#begin(reply);
    }
    this.state = 'UP';
    transportConnection.marksHeaders = this.isOwnKind;
    // Connection 0 to a peer of our own kind waits until the peer has admitted this node.
    if (this.index !== 0 || !this.isOwnKind) this.settled();
    this.#path.routes.worked(this.route);
    this.#path.connectionUp(now, this);
    this.pump(now);
  }

  received(now: number, transportConnection: TransportConnection, packet: ReceivedPacket): void {
    // The first packet can come ahead of `up`.
    this.#proven(now, transportConnection);
    if (transportConnection !== this.#transportConnection) return packet.release();
    const { immData, bytes } = packet;
    const isBare = this.isOwnKind && immData !== HAS_HEADER;
    const header = isBare
      ? this.#receivedHeaders.next(bytes.length, immData)
      : readHeader(bytes, packet.view);
    if (!header || !this.#acknowledge(header.ack)) {
      packet.release();
      return this.#protocolError(now);
    }
    this.#path.heard(now);
    this.#receivedHeaders.hear(header);
    const isControl = (header.flags & HeaderFlag.CONTROL) !== 0;
    if (!isControl && header.sequence !== 0 && !this.#path.isAdmitted) {
      packet.release();
      return this.#protocolError(now);
    }
    if (isControl) {
      const payload = packet.bytes.slice(HEADER_BYTES);
      packet.release();
      if (!this.#path.control(now, payload)) this.#protocolError(now);
      return;
    }
    if (header.sequence === 0 && header.length === 0 && header.sourcePort === 0) {
      packet.release();
      return this.pump(now);
    }
    if (!this.receivedSequences.isInTurn(header, this.isOwnKind)) {
      packet.release();
      return this.#protocolError(now);
    }
    const start = isBare ? 0 : HEADER_BYTES;
    const outcome = this.#incoming.add(header, packet, start, this.fragmentBytes);
    if (outcome === 'wrong') {
      packet.release();
      return this.#protocolError(now);
    }
    if (outcome === 'whole') this.#whole(now, header.flags);
  }

  sent(now: number, transportConnection: TransportConnection): void {
    if (transportConnection !== this.#transportConnection) return;
    this.#path.heard(now);
    this.pump(now);
  }

  down(now: number, transportConnection: TransportConnection, isAbsent: boolean): void {
    if (this.#offers.take(transportConnection)) return this.#offerEnded(now);
    if (transportConnection !== this.#transportConnection) return;
    const { routes } = this.#path;
    if (isAbsent || this.state === 'UP') routes.failed(this.route);
    else if (this.state === 'CONNECTING') routes.skip(this.route);
    this.#end(now);
    this.#path.connectionDown(now, this, isAbsent);
    this.#plan(now);
  }

  /** A requester has not answered. Its request can be forged: it says nothing about the peer. */
  #offerEnded(now: number): void {
    const isWaited = this.state === 'ACCEPTING' && this.#transportConnection === undefined;
    if (!isWaited || !this.#offers.isEmpty) return;
    this.state = 'DOWN';
    this.#path.connectionDown(now, this, false);
    this.#plan(now);
  }

  /** A deadline has come. */
  advance(now: number): void {
    if (this.#ackMicros !== 0 && this.#ackMicros <= now) {
      const transportConnection = this.#transportConnection;
      if (this.state === 'UP' && transportConnection && transportConnection.room > 0)
        this.#sendAck(transportConnection);
      else this.#ackMicros = now + ACK_DELAY_MICROS;
      this.pump(now);
    }
    if (this.#reconnectMicros !== 0 && this.#reconnectMicros <= now) this.connect(now);
    this.#plan(now);
  }

  /** The transport connection has proved stable: after a break the next attempt is immediate. */
  settled(): void {
    this.#backoff.reset();
  }

  /** The reorder buffer delivered its messages: they may be acknowledged now. */
  acknowledgeSoon(now: number): void {
    if (this.state !== 'UP' || this.#ackMicros !== 0) return;
    this.#ackMicros = now + ACK_DELAY_MICROS;
    this.#plan(now);
  }

  /**
   * Says what came, again where that was said a moment ago: it may still be on its way. False: it
   * cannot be said.
   */
  acknowledgeNow(done: () => void): boolean {
    const transportConnection = this.#transportConnection;
    if (this.state !== 'UP' || !transportConnection || transportConnection.room === 0) return false;
    this.#sendAck(transportConnection, done);
    return true;
  }

  /** Schedules another attempt. */
  reconnect(now: number): void {
    if (this.state !== 'DOWN' || this.#reconnectMicros !== 0) return;
    this.#reconnectMicros = now + this.#backoff.next(this.#path.node.transport.random());
    this.#plan(now);
  }

  /** Every outgoing header carries the acknowledgement. */
  #acknowledging(): number {
    this.#ackMicros = 0;
    this.#receivedUnacked = 0;
    return this.#path.acknowledgeable(this.index, this.receivedSequences.safe);
  }

  /** A header for messages that belong to no socket. */
  #headerOf(length: number, flags: number): RdsHeader {
    const header = nodeHeader(length, flags, this.#acknowledging());
    this.#sentHeaders.hear(header);
    return header;
  }

  #post(transportConnection: TransportConnection, message: OutgoingMessage): void {
    const isMap = (message.flags & HeaderFlag.CONG_BITMAP) !== 0;
    let { flags } = message;
    if (message.isRetransmitted) flags |= HeaderFlag.RETRANSMITTED;
    const isLast = this.#queue.length === 1;
    if (!isMap && (isLast || this.#sentUnasked >= ASK_EVERY)) flags |= HeaderFlag.ACK_REQUIRED;
    const from = message.posted * this.fragmentBytes;
    const length = Math.min(message.length - from, this.fragmentBytes);
    if (message.posted === 0) {
      const { statistics, parameters } = this.#path.node;
      countSend(statistics, parameters.PerfCounters !== 0, message);
      this.#sentUnasked = flags & HeaderFlag.ACK_REQUIRED ? 0 : this.#sentUnasked + 1;
    }
    const header = message.header(flags, this.#acknowledging());
    const isWhole = this.isOwnKind && length === message.length;
    const bare = isWhole ? this.#sentHeaders.bareness(header) : undefined;
    this.#sentHeaders.hear(header);
    message.posted++;
    if (!message.isThere) return transportConnection.postCopy(header, NOTHING);
    message.held++;
    transportConnection.post(message, header, from, length, bare);
  }

  #sendAck(transportConnection: TransportConnection, done?: () => void): void {
    transportConnection.postCopy(this.#headerOf(0, 0), NOTHING, done);
  }

  /** Completes acknowledged messages. Returns false if the peer acknowledges unsent ones. */
  #acknowledge(ack: number): boolean {
    if (ack >= this.#sequence) return false;
    for (let first = this.#unacked[0]; first && first.sequence <= ack; first = this.#unacked[0]) {
      this.#unacked.shift();
      this.#path.acknowledged(first);
      first.acknowledged();
    }
    return true;
  }

  #whole(now: number, lastFlags: number): void {
    const { header, packets, start } = this.#incoming.take();
    const { peer, index } = this;
    const message = new IncomingMessage(peer, header, packets, this.#kept, index, start);
    if (header.flags & HeaderFlag.CONG_BITMAP) {
      const map = new Uint8Array(CONGESTION_MAP_BYTES);
      message.copy(map);
      message.release();
      this.#path.congestionMap(now, map);
    } else {
      const isNew = this.receivedSequences.take(header, this.isOwnKind);
      this.#receivedUnacked++;
      if (lastFlags & HeaderFlag.ACK_REQUIRED && this.#ackMicros === 0) {
        this.#ackMicros = now + ACK_DELAY_MICROS;
      }
      if (isNew) this.#path.deliver(now, this, message);
      else {
        this.#path.node.statistics.duplicates++;
        message.release();
      }
    }
    this.pump(now);
  }

  /** Starts a transport connection from the number that the peer has received. */
  #begin({ ack }: Handshake): void {
    this.receivedSequences.isFresh = true;
    if (!this.#acknowledge(ack)) return;
    while (this.#queue[0] && this.#queue[0].sequence !== 0 && this.#queue[0].sequence <= ack) {
      const message = this.#queue.shift()!;
      this.#path.acknowledged(message);
      message.acknowledged();
    }
  }

  #fail(now: number): void {
    if (this.#transportConnection) this.down(now, this.#transportConnection, false);
  }

  #protocolError(now: number): void {
    this.#path.protocolError(now);
    this.#fail(now);
  }

  /** The transport connection has ended: its messages are queued for retransmission. */
  #end(_now: number): void {
    const transportConnection = this.#transportConnection;
    this.#transportConnection = undefined;
    this.state = this.#offers.isEmpty ? 'DOWN' : 'ACCEPTING';
    this.#ackMicros = 0;
    this.#receivedUnacked = 0;
    this.#sentUnasked = 0;
    this.#controls = [];
    this.#incoming.clear();
    this.#sentHeaders.begin();
    this.#receivedHeaders.begin();
    // The transport must stop before message memory may move.
    transportConnection?.close();
    this.#queue = toSendAgain([...this.#unacked.splice(0), ...this.#queue]);
  }

  #plan(_now: number): void {
    const { deadlines } = this.#path.node;
    const [ack, again] = [this.#ackMicros, this.#reconnectMicros];
    const next = ack !== 0 && again !== 0 ? Math.min(ack, again) : ack + again;
    // A message moves the deadline of an acknowledgement; a timer that fires early plans again.
    const isPutOff = this.dueMicros !== 0 && (next === 0 || next >= this.dueMicros);
    if (next === this.dueMicros || (isPutOff && this.state === 'UP')) return;
    if (next === 0) deadlines.clear(this);
    else deadlines.set(this, next);
  }
}

const NOTHING = new Uint8Array(0);
