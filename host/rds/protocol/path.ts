/** A peer: its connections, the order across them, its ports, and which of them are slow. */
import type { Endpoint } from '../../link/endpoint.js';
import type { CongestionMap } from '../wire/congestion-map.js';
import { GENERATIONS, CONNECTIONS_PER_PATH, MEDIUM_BYTES, SMALL_BYTES } from '../wire/constants.js';
import { ControlKind, buildControl, parseControl } from '../wire/peer-control.js';
import type { Handshake } from '../wire/handshake.js';
import { sendHello, sendAddresses, sendIdentity, sendToken } from './hello.js';
import { Connection, type ConnectionPath } from './connection.js';
import { ReorderBuffer } from './reorder-buffer.js';
import { BEATS, BUSY_BEATS, Liveness } from './liveness.js';
import type { IncomingMessage, MessageOwner, OutgoingMessage } from './message.js';
import { newIncarnations, type Incarnations, type PathRecord } from '../sharing/shared-state.js';
import { Outage } from './outage.js';
import type { Judgement, PathNode, Timed } from './path-node.js';
import type { Port } from './port.js';
import { NO_SUCH_PORT } from './refusal.js';
import { RemotePorts } from './remote-ports.js';
import { Routes, isBelow, isSameRoute } from './routes.js';
import { DebugLevel } from './trace.js';
import type { Route } from './transport.js';
import { Flows, TransmitWindows } from './transmit-windows.js';

/** Timeouts of the peer after which messages that it left in the reorder buffer are dropped. */
const DROP_AFTER = 4;
const TRY_MICROS = 4_000_000; // Time after which a transport reports that no peer answers.
/** Between attempts to reach a Linux peer behind a failed path, at most. */
const AWAITED_MICROS = 60_000_000;

export class Path implements ConnectionPath, Timed {
  dueMicros = 0;
  heapIndex = -1;
  readonly node: PathNode;
  /** Its first address: by that it is known. */
  readonly peer: Endpoint;
  readonly routes: Routes;
  readonly record: PathRecord | undefined;
  readonly incarnations: Incarnations;
  readonly #connections: (Connection | undefined)[] = [];
  /** Of the peer, while connection 0 is up. */
  readonly #ports = new RemotePorts();
  /** By which the peer is known at an address that it has not named; 0: it has none yet. */
  token = 0;
  /** The same, of this node at the peer. */
  peerToken = 0;
  /** False until the peer's identity is admitted: messages from it are discarded. */
  isAdmitted = false;
  /** Owners of lost messages that no EFAULT has reported to yet. */
  readonly #unaware = new Set<MessageOwner>();
  /** Ports whose sends were refused; woken when another try can succeed. */
  readonly #blocked = new Set<Port>();
  readonly #flows = new Flows();
  readonly #transmitWindows = new TransmitWindows();
  readonly #held: ReorderBuffer;
  #wasUp = false;
  #isWanted = false;
  /**
   * When to reconnect to a Linux peer behind a failure; 0: the peer does not wait. Linux notices an
   * outage when it sends: while its port is slow, or its messages are unacknowledged, it waits.
   */
  #awaitedMicros = 0;
  readonly #outage = new Outage();
  readonly #liveness = new Liveness();
  /** When to drop unacknowledged messages of the reorder buffer, because their sender is gone. */
  #dropMicros = 0;

