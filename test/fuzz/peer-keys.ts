/**
 * Counters and tags of packets on authenticated connections: those of the peer, and those of an
 * attacker that recorded its packets. The last number of a PACKET selects the fault.
 */
import { PacketAuthLayout, PathLayout, QUEUE_PAIR_PATH, QpType } from '#build/abi.js';
import type { EngineExports } from '../../host/engine/load.js';
import { structAt } from '../../host/engine/struct.js';
import type { Device } from '../../host/device/device.js';
import type { PacketKeys, QueuePair } from '../../host/index.js';
import { nextKey } from '../support/packet-auth.js';
import type { Below } from './action-kinds.js';

/** The kind of a trailer: its lower four bits; the rest is a distance. 0 is what the peer sends. */
const Kind = {
  AUTHENTIC: 0,
  NONE: 1,
  BAD_TAG: 2,
  /** Numbers so far below the next one: received before, late, or too old. */
  BACK: 3,
  /** Skips this many sequence numbers. */
  AHEAD: 4,
  /** The peer goes on to the next generation of its key, once or twice. */
  ROTATED: 5,
  ROTATED_TWICE: 6,
  /** The key of the last generation, with a number of that time or a later one. */
  LAST: 7,
  FAR_GENERATION: 8,
  /** Tagged where it should be encrypted, or the other way round. */
  OTHER_CIPHER: 9,
} as const;
const KINDS = Object.keys(Kind).length;
const KIND_BITS = 4;
const DISTANCES = [1, 1, 2, 5, 63, 64, 65, 1000, 1023, 1024, 1025, 1026, 2047, 2048, 5000, 1e6];

/** Draws the last number of a PACKET. */
export function trailer(below: Below): number {
  return below(KINDS) + (DISTANCES[below(DISTANCES.length)]! << KIND_BITS);
}

/** Bits of the options of a CONNECT. */
const EARLY = 1 << 22;
const TWICE = 1 << 23;
const ENCRYPTED = 1 << 24;
/** The connection begins in its last but one generation, three packets before its rotation. */
const AGED = 1 << 25;
const AGED_GENERATION = 0xfffe;
const AGED_NUMBER = 2 ** 32 - 3;

const BTH_SIZE = 12;
/** BTH byte that the tag covers as 0xff. */
const UNCOVERED = 4;
const ICRC_SIZE = 4;
const COUNTER_SIZE = 8;
const TRAILER_SIZE = 24;
const TAG_SIZE = 16;
const GENERATIONS = 1 << 16;
const NUMBER_BITS = 48n;
/** Opcodes >> 5 of datagrams: they have no keys. */
const UD_CLASS = 3;
const KEY_BYTES = 32;
const SEND_KEY = new Uint8Array(KEY_BYTES).fill(0x5a);
const PEER_KEY = new Uint8Array(KEY_BYTES).fill(0xa5);

/** One direction of a connection, as the peer keeps it. */
interface Direction {
  key: Uint8Array;
  lastKey: Uint8Array;
  generation: number;
  next: number;
  /** The first number of this generation. */
  since: number;
  readonly encrypts: boolean;
}

/** The part of the fuzzed world that concerns keys. */
interface KeyedWorld {
  readonly device: Device;
  readonly exports: EngineExports;
  /** Does the verb succeed? */
  try(verb: () => void): boolean;
}

/** A queue pair that may have keys. */
interface KeyedPair {
  readonly spec: { readonly type: number };
  readonly qp: QueuePair;
}

export class PeerKeys {
  readonly #world: KeyedWorld;
  /** 32 bytes for a key. */
  readonly #memory: number;
  readonly #pairs = new Map<KeyedPair, Direction>();
  /** By the peer's queue pair number: the lowest counter that the device may use next. */
  readonly #least = new Map<number, bigint>();

  constructor(world: KeyedWorld, memory: number) {
    this.#world = world;
    this.#memory = memory;
  }

  /** Sets the keys of a pair in RESET or INIT; `isEarly`: the pair is in RESET. */
  give(pair: KeyedPair, options: number, targetQpn: number, isEarly: boolean): void {
    if (isEarly !== ((options & EARLY) !== 0)) return;
    const encrypt = (options & ENCRYPTED) !== 0;
    const keys: PacketKeys = { sendKey: SEND_KEY, recvKey: PEER_KEY, encrypt };
    const world = this.#world;
    const isGiven = world.try(() => pair.qp.setPacketKeys(keys));
    const connects = pair.spec.type !== QpType.UD;
    if (isGiven !== connects) throw new Error(`setPacketKeys: ${isGiven ? 'taken' : 'refused'}`);
    if (options & TWICE && world.try(() => pair.qp.setPacketKeys(keys))) {
      throw new Error('a queue pair took packet keys twice');
    }
    if (!isGiven) return;
    const generation = options & AGED ? AGED_GENERATION : 0;
    const direction = { key: PEER_KEY, lastKey: PEER_KEY, generation, next: 0, since: 0 };
    this.#pairs.set(pair, { ...direction, encrypts: encrypt });
    this.#least.set(targetQpn, generation > 0 ? this.#age(pair) : 0n);
  }

