/** What stands beside a UDP socket: RDS sockets of the same port at the nodes of its addresses. */
import { localAddressTowards } from '../link/interface.js';
import { MessageFlag, PollEvent, SOL_SOCKET, SocketOption } from '../rds/wire/constants.js';
import type { RdsSocket } from '../rds/socket/socket.js';
import { localAddresses } from './addresses.js';
import { Outbox, type Addressed, type OutboxUser } from './outbox.js';
import type { RdpSettings } from './settings.js';
import { LocalNode, type Outcome } from './local-node.js';

export interface ReliableUser extends Omit<OutboxUser, 'attempt' | 'unresolved'> {
  received(data: Buffer, address: string, port: number): void;
}

export interface LocalAddress {
  readonly address: string;
  readonly port: number;
  readonly type: 'udp4' | 'udp6';
  readonly isIpv6Only: boolean;
  /** Node bound the socket for a send: no peer can know its port yet. */
  readonly isImplicit: boolean;
}

/** Datagrams that are handed on in one turn of the event loop. */
const BURST = 128;
/** Peers whose way out is remembered. */
const WAYS_MAX = 1024;

/** Bytes of SO_RCVBUF for a small datagram: the kernel doubles the value and counts 768. */
const BYTES_A_MESSAGE = 384;

/** UDP's SO_RCVBUF counts bytes, RDP's messages: as many as UDP would keep small datagrams. */
function messagesOf(receiveBytes: number): number {
  return Math.ceil(receiveBytes / BYTES_A_MESSAGE);
}

/** A node of this process, and a socket at it. */
interface Place {
  readonly localNode: LocalNode;
  readonly socket: RdsSocket;
}

export class ReliableSide {
  readonly outbox: Outbox;
  readonly #user: ReliableUser;
  readonly #places = new Map<string, Promise<Place | undefined>>();
  readonly #open = new Set<Place>();
  /** Of a wildcard socket: which place leads to a peer. null: none does. */
  readonly #ways = new Map<string, Place | null | undefined>();
  /** Of a socket that is bound to one address. */
  #only: Place | null | undefined;
  #port = 0;
  #isWildcard = false;
  #isClosed = false;
  #receiveBytes = 0;
  #sendBytes = 0;
  readonly #wake = (): void => queueMicrotask(() => this.outbox.flush());

  constructor(user: ReliableUser, settings: RdpSettings) {
    this.#user = user;
    this.outbox = new Outbox(
      {
        attempt: (datagram) => this.#attempt(datagram),
        taken: (datagram) => user.taken(datagram),
        plain: (datagram) => user.plain(datagram),
        failed: (datagram, code) => user.failed(datagram, code),
        unresolved: (address) => this.#localNode(address)?.absent(address),
        emptied: () => user.emptied(),
      },
      settings,
    );
  }

  /** The UDP socket is bound here. */
  async bind({ address, port, type, isIpv6Only, isImplicit }: LocalAddress): Promise<void> {
    this.#port = port;
    this.#isWildcard = address === '0.0.0.0' || address === '::';
    if (this.#isWildcard) {
      const addresses = isImplicit ? [] : localAddresses(type, isIpv6Only);
      await Promise.all(addresses.map((each) => this.#place(each)));
    } else {
      this.#only = (await this.#place(address)) ?? null;
    }
  }

  /** Sends, or keeps, or says that it goes by UDP. */
  send(datagram: Addressed): void {
    const { outbox } = this;
    if (!outbox.isBehind(datagram)) {
      const outcome = this.#attempt(datagram);
      if (outcome === 'taken') return this.#user.taken(datagram);
      if (outcome === 'plain') return this.#user.plain(datagram);
    }
    if (!outbox.add(datagram)) this.#user.failed(datagram, 'ENOBUFS');
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
    for (const { socket } of this.#open) this.#setBuffers(socket);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const place of this.#open) this.#leave(place);
    this.#open.clear();
  }

  #attempt({ address, port, pieces }: Addressed): Outcome {
    const place = this.#isWildcard ? this.#way(address) : this.#only;
    if (place === undefined) return 'resolving';
    if (place === null) return 'plain';
    return place.localNode.send(place.socket, address, port, pieces);
  }

  #localNode(address: string): LocalNode | undefined {
    return (this.#isWildcard ? this.#ways.get(address) : this.#only)?.localNode;
  }

  #way(peer: string): Place | null | undefined {
    if (this.#ways.has(peer)) return this.#ways.get(peer);
    const [oldest] = this.#ways.keys();
    if (this.#ways.size >= WAYS_MAX) this.#ways.delete(oldest!);
    this.#ways.set(peer, undefined);
    void (async () => {
      let place: Place | undefined;
      try {
        place = await this.#place(await localAddressTowards(peer));
      } catch {
        // UDP says what is wrong with it.
      }
      this.#ways.set(peer, place ?? null);
      this.#wake();
    })();
    return undefined;
  }

  #place(address: string): Promise<Place | undefined> {
    let place = this.#places.get(address);
    if (!place) {
      place = this.#enter(address);
      this.#places.set(address, place);
    }
    return place;
  }

  async #enter(address: string): Promise<Place | undefined> {
    const localNode = await LocalNode.acquire(address);
    if (!localNode) return undefined;
    const socket = this.#isClosed ? undefined : localNode.bind(this.#port);
    if (!socket) {
      localNode.release();
      return undefined;
    }
    const place: Place = { localNode, socket };
    socket.listener = { readable: () => this.#read(place), writable: this.#wake };
    localNode.waiting.add(this.#wake);
    this.#open.add(place);
    this.#setBuffers(socket);
    return place;
  }

  #leave({ localNode, socket }: Place): void {
    localNode.waiting.delete(this.#wake);
    socket.close();
    localNode.release();
  }

  #setBuffers(socket: RdsSocket): void {
    const { SO_RCVBUF, SO_SNDBUF } = SocketOption;
    const messages = messagesOf(this.#receiveBytes);
    if (messages > 0) socket.setsockopt(SOL_SOCKET, SO_RCVBUF, messages);
    if (this.#sendBytes > 0) socket.setsockopt(SOL_SOCKET, SO_SNDBUF, this.#sendBytes);
  }

  #read(place: Place): void {
    const { localNode, socket } = place;
    let count = 0;
    try {
      for (; count < BURST && (socket.revents & PollEvent.IN) !== 0; count++) {
        const { length } = socket.recvmsg([], MessageFlag.PEEK);
        // Its memory is its own, as that of Node's messages is.
        const data = Buffer.allocUnsafeSlow(length);
        const { address, port, udpPort } = socket.recvmsg([data]).name;
        localNode.came(address, port, udpPort);
        this.#user.received(data, address, port);
      }
    } finally {
      // Also when a listener threw: the rest is not its fault.
      if ((socket.revents & PollEvent.IN) !== 0) setImmediate(() => this.#read(place));
    }
  }
}
