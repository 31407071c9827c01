/**
 * A link over messages: any number of peers, each with its own datagram channel, identified by GID.
 * Subclasses create the channels (data-channel.ts, websocket.ts).
 */
import { EventReader, eventsFor, type EventTarget } from '../../base/event-reader.js';
import { timerMillis } from '../../base/timer.js';
import { LinkError, MisuseError } from '../../errors/errors.js';
import { ChannelPeer } from './channel-peer.js';
import { HEADER_BYTES, LENGTH_BYTES, ORDER_BYTES } from './channel-frame.js';
import type { ChannelCounters, ChannelLimits } from './channel-limits.js';
import type { DatagramChannel } from './datagram-channel.js';
import { Endpoint, type Gid } from '../endpoint.js';
import {
  PACKET_SIZE_LIMIT,
  ROCE_PORT,
  type Link,
  type LinkInfo,
  type LinkReceiver,
  type PacketBatch,
} from '../link.js';
import { nextTurn } from '../next-turn.js';

/** Kind of a change of a peer. */
export type PeerEventKind =
  /** Packets travel. */
  | 'connected'
  /** Nothing travels at the moment, and that may pass. */
  | 'interrupted'
  | 'restored'
  /** It is there no more; the address may come back with a new connection. */
  | 'disconnected';

/** A peer came, went, or came back. */
export interface PeerEvent {
  readonly kind: PeerEventKind;
  readonly peer: Endpoint;
  /** In words, of what is over. */
  readonly reason?: string;
}

/** Bytes of headers and ICRC around a payload, at most. */
const PACKET_OVERHEAD = 64;
const EVENTS_KEPT = 1024;
/** Packets to ourselves that wait for the next turn. */
const OWN_BYTES_MAX = 2 ** 20;

/** Connections of one address that are not open yet: the oldest one ends. */
const PENDING_PER_PEER = 8;
/** How long a connection may still open when another one of its peer has opened. */
const RIVAL_MILLIS = 3000;
/** Of `queueBytes`, for packets of queue pairs: acknowledgements need some as well. */
const QUEUE_SHARE = 0.75;
/** Without an answer to any of them in a row a peer is gone: 2 s on data channels. */
const PROBES = 20;
const PATH_MTUS = [256, 512, 1024, 2048, 4096];

/** Bytes of the longest packet with so much payload. Throws MisuseError. */
export function packetSizeOf(pathMtuBytes: number): number {
  if (!PATH_MTUS.includes(pathMtuBytes)) {
    throw new MisuseError('pathMtuBytes', `must be one of ${PATH_MTUS.join(', ')}`);
  }
  return pathMtuBytes + PACKET_OVERHEAD;
}

/** The longest message of a peer of ours, whatever its path MTU. */
export const RECEIVE_BYTES = PACKET_SIZE_LIMIT + HEADER_BYTES + LENGTH_BYTES + ORDER_BYTES;

export abstract class ChannelLink implements Link {
  readonly counters: ChannelCounters = {
    sent: 0,
    received: 0,
    messagesSent: 0,
    messagesReceived: 0,
    dropped: 0,
    unroutable: 0,
    paced: 0,
    refused: 0,
    malformed: 0,
    silences: 0,
  };
  readonly #name: string;
  readonly #packetSizeMax: number;
  readonly #integrity: LinkInfo['integrity'];
  readonly #limits: ChannelLimits;
  readonly #peers = new Map<string, ChannelPeer>();
  /** Channels that are not open yet. */
  readonly #pending = new Set<ChannelPeer>();
  /** Open channels of peers that have a newer one, until the peer closes them. */
  readonly #older = new Set<ChannelPeer>();
  #asking: ReturnType<typeof setTimeout> | undefined;
  #receiver: LinkReceiver | undefined;
  #info: LinkInfo | undefined;
  #opening: Promise<Gid> | undefined;
  #touched: ChannelPeer[] = [];
  #unflushed: ChannelPeer[] = [];
  #isFlushing = false;
  #isTurnDue = false;
  #own: Uint8Array[] = [];
  #ownBytes = 0;
  // Traffic mostly goes to one peer.
  #lastDestination: Endpoint | undefined;
  #lastPeer: ChannelPeer | undefined;
  readonly #events: PeerEvent[] = [];
  readonly #readers = new Set<EventTarget<PeerEvent>>();
  readonly #waiting: ((event: PeerEvent | undefined) => void)[] = [];

