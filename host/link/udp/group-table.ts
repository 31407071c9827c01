/**
 * The multicast groups of a `UdpBatchLink`, in the engine's memory: any thread of the process joins
 * and leaves, the thread that has opened the link receives, and closes what was left.
 * ```
 *  0                        64
 *  | joined, unused | state, descriptor, GID, unused | ...
 * ```
 */
import { LinkError } from '../../errors/errors.js';
import { Gid } from '../endpoint.js';
import { PACKET_SIZE_LIMIT, type LinkReceiver } from '../link.js';
import type { Posix } from '../posix.js';
import { leaveGroup, openGroupSocket, type GroupPlace } from './group-socket.js';
import { SOCKADDR_IN6_BYTES } from './message-header.js';
import { SourceCache } from './source-cache.js';

/** Groups of a link, each with a descriptor. */
export const GROUPS_MAX = 64;
const HEADER_WORDS = 16;
const LEAVING = 1;
const ENTRY_WORDS = 8;
const FREE = 0;
const JOINED = 1;
/** Its socket is to be closed. */
const LEFT = 2;
/** A thread is joining. */
const TAKEN = 3;
const DESCRIPTOR = 1;
const GID = 2;
/** Longest wait for the owner to close the socket of a group that was left. */
const ROOM_MILLIS = 1000;
/** Of one group, before the packets of others have their turn. */
const PACKETS_MAX = 16;

/** State of a link's groups that the threads of a process share. */
export interface GroupShare {
  /** An epoll set of their sockets. */
  readonly set: number;
  /** Address of the table. */
  readonly address: number;
}

export class GroupTable {
  static readonly BYTES = 4 * (HEADER_WORDS + GROUPS_MAX * ENTRY_WORDS);
  readonly #posix: Posix;
  readonly #words: Int32Array;
  readonly #bytes: Uint8Array;
  readonly #at: number;
  readonly #set: number;
  readonly #bufferBytes: number;
  readonly #sources: SourceCache;
  /** One byte more than the longest packet: a longer datagram is known by it. */
  readonly #packet = new Uint8Array(PACKET_SIZE_LIMIT + 1);
  readonly #sender = new Uint8Array(SOCKADDR_IN6_BYTES);
  readonly #senderWords = new Uint32Array(this.#sender.buffer);

  constructor(
    posix: Posix,
    buffer: ArrayBufferLike,
    { set, address }: GroupShare,
    isIpv4: boolean,
    bufferBytes: number,
  ) {
    this.#posix = posix;
    this.#words = new Int32Array(buffer);
    this.#bytes = new Uint8Array(buffer);
    this.#at = address >>> 2;
    this.#set = set;
    this.#bufferBytes = bufferBytes;
    this.#sources = new SourceCache(isIpv4);
  }

