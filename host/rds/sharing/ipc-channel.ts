/**
 * Records between the processes that share a node: which entry of an area has changed. The entries
 * hold the state; a record that is lost with its process costs nothing.
 */
import type { Socket } from 'node:net';
import type { Device } from '../../device/device.js';
import { LOOKS_MICROS } from '../../device/progress/spin.js';
import { Endpoint, Gid } from '../../link/endpoint.js';
import { nextTurn } from '../../link/next-turn.js';
import { RECORD_BYTES, type RecordRing } from './record-ring.js';

/** The first group goes to the owner of the node, the second group comes from it. */
export enum RecordKind {
  /** `index`: address of the area; `port`: the slot; `gid`: the shared state's secret. */
  HELLO = 1,
  /** A port is bound, or free; `index`: how many messages may wait in it. */
  BOUND,
  UNBOUND,
  /** An entry is to be sent. */
  QUEUED,
  /** A message was read. */
  READ,
  /** May `port` send to `peerPort` of `peer`? */
  ASK,
  /** The owner has mapped the area and is about to read all entries. */
  READY,
  /** A message was received by its peer, or is lost. */
  SENT,
  /** A message is there. */
  ARRIVED,
  /** Answers ASK; `index`: a Verdict. */
  VERDICT,
}

export enum Verdict {
  GO = 1,
  FAULT,
  /** The keys of `auth` differ. */
  DENIED,
}

export interface IpcRecord {
  readonly kind: RecordKind;
  readonly index: number;
  readonly port: number;
  readonly peerPort: number;
  readonly peer: Endpoint;
}

export const NO_PEER = new Endpoint(new Gid(new Uint8Array(16)), 0);
/** Records whose `peer` means something. */
const WITH_PEER = [RecordKind.HELLO, RecordKind.ASK, RecordKind.VERDICT];

export interface IpcChannel {
  /** Called for each record, and `onEnd` when the channel ends. */
  onRecord: (record: IpcRecord) => void;
  onEnd: () => void;
  send(kind: RecordKind, rest?: Partial<IpcRecord>): void;
  /** From now on records go through these rings, which both processes have in their memory. */
  attach?(outgoing: RecordRing, incoming: RecordRing): void;
  close(): void;
}

/** How a channel waits: as its device does. */
export type IpcWaits = Pick<Device, 'spin' | 'clock'>;

/** Of any value: a process that sleeps is to look at its ring. */
const WAKE = Buffer.of(1);
/** When a record is tried again that has found the ring full. */
const FULL_MILLIS = 1;

/**
 * A channel to another process of this machine; an invalid record closes it. The socket carries the
 * first record, wake-ups, and the end of the process.
 */
export class SocketIpcChannel implements IpcChannel {
  onRecord: (record: IpcRecord) => void = () => {};
  onEnd: () => void = () => {};
  readonly #socket: Socket;
  readonly #waits: IpcWaits;
  #rest = Buffer.alloc(0);
  #outgoing: RecordRing | undefined;
  #incoming: RecordRing | undefined;
  /** Records for which the ring had no room. */
  readonly #backlog: IpcRecord[] = [];
  #isLooking = false;
  #isClosed = false;
  /** Of a look: when the last record came, and when the look ends. */
  #sinceMicros = 0;
  #untilMicros = 0;