  /** Returns the counter of the device's next packet. */
  #age(pair: KeyedPair): bigint {
    const { memory } = this.#world.device.arena;
    const path = structAt(memory, PathLayout, pair.qp.handle + QUEUE_PAIR_PATH);
    const auth = structAt(memory, PacketAuthLayout, path.auth);
    auth.sendCounter = (BigInt(AGED_GENERATION) << NUMBER_BITS) + BigInt(AGED_NUMBER);
    auth.receiveGeneration = AGED_GENERATION;
    return auth.sendCounter;
  }

  /** The pair is reset. */
  forget(pair: KeyedPair): void {
    this.#pairs.delete(pair);
  }

  /** Appends the trailer to a packet of `length` bytes and encrypts it; returns the new length. */
  seal(pair: KeyedPair, packet: number, length: number, wanted: number): number {
    const direction = this.#pairs.get(pair);
    const kind = (wanted & ((1 << KIND_BITS) - 1)) % KINDS;
    if (!direction || kind === Kind.NONE) return length;
    const distance = wanted >>> KIND_BITS;
    if (kind === Kind.ROTATED || kind === Kind.ROTATED_TWICE) rotate(direction);
    if (kind === Kind.ROTATED_TWICE) rotate(direction);
    if (kind === Kind.AHEAD) direction.next += distance;
    let { generation, next: number, key } = direction;
    if (kind === Kind.BACK) number = Math.max(0, number - distance);
    else if (kind === Kind.LAST) {
      key = direction.lastKey;
      generation = Math.max(0, generation - 1);
      number = distance & 1 ? Math.max(0, direction.since - distance) : number;
    } else if (kind === Kind.FAR_GENERATION) generation += distance;
    direction.next = Math.max(direction.next, number + 1);
    const counter = (BigInt(generation % GENERATIONS) << NUMBER_BITS) | BigInt(number);
    const encrypts = direction.encrypts !== (kind === Kind.OTHER_CIPHER);
    const { memory } = this.#world.device.arena;
    const tag = packet + length - ICRC_SIZE + COUNTER_SIZE;
    this.#tag(packet, length - ICRC_SIZE, key, counter, encrypts);
    if (kind === Kind.BAD_TAG) memory.bytes[tag + (distance % TAG_SIZE)]! ^= 1 << (distance & 7);
    return length + TRAILER_SIZE;
  }

  #tag(packet: number, covered: number, key: Uint8Array, counter: bigint, encrypts: boolean): void {
    const { device, exports } = this.#world;
    const { bytes, view } = device.arena.memory;
    bytes.set(key, this.#memory);
    const mutable = bytes[packet + UNCOVERED]!;
    bytes[packet + UNCOVERED] = 0xff;
    const at = packet + covered;
    const low = Number(counter & 0xffffffffn);
    const high = Number(counter >> 32n);
    const plain = encrypts ? Math.min(BTH_SIZE, covered) : covered;
    const { context } = device.engine;
    const tag = at + COUNTER_SIZE;
    exports.aeadSeal(context, this.#memory, low, high, packet, covered, plain, tag);
    bytes[packet + UNCOVERED] = mutable;
    view.setBigUint64(at, counter, true);
  }

  /** Throws if a sent packet repeats a counter: a repeated nonce breaks ChaCha20-Poly1305. */
  checkSent(bytes: Uint8Array): void {
    if (bytes[0]! >> 5 === UD_CLASS || bytes.length < BTH_SIZE + TRAILER_SIZE + ICRC_SIZE) return;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const qpn = view.getUint32(4) & 0xffffff;
    const least = this.#least.get(qpn);
    if (least === undefined) return;
    const counter = view.getBigUint64(bytes.length - ICRC_SIZE - TRAILER_SIZE, true);
    if (counter < least) throw new Error(`counter ${counter} is used again, ${least} was next`);
    this.#least.set(qpn, counter + 1n);
  }
}

function rotate(direction: Direction): void {
  direction.lastKey = direction.key;
  direction.key = nextKey(direction.key);
  direction.generation++;
  direction.since = direction.next;
}
