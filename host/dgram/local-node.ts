/**
 * The node of this process at one local address. All sockets of the address share it. It opens when
 * a peer may have a node as well: until then it is at most a bound UDP port (`doorbell.ts`).
 */
import { AsyncResource } from 'node:async_hooks';
import { debuglog } from 'node:util';
import { Endpoint, Gid } from '../link/endpoint.js';
import { ROCE_PORT } from '../link/link.js';
import type { Path } from '../rds/protocol/path.js';
import { isSameRoute } from '../rds/protocol/routes.js';
import type { Route } from '../rds/protocol/transport.js';
import type { RdsSocket } from '../rds/socket/socket.js';
import { isUnicast } from './addresses.js';
import type { Destination } from './destination.js';
import { Doorbell } from './doorbell.js';
import type { OpenedNode } from './open-node.js';
import { probePeer } from './peer-probe.js';

/** How long a node without sockets stays open for the next one. */
const IDLE_MILLIS = 1000;
/** Interval of the check whether all messages are acknowledged, and its limit. */
const HOLD_MILLIS = 20;
const HOLD_MILLIS_MAX = 10_000;
/** How long `process.exit` waits until the peers' devices have what was sent by all nodes. */
const EXIT_MILLIS = 1000;
/** Interval between two questions to a peer that has no node. */
export const ASK_MILLIS = 5000;
/** Interval of the probes of one route during an outage of its path. */
const OUTAGE_PROBE_MILLIS = 1200;
/** A peer that is silent for so long, with messages in flight to it, is probed. */
const SILENT_MILLIS = 250;
/**
 * A process without an open node opens one if the peer's system does not reject port 4791 for this
 * long: opening takes processor time, which the answer to the first datagram should not wait for.
 */
const QUIET_MILLIS = 100;
/** A node opens its other devices so long after its first message by RDP, beside other work. */
const RESERVES_MILLIS = 200;
/** Interval of the look for interfaces that were not up before. */
const RESERVES_AGAIN_MILLIS = 5000;
/** Peers that are remembered. */
const PEERS_MAX = 4096;
/**
 * Port 4791 is bound so long after a socket, and a peer asked so long after a datagram: a socket
 * for one question has its answer before. With one delay for both, timers run in order: the port of
 * a socket in this process is open when another one asks.
 */
export const LATER_MILLIS = 2;

/** A socket of `verbena/dgram` at this node. */
export interface NodeUser {
  readonly port: number;
  /** The node is open; `socket` is bound to `port`. */
  entered(socket: RdsSocket): void;
  /** The outbox may be retried. */
  wake(): void;
  /** Retries the outbox at once. Returns whether it is empty. */
  flush(): boolean;
  /** The socket is closed and keeps its port only for its outbox. */
  readonly isLingering: boolean;
  /** Gives up the port and the outbox. */
  giveUp(): void;
}

interface Peer {
  /** Earliest time of the next question. */
  askAtMillis: number;
  /** Earliest time of the next probe of a route during an outage. */
  readonly probeAtMillis: Map<string, number>;
  /** Its system rejects port 4791, and nothing was received from it since. */
  isAbsent: boolean;
}

const MICROS = 1000;
const log = debuglog('verbena');
/**
 * Nodes outlive the program's call that opens them: their timers and devices must not keep its
 * asynchronous context, nor emit in it.
 */
const root = new AsyncResource('RDPNODE');
const localNodes = new Map<string, LocalNode>();
const alive = new Set<LocalNode>();
/** Devices of former nodes, which have port 4791 of their addresses until they are closed. */
const closing = new Map<string, Promise<void>>();

/**
 * Sends peers the end of this process's nodes, so that no connection to them remains for the next
 * process at this address. The process waits until the peers' devices have its messages, as the
 * kernel has those of UDP. Signals that kill at once prevent it.
 */
function sayFarewell(): void {
  const until = performance.now() + EXIT_MILLIS;
  for (const localNode of alive) {
    localNode.settle(until - performance.now());
    localNode.end();
  }
}

export class LocalNode {
  readonly address: string;
  readonly #users = new Set<NodeUser>();
  /** Users that a peer can address: their port is known before they send. */
  readonly #servers = new Set<NodeUser>();
  readonly #peers = new Map<string, Peer>();
  /** When messages were seen to be in flight on a path; absent: no message is. */
  readonly #inFlightMicros = new WeakMap<Path, number>();
  #doorbell: Doorbell | undefined;
  #listening: NodeJS.Timeout | undefined;
  #opening: Promise<void> | undefined;
  #opened: OpenedNode | undefined;
  #opener: typeof import('./open-node.js') | undefined;
  /** Its devices at other addresses are open, or will be. */
  #hasReserves = false;
  #idle: NodeJS.Timeout | undefined;
  #isHeld = false;
  #heldUntil = 0;

