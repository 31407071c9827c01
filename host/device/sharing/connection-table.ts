/**
 * The connections of all processes of a device: the fields that a survivor needs to send the DREQ
 * of a dead process. The table is in the arena and has 128 entries per process of the device.
 *
 * An entry changes its owner without a lock: its state word holds the state and the owner's slot.
 * Only `orphan`, which acts for a dead process, needs the arena's lock.
 */
import {
  ArenaLayout,
  CONNECTIONS_PER_CONTEXT_COUNT,
  ConnectionPlace,
  SHARED_CONNECTION_SIZE,
  SharedConnectionLayout,
} from '#build/abi.js';
import type { ArenaMemory } from '../../engine/arena.js';
import { structAt, type Struct } from '../../engine/struct.js';
import { Endpoint, Gid } from '../../link/endpoint.js';

/** Fields and destination of a DREQ. */
export interface ConnectionRecord {
  readonly localId: number;
  readonly remoteId: number;
  readonly remoteQpn: number;
  readonly transactionId: bigint;
  readonly peer: Endpoint;
}

const PLACE_BITS = 2;
const PLACE_MASK = 3;

export class ConnectionTable {
  readonly #arena: ArenaMemory;
  readonly #slot: number;
  readonly #address: number;
  readonly #count: number;
  readonly #orphanedWord: number;
  #orphanedSeen = -1;
  /** Index at which the search for a free entry begins. */
  #next = 0;

  /** `slot`: the slot of this process. */
  constructor(arena: ArenaMemory, slot: number) {
    const { connections, contextsMax, state } = structAt(arena.memory, ArenaLayout, arena.address);
    this.#arena = arena;
    this.#slot = slot;
    this.#address = connections;
    this.#count = contextsMax * CONNECTIONS_PER_CONTEXT_COUNT;
    this.#orphanedWord = (state + ArenaLayout.fields.connectionsOrphaned[0]) >>> 2;
  }

  /** Adds a connection. Returns the index of its entry; -1: the table is full. */
  keep({ localId, remoteId, remoteQpn, transactionId, peer }: ConnectionRecord): number {
    for (let tried = 0; tried < this.#count; tried++) {
      const place = (this.#next + tried) % this.#count;
      const free = ConnectionPlace.FREE;
      if (!this.#change(place, free, stateOf(ConnectionPlace.WRITING, this.#slot))) continue;
      this.#next = place + 1;
      const gid = new DataView(peer.gid.bytes.buffer);
      Object.assign(this.#at(place), {
        localId,
        remoteId,
        remoteQpn,
        transactionId,
        peerGid0: gid.getBigUint64(0, true),
        peerGid1: gid.getBigUint64(8, true),
        peerPort: peer.port,
      });
      Atomics.store(this.#words, this.#stateWord(place), stateOf(ConnectionPlace.KEPT, this.#slot));
      return place;
    }
    return -1;
  }

  /** Frees an entry of this process: its connection has ended. */
  forget(place: number): void {
    this.#change(place, stateOf(ConnectionPlace.KEPT, this.#slot), ConnectionPlace.FREE);
  }

  /** Marks the entries of a dead process as orphaned. Called under the arena's lock. */
  orphan(slot: number): void {
    const orphaned = stateOf(ConnectionPlace.ORPHANED, slot);
    for (let place = 0; place < this.#count; place++) {
      this.#change(place, stateOf(ConnectionPlace.WRITING, slot), ConnectionPlace.FREE);
      if (!this.#change(place, stateOf(ConnectionPlace.KEPT, slot), orphaned)) continue;
      Atomics.add(this.#words, this.#orphanedWord, 1);
    }
  }

  /**
   * Adopts the connections of dead processes: yields the index and the record of each. Another
   * process may have written anything there: the caller checks the record.
   */
  *adopt(): Generator<readonly [place: number, record: ConnectionRecord]> {
    const orphaned = Atomics.load(this.#words, this.#orphanedWord);
    if (orphaned === this.#orphanedSeen) return;
    this.#orphanedSeen = orphaned;
    for (let place = 0; place < this.#count; place++) {
      const state = Atomics.load(this.#words, this.#stateWord(place));
      if ((state & PLACE_MASK) !== ConnectionPlace.ORPHANED) continue;
      if (!this.#change(place, state, stateOf(ConnectionPlace.KEPT, this.#slot))) continue;
      const found = this.#at(place);
      const { localId, remoteId, transactionId } = found;
      const bytes = new DataView(new ArrayBuffer(16));
      bytes.setBigUint64(0, found.peerGid0, true);
      bytes.setBigUint64(8, found.peerGid1, true);
      const gid = new Gid(new Uint8Array(bytes.buffer));
      const peer = new Endpoint(gid, found.peerPort & 0xffff);
      const remoteQpn = found.remoteQpn & 0xffffff;
      yield [place, { localId, remoteId, remoteQpn, transactionId, peer }];
    }
  }

  get #words(): Uint32Array {
    return this.#arena.memory.words;
  }

  #at(place: number): Struct<typeof SharedConnectionLayout> {
    const address = this.#address + place * SHARED_CONNECTION_SIZE;
    return structAt(this.#arena.memory, SharedConnectionLayout, address);
  }

  #stateWord(place: number): number {
    const { state } = SharedConnectionLayout.fields;
    return (this.#address + place * SHARED_CONNECTION_SIZE + state[0]) >>> 2;
  }

  #change(place: number, from: number, to: number): boolean {
    return Atomics.compareExchange(this.#words, this.#stateWord(place), from, to) === from;
  }
}

function stateOf(place: ConnectionPlace, slot: number): number {
  return place | ((slot + 1) << PLACE_BITS);
}
