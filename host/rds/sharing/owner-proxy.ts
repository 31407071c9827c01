/**
 * Stands for a node that another process owns: writes this process's sends to its area and notifies
 * the owner; received messages arrive in the area.
 */
import { RefusalError } from '../../errors/errors.js';
import type { Endpoint } from '../../link/endpoint.js';
import { ReceiveState, SendState, type Area } from './area.js';
import { HEADER_BYTES } from '../wire/constants.js';
import type { RdsCore, SendExtras } from '../protocol/core.js';
import { noExtensions } from '../wire/header.js';
import { RecordKind, Verdict, type IpcChannel, type IpcRecord } from './ipc-channel.js';
import { IncomingMessage } from '../protocol/message.js';
import type { Port } from '../protocol/port.js';
import { refusal } from '../protocol/refusal.js';
import { TransmitWindows } from '../protocol/transmit-windows.js';

const ORDER_MASK = 0xffff;
/** Destinations whose verdict is cached. */
const VERDICTS_MAX = 4096;

/** A port of a peer, with the cached verdict of the owner. */
interface Destination {
  readonly peer: Endpoint;
  readonly peerPort: number;
  verdict: Verdict | undefined;
  readonly transmitWindows: TransmitWindows;
  /** Ports whose sends the owner refused. */
  readonly blocked: Set<Port>;
}

interface Undone {
  readonly port: Port;
  readonly to: Destination;
  readonly length: number;
}

export class OwnerProxy {
  readonly area: Area;
  readonly #core: RdsCore;
  readonly #slot: number;
  readonly #secret: Endpoint;
  readonly #destinations = new Map<string, Destination>();
  readonly #undone = new Map<number, Undone>();
  /** Ports whose sends found the area full. */
  readonly #starved = new Set<Port>();
  /** Entries whose message this process has taken. */
  readonly #taken = new Set<number>();
  #channel: IpcChannel | undefined;
  #isReady = false;
  #isHere = false;

  /** `secret`: from the shared state, in the form of an endpoint without a node. */
  constructor(core: RdsCore, area: Area, slot: number, secret: Endpoint) {
    this.#core = core;
    this.area = area;
    this.#slot = slot;
    this.#secret = secret;
    area.sends.own();
  }

