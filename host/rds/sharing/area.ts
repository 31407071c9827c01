/**
 * The message queues between one process's sockets and the owner of the node, in shared memory:
 * entries, the bytes of messages, and rings of records of what has changed. The process allocates
 * the sends and the owner the receives; each side frees what it allocated, and the other side only
 * changes the state of an entry. Every field that another process wrote is checked when it is read.
 */
import { HEADER_BYTES, MESSAGE_BYTES_MAX } from '../wire/constants.js';
import { indicesOf, layoutOf } from '../../engine/struct.js';
import { copyBytes } from '../../link/copy-bytes.js';
import { Endpoint, Gid } from '../../link/endpoint.js';
import type { After } from '../wire/header.js';
import { RecordRing, RING_BYTES } from './record-ring.js';

export enum SendState {
  FREE,
  /** To be sent. */
  QUEUED,
  /** Has its number on a connection, and may be under way. */
  NUMBERED,
  /** The peer has it. */
  DONE,
  LOST,
}

export enum ReceiveState {
  FREE,
  FULL,
}

const SENDS = 512;
const RECEIVES = 1024;
const EntryLayout = layoutOf(
  {
    /** A SendState or ReceiveState. */
    state: 'i32',
    port: 'i32',
    gid0: 'u64',
    gid1: 'u64',
    udpPort: 'i32',
    peerPort: 'i32',
    /** Of the message, in the memory of all of them. */
    offset: 'i32',
    length: 'i32',
    order: 'i64',
    sequence: 'i64',
    connection: 'i32',
    afterConnection: 'i32',
    afterSequence: 'i64',
  },
  80,
);
const ENTRY_BYTES = EntryLayout.size;
const WORD = indicesOf(EntryLayout);
const NUMBER = indicesOf(EntryLayout, 8);
const [GID] = EntryLayout.fields.gid0;
const GID_BYTES = 16;
const SEND_BYTES = 2 * MESSAGE_BYTES_MAX;
const RECEIVE_BYTES = 4 * MESSAGE_BYTES_MAX;
const RECEIVES_AT = SENDS * ENTRY_BYTES;
const SEND_BYTES_AT = (SENDS + RECEIVES) * ENTRY_BYTES;
const RECEIVE_BYTES_AT = SEND_BYTES_AT + SEND_BYTES;
const RINGS_AT = RECEIVE_BYTES_AT + RECEIVE_BYTES;
export const AREA_BYTES = RINGS_AT + 2 * RING_BYTES;

/** Connection of a message from one socket of the node to another: `sequence` says whose it was. */
export const LOCAL_CONNECTION = 3;
const NO_CONNECTION = 255;

const SLOT_SHIFT = 2 ** 40;

/** Sequence of a message within the node: encodes the slot of its sender and its order. */
export function sequenceHere(slot: number, order: number): number {
  return slot * SLOT_SHIFT + order;
}

export function senderHere(sequence: number): [slot: number, order: number] {
  return [Math.floor(sequence / SLOT_SHIFT), sequence % SLOT_SHIFT];
}

/** The header of an entry. */
export interface Entry {
  /** Port of the process's socket. */
  readonly port: number;
  readonly peer: Endpoint;
  readonly peerPort: number;
  /** Increases with each entry. */
  readonly order: number;
  readonly sequence: number;
  readonly connectionIndex: number;
  readonly after: After | undefined;
  /** The message; a receive has room for a header in front. */
  readonly bytes: Uint8Array;
}

export class Area {
  readonly sends: Entries;
  readonly receives: Entries;
  /** Records to the owner of the node, and from it (ipc-channel.ts). */
  readonly toOwner: RecordRing;
  readonly fromOwner: RecordRing;

  /** `memory`: AREA_BYTES of the device's memory. */
  constructor(readonly memory: Uint8Array) {
    const part = (at: number, length: number): Uint8Array => memory.subarray(at, at + length);
    this.sends = new Entries(part(0, RECEIVES_AT), part(SEND_BYTES_AT, SEND_BYTES), 0);
    this.receives = new Entries(
      part(RECEIVES_AT, RECEIVES * ENTRY_BYTES),
      part(RECEIVE_BYTES_AT, RECEIVE_BYTES),
      HEADER_BYTES,
    );
    this.toOwner = new RecordRing(part(RINGS_AT, RING_BYTES));
    this.fromOwner = new RecordRing(part(RINGS_AT + RING_BYTES, RING_BYTES));
  }
}

export type Fresh = Omit<Entry, 'bytes' | 'order' | 'after'>;

