/** The RDS sockets of a UDP socket: one at the node of each local address, at the same port. */
import { timerMillis } from '../base/timer.js';
import type { RdsSocket } from '../rds/socket/socket.js';
import { MessageFlag, PollEvent, SOL_SOCKET, SocketOption } from '../rds/wire/constants.js';
import { localAddresses } from './addresses.js';
import { Destinations, type Destination } from './destination.js';
import { ASK_MILLIS, LATER_MILLIS, LocalNode, type NodeUser } from './local-node.js';
import { Outbox, type Outcome, type OutboxUser } from './outbox.js';
import type { Addressed } from './send-arguments.js';
import type { RdpSettings } from './settings.js';
import { drainUdp, type DrainedSocket } from './udp-drain.js';

export interface ReliableUser extends Omit<OutboxUser, 'attempt' | 'emptied'>, DrainedSocket {
  received(data: Buffer, address: string, port: number): void;
  /** A peer's address as the socket's family has it: a mapped one of IPv4. */
  addressOf(source: string): string;
  /** Has the kernel every datagram that the program sent by UDP? */
  readonly isUdpIdle: boolean;
  /** The peer's datagrams go by RDP from now on, or by UDP again. */
  switched(destination: Destination): void;
}

export interface LocalAddress {
  readonly address: string;
  readonly port: number;
  readonly type: 'udp4' | 'udp6';
  readonly isIpv6Only: boolean;
  /** Node bound the socket for a send: no peer can know its port yet. */
  readonly isImplicit: boolean;
}

/** The longest datagram of UDP: 65,535 bytes with its header. */
const BYTES_MAX = 65_527;
/** Datagrams that are delivered in one turn of the event loop. */
const BURST = 128;
/** Messages that were read in ticks since the event loop turned, of all sockets. */
let ticks = 0;
/** Peers whose route is remembered. */
const ROUTES_MAX = 1024;

/** The routes that sockets have found, for other sockets; the last ones that were of use. */
const routes = new Map<string, LocalNode>();

function remember(address: string, localNode: LocalNode): void {
  routes.delete(address);
  if (routes.size >= ROUTES_MAX) {
    const [oldest] = routes.keys();
    routes.delete(oldest!);
  }
  routes.set(address, localNode);
}

/** Bytes of SO_RCVBUF for a small datagram: the kernel doubles the value and counts 768. */
const BYTES_A_MESSAGE = 384;

/** How long a socket that changes to UDP waits for messages in flight, and between looks. */
const RETIRE_MILLIS_MAX = 200;
const RETIRE_MILLIS = 5;

/** UDP's SO_RCVBUF counts bytes, RDP's messages: as many as UDP would keep small datagrams. */
function messagesOf(receiveBytes: number): number {
  return Math.ceil(receiveBytes / BYTES_A_MESSAGE);
}

