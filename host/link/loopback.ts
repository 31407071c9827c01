/**
 * Links inside one process. A `LoopbackNetwork` is the wire between any number of them: `send`
 * queues, `deliver` hands over what was queued when it began. Nothing is lost or re-ordered, so
 * with `auto: false` a run is a pure function of the calls made.
 */
import { checkKeys } from '../base/options.js';
import { LinkError, MisuseError } from '../errors/errors.js';
import { Endpoint, type Gid } from './endpoint.js';
import {
  PACKET_SIZE_LIMIT,
  ROCE_PORT,
  type Link,
  type LinkInfo,
  type LinkReceiver,
  type PacketBatch,
} from './link.js';
import { nextTurn } from './next-turn.js';

/** Options of a loopback network. */
export interface LoopbackOptions {
  /** Deliver in the next turn whenever something is queued. Default true; false: by hand. */
  auto?: boolean;
  /** Longest packet in bytes, BTH to ICRC. Default 4160: a path MTU of 4096. */
  packetSizeMax?: number;
  /** Bytes under way to one peer. Default 4 MiB: packets wait in the sender's own memory. */
  windowBytes?: number;
}

/** Packet counts of a network. */
export interface LoopbackCounters {
  delivered: number;
  /** No link had the address, or one of the two links closed before the delivery. */
  dropped: number;
}

/** Where port 0 starts looking for a free one. */
const FIRST_FREE_PORT = 49152;

/** A network in memory: any number of links that reach each other. */
export class LoopbackNetwork {
  readonly counters: LoopbackCounters = { delivered: 0, dropped: 0 };
  /** Rises with each open and close: a cached link of an address is looked up again. */
  version = 0;
  readonly #options: Required<LoopbackOptions>;
  readonly #links = new Map<string, LoopbackLink>();
  readonly #groups = new Map<string, Set<LoopbackLink>>();
  #queue: Queued[] = [];
  #touched: LoopbackLink[] = [];
  #delivering = false;
  #scheduled = false;