  protected constructor(
    name: string,
    packetSizeMax: number,
    limits: ChannelLimits,
    integrity?: LinkInfo['integrity'],
  ) {
    this.#name = name;
    this.#integrity = integrity;
    this.#packetSizeMax = packetSizeMax;
    this.#limits = limits;
  }

  /** Our address; taken until `releaseAddress`. Rejects with LinkError. */
  protected abstract takeAddress(): Promise<Gid>;
  protected abstract releaseAddress(): void;

  get info(): LinkInfo {
    if (!this.#info) throw new MisuseError('info', 'is known once the link is open');
    return this.#info;
  }

  get isOpen(): boolean {
    return this.#receiver !== undefined;
  }

  /** Connected peers. */
  get peers(): Endpoint[] {
    return [...this.#peers.values()].map(({ endpoint }) => endpoint);
  }

  async open(receiver: LinkReceiver): Promise<LinkInfo> {
    if (this.#receiver || this.#opening) {
      throw new MisuseError('open', 'the link is open already');
    }
    try {
      this.#opening = this.takeAddress();
      const local = new Endpoint(await this.#opening, ROCE_PORT);
      const { windowBytes, queueBytes } = this.#limits;
      const queueSizeMax = QUEUE_SHARE * queueBytes;
      // The engine counts as for a socket's buffer, where a packet of this size costs the double.
      const charge = 4 * windowBytes;
      this.#info = {
        name: this.#name,
        pseudoHeader: 'none',
        ...(this.#integrity && { integrity: this.#integrity }),
        local,
        packetSizeMax: this.#packetSizeMax,
        windowBytes: charge,
        receiveBufferBytes: 2 * charge,
        paced: true,
        queuePackets: Math.floor(queueSizeMax / (LENGTH_BYTES + this.#packetSizeMax)),
        // 2.1 s, and 17 s with all repetitions: what lies below may stand still for some seconds
        // while it looks for its pace again, and reports when a peer is gone.
        ackTimeout: 19,
      };
    } finally {
      this.#opening = undefined;
    }
    this.#receiver = receiver;
    return this.#info;
  }

  send(batch: PacketBatch): void {
    if (this.#receiver) {
      for (let index = 0; index < batch.count; index++) {
        this.#sendOne(batch.bytesOf(index), batch.destinationOf(index));
      }
      if (this.#unflushed.length > 0 && !this.#isFlushing) {
        // Packets sent in the same turn share messages.
        this.#isFlushing = true;
        queueMicrotask(() => this.#flushSends());
      }
    }
    batch.release();
  }

  /**
   * The next change among the peers that no call, and no loop over `peerEvents`, has seen; undefined
   * when the link is closed.
   */
  nextPeerEvent(): Promise<PeerEvent | undefined> {
    const event = this.#events.shift();
    if (event || !this.isOpen) return Promise.resolve(event);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /**
   * Changes of the peers' state from now on, until the link is closed: each loop has all of them.
   * The first has those that nothing has read, too.
   */
  peerEvents(): AsyncGenerator<PeerEvent, void, undefined> {
    const reader = new EventReader<PeerEvent>();
    reader.events.push(...this.#events.splice(0));
    const left = (): void => {
      if (this.#readers.size === 0) this.#events.push(...reader.events);
    };
    return eventsFor(this.#readers, reader, () => !this.isOpen, left);
  }

  /** Ends the connection to a peer, which is notified if the channel still works. */
  disconnect(peer: Endpoint): void {
    const found = this.#peers.get(peer.gid.toString());
    if (found) this.#remove(found, 'disconnected here');
  }

  async close(): Promise<void> {
    await this.#opening?.catch(() => undefined);
    if (!this.#receiver) return;
    this.#flushSends();
    this.#receiver = undefined;
    for (const peer of this.#all()) this.#drop(peer, 'the link was closed');
    this.#peers.clear();
    this.#pending.clear();
    this.#older.clear();
    clearTimeout(this.#asking);
    this.#own = [];
    this.releaseAddress();
    for (const resolve of this.#waiting.splice(0)) resolve(undefined);
    for (const reader of this.#readers) reader.end();
  }

  /**
   * Packets to and from this address travel by `channel` once it is open; one that it had before is
   * replaced then, and not earlier: that it opens proves whose it is. `accept` is what lets the
   * other side open it: called when the channel is known here, since the other side closes the one
   * before as soon as it is open there. Resolves when it can send. Rejects with LinkError
   * ECONNRESET (it closed before), ETIMEDOUT (it never opened), ENOSPC (as many peers as there may
   * be), EADDRINUSE (our own address), and with what `accept` rejects with.
   */
  protected addPeer(
    gid: Gid,
    channel: DatagramChannel,
    accept?: () => Promise<void>,
  ): Promise<Endpoint> {
    const key = gid.toString();
    try {
      this.checkRoom(gid);
    } catch (error) {
      channel.close();
      return Promise.reject(error as LinkError);
    }
    const known = this.#all().find((other) => other.endpoint.gid.equals(gid));
    const endpoint = known?.endpoint ?? new Endpoint(gid, ROCE_PORT);
    const peer = new ChannelPeer(endpoint, channel, this.#limits, this.counters, this.#packet);
    peer.isAnswer = accept !== undefined;
    const rivals = [...this.#pending].filter((other) => other.endpoint === endpoint);
    if (rivals.length >= PENDING_PER_PEER) {
      // Offers in the name of a peer do not end what this side has begun.
      const oldest = rivals.find(({ isAnswer }) => isAnswer) ?? rivals[0]!;
      this.#remove(oldest, 'newer ones took its place');
    }
    this.#pending.add(peer);
    return new Promise((resolve, reject) => {
      const stop = this.#limitOpening(key, peer, () => resolve(endpoint), reject);
      channel.start({
        opened: () => {
          stop();
          if (!this.#pending.delete(peer)) return;
          this.#enter(key, peer);
          resolve(endpoint);
        },
        message: (bytes, connection) => this.#message(peer, bytes, connection),
        interrupted: (isInterrupted) => {
          peer.isInterrupted = isInterrupted;
          if (this.#peers.get(key) !== peer) return;
          this.#tell({ kind: isInterrupted ? 'interrupted' : 'restored', peer: endpoint });
          if (isInterrupted) this.seekAgain(endpoint);
        },
        closed: (reason, isLost) => this.#closed(key, peer, reason, isLost),
      });
      accept?.().catch((error: LinkError) => {
        reject(error);
        this.#remove(peer, error.message);
      });
    });
  }

  /**
   * Rejects when `peer` closes, or is not open in time. It has arrived by then if another connection
   * of the same peer opened meanwhile: both sides made one at once, and the word with which the
   * other side closes one of them may be lost.
   */
  #limitOpening(
    key: string,
    peer: ChannelPeer,
    resolve: () => void,
    reject: (error: LinkError) => void,
  ): () => void {
    const { openMillis } = this.#limits;
    const { endpoint } = peer;
    let hasRival = false;
    const stop = (): void => clearTimeout(timer);
    const giveUp = (code: 'ECONNRESET' | 'ETIMEDOUT', rule: string): void => {
      stop();
      const isThere = this.channelOf(endpoint.gid) && !this.isInterrupted(endpoint);
      if (hasRival && isThere) resolve();
      else reject(new LinkError(code, rule));
    };
    const expire = (): void => {
      const seconds = openMillis / 1000;
      giveUp('ETIMEDOUT', `no working candidate pair to ${key} within ${seconds} s`);
      this.#remove(peer, 'it never opened');
    };
    let timer = setTimeout(expire, timerMillis(openMillis));
    peer.gone = (reason) =>
      giveUp('ECONNRESET', `the connection to ${key} ended before it opened: ${reason}`);
    peer.rivalled = () => {
      if (!hasRival) {
        stop();
        timer = setTimeout(expire, timerMillis(Math.min(openMillis, RIVAL_MILLIS)));
      }
      hasRival = true;
    };
    return stop;
  }

  /** Throws LinkError when there is no place for a peer of that address. */
  protected checkRoom(gid: Gid): void {
    const { peersMax } = this.#limits;
    if (!this.#receiver)
      throw new LinkError('ECONNRESET', 'connect: the link is not open; open it');
    if (this.info.local.gid.equals(gid)) {
      throw new LinkError('EADDRINUSE', `connect: ${gid} is the address of this link; use another`);
    }
    if (this.#peers.size + this.#pending.size + this.#older.size >= peersMax) {
      throw new LinkError(
        'ENOSPC',
        `peersMax: all ${peersMax} peers of the link are in use; raise it`,
      );
    }
  }

  #all(): ChannelPeer[] {
    return [...this.#peers.values(), ...this.#pending, ...this.#older];
  }

  #enter(key: string, peer: ChannelPeer): void {
    const old = this.#peers.get(key);
    this.#carryBy(key, peer);
    if (old) this.#replace(old);
    peer.isOpen = true;
    for (const other of this.#pending) if (other.endpoint === peer.endpoint) other.rivalled();
    this.#tell({ kind: old ? 'restored' : 'connected', peer: peer.endpoint });
  }

  /** Makes this channel carry all later packets to that address. */
  #carryBy(key: string, peer: ChannelPeer): void {
    this.#peers.set(key, peer);
    this.#lastDestination = undefined;
    this.#lastPeer = undefined;
  }

  /**
   * Connections may open in another order on the other side, or there may be two at once, one from
   * each. If both sides chose, each might close what the other one keeps: so the smaller address
   * does, and the larger one has them all until they are closed.
   */
  #replace(old: ChannelPeer): void {
    const isOurChoice = `${this.info.local.gid}` < `${old.endpoint.gid}`;
    if (isOurChoice || !old.isOpen) {
      this.#drop(old, 'a newer connection took its place');
      return;
    }
    this.#older.add(old);
    this.#asking ??= setTimeout(() => this.#askAll(), timerMillis(this.#limits.askMillis));
  }

  /**
   * The smaller address has one connection, and answers by that one. Which of ours it is would
   * otherwise be known by what it closes; but that word gets lost as any other, and the next one
   * comes when the network below has given up.
   */
  #askAll(): void {
    this.#asking = undefined;
    if (this.#older.size === 0) return;
    for (const older of this.#older) {
      older.ask();
      this.#peers.get(older.endpoint.gid.toString())?.ask();
    }
    this.#asking = setTimeout(() => this.#askAll(), timerMillis(this.#limits.askMillis));
  }

  /** Something came by a connection that was thought to be an older one: it is what carries. */
  #follow(older: ChannelPeer): void {
    const key = older.endpoint.gid.toString();
    const current = this.#peers.get(key)!;
    this.#older.delete(older);
    this.#older.add(current);
    this.#carryBy(key, older);
    if (current.isInterrupted && !older.isInterrupted) {
      this.#tell({ kind: 'restored', peer: older.endpoint });
    }
  }

  /** A subclass that can reach this peer may reconnect. */
  protected abstract seekAgain(peer: Endpoint): void;

  /** Is it a peer, and out of reach? */
  protected isInterrupted(peer: Endpoint): boolean {
    return this.#peers.get(peer.gid.toString())?.isInterrupted ?? false;
  }

  /** @internal A number that is another one when the peer of that address has sent something. */
  heard(id: string): number | undefined {
    return this.#peers.get(id)?.heard;
  }

  /**
   * @internal The peer may be gone: ends its connection when PROBES in a row have no answer. They
   * are repeated for as long again, since packets of a peer that is gone may still arrive. The
   * timers of an interrupted connection are its own. Without `askMillis` none is sent.
   */
  probe(id: string): void {
    const peer = this.#peers.get(id);
    const { askMillis } = this.#limits;
    // One that is probed already may have gone since: too few of its probes are left to tell.
    if (!peer || askMillis === 0) return;
    // One that is probed already may have gone since: it begins anew.
    const left = peer.probes;
    peer.probes = 2 * PROBES;
    if (left > 0) return;
    let [heard, silent] = [peer.heard, -1];
    const ask = (): void => {
      if (this.#peers.get(id) !== peer || peer.probes === 0) return;
      peer.probes--;
      const isSilent = heard === peer.heard && peer.isOpen && !peer.isInterrupted;
      silent = isSilent ? silent + 1 : 0;
      heard = peer.heard;
      if (silent === PROBES) return this.#remove(peer, 'it does not answer any more');
      peer.ask();
      setTimeout(ask, timerMillis(askMillis));
    };
    ask();
  }

  /** By what is sent to it; undefined: by nothing at the moment. */
  protected channelOf(gid: Gid): DatagramChannel | undefined {
    const peer = this.#peers.get(gid.toString());
    return peer?.isOpen ? peer.channel : undefined;
  }

  /** A peer that got lost may come back; then nothing but packets was lost. */
  #closed(key: string, peer: ChannelPeer, reason: string, isLost: boolean): void {
    const { returnMillis } = this.#limits;
    const isOfPeer = (other: ChannelPeer): boolean => other.endpoint === peer.endpoint;
    const isCurrent = this.#peers.get(key) === peer;
    const older = isCurrent ? [...this.#older].filter(isOfPeer).pop() : undefined;
    if (older) {
      this.#older.delete(older);
      this.#carryBy(key, older);
      this.#drop(peer, reason);
      if (peer.isInterrupted && !older.isInterrupted) {
        this.#tell({ kind: 'restored', peer: older.endpoint });
      }
      return;
    }
    // The other side drops the old connection as soon as the new one is open there.
    const isReplaced = [...this.#pending].some(isOfPeer);
    if (!isCurrent || !(isLost || isReplaced) || returnMillis === 0) {
      this.#remove(peer, reason);
      return;
    }
    peer.stop();
    if (!peer.isInterrupted) this.#tell({ kind: 'interrupted', peer: peer.endpoint, reason });
    peer.isInterrupted = true;
    const timer = setTimeout(() => this.#remove(peer, reason), timerMillis(returnMillis));
    peer.gone = () => clearTimeout(timer);
    this.seekAgain(peer.endpoint);
  }

  #sendOne(bytes: Uint8Array, destination: Endpoint): void {
    const peer = this.#find(destination);
    if (!peer) {
      this.#sendToOurselves(bytes, destination);
      return;
    }
    peer.add(bytes);
    if (!this.#unflushed.includes(peer)) this.#unflushed.push(peer);
  }

  #find(destination: Endpoint): ChannelPeer | undefined {
    if (destination !== this.#lastDestination) {
      this.#lastDestination = destination;
      this.#lastPeer =
        destination.port === ROCE_PORT ? this.#peers.get(destination.gid.toString()) : undefined;
    }
    return this.#lastPeer;
  }

  #sendToOurselves(bytes: Uint8Array, destination: Endpoint): void {
    const isOurs = destination.equals(this.info.local) && bytes.length <= this.#packetSizeMax;
    if (!isOurs || this.#ownBytes + bytes.length > OWN_BYTES_MAX) {
      if (isOurs) this.counters.dropped++;
      else this.counters.unroutable++;
      return;
    }
    this.#own.push(Uint8Array.from(bytes));
    this.#ownBytes += bytes.length;
    this.#scheduleTurn();
  }

  #flushSends(): void {
    this.#isFlushing = false;
    for (const peer of this.#unflushed.splice(0)) peer.flush();
  }

  #message(peer: ChannelPeer, bytes: Uint8Array, connection?: DatagramChannel): void {
    if (!this.#receiver || !peer.isOpen) return;
    if (this.#older.has(peer)) this.#follow(peer);
    peer.heard++;
    if (!peer.isTouched) {
      peer.isTouched = true;
      this.#touched.push(peer);
    }
    this.#scheduleTurn();
    peer.receive(bytes, connection);
  }

  readonly #packet = (bytes: Uint8Array, { endpoint }: ChannelPeer): void => {
    // The packet before may have closed the link.
    if (!this.#receiver) return;
    // It may have waited for one before it.
    this.#scheduleTurn();
    this.counters.received++;
    this.#receiver.packet(bytes, endpoint);
  };

  #scheduleTurn(): void {
    if (this.#isTurnDue) return;
    this.#isTurnDue = true;
    nextTurn(() => this.#turn());
  }

  /** Processes all messages since the last turn together; one message carries all answers. */
  #turn(): void {
    this.#isTurnDue = false;
    const touched = this.#touched;
    this.#touched = [];
    for (const peer of touched) peer.isTouched = false;
    const own = this.#own;
    this.#own = [];
    this.#ownBytes = 0;
    for (const bytes of own) {
      this.counters.received++;
      this.#receiver?.packet(bytes, this.info.local);
    }
    this.#receiver?.flush();
    this.#flushSends();
    for (const peer of touched) peer.acknowledge();
  }

  #remove(peer: ChannelPeer, reason: string): void {
    const key = peer.endpoint.gid.toString();
    const isCurrent = this.#peers.get(key) === peer;
    if (!isCurrent && !this.#pending.delete(peer) && !this.#older.delete(peer)) return;
    this.#drop(peer, reason);
    if (!isCurrent) return;
    this.#peers.delete(key);
    for (const older of this.#older) {
      if (older.endpoint !== peer.endpoint) continue;
      this.#older.delete(older);
      this.#drop(older, reason);
    }
    this.#tell({ kind: 'disconnected', peer: peer.endpoint, reason });
    this.#receiver?.peerGone?.(peer.endpoint, reason);
  }

  #drop(peer: ChannelPeer, reason: string): void {
    peer.stop();
    peer.channel.close();
    peer.gone(reason);
    this.#lastDestination = undefined;
    this.#lastPeer = undefined;
  }

  #tell(event: PeerEvent): void {
    for (const reader of this.#readers) reader.push(event);
    const resolve = this.#waiting.shift();
    if (resolve) return resolve(event);
    if (this.#readers.size > 0) return;
    this.#events.push(event);
    if (this.#events.length > EVENTS_KEPT) this.#events.shift();
  }
}