  /** Attaches to the owner of the node; `isHere`: the owner is this process. */
  join(channel: IpcChannel, isHere = false): void {
    this.#channel = channel;
    this.#isHere = isHere;
    channel.onRecord = (record) => this.#hear(record);
    const { memory, toOwner, fromOwner } = this.area;
    toOwner.reset();
    fromOwner.reset();
    const index = memory.byteOffset;
    channel.send(RecordKind.HELLO, { index, port: this.#slot, peer: this.#secret });
    channel.attach?.(toOwner, fromOwner);
  }

  /** The owner has ended. */
  part(): void {
    this.#channel?.close();
    this.#channel = undefined;
    this.#isReady = false;
  }

  bound({ number }: Port): void {
    this.#say(RecordKind.BOUND, { port: number });
  }

  unbound({ number }: Port): void {
    this.#say(RecordKind.UNBOUND, { port: number });
  }

  /**
   * Puts a message into the area. Throws RefusalError EOPNOTSUPP (cookies and operations: another
   * process owns the node), EWOULDBLOCK, EFAULT, EACCES, ENOBUFS as `RdsCore.send`.
   */
  send(
    port: Port,
    peer: Endpoint,
    peerPort: number,
    pieces: readonly Uint8Array[],
    { operation, extensions }: SendExtras,
  ): void {
    if (operation || extensions?.rdmaDestination) throw notHere('RDMA');
    const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
    const to = this.#destination(peer, peerPort);
    const { statistics } = this.#core;
    if (to.verdict === Verdict.FAULT || to.verdict === Verdict.DENIED) {
      const code = to.verdict === Verdict.DENIED ? 'EACCES' : 'EFAULT';
      to.verdict = undefined;
      throw refusal(code, peer, peerPort);
    }
    if (to.verdict === undefined || to.transmitWindows.isFull(peerPort)) {
      if (to.verdict === undefined && to.blocked.size === 0) this.#ask(port.number, to);
      to.blocked.add(port);
      statistics.ewouldblocksReturned++;
      throw refusal('EWOULDBLOCK', peer, peerPort);
    }
    const fresh = { port: port.number, peer, peerPort, connectionIndex: 0, sequence: 0 };
    const { sends } = this.area;
    const index = port.hasRoomFor(length) ? sends.put(fresh, pieces, length) : undefined;
    if (index === undefined) {
      this.#starved.add(port);
      statistics.enobufsReturned++;
      throw refusal('ENOBUFS', peer, peerPort);
    }
    statistics.bytesCopied += length;
    sends.setState(index, SendState.QUEUED);
    port.sent(length);
    to.transmitWindows.sent(peerPort, length);
    this.#undone.set(index, { port, to, length });
    this.#sayEntry(RecordKind.QUEUED, index);
  }

  close(): void {
    this.part();
  }

  #hear({ kind, index, port, peer, peerPort }: IpcRecord): void {
    switch (kind) {
      case RecordKind.READY:
        return this.#begin();
      case RecordKind.SENT:
        return this.#done(index);
      case RecordKind.ARRIVED:
        return this.#arrived(index, port);
      case RecordKind.VERDICT: {
        const to = this.#destinations.get(`${peer} ${peerPort}`);
        if (!to) return;
        to.verdict = index === Verdict.GO || index === Verdict.DENIED ? index : Verdict.FAULT;
        return this.#unblock(to);
      }
      default:
        return this.part();
    }
  }

  /** Sends this process's state to a new owner of the node, and reads the whole area. */
  #begin(): void {
    this.#isReady = true;
    for (const number of this.#core.ports.keys()) this.#say(RecordKind.BOUND, { port: number });
    for (const index of [...this.#undone.keys()]) this.#done(index);
    for (const [index] of this.area.sends.inState(SendState.QUEUED)) {
      this.#sayEntry(RecordKind.QUEUED, index);
    }
    for (const to of this.#destinations.values()) {
      const [port] = to.blocked;
      if (port && to.verdict === undefined) this.#ask(port.number, to);
    }
  }

  #done(index: number): void {
    const { sends } = this.area;
    const state = sends.state(index);
    if (state !== SendState.DONE && state !== SendState.LOST) return;
    const undone = this.#undone.get(index);
    if (!undone) return;
    this.#undone.delete(index);
    sends.giveBack(index);
    const { port, to, length } = undone;
    port.sending--;
    port.sendingBytes -= length;
    if (state === SendState.LOST) {
      if (!this.#isHere) this.#core.statistics.lost++;
      to.verdict = Verdict.FAULT;
    }
    if (to.transmitWindows.left(to.peerPort, length)) this.#unblock(to);
    const starved = [...this.#starved];
    this.#starved.clear();
    for (const one of starved) one.user.writable();
  }

  #arrived(index: number, order: number): void {
    const { receives } = this.area;
    const entry = this.#taken.has(index) ? undefined : receives.read(index);
    const isThere = receives.state(index) === ReceiveState.FULL;
    if (!entry || !isThere || (entry.order & ORDER_MASK) !== order) return;
    const release = (): void => {
      this.#taken.delete(index);
      receives.setState(index, ReceiveState.FREE);
      this.#say(RecordKind.READ, { index });
    };
    this.#taken.add(index);
    const { peer, peerPort, port: number, bytes } = entry;
    const port = this.#core.ports.get(number);
    if (!port) return release();
    const header = {
      sequence: 0,
      ack: 0,
      length: bytes.length - HEADER_BYTES,
      sourcePort: peerPort,
      destinationPort: number,
      flags: 0,
      credit: 0,
      extensions: noExtensions(),
    };
    const packet = { bytes, memoryBytes: bytes.length, release };
    this.#core.arrived(port, new IncomingMessage(peer, header, [packet]));
  }

  #destination(peer: Endpoint, peerPort: number): Destination {
    const key = `${peer} ${peerPort}`;
    let found = this.#destinations.get(key);
    if (!found) {
      if (this.#destinations.size >= VERDICTS_MAX) this.#forget();
      found = {
        peer,
        peerPort,
        verdict: undefined,
        transmitWindows: new TransmitWindows(),
        blocked: new Set(),
      };
      this.#destinations.set(key, found);
    }
    return found;
  }

  /** Drops cached verdicts that no send waits for, so that the next send asks the owner again. */
  #forget(): void {
    const busy = new Set([...this.#undone.values()].map(({ to }) => to));
    for (const [key, to] of this.#destinations) {
      if (to.blocked.size === 0 && !busy.has(to)) this.#destinations.delete(key);
    }
  }

  #unblock(to: Destination): void {
    const blocked = [...to.blocked];
    to.blocked.clear();
    for (const port of blocked) port.user.writable();
  }

  #ask(port: number, { peer, peerPort }: Destination): void {
    this.#say(RecordKind.ASK, { port, peer, peerPort });
  }

  #sayEntry(kind: RecordKind, index: number): void {
    const order = this.area.sends.orderOf(index);
    this.#say(kind, { index, port: order & ORDER_MASK });
  }

  /** Sends a record; until the owner knows the area none is needed, because it then reads all. */
  #say(kind: RecordKind, rest: Partial<IpcRecord>): void {
    if (this.#isReady) this.#channel?.send(kind, rest);
  }
}

export function notHere(what: string): RefusalError {
  return new RefusalError(
    'EOPNOTSUPP',
    `${what}: another process owns the reliable datagrams of this device; call it there`,
  );
}
