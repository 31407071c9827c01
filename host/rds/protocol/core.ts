/** A node: ports, paths, and the calls on them. Imports no socket, clock or queue pair. */
import { Deadlines } from '../../cm/deadlines.js';
import { checkWhole } from '../../errors/check-whole.js';
import { RefusalError } from '../../errors/errors.js';
import { copyPieces } from '../../link/copy-bytes.js';
import type { Endpoint } from '../../link/endpoint.js';
import type { Transport, TransportConnection, Route, SendBuffer } from './transport.js';
import type { Identity } from './identity.js';
import { parametersOf, type RdsParameters } from './config.js';
import type { Claims, CongestionMonitor, CoreOptions } from './core-options.js';
import type { Elsewhere, SendExtras } from './core-options.js';
import { CongestionMap } from '../wire/congestion-map.js';
import {
  CONGESTION_MAP_BYTES,
  FRAGMENT_BYTES,
  HeaderFlag,
  MESSAGE_BYTES_MAX,
} from '../wire/constants.js';
import { parseHandshake } from '../wire/handshake.js';
import type { Connection } from './connection.js';
import { OutgoingMessage, lengthOf, localMessage } from './message.js';
import type { IncomingMessage } from './message.js';
import { Path } from './path.js';
import type { PathRecords, Judgement, PathNode, Timed } from './path-node.js';
import { Port, type PortUser } from './port.js';
import { NO_SUCH_PORT, refusal, type Refused } from './refusal.js';
import { makeRoom } from './eviction.js';
import { ADDRESSES_MAX, Alternates, homeTowards, isSameRoute } from './routes.js';
import { noStatistics, type RdsGauges, type RdsStatistics } from './statistics.js';
import { DebugLevel, Trace } from './trace.js';

export type { CoreOptions, SendExtras } from './core-options.js';

const HEARTBEAT_MICROS = 5_000_000;
const PATHS_MAX = 4096;
const PONGS_MAX = 64;
/** First port of those that `bind` assigns itself (RFC 6335). */
const DYNAMIC_PORT_LEAST = 49152;
const PORT_DRAWS = 256;

/** Result of a connection request; undefined: rejected. */
export type Acceptance =
  | {
      readonly connection: Connection;
      readonly privateData: Uint8Array;
      readonly route: Route;
      /** The request is one of our own kind. */
      readonly isOwnKind: boolean;
    }
  | undefined;

export class RdsCore implements PathNode {
  readonly local: Endpoint;
  readonly incarnation: number;
  readonly firstSequence: number;
  readonly heartbeatMicros: number;
  readonly outageMicros: number;
  readonly recoveryMicros: number;
  readonly transport: Transport;
  readonly pathRecords: PathRecords | undefined;
  /** Port ownership in a node that processes share. */
  claims: Claims | undefined;
  /** The node's owner, if it is another process. */
  elsewhere: Elsewhere | undefined;
  readonly deadlines = new Deadlines<Timed>();
  readonly parameters: RdsParameters;
  readonly statistics: RdsStatistics;
  readonly trace: Trace;
  readonly identity: Identity | undefined;
  readonly admits: (identity: Identity | undefined) => boolean;
  /** Sockets that monitor congestion. */
  readonly monitors = new Set<CongestionMonitor>();
  readonly #ports = new Map<number, Port>();
  readonly #paths = new Map<string, Path>();
  readonly #pathsMax: number;
  /** Paths by their peers' alternate addresses. */
  readonly #alternates = new Alternates<Path>();
  /** The node's addresses; the first is `local`. */
  readonly addresses: Endpoint[];
  /** Indices of addresses that only carry messages when other routes fail. */
  readonly #reserves = new Set<number>();
  #receiveBytesHeld = 0;
  #held = 0;
  readonly #stalled = new CongestionMap();
  /** Ports whose sends were refused because a port of this node is slow. */
  readonly #blockedHere = new Set<Port>();
  /** Ports whose sends were refused for lack of memory; woken when any memory is released. */
  readonly #starved = new Set<Port>();
  #now = 0;

  constructor(transport: Transport, options: CoreOptions) {
    this.transport = transport;
    this.pathRecords = options.pathRecords;
    this.local = options.local;
    this.addresses = [options.local];
    this.incarnation = options.incarnation;
    this.firstSequence = options.firstSequence;
    this.heartbeatMicros = options.heartbeatMicros ?? HEARTBEAT_MICROS;
    this.outageMicros = options.outageMicros ?? this.heartbeatMicros;
    this.recoveryMicros = options.recoveryMicros ?? 2 * this.heartbeatMicros;
    const { former } = options;
    this.parameters = former?.parameters ?? parametersOf(options.parameters);
    this.statistics = former?.statistics ?? noStatistics();
    this.#pathsMax = options.pathsMax ?? PATHS_MAX;
    this.trace = new Trace(this.parameters, options.log);
    this.identity = options.identity;
    this.admits = options.admits ?? (() => true);
  }

