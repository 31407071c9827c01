/**
 * The other processes of a node, for the one that carries it: their ports are bound in its core,
 * what they queued goes out, what is for them goes into their areas before it is acknowledged.
 */
import { RefusalError } from '../errors/errors.js';
import type { Context } from '../verbs/context.js';
import { AREA_BYTES, Area, LANE_HERE, ReceiveState, SendState, senderHere } from './area.js';
import type { RdsCore } from './core.js';
import { Guest } from './guest.js';
import type { Ledger } from './ledger.js';
import { Note, type Line, type LineRecord } from './line.js';
import type { OutgoingMessage } from './message.js';
import type { Path } from './path.js';

/** A message that has its number already. */
export interface Restored {
  readonly path: Path;
  readonly lane: number;
  readonly message: OutgoingMessage;
  readonly order: number;
}

export class Exchange {
  readonly core: RdsCore;
  readonly #ledger: Ledger;
  readonly #context: Context;
  /** This process's own area, where it has one. */
  readonly #own: Area | undefined;
  readonly #guests = new Map<number, Guest>();
  readonly #lines = new Set<Line>();

  constructor(core: RdsCore, ledger: Ledger, context: Context, own: Area | undefined) {
    this.core = core;
    this.#ledger = ledger;
    this.#context = context;
    this.#own = own;
    ledger.onSought = (slot, port) => {
      const address = this.#guests.has(slot) ? undefined : ledger.areas().get(slot);
      const guest = address === undefined ? this.#guests.get(slot) : this.#enter(slot, address);
      guest?.bind(port);
    };
  }

  get now(): number {
    return this.#context.device.clock.now();
  }

  /** Goes on with what the former carrier of the node left. */
  takeOver(): void {
    const { now, core } = this;
    for (const { peer, home } of this.#ledger.paths()) {
      if (home < core.addresses.length) core.path(peer, home);
    }
    for (const [slot, address] of this.#ledger.areas()) this.#enter(slot, address);
    const guests = [...this.#guests.values()];
    for (const guest of guests) this.#mend(guest);
    const restored = guests.flatMap((guest) => guest.restore());
    // Each lane has its own numbers; what a socket sent before counts by when it did.
    for (const { path, lane, message } of restored.sort(
      (one, other) => one.message.sequence - other.message.sequence,
    )) {
      path.restore(lane, message);
    }
    for (const { path, lane, message } of restored.sort((one, other) => one.order - other.order)) {
      path.restored(lane, message);
    }
    for (const path of core.paths) path.resume(now);
    for (const guest of guests) guest.takeQueued();
  }

  /** Another process asks to take part. */
  welcome(line: Line): void {
    this.#lines.add(line);
    line.onEnd = () => this.#lines.delete(line);
    line.onRecord = (record) => {
      const guest = record.kind === Note.HELLO ? this.#greet(record) : undefined;
      if (guest) guest.listen(line);
      else line.close();
    };
  }

  /** Whoever is dead takes part no more. */
  sweep(): void {
    for (const [slot, guest] of this.#guests) {
      if (guest.area !== this.#own && !this.#ledger.isAlive(slot)) this.#remove(slot, guest);
    }
  }

  /** Another process will carry on: nothing of what is under way is lost. */
  close(): void {
    for (const guest of this.#guests.values()) guest.end();
    for (const line of this.#lines) line.close();
    this.#guests.clear();
  }

  #greet({ index: address, port: slot, peer }: LineRecord): Guest | undefined {
    if (!peer.gid.equals(this.#ledger.secret)) return undefined;
    const known = this.#guests.get(slot);
    if (known?.area.memory.byteOffset === address) return known;
    if (known) this.#remove(slot, known);
    return this.#enter(slot, address);
  }

  /** Undefined: there is no such area. */
  #enter(slot: number, address: number): Guest | undefined {
    let area = this.#own;
    if (area?.memory.byteOffset !== address) {
      try {
        area = new Area(this.#context.attach(address, AREA_BYTES));
      } catch (error) {
        if (!(error instanceof RefusalError)) throw error;
        return undefined;
      }
    }
    const guest = new Guest(this, slot, area);
    this.#guests.set(slot, guest);
    for (const port of this.#ledger.portsOf(slot)) guest.bind(port);
    return guest;
  }

  /** The former carrier may have died between two stores: what is in an area has come. */
  #mend({ area }: Guest): void {
    for (const [, { lane, sequence, peer }] of area.receives.inState(ReceiveState.FULL)) {
      if (lane !== LANE_HERE) {
        this.core.pathTo(peer)?.book?.lane(lane).received(sequence);
        continue;
      }
      const [slot, order] = senderHere(sequence);
      const sends = this.#guests.get(slot)?.area.sends;
      for (const [index, entry] of sends?.inState(SendState.QUEUED) ?? []) {
        if (entry.order === order) sends?.setState(index, SendState.DONE);
      }
    }
  }

  #remove(slot: number, guest: Guest): void {
    guest.end();
    for (const { port } of guest.ports.values()) this.core.unbind(this.now, port);
    if (!this.#ledger.isAlive(slot)) this.#ledger.clearPorts(slot);
    this.#guests.delete(slot);
    if (guest.area !== this.#own) this.#context.free(guest.area.memory);
  }
}
