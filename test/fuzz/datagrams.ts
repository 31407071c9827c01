/**
 * Reliable datagrams: a live node, a peer that behaves, and one that sends arbitrary requests,
 * headers, control messages and maps, whole or damaged. Its packets may not throw, leak memory, or
 * affect the other peer.
 */
import { Endpoint } from '../../host/link/endpoint.js';
import type {
  TransportConnection,
  TransportOwner,
  SendBuffer,
} from '../../host/rds/protocol/transport.js';
import { CONGESTION_MAP_BYTES, HEADER_BYTES, HeaderFlag } from '../../host/rds/wire/constants.js';
import { ControlKind, buildControl } from '../../host/rds/wire/peer-control.js';
import { RdsCore } from '../../host/rds/protocol/core.js';
import { buildHandshake } from '../../host/rds/wire/handshake.js';
import { noExtensions, writeHeader, type Extensions } from '../../host/rds/wire/header.js';
import type { OutgoingMessage } from '../../host/rds/protocol/message.js';
import type { Port, PortUser } from '../../host/rds/protocol/port.js';
import { RefusalError } from '../../host/errors/errors.js';
import { Random } from '../simulation/random.js';

const [PORT, OTHER_PORT] = [4000, 4001];
const LOCAL = Endpoint.parse('10.0.0.1', 4791);
const HOSTILE = Endpoint.parse('10.0.0.9', 4791);
const HONEST = Endpoint.parse('10.0.0.5', 4791);
const START_MICROS = 1_000_000_000;
const FIRST_SEQUENCE = 500;
/** Connections of the hostile peer to one node, and packets over each. */
const CONNECTIONS = 6;
const PACKETS = 8;

/** Attempts by kind, and their results. */
export interface DatagramReport {
  nodes: number;
  packets: number;
  /** Connections that were made, and those that were refused. */
  accepted: number;
  refused: number;
  /** Of the hostile peer, which the node ended. */
  ended: number;
  /** Messages of the hostile peer that were read. */
  read: number;
}

class FuzzedConnection implements TransportConnection {
  room = 100;
  marksHeaders = false;
  isClosed = false;
  readonly #posted: OutgoingMessage[] = [];

  hold(): boolean {
    return true;
  }

  post(message: OutgoingMessage): void {
    this.#posted.push(message);
  }

  postCopy(): void {}

  close(): void {
    this.isClosed = true;
    for (const message of this.#posted.splice(0)) message.letGo();
  }
}

class FuzzedNode implements PortUser {
  readonly core: RdsCore;
  readonly port: Port;
  read = 0;
  packetsHeld = 0;
  now = START_MICROS;
  #buffersUsed = 0;