  /** Are there sockets to look at? */
  get isUsed(): boolean {
    return Atomics.load(this.#words, this.#at) > 0;
  }

  /** Are there sockets to close, though nothing has arrived? */
  get hasLeft(): boolean {
    return Atomics.load(this.#words, this.#at + LEAVING) > 0;
  }

  /**
   * Before `join`: a place whose group was left is free again, by the owner at once; other threads
   * wait until the owner has looked, which `wake` makes it do.
   */
  makeRoom(isOwner: boolean, wake: () => void): void {
    const left = Atomics.load(this.#words, this.#at + LEAVING);
    if (left === 0) return;
    if (isOwner) return this.#closeLeft();
    if (this.#find(FREE) >= 0) return;
    wake();
    Atomics.wait(this.#words, this.#at + LEAVING, left, ROOM_MILLIS);
  }

  #closeLeft(): void {
    for (const at of this.#entries()) {
      if (Atomics.load(this.#words, at) === LEFT) this.#close(at);
    }
  }

  /** Throws LinkError. */
  join(group: Gid, place: GroupPlace): void {
    // Another thread may join at the same time.
    let at = this.#find(FREE);
    while (at >= 0 && Atomics.compareExchange(this.#words, at, FREE, TAKEN) !== FREE) {
      at = this.#find(FREE);
    }
    if (at < 0) {
      const remedy = 'detach from one of them';
      throw new LinkError('ENOMEM', `join: a link has at most ${GROUPS_MAX} groups; ${remedy}`);
    }
    let fd = -1;
    try {
      fd = openGroupSocket(this.#posix, group, place, this.#bufferBytes);
      this.#posix.addToSet(this.#set, fd);
    } catch (error) {
      if (fd >= 0) this.#posix.close(fd);
      Atomics.store(this.#words, at, FREE);
      throw error;
    }
    this.#words[at + DESCRIPTOR] = fd;
    this.#bytes.set(group.bytes, (at + GID) << 2);
    Atomics.store(this.#words, at, JOINED);
    Atomics.add(this.#words, this.#at, 1);
  }

  /** The owner's next `receive` closes the socket. False: it was not joined. */
  leave(group: Gid, place: GroupPlace): boolean {
    const at = this.#find(JOINED, group);
    if (at < 0 || Atomics.compareExchange(this.#words, at, JOINED, TAKEN) !== JOINED) return false;
    leaveGroup(this.#posix, this.#words[at + DESCRIPTOR]!, group, place);
    Atomics.store(this.#words, at, LEFT);
    Atomics.add(this.#words, this.#at + LEAVING, 1);
    return true;
  }

  /**
   * Opens sockets for all groups at another address. Throws LinkError: then nothing has changed.
   * The function that it returns puts them in place of the former ones.
   */
  move(place: GroupPlace): () => void {
    const made: { readonly fd: number; readonly by: number }[] = [];
    try {
      for (const at of this.#entries()) {
        if (Atomics.load(this.#words, at) !== JOINED) continue;
        const by = openGroupSocket(this.#posix, this.#gidOf(at), place, this.#bufferBytes);
        made.push({ fd: this.#words[at + DESCRIPTOR]!, by });
      }
    } catch (error) {
      for (const { by } of made) this.#posix.close(by);
      throw error;
    }
    return () => {
      for (const { fd, by } of made) {
        this.#posix.removeFromSet(this.#set, fd);
        this.#posix.replace(fd, by);
        this.#posix.addToSet(this.#set, fd);
      }
    };
  }

  /** For the owner: hands on what has arrived. Returns how many packets. */
  receive(receiver: LinkReceiver): number {
    let packets = 0;
    for (const at of this.#entries()) {
      const state = Atomics.load(this.#words, at);
      if (state === LEFT) this.#close(at);
      else if (state === JOINED) packets += this.#receiveOf(at, receiver);
    }
    return packets;
  }

  /** For the owner: leaves all groups. */
  close(): void {
    for (const at of this.#entries()) {
      const state = Atomics.load(this.#words, at);
      if (state === JOINED || state === LEFT) this.#close(at);
    }
  }

  #receiveOf(at: number, receiver: LinkReceiver): number {
    const fd = this.#words[at + DESCRIPTOR]!;
    const group = this.#gidOf(at);
    let packets = 0;
    while (packets < PACKETS_MAX) {
      const length = this.#posix.receiveFrom(fd, this.#packet, this.#sender);
      if (length < 0) break;
      packets++;
      if (length > PACKET_SIZE_LIMIT) continue;
      const source = this.#sources.intern(this.#senderWords, 0);
      receiver.packet(this.#packet.subarray(0, length), source, group);
    }
    return packets;
  }

  #close(at: number): void {
    const fd = this.#words[at + DESCRIPTOR]!;
    this.#posix.removeFromSet(this.#set, fd);
    this.#posix.close(fd);
    Atomics.sub(this.#words, this.#at, 1);
    if (Atomics.exchange(this.#words, at, FREE) !== LEFT) return;
    Atomics.sub(this.#words, this.#at + LEAVING, 1);
    Atomics.notify(this.#words, this.#at + LEAVING);
  }

  #find(state: number, group?: Gid): number {
    for (const at of this.#entries()) {
      if (Atomics.load(this.#words, at) !== state) continue;
      if (!group || this.#gidOf(at).equals(group)) return at;
    }
    return -1;
  }

  #gidOf(at: number): Gid {
    const start = (at + GID) << 2;
    return new Gid(this.#bytes.slice(start, start + 16));
  }

  *#entries(): Generator<number> {
    const first = this.#at + HEADER_WORDS;
    for (let index = 0; index < GROUPS_MAX; index++) yield first + index * ENTRY_WORDS;
  }
}