  constructor(node: PathNode, peer: Endpoint, home: number, record?: PathRecord) {
    this.node = node;
    this.peer = peer;
    this.record = record;
    this.incarnations = record ?? newIncarnations();
    this.#wasUp = this.incarnations.kind !== undefined;
    // A peer of another kind would take messages from a reserve for those of another node.
    const mayLeave = (from: number): boolean => this.isOwnKind || !node.isReserve(from);
    this.routes = new Routes(() => node.addresses, home, peer, mayLeave);
    this.#held = new ReorderBuffer(
      // A message that names a connection beyond the last waits for no predecessor.
      (connection) =>
        connection < CONNECTIONS_PER_PATH
          ? this.connection(connection).receivedSequences.expected
          : Infinity,
      (connection, sequence) =>
        connection < CONNECTIONS_PER_PATH &&
        this.connection(connection).receivedSequences.has(sequence),
      (now, message) => node.deliver(now, this, message),
    );
  }

  /** By which of the node's addresses the peer knows it. */
  get home(): number {
    return this.routes.home;
  }

  /** This node's incarnation as the peer knows it. */
  get incarnation(): number {
    return (this.node.incarnation + this.incarnations.renewals) >>> 0;
  }

  /** Undefined until it said so. */
  get kind(): Incarnations['kind'] {
    return this.incarnations.kind;
  }

  get isOwnKind(): boolean {
    return this.incarnations.kind === 'own';
  }

  /** The lower address: of two simultaneous requests its own remains. */
  get isFirst(): boolean {
    return isBelow(this.node.addresses[this.home]!, this.peer);
  }

  get nextGeneration(): number {
    return (this.incarnations.generation + 1) % GENERATIONS;
  }

  get state(): 'ACTIVE' | 'CONNECTING' | 'FAILED' | 'DOWN' {
    if (this.#outage.isFailed) return 'FAILED';
    const state = this.#connections[0]?.state ?? 'DOWN';
    if (state === 'UP') return 'ACTIVE';
    return state === 'DOWN' && !this.#isWanted ? 'DOWN' : 'CONNECTING';
  }

  /** The path was never established, and no send waits for it. */
  get isUnused(): boolean {
    const isIdle = this.pending === 0 && this.#blocked.size === 0 && !this.#isWanted;
    return (
      isIdle &&
      !this.#wasUp &&
      this.#connections.every((connection) => !connection || connection.state === 'DOWN')
    );
  }

  /** The path is up, and the peer has said that the port is bound there (Linux does not say). */
  hasPort(port: number): boolean {
    return this.#isUp && this.#ports.areKnown && this.#ports.bound.has(port);
  }

  /** Messages that the peer has not acknowledged. */
  get pending(): number {
    return this.#connections.reduce((sum, connection) => sum + (connection?.pending ?? 0), 0);
  }

  get #isUp(): boolean {
    return this.#connections[0]?.state === 'UP';
  }

  /** Connections that are up. */
  get connections(): number {
    return this.#connections.filter((connection) => connection?.state === 'UP').length;
  }

  /** Ports of the peer that are slow. */
  get stalls(): CongestionMap {
    return this.#ports.slow;
  }

  connection(index: number): Connection {
    return (this.#connections[index] ??= new Connection(this, index));
  }

  /** The connection for a message of `length` bytes. */
  connectionFor(length: number): Connection {
    if (!this.isOwnKind || length < SMALL_BYTES) return this.connection(0);
    return this.connection(Math.min(length <= MEDIUM_BYTES ? 1 : 2, CONNECTIONS_PER_PATH - 1));
  }

  /**
   * May `port` send to that port now? 'EFAULT': no path, no such port, or a loss of messages of
   * `port` is unreported (`lossReported`). 'EACCES': the keys of `auth` differ. 'EWOULDBLOCK': the
   * path is being made, or the port is slow; `port` is notified when it can retry.
   */
  judge(now: number, destinationPort: number, port: Port | undefined): Judgement {
    if (!this.#outage.retry(now)) {
      return this.node.transport.denialOf?.(this.peer) === undefined ? 'EFAULT' : 'EACCES';
    }
    // A sender that did not send during the recovery period gets its EFAULT now.
    if (port && this.#unaware.has(port)) return 'EFAULT';
    if (!this.#isUp) this.#want(now);
    if (!this.#isUp || (this.isOwnKind && !this.#ports.areKnown)) return this.#block(port);
    if (destinationPort === 0) return 'go';
    if (this.isOwnKind && !this.#ports.bound.has(destinationPort)) return 'EFAULT';
    const isFull = this.#transmitWindows.isFull(destinationPort);
    return isFull || this.#ports.slow.has(destinationPort) ? this.#block(port) : 'go';
  }

  /** The cause of an 'EFAULT' of `judge`. */
  faultCause(port: Port): string {
    const wereLost = this.#unaware.has(port);
    const loss = wereLost ? ', and earlier messages of this socket were lost' : '';
    if (this.#outage.isFailed) return `the node does not answer${loss}; retry later`;
    if (!wereLost) return NO_SUCH_PORT;
    return 'earlier messages of this socket were lost, and this one was not sent; send it again';
  }

  send(now: number, message: OutgoingMessage): void {
    const connection = this.connectionFor(message.length);
    this.#transmitWindows.sent(message.destinationPort, message.length);
    connection.push(now, message);
    if (connection.state === 'DOWN') connection.reconnect(now);
  }

  /** A message that another process numbered, in the order of its connection. */
  restore(connection: number, message: OutgoingMessage): void {
    this.#transmitWindows.sent(message.destinationPort, message.length);
    this.connection(connection).restore(message);
  }

  /** The same, in the order in which sockets sent them. */
  restored(connection: number, message: OutgoingMessage): void {
    this.#flows.numbered(connection, message);
  }

  /** This process has become the owner of the node's connections: connects to the peer again. */
  resume(now: number): void {
    for (const connection of this.#connections) connection?.fillTo();
    if (this.incarnations.kind === undefined) return;
    this.#want(now);
    for (let index = 1; index < CONNECTIONS_PER_PATH; index++) {
      const record = this.isOwnKind ? this.record?.connection(index) : undefined;
      if (record && record.next + record.expected > 0) this.connection(index).reconnect(now);
    }
  }

  /** This machine has another address, at which the peer cannot find it: connects to the peer. */
  seek(now: number): void {
    if (this.isOwnKind && !this.#outage.isFailed) this.#want(now);
  }

  /** One of this node's ports was bound or unbound. */
  portChanged(now: number, number: number, isBound: boolean): void {
    this.#tell(now, ControlKind.PORTS, [number], isBound);
  }

  /** One of this node's ports became slow, or caught up. */
  stallChanged(now: number, number: number, isStalled: boolean): void {
    if (this.isOwnKind) return this.#tell(now, ControlKind.STALLS, [number], isStalled);
    if (this.#isUp) this.#sendMap(now);
  }

  /** The node's addresses have changed. */
  addressesChanged(now: number): void {
    if (!this.isOwnKind || !this.#isUp) return;
    sendAddresses(this.connection(0), this.node, this.home);
    this.connection(0).pump(now);
  }

  /** Implements `RdsCore.cancel`. Messages in flight can still arrive. */
  cancel(now: number, port: Port, destinationPort: number): number {
    const isMeant = (message: OutgoingMessage): boolean =>
      message.owner === port && message.destinationPort === destinationPort;
    return this.#connections.reduce(
      (sum, connection) => sum + (connection?.cancel(now, isMeant) ?? 0),
      0,
    );
  }

  /** A canceled message keeps its number, but no memory. */
  canceled(message: OutgoingMessage): void {
    this.#transmitWindows.shrank(message.destinationPort, message.length);
  }

  /** Acknowledges on every connection; returns the number of those that had to. */
  acknowledgeNow(done: () => void): number {
    return this.#connections.filter((connection) => connection?.acknowledgeNow(done)).length;
  }

  /** When the peer sent the last message or acknowledgement. */
  get heardMicros(): number {
    return this.#liveness.heardMicros;
  }

  /** The peer's node is known to be gone: the path fails now. */
  abandon(now: number): void {
    if (this.#outage.isBroken || this.state === 'ACTIVE') this.#fail(now);
    this.#plan();
  }

  /** The peer's system rejects the packets of a route: the connections on it end, others follow. */
  rejected(now: number, route: Route): void {
    if (!isSameRoute(route, this.routes.current)) return;
    this.routes.failed(route);
    for (const connection of this.#connections) {
      const isOnRoute = connection && isSameRoute(connection.route, route);
      if (isOnRoute && connection.state !== 'DOWN') connection.break(now);
    }
  }

  /** Ends all connections. */
  close(now: number): void {
    this.#isWanted = false;
    for (const connection of this.#connections) connection?.giveUp(now);
    this.#held.clear();
    this.node.deadlines.clear(this);
  }

  forget(port: Port): void {
    this.#blocked.delete(port);
    this.#unaware.delete(port);
  }

  /** A send of `port` was refused: its owner knows of earlier losses. */
  lossReported(port: Port): void {
    this.#unaware.delete(port);
  }

  // Events of the connections.

  /** A connection gave the message up. */
  lost(message: OutgoingMessage): void {
    if (message.owner && !message.isCanceled) this.#unaware.add(message.owner);
    message.done(true);
  }

  isAnother({ own }: Handshake): boolean {
    const { incarnation } = this.incarnations;
    return own !== undefined && incarnation !== 0 && incarnation !== own.incarnation;
  }

  /** The peer accepted a connection, or requested one and has proved its address since. */
  answered(now: number, handshake: Handshake): void {
    const { own } = handshake;
    const isAnother = this.isAnother(handshake);
    this.incarnations.kind = own ? 'own' : 'linux';
    // Linux sends no identity.
    this.isAdmitted ||= !own || this.node.admits(undefined);
    if (!own) return;
    // The peer gave up messages that this node may hold out of order.
    if (own.generation !== this.incarnations.peerGeneration) this.#held.clear();
    this.incarnations.peerGeneration = own.generation;
    this.incarnations.incarnation = own.incarnation;
    if (!isAnother) return;
    this.isAdmitted = this.node.admits(undefined);
    this.token = this.peerToken = 0;
    this.#held.clear();
    // The peer has restarted: messages that its former process had not acknowledged are lost.
    const lost = this.#connections.reduce(
      (sum, connection) => sum + (connection?.forget(now) ?? 0),
      0,
    );
    this.#isWanted = false;
    this.#outage.end();
    if (lost > 0) return this.#lose(now, lost);
    // Also without a loss: the answer to the request has said so.
    this.incarnations.generation = this.nextGeneration;
    this.#forgetPorts();
  }

  connectionUp(now: number, connection: Connection): void {
    this.#say(now, DebugLevel.STATES, () => `connection ${connection.index} is up`);
    this.#liveness.begin(now, connection.index === 0);
    this.#dropMicros = 0;
    if (connection.index !== 0) return this.#settle();
    this.#wasUp = true;
    this.#isWanted = false;
    this.#awaitedMicros = 0;
    if (this.isOwnKind) {
      sendIdentity(connection, this.node);
      if (this.isAdmitted) this.#sendHello(now);
    } else this.#sendMap(now);
    // The peer can have sent its ports before this node saw the connection established.
    this.#settle();
    this.#unblock();
    for (const other of this.#connections) if (other && other.pending > 0) other.reconnect(now);
    this.#plan();
  }

  /** `isAbsent`: no node answered at the peer's address. */
  connectionDown(now: number, connection: Connection, isAbsent: boolean): void {
    this.#say(now, DebugLevel.STATES, () => `connection ${connection.index} is down`);
    if (connection.index === 0) this.#forgetPorts();
    this.#watchHeld(now);
    if (this.kind === 'linux' && this.#wasUp) this.#isWanted = true;
    const isNeeded =
      connection.pending > 0 || (connection.index === 0 && (this.#isWanted || this.pending > 0));
    if (!isNeeded) return this.#plan();
    // A peer may be too busy to accept another connection while its transport serves the others.
    const isBusy = isAbsent && connection.index !== 0 && this.#isUp;
    const since = now + (isBusy ? BUSY_BEATS * this.node.heartbeatMicros : 0);
    this.#outage.begin(since);
    const isHopeless = isAbsent && !this.#wasUp && this.routes.areAllTried;
    if (isHopeless || this.#failsAt <= now) this.#fail(now);
    else connection.reconnect(now);
    this.#plan();
  }

  heard(now: number): void {
    this.#liveness.heard(now);
  }

  /** Returns false if the payload is not a control message. */
  control(now: number, payload: Uint8Array): boolean {
    const control = parseControl(payload);
    if (!control || !this.isOwnKind) return false;
    this.#say(now, DebugLevel.CONTROL, () => `control message of kind ${control.kind}`);
    switch (control.kind) {
      case ControlKind.PORTS:
      case ControlKind.STALLS:
        this.node.uncongested(this.#ports.apply(control, this.node.statistics));
        this.#connections[0]?.settled();
        this.#settle();
        break;
      case ControlKind.IDENTITY: {
        const wasAdmitted = this.isAdmitted;
        this.isAdmitted = this.node.admits(control.identity);
        if (!this.isAdmitted) this.#say(now, DebugLevel.WARNINGS, () => 'may not be here');
        else if (!wasAdmitted) this.#sendHello(now);
        return this.isAdmitted;
      }
      case ControlKind.ADDRESSES: {
        const before = this.routes.alternates;
        this.routes.teach(control.addresses ?? []);
        this.node.taught(this, before);
        return true;
      }
      case ControlKind.TOKEN:
        this.peerToken = control.token!;
        return true;
      default:
        this.#liveness.beaten();
        return true;
    }
    this.#unblock();
    this.#connections[0]?.pump(now);
    return true;
  }

  congestionMap(_now: number, bytes: Uint8Array): void {
    this.node.uncongested(this.#ports.replaceMap(bytes));
    this.#unblock();
  }

  /** A message got its number: if order crosses connections, it names its predecessor. */
  numbered(connection: Connection, message: OutgoingMessage): void {
    const after = this.#flows.numbered(connection.index, message);
    if (after) message.extensions = { ...message.extensions, after };
  }

  acknowledged(message: OutgoingMessage): void {
    this.#flows.left(message);
    if (this.#transmitWindows.left(message.destinationPort, message.length)) this.#unblock();
  }

  protocolError(now: number): void {
    this.node.statistics.protocolErrors++;
    this.#say(now, DebugLevel.ERRORS, () => 'received a message that violates the protocol');
  }

  /** A message in the order of its connection: delivers it, or holds it for its predecessor. */
  deliver(now: number, connection: Connection, message: IncomingMessage): void {
    if (!this.#held.take(connection.index, message)) this.node.deliver(now, this, message);
    if (this.#held.isEmpty) return;
    this.#held.release(now);
    for (const other of this.#connections) other?.acknowledgeSoon(now);
  }

  /** Highest number that may be acknowledged: held messages can still be lost. */
  acknowledgeable(connection: number, received: number): number {
    return this.#held.isEmpty ? received : Math.min(received, this.#held.lowest(connection) - 1);
  }

  advance(now: number): void {
    this.#liveness.advance(now, this.node, this.routes, this.#connections);
    if (this.#failsAt <= now) this.#fail(now);
    if (this.#awaitedMicros !== 0 && this.#awaitedMicros <= now) this.#seekAwaited(now);
    if (this.#dropMicros !== 0 && this.#dropMicros <= now) {
      // If the sender returns it must see another node: lost messages must not seem received.
      this.#dropMicros = 0;
      this.incarnations.renewals++;
      this.#held.clear();
    }
    this.#plan();
  }

  /** How long this node, or a peer of our own kind, tries before it gives up. */
  get #timeoutMicros(): number {
    const { count } = this.routes;
    return this.node.outageMicros + (count === 1 ? 0 : count * TRY_MICROS);
  }

  get #failsAt(): number {
    const { outageMicros } = this.node;
    return this.#outage.deadline(this.routes.areAllTried ? outageMicros : this.#timeoutMicros);
  }

  #want(now: number): void {
    this.#isWanted = true;
    const connection = this.connection(0);
    if (connection.state !== 'DOWN' || this.#outage.isBroken) return;
    this.#outage.begin(now);
    connection.connect(now);
    this.#plan();
  }

  /** Tries a Linux peer again: the longer it has been silent, the later. */
  #seekAwaited(now: number): void {
    this.#awaitedMicros = 0;
    if (this.#outage.retry(now)) this.#want(now);
  }

  #block(port: Port | undefined): Judgement {
    if (port) this.#blocked.add(port);
    return 'EWOULDBLOCK';
  }

  #unblock(): void {
    if (this.#blocked.size === 0) return;
    const ports = [...this.#blocked];
    this.#blocked.clear();
    for (const port of ports) port.user.writable();
  }

  /** The path cannot be established, or broke with messages in flight. */
  #fail(now: number): void {
    const lost = this.#connections.reduce(
      (sum, connection) => sum + (connection?.giveUp(now) ?? 0),
      0,
    );
    this.#isWanted = false;
    this.#lose(now, lost);
  }

  #lose(now: number, lost: number): void {
    const { statistics, recoveryMicros, heartbeatMicros } = this.node;
    statistics.lost += lost;
    const level = lost > 0 ? DebugLevel.ERRORS : DebugLevel.WARNINGS;
    this.#say(now, level, () => `the path failed, ${lost} messages are lost`);
    this.incarnations.generation = this.nextGeneration;
    this.#flows.clear();
    this.#transmitWindows.clear();
    // Without a loss no sender has an error to receive: the path may be tried again sooner.
    this.#outage.fail(now + (lost > 0 ? recoveryMicros : heartbeatMicros / BEATS));
    if (this.kind === 'linux' && this.#wasUp) {
      const silence = Math.min(now - this.heardMicros, AWAITED_MICROS);
      this.#awaitedMicros = now + Math.max(silence, recoveryMicros);
    }
    this.#forgetPorts();
    this.#watchHeld(now);
  }

  /** Bounds the time for which messages wait in the reorder buffer for their absent sender. */
  #watchHeld(now: number): void {
    if (this.#held.isEmpty || this.connections > 0) return;
    this.#dropMicros ||= now + DROP_AFTER * this.#timeoutMicros;
  }

  /** Clears the peer's ports, which it no longer updates; senders that wait for them try again. */
  #forgetPorts(): void {
    this.#liveness.dueMicros = 0;
    this.node.uncongested(this.#ports.clear());
    this.#unblock();
  }

  #sendMap(now: number): void {
    const map = this.node.mapMessage();
    if (map) this.connection(0).pushFirst(now, map);
  }

  #tell(now: number, kind: number, ports: readonly number[], isSet: boolean): void {
    if (!this.isOwnKind || !this.#isUp) return;
    this.connection(0).say(buildControl({ kind, isSet, isReset: false, ports }));
    this.connection(0).pump(now);
  }

  #sendHello(now: number): void {
    this.token ||= this.node.transport.random();
    sendToken(this.connection(0), this.token);
    sendHello(this.connection(0), this.node, this.home);
    this.#liveness.dueMicros = now;
    this.#connections[0]?.pump(now);
    this.#plan();
  }

  /** Ends the outage if every connection that is needed is up, and the peer's ports are known. */
  #settle(): void {
    const isKnown = this.#isUp && (!this.isOwnKind || this.#ports.areKnown);
    const isWaiting = this.#connections.some((other) => other?.state !== 'UP' && other?.pending);
    if (isKnown && !isWaiting) this.#outage.end();
  }

  #say(now: number, level: number, text: () => string): void {
    this.node.trace.log(now, level, () => `${this.peer}: ${text()}`);
  }

  #plan(): void {
    const { deadlines } = this.node;
    const [beatsAt, dropsAt] = [this.#liveness.dueMicros || Infinity, this.#dropMicros || Infinity];
    const awaitedAt = this.#awaitedMicros || Infinity;
    const next = Math.min(this.#failsAt, beatsAt, dropsAt, awaitedAt);
    if (next === Infinity) deadlines.clear(this);
    else if (next !== this.dueMicros) deadlines.set(this, next);
  }
}