  constructor(random: Random) {
    this.core = new RdsCore(
      {
        connect: () => new FuzzedConnection(),
        random: () => random.u32(),
        receiveBytesMax: 2 ** 24,
        allocate: (length): SendBuffer => {
          this.#buffersUsed++;
          return { payload: new Uint8Array(length), free: () => this.#buffersUsed-- };
        },
      },
      { local: LOCAL, incarnation: 1, firstSequence: FIRST_SEQUENCE },
    );
    this.port = this.core.bind(this.now, PORT, this);
  }

  readable(): void {
    this.read++;
    this.port.peek()!.bytes();
    this.core.read(this.now, this.port);
  }

  writable(): void {}

  released(): void {}

  /** Undefined: refused. */
  connect(peer: Endpoint, request: Uint8Array): [FuzzedConnection, TransportOwner] | undefined {
    const acceptance = this.core.request(this.now, peer, request);
    if (!acceptance) return undefined;
    const connection = new FuzzedConnection();
    this.core.accepted(this.now, acceptance, connection, request);
    acceptance.connection.up(this.now, connection, undefined);
    return [connection, acceptance.connection];
  }

  receive(
    [connection, owner]: [FuzzedConnection, TransportOwner],
    bytes: Uint8Array,
    immData?: number,
  ): void {
    this.packetsHeld++;
    let isHeld = true;
    const release = (): void => {
      if (!isHeld) throw new Error('a receive is released twice');
      isHeld = false;
      this.packetsHeld--;
    };
    owner.received(this.now, connection, { bytes, immData, memoryBytes: bytes.length, release });
  }

  /** Throws if a receive or its memory is leaked. */
  end(): void {
    this.core.close(this.now);
    if (this.packetsHeld !== 0) throw new Error(`${this.packetsHeld} receives are held`);
    if (this.#buffersUsed !== 0) throw new Error(`${this.#buffersUsed} send buffers are held`);
  }
}

/** Changes a few bits, or cuts it short. */
function damaged(random: Random, bytes: Uint8Array): Uint8Array {
  if (!random.chance(0.15)) return bytes;
  if (random.chance(0.3)) return bytes.subarray(0, random.below(bytes.length + 1));
  for (let left = 1 + random.below(3); left > 0 && bytes.length > 0; left--) {
    bytes[random.below(bytes.length)]! ^= 1 << random.below(8);
  }
  return bytes;
}

function extensionsOf(random: Random): Extensions {
  if (random.chance(0.7)) return noExtensions();
  const after = {
    connectionIndex: random.below(5),
    sequence: random.pick([0, 1, 2, 501, 2 ** 40, 2 ** 52]),
  };
  const rdmaDestination = { rkey: random.u32(), offset: random.u32() };
  return random.pick<Extensions>([
    { after },
    { rdmaRkey: random.u32() },
    { rdmaDestination, after },
  ]);
}

function controlOf(random: Random): Uint8Array {
  const addresses = [HONEST, LOCAL, HOSTILE, Endpoint.parse('10.1.0.9', 4791)];
  const gids = Array.from({ length: random.below(40) }, () => random.u32());
  return buildControl({
    kind: random.pick([...Object.values(ControlKind), 0, 255]),
    isSet: random.chance(0.7),
    isReset: random.chance(0.3),
    ports: Array.from({ length: random.pick([0, 1, 4]) }, () => random.pick([0, PORT, 9, 65535])),
    ...(random.chance(0.3) && { addresses: addresses.slice(0, 1 + random.below(4)) }),
    ...(random.chance(0.3) && { identity: { uid: random.u32(), gids } }),
  });
}

/** A packet with a header, that may well be in turn. */
function packetOf(random: Random, sequence: number): Uint8Array {
  const kind = random.below(10);
  const control = kind === 0 ? controlOf(random) : undefined;
  const isMap = kind === 1;
  const length =
    control?.length ?? (isMap ? CONGESTION_MAP_BYTES : random.pick([0, 1, 64, 4096, 5000, 70_000]));
  const payload = control ?? new Uint8Array(random.chance(0.9) ? Math.min(length, 4096) : 7);
  const bytes = new Uint8Array(HEADER_BYTES + payload.length);
  const flags = control ? HeaderFlag.CONTROL : isMap ? HeaderFlag.CONG_BITMAP : 0;
  writeHeader(new DataView(bytes.buffer), 0, {
    sequence: control || isMap ? 0 : random.pick([sequence, sequence, sequence, 0, 1, 2 ** 40]),
    ack: random.pick([0, 0, 0, 499, FIRST_SEQUENCE, 2 ** 33]),
    length: random.chance(0.97) ? length : random.pick([2 ** 20 + 1, 2 ** 32 - 1]),
    sourcePort: random.pick([0, 1, 9, 65535]),
    destinationPort: random.pick([0, PORT, PORT, PORT, 65535]),
    flags: random.chance(0.9) ? flags | random.pick([0, 2, 4]) : random.below(256),
    credit: random.below(256),
    extensions: extensionsOf(random),
  });
  bytes.set(payload, HEADER_BYTES);
  return damaged(random, bytes);
}

/** One incarnation of a node. */
function fuzzNode(random: Random, report: DatagramReport): void {
  const node = new FuzzedNode(random);
  const handshake = (peer: Endpoint, own?: Parameters<typeof buildHandshake>[0]['own']) =>
    buildHandshake({ source: peer.gid, target: LOCAL.gid, ack: 0, own });
  const honest = node.connect(HONEST, handshake(HONEST))!;
  const sender = node.core.bind(node.now, OTHER_PORT, node);
  const isOwn = random.chance(0.7);
  for (let left = CONNECTIONS; left > 0; left--) {
    const incarnation = random.chance(0.9) ? 7 : random.u32();
    const own = {
      connectionIndex: random.below(4),
      incarnation,
      generation: random.pick([0, 0, 0, 1, 63]),
    };
    const request = handshake(HOSTILE, isOwn !== random.chance(0.05) ? own : undefined);
    const made = node.connect(HOSTILE, damaged(random, request));
    if (!made) {
      report.refused++;
      continue;
    }
    report.accepted++;
    let sequence = random.pick([1, 1, 1, 2 ** 40]);
    for (let count = 0; count < PACKETS && !made[0].isClosed; count++) {
      report.packets++;
      const isBare = isOwn && random.chance(0.3);
      const bytes = isBare
        ? new Uint8Array(random.pick([0, 5, 4096, 5000]))
        : packetOf(random, sequence);
      const bare = random.pick([undefined, (9 << 16) | PORT, 1, 0xffffffff]);
      node.receive(made, bytes, isBare ? bare : random.chance(0.95) ? 0 : undefined);
      sequence++;
      node.now += random.pick([0, 100, 2000, 3_000_000]);
      node.core.advance(node.now);
      try {
        node.core.send(node.now, sender, HOSTILE, 9, [new Uint8Array(10)]);
      } catch (error) {
        if (!(error instanceof RefusalError)) throw error;
      }
    }
    if (made[0].isClosed) report.ended++;
  }
  report.read += node.read;
  // The other peer's next message comes, whatever that one did.
  const before = node.read;
  const bytes = new Uint8Array(HEADER_BYTES + 3);
  writeHeader(new DataView(bytes.buffer), 0, {
    ...{ sequence: 1, ack: 0, length: 3, sourcePort: 9, destinationPort: PORT },
    ...{ flags: 0, credit: 0, extensions: noExtensions() },
  });
  node.receive(honest, bytes);
  if (node.read !== before + 1) throw new Error('the message of a peer that behaves did not come');
  if (honest[0].isClosed) throw new Error('the connection of a peer that behaves was ended');
  node.end();
  report.nodes++;
}

/** Throws with the number of the first node that does what it must not. */
export function fuzzDatagrams(nodes: number, seed: number): DatagramReport {
  const report = { nodes: 0, packets: 0, accepted: 0, refused: 0, ended: 0, read: 0 };
  for (let index = 0; index < nodes; index++) {
    try {
      fuzzNode(new Random(seed).split('datagrams', index), report);
    } catch (error) {
      const { message } = error as Error;
      throw new Error(`seed ${seed}, node ${index}: ${message}`, { cause: error });
    }
  }
  return report;
}
