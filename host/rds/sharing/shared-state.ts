/**
 * The state of a node that several processes share, in memory that outlives each of them: the
 * process that holds each port, and for each path and connection the sequence numbers. The owner
 * of the node writes all but the ports; the next owner resumes from it.
 *
 *     0  magic   4  incarnation   8  owner, slot + 1   12  AuthKind   16  secret, 16 bytes
 *    64  ports: a byte each, slot + 1
 *        paths, 512 bytes each:
 *          0  used   4  UDP port   8  home   12  kind   16  GID   32  the peer's incarnation
 *         36  generation   40  the peer's   44  renewals
 *         64  connections, 144 bytes each:  0  next to send   8  expected   16  a bit for each
 *             number from there on that was received out of order (modulo 1024)
 */
import { MisuseError, RefusalError } from '../../errors/errors.js';
import type { SharedDevice } from '../../device/sharing/shared-device.js';
import { Endpoint, Gid } from '../../link/endpoint.js';
import type { Context } from '../../verbs/context.js';
import { CONNECTIONS_PER_PATH, PORTS } from '../wire/constants.js';

const MAGIC = 0x56524453;
const [INCARNATION, OWNER, AUTH, SECRET] = [1, 2, 3, 16];
const HEADER_BYTES = 64;
const PATHS_AT = HEADER_BYTES + PORTS;
const PATH_BYTES = 512;
const CONNECTIONS_AT = 64;
const CONNECTION_BYTES = 144;
const AHEAD_BITS = 1024;
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
      if (sharedState.#words[0] !== MAGIC)
        throw new RefusalError(
          'EIO',
          'socket: the shared state of the node is damaged; end its processes, and the ' +
            'next one creates it anew',
        );
      if (sharedState.#words[AUTH] !== auth) {
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
    this.#words = new Int32Array(memory.buffer, memory.byteOffset, HEADER_BYTES / 4);
    this.#ports = memory.subarray(HEADER_BYTES, PATHS_AT);
  }

  get incarnation(): number {
    return this.#words[INCARNATION]! >>> 0;
  }

  get secret(): Gid {
    return new Gid(Uint8Array.from(this.#memory.subarray(SECRET, SECRET + 16)));
  }

  /** Slot of the owner process, if it can be reached; undefined otherwise. */
  get owner(): number | undefined {
    const word = Atomics.load(this.#words, OWNER);
    return word === 0 ? undefined : word - 1;
  }

  set owner(slot: number | undefined) {
    Atomics.store(this.#words, OWNER, slot === undefined ? 0 : slot + 1);
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
    this.#words[AUTH] = auth;
    this.#words[INCARNATION] = random() || 1;
    const secret = new DataView(this.#memory.buffer, this.#memory.byteOffset + SECRET, 16);
    for (let at = 0; at < 16; at += 4) secret.setUint32(at, random());
    this.#words[0] = MAGIC;
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
  readonly #connections: StoredConnection[];

  constructor(memory: Uint8Array) {
    this.#memory = memory;
    this.#words = new Int32Array(memory.buffer, memory.byteOffset, CONNECTIONS_AT / 4);
    this.#connections = Array.from({ length: CONNECTIONS_PER_PATH }, (_, index) => {
      const at = CONNECTIONS_AT + index * CONNECTION_BYTES;
      return new StoredConnection(memory.subarray(at, at + CONNECTION_BYTES));
    });
  }

  get isUsed(): boolean {
    return Atomics.load(this.#words, 0) === 1;
  }

  begin(peer: Endpoint, home: number): void {
    this.#memory.fill(0);
    this.#memory.set(peer.gid.bytes, 16);
    this.#words[1] = peer.port;
    this.#words[2] = home;
    Atomics.store(this.#words, 0, 1);
  }

  get peer(): Endpoint {
    const gid = new Gid(Uint8Array.from(this.#memory.subarray(16, 32)));
    return new Endpoint(gid, this.#words[1]! & 0xffff);
  }

  get home(): number {
    return this.#words[2]!;
  }

  get kind(): 'own' | 'linux' | undefined {
    return KINDS[this.#words[3]!];
  }

  set kind(kind: 'own' | 'linux' | undefined) {
    this.#words[3] = KINDS.indexOf(kind);
  }

  get incarnation(): number {
    return this.#words[8]! >>> 0;
  }

  set incarnation(value: number) {
    this.#words[8] = value;
  }

  get generation(): number {
    return this.#words[9]! & 63;
  }

  set generation(value: number) {
    this.#words[9] = value;
  }

  get peerGeneration(): number {
    return this.#words[10]! & 63;
  }

  set peerGeneration(value: number) {
    this.#words[10] = value;
  }

  get renewals(): number {
    return this.#words[11]! >>> 0;
  }

  set renewals(value: number) {
    this.#words[11] = value;
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

const [NEXT, EXPECTED] = [0, 1];

class StoredConnection implements ConnectionRecord {
  readonly #numbers: BigInt64Array;
  readonly #ahead: Int32Array;

  constructor(memory: Uint8Array) {
    this.#numbers = new BigInt64Array(memory.buffer, memory.byteOffset, 2);
    this.#ahead = new Int32Array(memory.buffer, memory.byteOffset + 16, AHEAD_BITS / 32);
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
