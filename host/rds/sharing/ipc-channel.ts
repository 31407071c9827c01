/**
 * Records between the processes that share a node: which entry of an area has changed. The entries
 * hold the state; a record that is lost with its process costs nothing.
 */
import type { Socket } from 'node:net';
import { Endpoint, Gid } from '../../link/endpoint.js';

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
const RECORD_BYTES = 32;

export interface IpcChannel {
  /** Called for each record, and `onEnd` when the channel ends. */
  onRecord: (record: IpcRecord) => void;
  onEnd: () => void;
  send(kind: RecordKind, rest?: Partial<IpcRecord>): void;
  close(): void;
}

/** A channel over a socket of this machine; an invalid record closes it. */
export class SocketIpcChannel implements IpcChannel {
  onRecord: (record: IpcRecord) => void = () => {};
  onEnd: () => void = () => {};
  readonly #socket: Socket;
  #rest = Buffer.alloc(0);
  #isCorked = false;

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (bytes: Buffer) => this.#take(bytes));
    socket.on('error', () => {});
    socket.on('close', () => this.onEnd());
  }

  send(
    kind: RecordKind,
    { index = 0, port = 0, peerPort = 0, peer = NO_PEER } = {} as Partial<IpcRecord>,
  ) {
    if (this.#socket.destroyed) return;
    const bytes = Buffer.alloc(RECORD_BYTES);
    bytes.writeUInt16LE(kind, 0);
    bytes.writeUInt16LE(port, 2);
    bytes.writeUInt16LE(peerPort, 4);
    bytes.writeUInt16LE(peer.port, 6);
    bytes.writeUInt32LE(index, 8);
    bytes.set(peer.gid.bytes, 16);
    this.#cork();
    this.#socket.write(bytes);
  }

  close(): void {
    this.onRecord = () => {};
    this.#socket.destroy();
  }

  /** Writes all records of one turn at once. */
  #cork(): void {
    if (this.#isCorked) return;
    this.#isCorked = true;
    this.#socket.cork();
    queueMicrotask(() => {
      this.#isCorked = false;
      this.#socket.uncork();
    });
  }

  #take(bytes: Buffer): void {
    const all = this.#rest.length > 0 ? Buffer.concat([this.#rest, bytes]) : bytes;
    let at = 0;
    for (; at + RECORD_BYTES <= all.length; at += RECORD_BYTES) {
      const kind = all.readUInt16LE(at);
      if (RecordKind[kind] === undefined) return this.close();
      this.onRecord({
        kind,
        port: all.readUInt16LE(at + 2),
        peerPort: all.readUInt16LE(at + 4),
        index: all.readUInt32LE(at + 8),
        peer: new Endpoint(new Gid(all.subarray(at + 16, at + 32)), all.readUInt16LE(at + 6)),
      });
    }
    this.#rest = Buffer.from(all.subarray(at));
  }
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