/** Entries of one kind, and the memory of their messages. */
export class Entries {
  readonly count: number;
  readonly #words: Int32Array;
  readonly #numbers: BigInt64Array;
  readonly #bytes: Uint8Array;
  readonly #gids: Uint8Array;
  /** Bytes free in front of each message. */
  readonly #headroom: number;
  #places: Places | undefined;
  #free: number[] = [];
  /** Allocations in use, as their allocator wrote them. */
  readonly #taken = new Map<number, [offset: number, length: number]>();
  #order = 0;
  #lastPeer: Endpoint | undefined;

  constructor(entries: Uint8Array, bytes: Uint8Array, headroom: number) {
    this.count = entries.length / ENTRY_BYTES;
    this.#words = new Int32Array(entries.buffer, entries.byteOffset, entries.length / 4);
    this.#numbers = new BigInt64Array(entries.buffer, entries.byteOffset, entries.length / 8);
    this.#gids = entries;
    this.#bytes = bytes;
    this.#headroom = headroom;
  }

  /** Makes this process the allocator; entries in use stay allocated. */
  own(): void {
    const places = new Places(this.#bytes.length);
    this.#free = [];
    this.#taken.clear();
    for (let index = this.count - 1; index >= 0; index--) {
      const entry = this.state(index) === 0 ? undefined : this.read(index);
      if (entry && places.reserve(...this.#range(index))) {
        this.#order = Math.max(this.#order, entry.order);
        this.#taken.set(index, this.#range(index));
      } else {
        // No correct writer stores this value.
        this.#store(index, 0);
        this.#free.push(index);
      }
    }
    this.#places = places;
  }

  /** Fill level of the message memory or of the entries, whichever is higher: 0 to 1. */
  get crowd(): number {
    const bytes = this.#places?.used ?? 0;
    return Math.max(bytes / this.#bytes.length, 1 - this.#free.length / this.count);
  }

  /** Allocates and writes an entry, except its state; undefined if the area is full. */
  put(fresh: Fresh, pieces: readonly Uint8Array[], length: number): number | undefined {
    const bytes = this.#headroom + length;
    const offset = this.#free.length > 0 ? this.#places?.take(bytes) : undefined;
    if (offset === undefined) return undefined;
    const index = this.#free.pop()!;
    this.#taken.set(index, [offset, bytes]);
    const at = (index * ENTRY_BYTES) / 4;
    this.#words[at + WORD.port] = fresh.port;
    this.#gids.set(fresh.peer.gid.bytes, index * ENTRY_BYTES + GID);
    this.#words[at + WORD.udpPort] = fresh.peer.port;
    this.#words[at + WORD.peerPort] = fresh.peerPort;
    this.#words[at + WORD.offset] = offset;
    this.#words[at + WORD.length] = length;
    this.#numbers[at / 2 + NUMBER.order] = BigInt(++this.#order);
    this.number(index, fresh.connectionIndex, fresh.sequence, undefined);
    let to = offset + this.#headroom;
    for (const piece of pieces) {
      copyBytes(this.#bytes, piece, to);
      to += piece.length;
    }
    return index;
  }

  /** Stores the entry's sequence number on a connection, and its predecessor. */
  number(index: number, connectionIndex: number, sequence: number, after: After | undefined): void {
    const at = (index * ENTRY_BYTES) / 4;
    this.#numbers[at / 2 + NUMBER.sequence] = BigInt(sequence);
    this.#words[at + WORD.connection] = connectionIndex;
    this.#words[at + WORD.afterConnection] = after?.connectionIndex ?? NO_CONNECTION;
    this.#numbers[at / 2 + NUMBER.afterSequence] = BigInt(after?.sequence ?? 0);
  }

  state(index: number): number {
    return Atomics.load(this.#words, (index * ENTRY_BYTES) / 4 + WORD.state);
  }

  setState(index: number, state: number): void {
    this.#store(index, state);
  }

  /** Frees an entry; only the owner of the node calls this. */
  giveBack(index: number): void {
    const taken = this.#taken.get(index);
    if (!taken) return;
    this.#taken.delete(index);
    this.#store(index, 0);
    this.#places!.giveBack(...taken);
    this.#free.push(index);
  }

  /** -1 if the entry is invalid. */
  orderOf(index: number): number {
    if (!(index >= 0 && index < this.count)) return -1;
    return numberIn(this.#numbers, (index * ENTRY_BYTES) / 8 + NUMBER.order);
  }

  /** Undefined if the entry is free or invalid. */
  read(index: number): Entry | undefined {
    if (!(index >= 0 && index < this.count)) return undefined;
    const at = (index * ENTRY_BYTES) / 4;
    const [offset, length] = this.#range(index);
    const connectionIndex = this.#words[at + WORD.connection]!;
    const afterConnection = this.#words[at + WORD.afterConnection]!;
    const [port, peerPort] = [this.#words[at + WORD.port]!, this.#words[at + WORD.peerPort]!];
    const order = numberIn(this.#numbers, at / 2 + NUMBER.order);
    const sequence = numberIn(this.#numbers, at / 2 + NUMBER.sequence);
    const before = numberIn(this.#numbers, at / 2 + NUMBER.afterSequence);
    const isInside =
      offset >= 0 && length >= this.#headroom && offset + length <= this.#bytes.length;
    const isMessage = length - this.#headroom <= MESSAGE_BYTES_MAX;
    const arePorts = port >= 0 && port < 65536 && peerPort >= 0 && peerPort < 65536;
    const isNumbered =
      connectionIndex >= 0 &&
      connectionIndex <= LOCAL_CONNECTION &&
      order > 0 &&
      sequence >= 0 &&
      before >= 0;
    if (!isInside || !isMessage || !arePorts || !isNumbered) return undefined;
    return {
      port,
      peerPort,
      peer: this.#peerOf(index),
      order,
      sequence,
      connectionIndex,
      after:
        afterConnection === NO_CONNECTION
          ? undefined
          : { connectionIndex: afterConnection & 3, sequence: before },
      bytes: this.#bytes.subarray(offset, offset + length),
    };
  }

  /** Most entries have the peer of the one before. */
  #peerOf(index: number): Endpoint {
    const start = index * ENTRY_BYTES + GID;
    const bytes = this.#gids.subarray(start, start + GID_BYTES);
    const port = this.#words[(index * ENTRY_BYTES) / 4 + WORD.udpPort]! & 0xffff;
    const last = this.#lastPeer;
    const isLast = last?.port === port && last.gid.bytes.every((byte, at) => byte === bytes[at]);
    if (isLast) return last;
    return (this.#lastPeer = new Endpoint(new Gid(Uint8Array.from(bytes)), port));
  }

  /** Entries in `state`, oldest first. */
  inState(state: number): [index: number, entry: Entry][] {
    const found: [number, Entry][] = [];
    for (let index = 0; index < this.count; index++) {
      const entry = this.state(index) === state ? this.read(index) : undefined;
      if (entry) found.push([index, entry]);
    }
    return found.sort(([, one], [, other]) => one.order - other.order);
  }

  #store(index: number, state: number): void {
    Atomics.store(this.#words, (index * ENTRY_BYTES) / 4 + WORD.state, state);
  }

  #range(index: number): [offset: number, length: number] {
    const at = (index * ENTRY_BYTES) / 4;
    return [this.#words[at + WORD.offset]!, this.#words[at + WORD.length]! + this.#headroom];
  }
}

/** Returns -1 for an invalid number. */
function numberIn(numbers: BigInt64Array, index: number): number {
  const number = Number(numbers[index]!);
  return Number.isSafeInteger(number) ? number : -1;
}

const GRAIN = 64;

/** First-fit allocator of byte ranges. */
export class Places {
  used = 0;
  /** Free ranges by start. */
  readonly #gaps: [start: number, end: number][];

  constructor(length: number) {
    this.#gaps = [[0, length]];
  }

  take(length: number): number | undefined {
    const whole = grains(length);
    for (let index = 0; index < this.#gaps.length; index++) {
      const gap = this.#gaps[index]!;
      const [start, end] = gap;
      if (end - start < whole) continue;
      if (end - start === whole) this.#gaps.splice(index, 1);
      else gap[0] += whole;
      this.used += whole;
      return start;
    }
    return undefined;
  }

  /** Allocates exactly that range; false if it is not free. */
  reserve(start: number, length: number): boolean {
    const end = start + grains(length);
    const index = this.#gaps.findIndex((gap) => gap[0] <= start && end <= gap[1]);
    const gap = this.#gaps[index];
    if (!gap || start % GRAIN !== 0 || length < 0) return false;
    const parts = [
      [gap[0], start],
      [end, gap[1]],
    ] as [number, number][];
    this.#gaps.splice(index, 1, ...parts.filter(([from, to]) => from < to));
    this.used += end - start;
    return true;
  }

  /** Frees a range of `take` or `reserve`. */
  giveBack(start: number, length: number): void {
    const end = start + grains(length);
    let index = this.#gaps.findIndex((gap) => gap[0] >= start);
    if (index < 0) index = this.#gaps.length;
    const [before, after] = [this.#gaps[index - 1], this.#gaps[index]];
    this.used -= end - start;
    const touchesBefore = before?.[1] === start;
    const touchesAfter = after?.[0] === end;
    if (touchesBefore && touchesAfter) {
      before![1] = after![1];
      this.#gaps.splice(index, 1);
    } else if (touchesBefore) before![1] = end;
    else if (touchesAfter) after![0] = start;
    else this.#gaps.splice(index, 0, [start, end]);
  }
}

function grains(length: number): number {
  return Math.max(1, Math.ceil(length / GRAIN)) * GRAIN;
}