  constructor(options: LoopbackOptions = {}) {
    checkKeys('LoopbackNetwork', options, 'auto packetSizeMax windowBytes');
    this.#options = {
      auto: options.auto ?? true,
      packetSizeMax: options.packetSizeMax ?? PACKET_SIZE_LIMIT,
      windowBytes: options.windowBytes ?? 4 * 2 ** 20,
    };
  }

  /** A closed link. `endpoint.port` 0 takes any free port of that address at `open`. */
  link(endpoint: Endpoint): Link {
    return new LoopbackLink(this, endpoint, this.#options);
  }

  /**
   * Delivers every batch that was queued when the call began, then flushes each receiver that
   * got something, once. What receivers send meanwhile waits for the next call. Returns the
   * number of packets delivered. A receiver that throws does not keep the others' packets back:
   * its error is thrown at the end.
   */
  deliver(): number {
    if (this.#delivering)
      throw new MisuseError('deliver', 'is not valid during a delivery: return first');
    const batches = this.#queue;
    this.#queue = [];
    this.#delivering = true;
    const errors: unknown[] = [];
    let count = 0;
    try {
      for (const { batch, from } of batches) {
        try {
          count += this.#deliverBatch(batch, from);
        } catch (error) {
          errors.push(error);
        }
        batch.release();
      }
      for (const link of this.#touched) {
        link.touched = false;
        try {
          link.receiver?.flush();
        } catch (error) {
          errors.push(error);
        }
      }
    } finally {
      this.#touched = [];
      this.#delivering = false;
    }
    this.counters.delivered += count;
    if (errors.length > 0) throw errors[0];
    return count;
  }

  /** Gives `link` its address. Returns it, with the port that port 0 became. */
  attach(link: LoopbackLink, wanted: Endpoint): Endpoint {
    let local = wanted;
    if (wanted.port === 0) {
      let port = FIRST_FREE_PORT;
      while (this.#links.has(new Endpoint(wanted.gid, port).toString())) port++;
      local = new Endpoint(wanted.gid, port);
    }
    const key = local.toString();
    if (this.#links.has(key)) {
      throw new LinkError(
        'EADDRINUSE',
        `${key} is taken by another link of this network; choose another`,
      );
    }
    this.#links.set(key, link);
    this.version++;
    return local;
  }

  /** Takes the address back and releases what `link` still had queued. */
  detach(link: LoopbackLink, local: Endpoint): void {
    this.#links.delete(local.toString());
    for (const members of this.#groups.values()) members.delete(link);
    this.version++;
    const lost = this.#queue.filter(({ from }) => from === link);
    if (lost.length === 0) return;
    this.#queue = this.#queue.filter(({ from }) => from !== link);
    for (const { batch } of lost) {
      this.counters.dropped += batch.count;
      batch.release();
    }
  }

  /** Links that joined a multicast group, by the group's text. */
  members(group: Gid): ReadonlySet<LoopbackLink> | undefined {
    return this.#groups.get(group.toString());
  }

  joinGroup(link: LoopbackLink, group: Gid): void {
    const key = group.toString();
    const members = this.#groups.get(key) ?? new Set<LoopbackLink>();
    this.#groups.set(key, members.add(link));
  }

  leaveGroup(link: LoopbackLink, group: Gid): void {
    this.#groups.get(group.toString())?.delete(link);
  }

  enqueue(batch: PacketBatch, from: LoopbackLink): void {
    this.#queue.push({ batch, from });
    if (this.#options.auto) this.#schedule();
  }

  find(endpoint: Endpoint): LoopbackLink | undefined {
    return this.#links.get(endpoint.toString());
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    nextTurn(() => {
      this.#scheduled = false;
      try {
        this.deliver();
      } finally {
        // After an exception as well: what is queued must not wait for the next send.
        if (this.#queue.length > 0) this.#schedule();
      }
    });
  }

  #deliverBatch(batch: PacketBatch, from: LoopbackLink): number {
    const source = from.info.local;
    const first = batch.destinationOf(0);
    let same = 1;
    while (same < batch.count && batch.destinationOf(same) === first) same++;
    if (same === batch.count && !first.gid.isMulticast) {
      const to = from.peer(first);
      const receiver = to?.receiver;
      if (receiver?.packets && from.receiver) {
        this.#touch(to!);
        receiver.packets(batch, source);
        return batch.count;
      }
    }
    let count = 0;
    for (let index = 0; index < batch.count; index++) {
      const { gid } = batch.destinationOf(index);
      if (gid.isMulticast) {
        count += this.#multicast(batch.bytesOf(index), from, gid);
        continue;
      }
      const to = from.peer(batch.destinationOf(index));
      // Either link may have been closed by the packet before.
      if (to?.receiver && from.receiver) {
        this.#touch(to);
        to.receiver.packet(batch.bytesOf(index), source);
        count++;
      } else {
        this.counters.dropped++;
      }
    }
    return count;
  }

  #multicast(bytes: Uint8Array, from: LoopbackLink, group: Gid): number {
    let count = 0;
    for (const to of this.members(group) ?? []) {
      if (!to.receiver) continue;
      this.#touch(to);
      to.receiver.packet(bytes, from.info.local, group);
      count++;
    }
    if (count === 0) this.counters.dropped++;
    return count;
  }

  #touch(link: LoopbackLink): void {
    if (link.touched) return;
    link.touched = true;
    this.#touched.push(link);
  }
}

interface Queued {
  readonly batch: PacketBatch;
  readonly from: LoopbackLink;
}

/** One end. Made by `LoopbackNetwork.link`. */
class LoopbackLink implements Link {
  /** There is one while the link is open. */
  receiver: LinkReceiver | undefined;
  /** Got something in the running delivery. */
  touched = false;
  readonly #network: LoopbackNetwork;
  readonly #wanted: Endpoint;
  readonly #options: Required<LoopbackOptions>;
  #info: LinkInfo | undefined;
  // Traffic mostly goes to one peer: the last one found, and the network's version at that time.
  #lastDestination: Endpoint | undefined;
  #lastPeer: LoopbackLink | undefined;
  #lastVersion = -1;

  constructor(network: LoopbackNetwork, wanted: Endpoint, options: Required<LoopbackOptions>) {
    this.#network = network;
    this.#wanted = wanted;
    this.#options = options;
  }

  get info(): LinkInfo {
    if (!this.#info) throw new MisuseError('info', 'is known once the link is open');
    return this.#info;
  }

  async open(receiver: LinkReceiver): Promise<LinkInfo> {
    if (this.receiver) throw new MisuseError('open', 'the link is open already');
    this.#info = {
      name: 'loopback',
      pseudoHeader: 'none',
      integrity: 'link',
      local: this.#network.attach(this, this.#wanted),
      packetSizeMax: this.#options.packetSizeMax,
      windowBytes: this.#options.windowBytes,
      receiveBufferBytes: 2 * this.#options.windowBytes,
      multicast: true,
    };
    this.receiver = receiver;
    return this.#info;
  }

  send(batch: PacketBatch): void {
    if (this.receiver) this.#network.enqueue(batch, this);
    else batch.release();
  }

  join(group: Gid): void {
    this.#network.joinGroup(this, group);
  }

  leave(group: Gid): void {
    this.#network.leaveGroup(this, group);
  }

  async close(): Promise<void> {
    if (!this.receiver) return;
    this.receiver = undefined;
    this.#network.detach(this, this.info.local);
  }

  /** The link with this address, or undefined. */
  peer(destination: Endpoint): LoopbackLink | undefined {
    if (destination !== this.#lastDestination || this.#lastVersion !== this.#network.version) {
      this.#lastDestination = destination;
      this.#lastPeer = this.#network.find(destination);
      this.#lastVersion = this.#network.version;
    }
    return this.#lastPeer;
  }
}

/** Two closed links, 127.0.0.1:4791 and 127.0.0.2:4791, on a network of their own. */
export function createLoopbackPair(options: LoopbackOptions = {}): {
  network: LoopbackNetwork;
  a: Link;
  b: Link;
} {
  const network = new LoopbackNetwork(options);
  return {
    network,
    a: network.link(Endpoint.parse('127.0.0.1', ROCE_PORT)),
    b: network.link(Endpoint.parse('127.0.0.2', ROCE_PORT)),
  };
}