  /** When `advance` is to be called next; 0: never. */
  get nextMicros(): number {
    return this.deadlines.nextMicros;
  }

  get ports(): ReadonlyMap<number, Port> {
    return this.#ports;
  }

  get paths(): Iterable<Path> {
    return this.#paths.values();
  }

  gauges(): Omit<RdsGauges, 'rxMemory'> {
    let [recvPending, stalledPorts, nodesConnected] = [0, 0, 0];
    for (const port of this.#ports.values()) recvPending += port.pending;
    for (const path of this.#paths.values()) {
      if (path.state === 'ACTIVE') nodesConnected++;
      path.stalls.forEach(() => stalledPorts++);
    }
    const isCounting = this.parameters.PerfCounters !== 0;
    const socketsOpen = this.#ports.size;
    return { socketsOpen, nodesConnected, isCounting, recvPending, stalledPorts };
  }

  /** Takes a port; 0: any. Throws MisuseError; RefusalError EADDRINUSE. */
  bind(now: number, number: number, user: PortUser): Port {
    this.#now = now;
    checkWhole('port', number, 0, 65535);
    const chosen = number === 0 ? this.#freePort() : number;
    const isTaken =
      chosen !== undefined &&
      (this.#ports.has(chosen) || (!user.keeps && this.claims?.takePort(chosen) === false));
    if (chosen === undefined || isTaken) {
      const what = chosen === undefined ? 'no port is free' : `port ${number} is in use`;
      throw new RefusalError('EADDRINUSE', `bind: ${what}`);
    }
    const port = new Port(this, chosen, user);
    this.#ports.set(chosen, port);
    this.elsewhere?.bound(port);
    this.trace.log(now, DebugLevel.ULP, () => `port ${chosen} is bound`);
    for (const path of this.#paths.values()) path.portChanged(now, chosen, true);
    return port;
  }

  /** Frees the port. Messages that it sent are still delivered; its unread messages are dropped. */
  unbind(now: number, port: Port): void {
    this.#now = now;
    if (this.#ports.get(port.number) !== port) return;
    this.#ports.delete(port.number);
    this.elsewhere?.unbound(port);
    if (!port.user.keeps) this.claims?.giveBackPort(port.number);
    this.trace.log(now, DebugLevel.ULP, () => `port ${port.number} is free`);
    this.#blockedHere.delete(port);
    this.#starved.delete(port);
    for (const { from } of port.clear()) {
      if (this.isLocal(from)) this.statistics.loopbackPacketsDropped++;
      else this.statistics.recvPacketsDropped++;
    }
    for (const path of this.#paths.values()) {
      path.forget(port);
      path.portChanged(now, port.number, false);
    }
  }

  /**
   * Copies a message and sends it from `port`. Throws RefusalError EMSGSIZE; ENOBUFS (no send
   * buffer: nothing more from this socket for now); EWOULDBLOCK (the path is being made, or that
   * port is slow: others go on); EFAULT (no path, or no such port); EACCES (keys of `auth` differ).
   */
  send(
    now: number,
    port: Port,
    to: Endpoint,
    toPort: number,
    pieces: readonly Uint8Array[],
    extras: SendExtras = {},
  ): OutgoingMessage | undefined {
    this.#now = now;
    const length = lengthOf(pieces);
    if (length > MESSAGE_BYTES_MAX) {
      const rule = `${length} bytes exceed the limit of ${MESSAGE_BYTES_MAX}; split the message`;
      throw new RefusalError('EMSGSIZE', `send: ${rule}`);
    }
    if (this.elsewhere) {
      this.elsewhere.send(port, to, toPort, pieces, extras);
      return undefined;
    }
    if (this.isLocal(to)) {
      if (extras.operation) {
        throw new RefusalError('EINVAL', `send: RDMA_ARGS must name another node, not ${to.gid}`);
      }
      this.#loopBack(port, toPort, pieces, length, extras);
      return undefined;
    }
    const path = this.path(to);
    const judgement = path ? path.judge(now, toPort, port) : 'ENOBUFS';
    const hasRoom = judgement === 'go' && port.hasRoomFor(length);
    const connection = path?.connectionFor(length);
    const from = path?.routes.current.from ?? 0;
    if (this.trace.isLogged(DebugLevel.SENDS)) {
      const what = `${length} bytes from port ${port.number} to ${to} port ${toPort}: ${judgement}`;
      this.trace.write(now, DebugLevel.SENDS, what);
    }
    let buffer: SendBuffer | undefined;
    if (hasRoom && connection) {
      const { place = this.transport.allocate } = extras;
      buffer = place.call(this.transport, length, connection.fragmentBytes, from);
    }
    if (!path || !buffer) {
      if (hasRoom) this.#starved.add(port);
      const why = judgement === 'EFAULT' ? path?.faultCause(port) : undefined;
      if (judgement === 'EFAULT' || judgement === 'EACCES') path?.lossReported(port);
      throw this.#refusal(judgement === 'go' ? 'ENOBUFS' : judgement, to, toPort, why);
    }
    if (!extras.place) {
      copyPieces(pieces, buffer.payload);
      this.statistics.bytesCopied += length;
    }
    port.sent(length);
    const ports = { source: port.number, destination: toPort };
    const message = new OutgoingMessage(port, ports, buffer);
    if (extras.extensions) message.extensions = extras.extensions;
    message.operation = extras.operation;
    path.send(now, message);
    return message;
  }

  /** The path's part of the result of `send`, without sending. */
  judge(now: number, port: Port, to: Endpoint, toPort: number): Judgement {
    this.#now = now;
    if (this.isLocal(to)) return toPort === 0 || this.#portOf(toPort) ? 'go' : 'EFAULT';
    return this.path(to)?.judge(now, toPort, port) ?? 'EFAULT';
  }

  /** Delivers a message that another process of the node received. */
  arrived(port: Port, message: IncomingMessage): void {
    port.push(message);
  }

  /** SO_RCVBUF of a port. */
  raiseReceiveLimit(now: number, port: Port, messages: number): void {
    this.#now = now;
    port.raiseReceiveLimit(messages);
  }

  /** The reader took the oldest message of a port: releases it and may unstall the senders. */
  read(now: number, port: Port): void {
    this.#now = now;
    const message = port.take();
    if (message) port.giveBack(message);
  }

  /**
   * Adds an address on another device; messages use it when other routes fail. `isReserve`: no path
   * is named by it, so no peer receives it as the source of a message.
   */
  addAddress(now: number, address: Endpoint, isReserve = false): void {
    this.#now = now;
    if (this.addresses.length >= ADDRESSES_MAX) {
      throw new RefusalError(
        'ENOBUFS',
        `addDevice: a node has at most ${ADDRESSES_MAX} addresses; use one of them`,
      );
    }
    if (isReserve) this.#reserves.add(this.addresses.length);
    this.addresses.push(address);
    for (const path of this.#paths.values()) path.addressesChanged(now);
  }

  /** The reader has released a message that it took without a copy. */
  giveBack(now: number, port: Port, message: IncomingMessage): void {
    this.#now = now;
    port.giveBack(message);
  }

  /**
   * A peer requests a transport connection at one of the node's addresses. Its source address can
   * be forged: the path stays as it is until the peer answers (`TransportOwner.up`).
   */
  request(now: number, asking: Endpoint, privateData: Uint8Array, at = 0): Acceptance {
    this.#now = now;
    const path = this.#asked(asking, privateData, at);
    const handshake = path && parseHandshake(privateData, path.peer.gid.isIpv4);
    if (!handshake) return undefined;
    this.trace.log(now, DebugLevel.CM, () => `${asking} asks for a transport connection`);
    const connection = path.connection(handshake.own?.connectionIndex ?? 0);
    const route = { from: at, to: asking };
    // Simultaneous requests: the lower address wins; with Linux, the request of Linux does.
    // A request over another route proves that the route works.
    const isFirst = handshake.own && path.isFirst;
    const isOurs = isFirst && isSameRoute(connection.route, route);
    if (connection.state === 'CONNECTING' && isOurs) return undefined;
    const isOwnKind = handshake.own !== undefined;
    return { connection, privateData: connection.handshake(handshake), route, isOwnKind };
  }

  isReserve(index: number): boolean {
    return this.#reserves.has(index);
  }

  isLocal(to: Endpoint): boolean {
    return this.addresses.some((own) => own.equals(to));
  }

  /** The path to a peer, if it exists. */
  pathTo(to: Endpoint): Path | undefined {
    return this.#paths.get(to.toString());
  }

  /** Cancels messages of `port` to that destination that are not acknowledged; returns how many. */
  cancel(now: number, port: Port, to: Endpoint, toPort: number): number {
    this.#now = now;
    return this.#paths.get(to.toString())?.cancel(now, port, toPort) ?? 0;
  }

  /** The transport connection of an `Acceptance`; `up` follows on it. */
  accepted(
    now: number,
    { connection, route }: NonNullable<Acceptance>,
    transportConnection: TransportConnection,
    privateData: Uint8Array,
  ): void {
    this.#now = now;
    const request = parseHandshake(privateData, connection.peer.gid.isIpv4);
    if (request) connection.accept(now, transportConnection, request, route);
  }

  /** Time has passed. */
  advance(now: number): void {
    this.#now = now;
    for (let due = this.deadlines.take(now); due; due = this.deadlines.take(now)) due.advance(now);
  }

  /**
   * Acknowledges what sockets have read before the node ends; otherwise the next owner receives it
   * again. Calls `done` for each acknowledgement that is complete; returns the number of them.
   */
  acknowledgeNow(now: number, done: () => void): number {
    this.#now = now;
    let count = 0;
    for (const path of this.#paths.values()) count += path.acknowledgeNow(done);
    return count;
  }

  /** Ends everything: connections are closed, messages lost. */
  close(now: number): void {
    this.#now = now;
    for (const path of this.#paths.values()) path.close(now);
    for (const port of [...this.#ports.values()]) this.unbind(now, port);
    this.#paths.clear();
  }

  /** Finds or adds the path to a peer, by the local address `home`; undefined: too many paths. */
  path(peer: Endpoint, home?: number): Path | undefined {
    const key = peer.toString();
    let path = this.#paths.get(key);
    if (!path) {
      const isFull = this.#paths.size >= this.#pathsMax;
      if (isFull && !makeRoom(this.#paths, this.#now)) return undefined;
      const from =
        home ?? this.transport.homeOf?.(peer) ?? homeTowards(this.addresses, peer, this.#reserves);
      const record = this.pathRecords?.path(peer, from);
      if (this.pathRecords && !record) return undefined;
      path = new Path(this, peer, from, record);
      this.#paths.set(key, path);
      this.trace.log(this.#now, DebugLevel.SESSION, () => `session with ${key}`);
    }
    return path;
  }

  /** Path of a request; undefined if that peer may not connect to this address. */
  #asked(asking: Endpoint, privateData: Uint8Array, at: number): Path | undefined {
    const { isIpv4 } = asking.gid;
    const handshake = parseHandshake(privateData, isIpv4);
    // No program has bound the address of a reserve: it serves peers that have a path already.
    const isReserve = this.isReserve(at);
    if (handshake && !handshake.own) return isReserve ? undefined : this.path(asking, at);
    const home = this.addresses.findIndex(
      ({ gid }, index) => !this.isReserve(index) && handshake?.target.equals(gid),
    );
    if (home >= 0 && handshake?.source.equals(asking.gid)) {
      return isReserve ? this.pathTo(asking) : this.path(asking, home);
    }
    // A peer may connect from the addresses that it has named, also of the other family.
    for (const path of this.#alternates.at(asking)) {
      const said = parseHandshake(privateData, path.peer.gid.isIpv4);
      const target = this.addresses[path.home]!.gid;
      if (said?.source.equals(path.peer.gid) && said.target.equals(target)) return path;
    }
    const token = handshake?.own?.token ?? 0;
    if (token === 0) return undefined;
    // Its machine has another address. None but the peer of the path has the token.
    for (const path of this.#paths.values()) {
      const isNamed = path.home === home && handshake!.source.equals(path.peer.gid);
      if (path.token === token && isNamed) return path;
    }
    return undefined;
  }

  // Events of paths and ports.

  taught(path: Path, before: readonly Endpoint[]): void {
    this.#alternates.taught(path, before);
  }

  uncongested(bits: bigint): void {
    if (bits === 0n) return;
    for (const monitor of [...this.monitors]) monitor.uncongested(bits);
  }

  get receiveBytesFree(): number {
    return Math.max(0, this.transport.receiveBytesMax - this.#receiveBytesHeld);
  }

  holds(bytes: number, messages: number): void {
    this.#receiveBytesHeld += bytes;
    this.#held += messages;
    if (this.#held > this.statistics.recvPendingMost) this.statistics.recvPendingMost = this.#held;
  }

  deliver(now: number, path: Path, message: IncomingMessage): void {
    const { statistics, parameters } = this;
    const { sourcePort, destinationPort, length } = message.header;
    if (this.trace.isLogged(DebugLevel.RECEIVES)) {
      const what = `${length} bytes from ${message.from} port ${sourcePort}`;
      this.trace.write(now, DebugLevel.RECEIVES, `${what} to port ${destinationPort}`);
    }
    if (parameters.PerfCounters !== 0) {
      statistics.recvPackets++;
      statistics.recvBytes += length;
    }
    if (path.isOwnKind && (message.header.flags & HeaderFlag.CANCELED) !== 0) {
      message.kept(now);
      return message.release();
    }
    const port = this.#portOf(destinationPort);
    if (!port?.user.keeps) message.kept(now);
    if (port) {
      const { rdmaRkey } = message.header.extensions;
      if (rdmaRkey !== undefined) port.user.accessed?.(rdmaRkey);
      return port.push(message);
    }
    message.release();
    // Port 0 answers, as Linux does; an answer is never answered.
    if (destinationPort === 0 && sourcePort !== 0) this.#pong(now, path, sourcePort);
    else statistics.recvPacketsDropped++;
  }

  stalled({ number }: Port, isStalled: boolean): void {
    this.#stalled.set(number, isStalled);
    this.statistics[isStalled ? 'stallsSent' : 'unstallsSent']++;
    for (const path of this.#paths.values()) path.stallChanged(this.#now, number, isStalled);
    if (isStalled || this.#blockedHere.size === 0) return;
    const blocked = [...this.#blockedHere];
    this.#blockedHere.clear();
    for (const port of blocked) port.user.writable();
  }

  released(): void {
    if (this.#starved.size === 0) return;
    const starved = [...this.#starved];
    this.#starved.clear();
    for (const port of starved) port.user.writable();
  }

  boundPorts(): number[] {
    this.claims?.seekAll();
    return [...this.#ports.keys()];
  }

  stalledPorts(): number[] {
    const ports: number[] = [];
    this.#stalled.forEach((port) => ports.push(port));
    return ports;
  }

  mapMessage(): OutgoingMessage | undefined {
    // Congestion maps are not repeated: a peer that misses an update would wait for ever.
    const buffer = this.transport.allocate(CONGESTION_MAP_BYTES, FRAGMENT_BYTES, 0, true);
    if (!buffer) return undefined;
    buffer.payload.set(this.#stalled.bytes);
    const ports = { source: 0, destination: 0 };
    return new OutgoingMessage(undefined, ports, buffer, HeaderFlag.CONG_BITMAP);
  }

  #pong(now: number, path: Path, toPort: number): void {
    // A peer that pings without acknowledging the answers gets at most PONGS_MAX answers.
    const buffer = path.pending < PONGS_MAX && this.transport.allocate(0, FRAGMENT_BYTES, 0);
    if (!buffer) return;
    const ports = { source: 0, destination: toPort };
    path.send(now, new OutgoingMessage(undefined, ports, buffer));
  }

  #portOf(number: number): Port | undefined {
    if (!this.#ports.has(number)) this.claims?.seek(number);
    return this.#ports.get(number);
  }

  #loopBack(
    port: Port,
    toPort: number,
    pieces: readonly Uint8Array[],
    length: number,
    { sequenceHere = 0, kept = () => {}, extensions }: SendExtras,
  ): void {
    const target = this.#portOf(toPort);
    if (!target && toPort !== 0) throw this.#refusal('EFAULT', this.local, toPort, NO_SUCH_PORT);
    const receiver = target ?? port;
    if (receiver.isStalled) {
      this.#blockedHere.add(port);
      throw this.#refusal('EWOULDBLOCK', this.local, toPort);
    }
    const [from, to] = target ? [port.number, toPort] : [0, port.number];
    const isAfterUdp = extensions?.isAfterUdp;
    const message = localMessage(
      this.local,
      [from, to],
      target ? pieces : [],
      sequenceHere,
      kept,
      isAfterUdp ? { isAfterUdp } : undefined,
    );
    this.statistics.bytesCopied += length;
    if (!receiver.user.keeps) kept();
    receiver.push(message);
  }

  #refusal(code: Refused, to: Endpoint, toPort: number, why?: string): RefusalError {
    if (code === 'ENOBUFS') this.statistics.enobufsReturned++;
    if (code === 'EWOULDBLOCK') this.statistics.ewouldblocksReturned++;
    return refusal(code, to, toPort, code === 'EACCES' ? this.transport.denialOf?.(to) : why);
  }

  #freePort(): number | undefined {
    for (let draw = 0; draw < PORT_DRAWS; draw++) {
      const span = 65536 - DYNAMIC_PORT_LEAST;
      const candidate = DYNAMIC_PORT_LEAST + (this.transport.random() % span);
      if (!this.#ports.has(candidate)) return candidate;
    }
    return undefined;
  }
}
