/**
 * The state of a node that several processes share, in memory that outlives each of them: the
 * process that holds each port, and for each path and connection the sequence numbers. The owner
 * of the node writes all but the ports; the next owner resumes from it. In this order: a header;
 * the ports, a byte each, slot + 1; the paths, each with its connections behind it.
 */
import { indicesOf, layoutOf, structAt, type Struct } from '../../engine/struct.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import type { SharedDevice } from '../../device/sharing/shared-device.js';
import { Endpoint, Gid } from '../../link/endpoint.js';
import type { Context } from '../../verbs/context.js';
import { CONNECTIONS_PER_PATH, PORTS } from '../wire/constants.js';

const MAGIC = 0x56524453;
const HeaderLayout = layoutOf(
  {
    magic: 'u32',
    incarnation: 'u32',
    /** Slot + 1; 0: none. */
    owner: 'u32',
    /** An AuthKind. */
    auth: 'u32',
    secret0: 'u64',
    secret1: 'u64',
    /** In the name of the owner's socket. */
    socket: 'u64',
  },
  64,
);
const PathLayout = layoutOf(
  {
    used: 'u32',
    udpPort: 'u32',
    home: 'i32',
    kind: 'u32',
    gid0: 'u64',
    gid1: 'u64',
    /** Of the peer. */
    incarnation: 'u32',
    generation: 'u32',
    peerGeneration: 'u32',
    renewals: 'u32',
  },
  64,
);
const AHEAD_BITS = 1024;
/** Behind it: a bit for each number, modulo AHEAD_BITS, that was received out of order. */
const ConnectionLayout = layoutOf({ next: 'i64', expected: 'i64' });
const HEADER = indicesOf(HeaderLayout);
const { used: PATH_USED } = indicesOf(PathLayout);
const { next: NEXT, expected: EXPECTED } = indicesOf(ConnectionLayout, 8);
const [SECRET] = HeaderLayout.fields.secret0;
const [SOCKET] = HeaderLayout.fields.socket;
const [PATH_GID] = PathLayout.fields.gid0;
const GID_BYTES = 16;
const PATHS_AT = HeaderLayout.size + PORTS;
const PATH_BYTES = 512;
const CONNECTION_BYTES = ConnectionLayout.size + AHEAD_BITS / 8;
/** Numbers accepted beyond the expected one. The bit before the expected number stays unused. */
export const AHEAD_MAX = AHEAD_BITS - 2;
/** Peers of a node that processes share. */
export const SHARED_PATHS_MAX = 1024;
const SHARED_STATE_BYTES = PATHS_AT + SHARED_PATHS_MAX * PATH_BYTES;

/**
 * Ids in the device's table of services, which drops the entries of a dead process: the owner; the
 * address of the shared state, once for each process that holds it; the address of each area.
 */
const OWNS = 0x56524400n << 32n;
const HOLDS = 0x524c00n << 40n;
const HAS_AREA = 0x524100n << 40n;

/** Are the connections of a node authenticated, and encrypted? All of its processes agree. */
export enum AuthKind {
  NONE,
  TAGGED,
  ENCRYPTED,
}
const OTHER_AUTH =
  'RdsNode.of: another process of this node has other settings of `auth` (none, psk, encrypt); ' +
  'give all processes of the device the same';

/** Sequence numbers of one connection. */
export interface ConnectionRecord {
  /** The next sequence number to send; 0: none was sent. */
  next: number;
  /** All lower numbers were received and survive a death of this process; 0: none. */
  readonly expected: number;
  /** Restarts at `sequence` and forgets what preceded. */
  begin(sequence: number): void;
  /** Records a number that survives a death of this process. */
  received(sequence: number): void;
  /** Was that number received? */
  has(sequence: number): boolean;
}

/** Incarnations of the two ends of a path. */
export interface Incarnations {
  /** Undefined until the peer's first handshake. */
  kind: 'own' | 'linux' | undefined;
  /** Incarnation of the peer. */
  incarnation: number;
  /** How often this node, or the peer, gave up messages in flight; modulo 64. */
  generation: number;
  peerGeneration: number;
  /** How often this node took another incarnation towards the peer. */
  renewals: number;
}