  private constructor(address: string) {
    this.address = address;
  }

  /** The node of an address. */
  static at(text: string): LocalNode {
    const address = Gid.parse(text).toString();
    let localNode = localNodes.get(address);
    if (!localNode) {
      localNode = new LocalNode(address);
      localNodes.set(address, localNode);
    }
    return localNode;
  }

  get #node(): OpenedNode['node'] | undefined {
    const node = this.#opened?.node;
    return node && !node.isClosed && !node.context.device.closed ? node : undefined;
  }

  get isOpen(): boolean {
    return this.#node !== undefined;
  }

  /** `isServer`: peers may send to the user's port before it has sent to them. */
  attach(user: NodeUser, isServer: boolean): void {
    clearTimeout(this.#idle);
    for (const other of [...this.#users]) {
      if (other.isLingering && other.port === user.port) other.giveUp();
    }
    this.#users.add(user);
    if (isServer) this.#servers.add(user);
    if (this.isOpen) root.runInAsyncScope(() => this.#enter(user));
    else this.#listen();
  }

  /** Peers can ask for a node that is not open. */
  #listen(): void {
    if (this.#servers.size === 0 || this.isOpen || this.#opening || this.#doorbell) return;
    this.#listening ??= root.runInAsyncScope(() => setTimeout(this.#bindDoorbell, LATER_MILLIS));
    this.#listening.unref();
  }

  readonly #bindDoorbell = (): void => {
    this.#listening = undefined;
    if (this.isOpen || this.#opening) return;
    this.#doorbell ??= new Doorbell(this.address, () => this.open());
  };

  detach(user: NodeUser): void {
    this.#users.delete(user);
    this.#servers.delete(user);
    if (this.#servers.size === 0) this.#closeDoorbell();
    this.#idleSoon();
  }

  #idleSoon(): void {
    clearTimeout(this.#idle);
    if (this.#users.size > 0) return;
    const idled = (): void => this.#idled();
    this.#idle = root.runInAsyncScope(() => setTimeout(idled, IDLE_MILLIS)).unref();
  }

  /** Opens the node in the background; its users enter then. */
  open(): void {
    if (this.isOpen) return;
    this.#opening ??= root
      .runInAsyncScope(() => this.#open())
      // Without a node the sockets use UDP.
      .catch((error: unknown) => log(`no node at ${this.address}: ${String(error)}`))
      .finally(() => {
        this.#opening = undefined;
        // A peer that asks again could open it, but not at once.
        if (!this.isOpen) setTimeout(() => this.#listen(), ASK_MILLIS).unref();
      });
  }

  /**
   * Asks a peer whether it has a node, at most once in `ASK_MILLIS`: probes its port 4791, and
   * requests a connection unless its system rejects the probe.
   */
  ask(destination: Destination): void {
    root.runInAsyncScope(() => this.#ask(destination));
  }

  #ask({ peerAddress: address }: Destination): void {
    const now = performance.now();
    const peer = this.#peer(address);
    if (now < peer.askAtMillis) return;
    peer.askAtMillis = now + ASK_MILLIS;
    if (!isUnicast(address)) {
      peer.askAtMillis = Infinity;
      return;
    }
    peer.isAbsent = false;
    const to = new Endpoint(Gid.parse(address), ROCE_PORT);
    if (!this.#probe(to, peer)) return;
    const request = (): void => {
      // Also without a socket at this moment: the program may make one for each question.
      if (peer.isAbsent || localNodes.get(this.address) !== this) return;
      if (this.isOpen) this.#request(address);
      else void this.#openFor(address);
    };
    if (this.isOpen) request();
    else setTimeout(request, QUIET_MILLIS).unref();
  }

  /** May a datagram to this destination go by RDP now? */
  canReach(destination: Destination): boolean {
    const node = this.#node;
    if (!node || this.#peers.get(destination.peerAddress)?.isAbsent) return false;
    const { core } = node;
    const { endpoint, port } = destination;
    if (core.isLocal(endpoint)) return core.ports.has(port);
    const path = core.pathTo(endpoint);
    // Linux does not send its bound ports.
    if (!path || (path.kind === 'linux' && !destination.hasAnswered)) return false;
    return path.state === 'ACTIVE' && path.judge(node.now, port, undefined) === 'go';
  }

  /**
   * Does the node at the destination's UDP port have the port, as far as is known? Another process
   * at that address can name any port as its source: it does not redirect the answers then. Nor
   * does it during an outage.
   */
  hasPort({ endpoint, port, isReliable, hasAnswered }: Destination): boolean {
    const core = this.#node?.core;
    if (core?.isLocal(endpoint)) return core.ports.has(port);
    const path = core?.pathTo(endpoint);
    if (path?.state === 'CONNECTING') return isReliable;
    // Linux does not send its bound ports.
    const isLinux = path?.kind === 'linux' && path.state === 'ACTIVE';
    return path?.hasPort(port) === true || (isLinux && hasAnswered);
  }

  /** Are messages to the destination's node in flight, or to any? */
  isBusy(destination?: Destination): boolean {
    const core = this.#node?.core;
    const paths = destination ? [core?.pathTo(destination.endpoint)] : [...(core?.paths ?? [])];
    return paths.some((path) => (path?.pending ?? 0) > 0);
  }

  /** RDP took a message: the process stays until the peer has it. */
  sent(): void {
    if (!this.#hasReserves) this.#addReserves();
    this.#heldUntil = performance.now() + HOLD_MILLIS_MAX;
    if (this.#isHeld) return;
    this.#isHeld = true;
    const look = (): void => {
      for (const path of this.#node?.core.paths ?? []) this.#watch(path);
      this.#isHeld = this.#pending > 0 && performance.now() < this.#heldUntil;
      if (this.#isHeld) setTimeout(look, HOLD_MILLIS);
    };
    root.runInAsyncScope(() => setTimeout(look, HOLD_MILLIS));
  }

  /** Messages in flight. */
  get #pending(): number {
    let pending = 0;
    for (const path of this.#node?.core.paths ?? []) pending += path.pending;
    return pending;
  }

  /**
   * RDP refused a message for now. Returns whether it goes by UDP: the path is down, has no other
   * route, and the peer has every message of this node. If messages are in flight they must arrive
   * before, and another route may carry this message where UDP would lose it. So the message waits,
   * and the peer is probed.
   */
  isFreeForUdp({ endpoint }: Destination): boolean {
    const path = this.#node?.core.pathTo(endpoint);
    if (!path) return false;
    if (path.state !== 'ACTIVE' && path.pending === 0 && path.routes.count === 1) return true;
    this.#watch(path);
    return false;
  }

  /**
   * Probes a peer that is silent although messages are in flight to it, or whose path is broken: at
   * its own address, and at the other end of the route in use. If its system rejects the node's
   * port, the node is gone, and the path fails at once. If it rejects that of another route, the
   * path tries the next route.
   */
  #watch(path: Path): void {
    const { state, routes } = path;
    const peer = this.#peerOf(path);
    const micros = this.#node!.now;
    if (path.pending === 0) this.#inFlightMicros.delete(path);
    else if (!this.#inFlightMicros.has(path)) this.#inFlightMicros.set(path, micros);
    if (state === 'ACTIVE' ? !this.#isSilent(path) : state !== 'CONNECTING') return;
    const { current } = routes;
    const isDue = ({ from, to }: Route): boolean => {
      const [key, now] = [`${from} ${to}`, performance.now()];
      if (now < (peer.probeAtMillis.get(key) ?? 0)) return false;
      peer.probeAtMillis.set(key, now + OUTAGE_PROBE_MILLIS);
      return true;
    };
    const named = { from: routes.home, to: path.peer };
    if (isDue(named)) this.#probe(path.peer, peer, true);
    if (!isSameRoute(named, current) && isDue(current)) this.#probeRoute(path, current);
  }

  /** The peer acknowledged nothing of what is in flight. */
  #isSilent(path: Path): boolean {
    const inFlightMicros = this.#inFlightMicros.get(path);
    if (inFlightMicros === undefined) return false;
    const since = Math.max(path.heardMicros, inFlightMicros);
    return this.#node!.now - since > SILENT_MILLIS * MICROS;
  }

  #probeRoute(path: Path, route: Route): void {
    const from = this.#node!.core.addresses[route.from];
    if (!from) return;
    const target = { address: route.to.gid.toString(), port: route.to.port, isOutage: true };
    probePeer(from.gid.toString(), target, (isRefused) => {
      const node = this.#node;
      const isLive = path.state === 'ACTIVE' && !this.#isSilent(path);
      if (!node || !isRefused || isLive) return;
      path.rejected(node.now, route);
      node.arm();
    });
  }

  #peerOf({ peer: { gid } }: Path): Peer {
    return this.#peer(gid.toString());
  }

  /** A datagram came by RDP from this address. */
  heard({ peerAddress }: Destination): void {
    if (!this.#hasReserves) this.#addReserves();
    const peer = this.#peers.get(peerAddress);
    if (peer?.isAbsent) peer.isAbsent = false;
  }

  #peer(address: string): Peer {
    let peer = this.#peers.get(address);
    if (!peer) {
      if (this.#peers.size >= PEERS_MAX) {
        const [oldest] = this.#peers.keys();
        this.#peers.delete(oldest!);
      }
      peer = { askAtMillis: 0, probeAtMillis: new Map(), isAbsent: false };
      this.#peers.set(address, peer);
    }
    return peer;
  }

  #probe(to: Endpoint, peer: Peer, isOutage = false): boolean {
    const target = { address: to.gid.toString(), port: to.port, isOutage };
    return probePeer(this.address, target, (isRefused) => {
      const node = this.#node;
      const path = node?.core.pathTo(to);
      if (path && !this.#isGone(path, isRefused)) return;
      if (to.port === ROCE_PORT) peer.isAbsent = true;
      peer.askAtMillis = performance.now() + ASK_MILLIS;
      path?.abandon(node!.now);
      node?.arm();
      for (const user of [...this.#users]) user.wake();
    });
  }

  /** Has the peer no node any more, after a probe of its own address failed? */
  #isGone(path: Path, isRefused: boolean): boolean {
    if (path.state !== 'ACTIVE') {
      // The address may be gone where the peer is not: another route leads to its node.
      return isRefused || path.routes.count === 1;
    }
    return isRefused && path.routes.current.to.equals(path.peer) && this.#isSilent(path);
  }

  /** Opens devices at other local addresses: only a process that uses RDP has them. */
  #addReserves(): void {
    this.#hasReserves = true;
    const opened = this.#opened;
    if (!opened) return;
    const add = async (): Promise<void> => {
      await this.#opener!.addReserves(opened, this.address).catch((error: unknown) =>
        log(`no failover of ${this.address}: ${String(error)}`),
      );
      if (this.isOpen && this.#opened === opened) {
        setTimeout(add, RESERVES_AGAIN_MILLIS).unref();
      }
    };
    root.runInAsyncScope(() => setTimeout(add, RESERVES_MILLIS)).unref();
  }

  async #openFor(address: string): Promise<void> {
    this.open();
    await this.#opening;
    if (this.isOpen) this.#request(address);
  }

  /** Establishes a path; port 0 exists at every node. */
  #request(address: string): void {
    const node = this.#node!;
    const { core } = node;
    const to = new Endpoint(Gid.parse(address), ROCE_PORT);
    if (!core.isLocal(to)) core.path(to, 0)?.judge(node.now, 0, undefined);
    node.arm();
  }

  async #open(): Promise<void> {
    const opener = await import('./open-node.js');
    await opener.prepareNode();
    this.#closeDoorbell();
    await closing.get(this.address);
    this.#opened = await opener.openNode(this.address);
    this.#opener = opener;
    this.#hasReserves = false;
    if (!this.#opened) return;
    // Ahead of the listener that stops the threads of devices.
    if (alive.size === 0) process.prependOnceListener('exit', sayFarewell);
    alive.add(this);
    for (const user of [...this.#users]) this.#enter(user);
    this.#idleSoon();
  }

  #enter(user: NodeUser): void {
    const socket = this.#opener!.bindRds(this.#opened!, user.port);
    if (socket) user.entered(socket);
  }

  #closeDoorbell(): void {
    clearTimeout(this.#listening);
    this.#listening = undefined;
    this.#doorbell?.close();
    this.#doorbell = undefined;
  }

  #idled(): void {
    if (this.#users.size > 0) return;
    if (this.#isHeld || this.#opening) {
      this.#idleSoon();
      return;
    }
    localNodes.delete(this.address);
    const opened = this.#opened;
    this.end();
    if (!opened) return;
    const closes = [...opened.reserves, opened.context].map((context) => context.close());
    const closed: Promise<void> = Promise.allSettled(closes).then(() => {
      if (closing.get(this.address) === closed) closing.delete(this.address);
    });
    closing.set(this.address, closed);
  }

  /** Blocks the thread until the peers' devices have what was sent, at most `millis`. */
  settle(millis: number): void {
    const users = [...this.#users];
    const isEmpty = (): boolean => users.map((user) => user.flush()).every((done) => done);
    if (this.#opened?.isThreaded !== true || (this.#pending === 0 && isEmpty())) return;
    this.#node?.settle(isEmpty, millis);
  }

  /** Ends all connections. */
  end(): void {
    alive.delete(this);
    if (alive.size === 0) process.removeListener('exit', sayFarewell);
    this.#closeDoorbell();
    this.#opened?.node.close();
    this.#opened = undefined;
  }
}