export class ReliableSide {
  readonly outbox: Outbox;
  readonly #user: ReliableUser;
  readonly #destinations = new Destinations(
    (destination) =>
      destination.isReliable && this.#towards(destination)?.localNode.isBusy(destination) === true,
  );
  readonly #places = new Map<string, Place>();
  /** Of a socket that is bound to one address. */
  #only: Place | undefined;
  #port = 0;
  #isImplicit = false;
  #isClosed = false;
  /** A message came by RDP. */
  #hasHeard = false;
  /** Called when a socket that is to use UDP only needs nothing more from here. */
  #retired: (() => void) | undefined;
  #retiredUntil = 0;
  #receiveBytes = 0;
  #sendBytes = 0;
  #lingering: NodeJS.Timeout | undefined;
  readonly #retryMillis: number;

  constructor(user: ReliableUser, settings: RdpSettings) {
    this.#user = user;
    this.#retryMillis = settings.retryMillis;
    this.outbox = new Outbox(
      {
        attempt: (destination, datagram) => this.#attempt(destination, datagram),
        taken: (datagram) => user.taken(datagram),
        plain: (datagram) => user.plain(datagram),
        calledLater: (callback, length) => user.calledLater(callback, length),
        dropped: (destination, count) => user.dropped(destination, count),
        stalled: (destination, isStalled) => user.stalled(destination, isStalled),
        emptied: () => {
          if (this.#isClosed) this.#leave();
          else this.#retire();
        },
      },
      settings,
    );
  }

  /** The UDP socket is bound. */
  bind({ address, port, type, isIpv6Only, isImplicit }: LocalAddress): void {
    this.#port = port;
    this.#isImplicit = isImplicit;
    const isWildcard = address === '0.0.0.0' || address === '::';
    if (!isWildcard) this.#only = this.#place(address);
    else if (!isImplicit) {
      for (const each of localAddresses(type, isIpv6Only)) this.#place(each);
    }
  }

  /** Sends by RDP or UDP, or queues the datagram. */
  send(datagram: Addressed): void {
    const destination = this.#destinations.at(datagram.address, datagram.port);
    if (destination.waiting.length > 0) return this.outbox.add(destination, datagram);
    const outcome = this.#attempt(destination, datagram);
    if (outcome === 'taken') this.#user.taken(datagram);
    else if (outcome === 'wait') this.outbox.add(destination, datagram);
    else {
      this.#user.plain(datagram);
      this.#ask(destination);
    }
  }

  /**
   * Delivers what came by RDP before a datagram that comes from there by UDP now: if a peer returns
   * to UDP, the program receives its datagrams in order. For other peers nothing is read here.
   */
  deliverFirst(address: string, port: number): void {
    if (!this.#hasHeard || !this.#destinations.known(address, port)?.hasAnswered) return;
    for (const place of this.#places.values()) place.readAll();
  }

  /** `SO_RCVBUF` and `SO_SNDBUF`, of sockets to come as well. */
  setBuffers({
    receive = 0,
    send = 0,
  }: {
    readonly receive?: number;
    readonly send?: number;
  }): void {
    if (receive > 0) this.#receiveBytes = receive;
    if (send > 0) this.#sendBytes = send;
    for (const { socket } of this.#places.values()) if (socket) this.#setBuffers(socket);
  }

  /** The UDP socket is closed: the outbox is still sent, received datagrams are dropped. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    if (this.outbox.count === 0) this.#leave();
    else {
      this.#lingering = setTimeout(() => this.#leave(), timerMillis(this.#retryMillis));
      this.#lingering.unref();
    }
  }

  /**
   * The UDP socket is to use UDP only. The outbox leaves before, and the program receives what the
   * peers' nodes know to have arrived; then `retired` is called.
   */
  retire(retired: () => void): void {
    this.#retired = retired;
    this.#retiredUntil = performance.now() + RETIRE_MILLIS_MAX;
    if (this.#places.size > 0) setImmediate(() => this.#retire());
    else this.#retire();
  }

  #retire(): void {
    if (!this.#retired || this.#isClosed || this.outbox.count > 0) return;
    const places = [...this.#places.values()];
    for (const place of places) place.readAll();
    if (
      performance.now() < this.#retiredUntil &&
      places.some(({ localNode }) => localNode.isBusy())
    ) {
      setTimeout(() => this.#retire(), RETIRE_MILLIS);
      return;
    }
    if (places.some((place) => place.hasMessage)) {
      // It waits until the UDP socket is drained.
      setImmediate(() => this.#retire());
      return;
    }
    this.close();
    this.#retired();
  }

  /** UDP must not overtake messages in flight. */
  #attemptRetired(destination: Destination): Outcome {
    if (!destination.isReliable) return 'plain';
    const isBusy = this.#towards(destination)?.localNode.isBusy(destination) ?? false;
    if (isBusy && performance.now() < this.#retiredUntil) return 'wait';
    this.#switch(destination, false);
    return 'plain';
  }

  #leave(): void {
    clearTimeout(this.#lingering);
    this.outbox.clear();
    for (const place of this.#places.values()) place.leave();
    this.#places.clear();
  }

  /** By RDP once the peer is known to have the port there; before that, and without it, by UDP. */
  #attempt(destination: Destination, { pieces }: Addressed): Outcome {
    if (this.#retired && !this.#isClosed) return this.#attemptRetired(destination);
    const { address, port, udpPort, isReliable } = destination;
    const place = this.#towards(destination) ?? this.#shared(destination);
    if (!place?.socket || (!isReliable && !this.#maySwitch(place, destination))) {
      if (isReliable) this.#switch(destination, false);
      return 'plain';
    }
    const flags = isReliable ? 0 : MessageFlag.AFTER_UDP;
    try {
      place.socket.sendmsg({ name: { address, port, udpPort }, iov: pieces, flags });
      place.localNode.sent();
      if (!isReliable) this.#switch(destination, true);
      return 'taken';
    } catch (error) {
      const { code } = error as { code?: unknown };
      const isBusy = code === 'EWOULDBLOCK' || code === 'ENOBUFS';
      if (isBusy && isReliable && !place.localNode.isFreeForUdp(destination)) return 'wait';
      if (isReliable) this.#switch(destination, false);
      return 'plain';
    }
  }

  #towards(destination: Destination): Place | undefined {
    return this.#only ?? (destination.place as Place | undefined);
  }

  /**
   * The place of a wildcard socket whose route another socket has found: a program that makes a
   * socket for each question has RDP from the first datagram on.
   */
  #shared(destination: Destination): Place | undefined {
    const localNode = routes.get(destination.address);
    if (!localNode?.canReach(destination) || this.#isClosed) return undefined;
    const place = this.#place(localNode.address);
    this.#route(destination, place);
    return place;
  }

  /** RDP must not overtake a datagram that is still on its way to the kernel. */
  #maySwitch({ localNode }: Place, destination: Destination): boolean {
    return this.#user.isUdpIdle && localNode.canReach(destination);
  }

  #switch(destination: Destination, isReliable: boolean): void {
    destination.isReliable = isReliable;
    destination.askAtMillis = 0;
    this.#user.switched(destination);
  }

  /**
   * After the datagram has left, so that it does not wait for the question; also if the socket is
   * closed then: the program may make one for each question.
   */
  #ask(destination: Destination): void {
    if (this.#isClosed || this.#retired) return;
    const now = performance.now();
    if (now < destination.askAtMillis) return;
    destination.askAtMillis = now + ASK_MILLIS;
    setTimeout(() => {
      if (this.#only) this.#only.localNode.ask(destination);
      else void this.#askByRoute(destination);
    }, LATER_MILLIS).unref();
  }

  async #askByRoute(destination: Destination): Promise<void> {
    try {
      const { localAddressTowards } = await import('../link/interface.js');
      const localNode = LocalNode.at(await localAddressTowards(destination.address));
      if (!this.#isClosed) this.#route(destination, this.#place(localNode.address));
      else remember(destination.address, localNode);
      localNode.ask(destination);
    } catch {
      // The send by UDP reports what is wrong with the address.
    }
  }

  #route(destination: Destination, place: Place): void {
    destination.place = place;
    remember(destination.address, place.localNode);
  }

  #place(address: string): Place {
    const localNode = LocalNode.at(address);
    let place = this.#places.get(localNode.address);
    if (!place && !this.#isClosed) {
      place = new Place(this, localNode, this.#port);
      this.#places.set(localNode.address, place);
      localNode.attach(place, !this.#isImplicit);
    }
    return place!;
  }

  // Events of places.

  get isClosed(): boolean {
    return this.#isClosed;
  }

  entered(socket: RdsSocket): void {
    this.#setBuffers(socket);
  }

  drain(done: () => void): void {
    drainUdp(this.#user, done);
  }

  came(place: Place, data: Buffer, from: { address: string; port: number; udpPort: number }): void {
    if (this.#isClosed) return;
    this.#hasHeard = true;
    const address = this.#user.addressOf(from.address);
    const destination = this.#destinations.at(address, from.port);
    const isElsewhere = destination.udpPort !== from.udpPort;
    const { localNode } = this.#towards(destination) ?? place;
    if (isElsewhere ? !localNode.hasPort(destination) : !destination.hasAnswered) {
      destination.hasAnswered = true;
      destination.udpPort = from.udpPort;
      if (!this.#only) this.#route(destination, place);
    }
    place.localNode.heard(destination);
    this.#user.received(data, address, from.port);
  }

  wake(): void {
    queueMicrotask(() => this.outbox.flush());
  }

  giveUp(): void {
    this.#leave();
  }

  #setBuffers(socket: RdsSocket): void {
    const { SO_RCVBUF, SO_SNDBUF } = SocketOption;
    const messages = messagesOf(this.#receiveBytes);
    if (messages > 0) socket.setsockopt(SOL_SOCKET, SO_RCVBUF, messages);
    if (this.#sendBytes > 0) socket.setsockopt(SOL_SOCKET, SO_SNDBUF, this.#sendBytes);
  }
}

/** A socket at a node. */
class Place implements NodeUser {
  /** Undefined while the node is not open. */
  socket: RdsSocket | undefined;
  /** The message at the head waits until the UDP socket is drained. */
  #isDraining = false;
  /** Messages for which the UDP socket is drained: those that were queued when that began. */
  #drained = 0;
  /** Reads that are planned, and how many the next ones are. */
  #planned = 0;
  #batch = 1;

  constructor(
    readonly side: ReliableSide,
    readonly localNode: LocalNode,
    readonly port: number,
  ) {}

  get isLingering(): boolean {
    return this.side.isClosed;
  }

  entered(socket: RdsSocket): void {
    this.socket = socket;
    socket.listener = { readable: () => this.#planFirst(), writable: () => this.side.wake() };
    this.side.entered(socket);
  }

  wake(): void {
    this.side.wake();
  }

  flush(): boolean {
    this.side.outbox.flush();
    return this.side.outbox.count === 0;
  }

  giveUp(): void {
    this.side.giveUp();
  }

  leave(): void {
    this.socket?.close();
    this.socket = undefined;
    this.localNode.detach(this);
  }

  readAll(): void {
    while (this.#isReadable) {
      try {
        this.#read();
      } catch (error) {
        // Of a listener: an exception of its own, which loses no other message.
        process.nextTick(() => {
          throw error;
        });
      }
    }
  }

  /**
   * The first message is read in a tick, each further one in an immediate of its own: Node runs
   * ticks and then microtasks behind each, as behind each datagram by UDP.
   */
  #planFirst(): void {
    if (this.#planned > 0 || !this.#isReadable) return;
    // Sockets of one process that answer each other would never let the event loop turn.
    if (ticks === 0) setImmediate(() => (ticks = 0));
    if (++ticks > BURST) return this.#plan();
    this.#planned = 1;
    process.nextTick(this.#readPlanned);
  }

  #plan(): void {
    if (this.#planned > 0 || !this.#isReadable) return;
    this.#planned = this.#batch;
    for (let count = 0; count < this.#batch; count++) setImmediate(this.#readPlanned);
  }

  readonly #readPlanned = (): void => {
    this.#planned--;
    try {
      if (this.#isReadable) this.#read();
    } finally {
      // Also behind an exception of a listener.
      if (this.#planned === 0) {
        this.#batch = this.#isReadable ? Math.min(2 * this.#batch, BURST) : 1;
        this.#plan();
      }
    }
  };

  get hasMessage(): boolean {
    const { socket } = this;
    return socket !== undefined && socket.unread > 0 && (socket.revents & PollEvent.IN) !== 0;
  }

  get #isReadable(): boolean {
    return !this.#isDraining && this.hasMessage;
  }

  #read(): void {
    const socket = this.socket!;
    const { length, isAfterUdp } = socket.oldest!;
    if (isAfterUdp && this.#drained === 0) return this.#drain();
    if (this.#drained > 0) this.#drained--;
    // UDP carries none of that length: programs do not expect it.
    if (length > BYTES_MAX) return void socket.recvmsg([]);
    // The program owns its memory, as that of Node's messages.
    const data = Buffer.allocUnsafeSlow(length);
    this.side.came(this, data, socket.recvmsg([data]).name);
  }

  /** Datagrams that the peer sent by UDP before this message may still be in the kernel. */
  #drain(): void {
    this.#isDraining = true;
    const queued = this.socket!.unread;
    this.side.drain(() => {
      this.#isDraining = false;
      this.#drained = queued;
      this.#plan();
    });
  }
}