export function newIncarnations(): Incarnations {
  return { kind: undefined, incarnation: 0, generation: 0, peerGeneration: 0, renewals: 0 };
}

export interface PathRecord extends Incarnations {
  readonly peer: Endpoint;
  readonly home: number;
  connection(index: number): ConnectionRecord;
}

export class SharedState {
  readonly shared: SharedDevice;
  /** Called so that the owner of the node binds a port that the process in `slot` holds. */
  onSought: (slot: number, port: number) => void = () => {};
  readonly #memory: Uint8Array;
  readonly #words: Int32Array;
  readonly #ports: Uint8Array;
  readonly #view: DataView;

  /**
   * Joins the state of the device of `context`. Throws RefusalError ENOMEM, EIO, EACCES (the other
   * processes have another AuthKind).
   */
  static join(context: Context, random: () => number, auth: AuthKind): SharedState {
    const { shared } = context.device;
    if (!shared) throw new MisuseError('context', 'must belong to a device with a name');
    return shared.locked(() => {
      const [found] = shared.members.services.ids(HOLDS).values();
      const memory =
        found === undefined
          ? context.alloc(SHARED_STATE_BYTES)
          : context.attach(addressIn(found), SHARED_STATE_BYTES);
      const sharedState = new SharedState(shared, memory);
      if (found === undefined) sharedState.#begin(random, auth);
      if (sharedState.#words[HEADER.magic] !== MAGIC)
        throw new RefusalError(
          'EIO',
          'socket: the shared state of the node is damaged; end its processes, and the ' +
            'next one creates it anew',
        );
      if (sharedState.#words[HEADER.auth] !== auth) {
        context.free(memory);
        throw new RefusalError('EACCES', OTHER_AUTH);
      }
      shared.takeService(HOLDS | named(shared.slot, memory.byteOffset));
      // Ports of a dead process whose slot this process has now.
      sharedState.clearPorts(shared.slot);
      return sharedState;
    });
  }

  private constructor(shared: SharedDevice, memory: Uint8Array) {
    this.shared = shared;
    this.#memory = memory;
    this.#words = new Int32Array(memory.buffer, memory.byteOffset, HeaderLayout.size / 4);
    this.#ports = memory.subarray(HeaderLayout.size, PATHS_AT);
    this.#view = new DataView(memory.buffer, memory.byteOffset, HeaderLayout.size);
  }

  get incarnation(): number {
    return this.#words[HEADER.incarnation]! >>> 0;
  }

  get secret(): Gid {
    return new Gid(Uint8Array.from(this.#memory.subarray(SECRET, SECRET + GID_BYTES)));
  }

  /** Slot of the owner process, if it can be reached; undefined otherwise. */
  get owner(): number | undefined {
    const word = Atomics.load(this.#words, HEADER.owner);
    return word === 0 ? undefined : word - 1;
  }

  set owner(slot: number | undefined) {
    Atomics.store(this.#words, HEADER.owner, slot === undefined ? 0 : slot + 1);
  }

  /** In the name of the owner's socket: valid while there is an owner. */
  get socket(): bigint {
    return this.#view.getBigUint64(SOCKET, true);
  }

  set socket(name: bigint) {
    this.#view.setBigUint64(SOCKET, name, true);
  }

  /** Takes the lock of the node; its owner keeps it until it releases it or dies. */
  tryOwn(): boolean {
    try {
      this.shared.takeService(OWNS);
      return true;
    } catch (error) {
      if (error instanceof RefusalError && error.code === 'EADDRINUSE') return false;
      throw error;
    }
  }

  giveBack(): void {
    this.owner = undefined;
    this.shared.giveBackService(OWNS);
  }

  /** Publishes the address of this process's area. Throws RefusalError ENOMEM. */
  publishArea(address: number): void {
    this.shared.takeService(HAS_AREA | named(this.shared.slot, address));
  }

  /** Addresses of the areas of live processes, by slot. */
  areas(): Map<number, number> {
    const ids = this.shared.locked(() => this.shared.members.services.ids(HAS_AREA));
    return new Map([...ids].map(([slot, id]) => [slot, addressIn(id)]));
  }

  /** Returns false if another process has the port. */
  takePort(port: number): boolean {
    return this.shared.locked(() => {
      const owner = this.#ports[port]!;
      if (owner === this.shared.slot + 1) return true;
      const isTaken = owner !== 0 && this.isAlive(owner - 1);
      if (!isTaken) this.#ports[port] = this.shared.slot + 1;
      return !isTaken;
    });
  }

  giveBackPort(port: number): void {
    if (this.#ports[port] === this.shared.slot + 1) this.#ports[port] = 0;
  }

  seek(port: number): void {
    const owner = this.#ports[port]!;
    if (owner !== 0 && owner !== this.shared.slot + 1) this.onSought(owner - 1, port);
  }

  seekAll(): void {
    this.#ports.forEach((owner, port) => owner !== 0 && this.seek(port));
  }

  portsOf(slot: number): number[] {
    const ports: number[] = [];
    this.#ports.forEach((owner, port) => {
      if (owner === slot + 1) ports.push(port);
    });
    return ports;
  }

  /** Leaves the node. */
  leave(context: Context): void {
    if (context.device.closed) return;
    this.shared.giveBackService(HOLDS | named(this.shared.slot, this.#memory.byteOffset));
    context.free(this.#memory);
  }

  clearPorts(slot: number): void {
    for (const port of this.portsOf(slot)) this.#ports[port] = 0;
  }

  isAlive(slot: number): boolean {
    return this.shared.processes().some((one) => one.slot === slot && one.alive);
  }

  /** Iterates the stored paths; for the next owner of the node. */
  *paths(): Iterable<PathRecord> {
    for (let index = 0; index < SHARED_PATHS_MAX; index++) {
      const record = this.#path(index);
      if (!record.isUsed) continue;
      record.mend();
      yield record;
    }
  }

  /** Finds or adds the record of a path; undefined if the table is full. */
  path(peer: Endpoint, home: number): PathRecord | undefined {
    let free: StoredPath | undefined;
    for (let index = 0; index < SHARED_PATHS_MAX; index++) {
      const record = this.#path(index);
      if (!record.isUsed) free ??= record;
      else if (record.peer.equals(peer)) return record;
    }
    free?.begin(peer, home);
    return free;
  }

  #path(index: number): StoredPath {
    const at = PATHS_AT + index * PATH_BYTES;
    return new StoredPath(this.#memory.subarray(at, at + PATH_BYTES));
  }

  #begin(random: () => number, auth: AuthKind): void {
    this.#words[HEADER.auth] = auth;
    this.#words[HEADER.incarnation] = random() || 1;
    const secret = new DataView(this.#memory.buffer, this.#memory.byteOffset + SECRET, GID_BYTES);
    for (let at = 0; at < GID_BYTES; at += 4) secret.setUint32(at, random());
    this.#words[HEADER.magic] = MAGIC;
  }
}

function named(slot: number, address: number): bigint {
  return (BigInt(slot) << 32n) | BigInt(address);
}

function addressIn(id: bigint): number {
  return Number(id & 0xffffffffn);
}

const KINDS = [undefined, 'own', 'linux'] as const;

class StoredPath implements PathRecord {
  readonly #memory: Uint8Array;
  readonly #words: Int32Array;
  readonly #path: Struct<typeof PathLayout>;
  readonly #connections: StoredConnection[];

  constructor(memory: Uint8Array) {
    this.#memory = memory;
    this.#words = new Int32Array(memory.buffer, memory.byteOffset, PathLayout.size / 4);
    const view = new DataView(memory.buffer, memory.byteOffset, PathLayout.size);
    this.#path = structAt({ view }, PathLayout, 0);
    this.#connections = Array.from({ length: CONNECTIONS_PER_PATH }, (_, index) => {
      const at = PathLayout.size + index * CONNECTION_BYTES;
      return new StoredConnection(memory.subarray(at, at + CONNECTION_BYTES));
    });
  }

  get isUsed(): boolean {
    return Atomics.load(this.#words, PATH_USED) === 1;
  }

  begin(peer: Endpoint, home: number): void {
    this.#memory.fill(0);
    this.#memory.set(peer.gid.bytes, PATH_GID);
    this.#path.udpPort = peer.port;
    this.#path.home = home;
    Atomics.store(this.#words, PATH_USED, 1);
  }

  get peer(): Endpoint {
    const gid = this.#memory.subarray(PATH_GID, PATH_GID + GID_BYTES);
    return new Endpoint(new Gid(Uint8Array.from(gid)), this.#path.udpPort & 0xffff);
  }

  get home(): number {
    return this.#path.home;
  }

  get kind(): 'own' | 'linux' | undefined {
    return KINDS[this.#path.kind];
  }

  set kind(kind: 'own' | 'linux' | undefined) {
    this.#path.kind = KINDS.indexOf(kind);
  }

  get incarnation(): number {
    return this.#path.incarnation;
  }

  set incarnation(value: number) {
    this.#path.incarnation = value;
  }

  get generation(): number {
    return this.#path.generation & 63;
  }

  set generation(value: number) {
    this.#path.generation = value;
  }

  get peerGeneration(): number {
    return this.#path.peerGeneration & 63;
  }

  set peerGeneration(value: number) {
    this.#path.peerGeneration = value;
  }

  get renewals(): number {
    return this.#path.renewals;
  }

  set renewals(value: number) {
    this.#path.renewals = value;
  }

  connection(index: number): ConnectionRecord {
    return this.#connections[index]!;
  }

  mend(): void {
    for (const connection of this.#connections) connection.mend();
  }
}

/** A record in `memory` that processes share (layout above). */
export function connectionRecord(memory: Uint8Array): ConnectionRecord & { mend(): void } {
  return new StoredConnection(memory);
}

class StoredConnection implements ConnectionRecord {
  readonly #numbers: BigInt64Array;
  readonly #ahead: Int32Array;

  constructor(memory: Uint8Array) {
    this.#numbers = new BigInt64Array(memory.buffer, memory.byteOffset, ConnectionLayout.size / 8);
    const aheadAt = memory.byteOffset + ConnectionLayout.size;
    this.#ahead = new Int32Array(memory.buffer, aheadAt, AHEAD_BITS / 32);
  }

  get next(): number {
    return this.#number(NEXT);
  }

  set next(sequence: number) {
    Atomics.store(this.#numbers, NEXT, BigInt(sequence));
  }

  get expected(): number {
    return this.#number(EXPECTED);
  }

  begin(sequence: number): void {
    this.#ahead.fill(0);
    Atomics.store(this.#numbers, EXPECTED, BigInt(sequence));
  }

  received(sequence: number): void {
    let { expected } = this;
    if (expected === 0) return this.begin(sequence + 1);
    if (sequence < expected || sequence > expected + AHEAD_MAX) return;
    this.#set(sequence, true);
    // The number is stored first: from then on its bit stands for a later number.
    while (this.#bit(expected)) {
      Atomics.store(this.#numbers, EXPECTED, BigInt(expected + 1));
      this.#set(expected++, false);
    }
  }

  /** Completes an update if its writer died between the two stores above. */
  mend(): void {
    const { expected } = this;
    if (expected > 0) this.#set(expected - 1, false);
  }

  has(sequence: number): boolean {
    const { expected } = this;
    const isAhead = sequence <= expected + AHEAD_MAX && this.#bit(sequence);
    return sequence < expected || isAhead;
  }

  /** Reads a number; an invalid value counts as 0. */
  #number(index: number): number {
    const number = Number(Atomics.load(this.#numbers, index));
    return Number.isSafeInteger(number) && number > 0 ? number : 0;
  }

  #bit(sequence: number): boolean {
    const place = sequence % AHEAD_BITS;
    return ((Atomics.load(this.#ahead, place >> 5) >> (place & 31)) & 1) !== 0;
  }

  #set(sequence: number, isSet: boolean): void {
    const place = sequence % AHEAD_BITS;
    const bit = 1 << (place & 31);
    if (isSet) Atomics.or(this.#ahead, place >> 5, bit);
    else Atomics.and(this.#ahead, place >> 5, ~bit);
  }
}
