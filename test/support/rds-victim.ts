/** A node with one connection, whose peer sends arbitrary packets. */
import * as assert from 'uvu/assert';
import { Endpoint } from '../../host/link/endpoint.js';
import type {
  TransportConnection,
  TransportOwner,
  SendBuffer,
} from '../../host/rds/protocol/transport.js';
import { HEADER_BYTES, HeaderFlag } from '../../host/rds/wire/constants.js';
import { RdsCore } from '../../host/rds/protocol/core.js';
import { buildHandshake, type OwnKind } from '../../host/rds/wire/handshake.js';
import { writeHeader, type RdsHeader } from '../../host/rds/wire/header.js';
import { HAS_HEADER } from '../../host/rds/wire/header-elision.js';
import type { OutgoingMessage } from '../../host/rds/protocol/message.js';
import type { Port } from '../../host/rds/protocol/port.js';

export const PORT = 4000;
export const NOW = 1_000_000;

/** A connection that takes everything, and a node that it leads to. */
export class Victim {
  buffersUsed = 0;
  packetsHeld = 0;
  isClosed = false;
  received = 0;
  /** SENDs that the peer takes. */
  room = 100;
  hasMemory = true;
  /** The peer's transport has no receive request (RNR NAK). */
  isPeerBusy = false;
  /** The last map of slow ports that it sent. */
  map: Uint8Array | undefined;
  readonly said: RdsHeader[] = [];
  readonly core: RdsCore;
  readonly port: Port;
  readonly #posted: OutgoingMessage[] = [];
  readonly #connection: TransportConnection;
  #owner!: TransportOwner;
  readonly #isOwnKind: boolean;
  writables = 0;
  #asking: TransportOwner | undefined;
  /** Connections that the node has asked for. */
  requests = 0;
  readonly #marks: number | undefined;

  /** `isUp`: else `up` follows. */
  constructor(isOwnKind: boolean, isUp = true) {
    this.#isOwnKind = isOwnKind;
    const transport = {
      connect: (_route: unknown, _traffic: number, _data: Uint8Array, owner: TransportOwner) => {
        this.#asking = owner;
        this.requests++;
        return this.#connection;
      },
      random: () => 1,
      receiveBytesMax: 2 ** 24,
      allocate: (length: number, _fragment: number, _from: number, isUrgent = false) => {
        if (!this.hasMemory && !isUrgent) return undefined;
        this.buffersUsed++;
        const buffer: SendBuffer = {
          payload: new Uint8Array(length),
          free: () => this.buffersUsed--,
        };
        return buffer;
      },
    };
    const [room, isPeerBusy] = [() => this.room, () => this.isPeerBusy];
    this.#connection = {
      get room() {
        return room();
      },
      get isPeerBusy() {
        return isPeerBusy();
      },
      marksHeaders: false,
      hold: () => true,
      post: (message, header) => {
        this.said.push(header);
        if (header.flags & HeaderFlag.CONG_BITMAP) this.map = message.buffer.payload.slice();
        this.#posted.push(message);
      },
      postCopy: (header) => this.said.push(header),
      close: () => {
        this.isClosed = true;
        for (const message of this.#posted.splice(0)) message.letGo();
      },
    };
    this.#marks = isOwnKind ? HAS_HEADER : undefined;
    const local = Endpoint.parse('10.0.0.2', 4791);
    this.core = new RdsCore(transport, { local, incarnation: 1, firstSequence: 500 });
    const user = {
      readable: () => this.#read(),
      writable: () => void this.writables++,
      released: () => {},
    };
    this.port = this.core.bind(NOW, PORT, user);
    this.ask();
    if (isUp) this.up();
  }

  /** The peer asks for a connection, which is accepted. */
  ask(): void {
    const { local } = this.core;
    const peer = Endpoint.parse('10.0.0.9', 4791);
    const own = this.#isOwnKind ? { connectionIndex: 0, incarnation: 7, generation: 0 } : undefined;
    const request = buildHandshake({ source: peer.gid, target: local.gid, ack: 0, own });
    const acceptance = this.core.request(NOW, peer, request)!;
    const { connection } = acceptance;
    this.core.accepted(NOW, acceptance, this.#connection, request);
    this.#owner = connection;
  }

  /**
   * Another request in the peer's name, which the node accepts: perhaps with a forged source.
   * Returns the owner of the new transport connection, and whether that is closed.
   */
  forge(own: OwnKind | undefined): { up(): void; down(): void; isClosed(): boolean } {
    const peer = Endpoint.parse('10.0.0.9', 4791);
    const request = buildHandshake({ source: peer.gid, target: this.core.local.gid, ack: 0, own });
    const acceptance = this.core.request(NOW, peer, request)!;
    let isClosed = false;
    const other: TransportConnection = {
      room: 100,
      marksHeaders: false,
      hold: () => true,
      post: (message) => message.letGo(),
      postCopy: () => {},
      close: () => (isClosed = true),
    };
    this.core.accepted(NOW, acceptance, other, request);
    const { connection } = acceptance;
    return {
      up: () => connection.up(NOW, other, undefined),
      down: () => connection.down(NOW, other, false),
      isClosed: () => isClosed,
    };
  }

  /** The peer has heard so. */
  up(): void {
    this.#owner.up(NOW, this.#connection, undefined);
  }

  down(): void {
    this.#owner.down(NOW, this.#connection, false);
  }

  /** `immData`: what says, between our own, what the header is, or that there is one. */
  send(bytes: Uint8Array, beside: number | 'nothing' | undefined = this.#marks): void {
    const immData = beside === 'nothing' ? undefined : beside;
    this.packetsHeld++;
    const release = (): void => void this.packetsHeld--;
    const memoryBytes = bytes.length;
    this.#owner.received(NOW, this.#connection, { bytes, immData, memoryBytes, release });
  }

  /** The peer accepts the request for a connection. */
  accepts(now: number): void {
    const peer = Endpoint.parse('10.0.0.9', 4791);
    this.#owner = this.#asking!;
    const reply = { source: peer.gid, target: this.core.local.gid, ack: 0, own: undefined };
    this.#owner.up(now, this.#connection, buildHandshake(reply));
  }

  /** A request for a connection gets no answer. */
  unanswered(now: number): void {
    this.#asking!.down(now, this.#connection, true);
  }

  /** The peer takes some. */
  sent(now = NOW): void {
    this.#owner.sent(now, this.#connection);
  }

  /** Nothing is held once the connection and the node are gone. */
  end(): void {
    this.#owner.down(NOW, this.#connection, false);
    this.core.close(NOW);
    assert.is(this.packetsHeld, 0);
    assert.is(this.buffersUsed, 0);
  }

  #read(): void {
    this.received++;
    this.core.read(NOW, this.port);
  }
}

export function packet(fields: Partial<RdsHeader>, payloadBytes = fields.length ?? 0): Uint8Array {
  const bytes = new Uint8Array(HEADER_BYTES + payloadBytes);
  writeHeader(new DataView(bytes.buffer), 0, {
    sequence: 1,
    ack: 0,
    length: payloadBytes,
    sourcePort: 9,
    destinationPort: PORT,
    flags: 0,
    credit: 0,
    extensions: {},
    ...fields,
  });
  return bytes;
}