  constructor(socket: Socket, waits: IpcWaits) {
    this.#socket = socket;
    this.#waits = waits;
    socket.on('data', (bytes: Buffer) => this.#heard(bytes));
    socket.on('error', () => {});
    socket.on('close', () => {
      try {
        // A process may have ended behind its last record.
        if (!this.#isClosed) this.#incoming?.drain(this.#take);
      } finally {
        this.#isClosed = true;
        this.onEnd();
      }
    });
  }

  attach(outgoing: RecordRing, incoming: RecordRing): void {
    this.#outgoing = outgoing;
    this.#incoming = incoming;
    this.#begin();
  }

  send(
    kind: RecordKind,
    { index = 0, port = 0, peerPort = 0, peer = NO_PEER } = {} as Partial<IpcRecord>,
  ) {
    if (this.#isClosed || this.#socket.destroyed) return;
    const record = { kind, index, port, peerPort, peer };
    if (!this.#outgoing) {
      const bytes = Buffer.alloc(RECORD_BYTES);
      encode(bytes, record);
      this.#socket.write(bytes);
    } else if (this.#backlog.length > 0 || !this.#put(record)) {
      this.#backlog.push(record);
      if (this.#backlog.length === 1) setTimeout(this.#putBacklog, FULL_MILLIS).unref();
    }
  }

  close(): void {
    this.#isClosed = true;
    this.onRecord = () => {};
    this.#socket.destroy();
  }

  /** Returns whether the ring had room. */
  #put(record: IpcRecord): boolean {
    const place = this.#outgoing!.place;
    if (!place) return false;
    encode(place, record);
    if (this.#outgoing!.commit()) this.#socket.write(WAKE);
    return true;
  }

  readonly #putBacklog = (): void => {
    if (this.#isClosed) return;
    const isFull = this.#backlog.findIndex((record) => !this.#put(record));
    this.#backlog.splice(0, isFull < 0 ? this.#backlog.length : isFull);
    if (isFull >= 0) setTimeout(this.#putBacklog, FULL_MILLIS).unref();
  };

  #heard(bytes: Buffer): void {
    const all = this.#rest.length > 0 ? Buffer.concat([this.#rest, bytes]) : bytes;
    this.#rest = Buffer.alloc(0);
    if (this.#incoming) return this.#begin();
    if (all.length < RECORD_BYTES) this.#rest = Buffer.from(all);
    // Bytes behind it are wake-ups: the receiver has attached the rings.
    else this.#take(Buffer.from(all.subarray(0, RECORD_BYTES)));
  }

  /** The process was woken. */
  #begin(): void {
    if (this.#isLooking || this.#isClosed) return;
    this.#isLooking = true;
    this.#lookFrom(this.#waits.clock.now());
    this.#look();
  }

  #lookFrom(now: number): void {
    this.#untilMicros = this.#waits.spin?.until(now) ?? now;
  }

  /** Records have come. */
  #came(now: number): void {
    this.#waits.spin?.waited(now - this.#sinceMicros);
    this.#sinceMicros = now;
    this.#lookFrom(now);
  }

  /** Looks at the ring in turns of the event loop, as a wait for completions does (waitInto). */
  readonly #look = (): void => {
    let isOver = false;
    try {
      isOver = this.#lookOnce();
    } finally {
      // Also behind an exception of what has the record.
      if (!isOver) nextTurn(this.#look);
    }
  };

  /** Until records have come, or a turn of the event loop is due. Returns whether the look ends. */
  #lookOnce(): boolean {
    const { clock, spin } = this.#waits;
    const turnedAt = clock.now();
    for (let now = turnedAt; now - turnedAt < LOOKS_MICROS; now = clock.now()) {
      if (this.#isClosed) return true;
      const count = this.#incoming!.drain(this.#take);
      if (count < 0) {
        this.close();
        return true;
      }
      if (count > 0) {
        this.#came(now);
        break;
      }
      if (now < this.#untilMicros) spin?.yield();
      else if (this.#incoming!.fallAsleep()) {
        this.#isLooking = false;
        return true;
      }
    }
    return false;
  }

  /** Returns whether the channel is still open. */
  readonly #take = (bytes: Buffer): boolean => {
    const record = decode(bytes);
    if (record) this.onRecord(record);
    else this.close();
    return !this.#isClosed;
  };
}

function encode(bytes: Buffer, { kind, index, port, peerPort, peer }: IpcRecord): void {
  bytes.writeUInt16LE(kind, 0);
  bytes.writeUInt16LE(port, 2);
  bytes.writeUInt16LE(peerPort, 4);
  bytes.writeUInt16LE(peer.port, 6);
  bytes.writeUInt32LE(index, 8);
  bytes.set(peer.gid.bytes, 16);
}

/** Undefined: an invalid record. */
function decode(bytes: Buffer): IpcRecord | undefined {
  const kind = bytes.readUInt16LE(0);
  if (RecordKind[kind] === undefined) return undefined;
  const hasPeer = WITH_PEER.includes(kind);
  return {
    kind,
    port: bytes.readUInt16LE(2),
    peerPort: bytes.readUInt16LE(4),
    index: bytes.readUInt32LE(8),
    peer: hasPeer ? new Endpoint(new Gid(bytes.subarray(16, 32)), bytes.readUInt16LE(6)) : NO_PEER,
  };
}

/** Two connected channels in one process. */
export function ipcChannelPair(): [IpcChannel, IpcChannel] {
  const [one, other] = [new LocalIpcChannel(), new LocalIpcChannel()];
  one.peer = other;
  other.peer = one;
  return [one, other];
}

class LocalIpcChannel implements IpcChannel {
  onRecord: (record: IpcRecord) => void = () => {};
  onEnd: () => void = () => {};
  peer: LocalIpcChannel | undefined;

  send(
    kind: RecordKind,
    { index = 0, port = 0, peerPort = 0, peer = NO_PEER } = {} as Partial<IpcRecord>,
  ) {
    queueMicrotask(() => this.peer?.onRecord({ kind, index, port, peerPort, peer }));
  }

  close(): void {
    const { peer } = this;
    this.peer = undefined;
    if (peer) peer.peer = undefined;
    queueMicrotask(() => peer?.onEnd());
  }
}
