/** Packets of an attacker: written into the receive area, sealed with a right or wrong ICRC. */
import {
  AnswerChecksLayout,
  LastLookLayout,
  PATH_SIZE,
  PathLayout,
  QUEUE_PAIR_PATH,
} from '#build/abi.js';
import { ContextLayout, Header, OPCODE_ROW_SIZE, Opcode, PacketFieldsLayout } from '#build/abi.js';
import { PacketFlag, PlacementType, QpType, RESOURCE_SIZE, ResourceLayout } from '#build/abi.js';
import { SendRequestLayout, SendState, WrOpcode } from '#build/abi.js';
import { structAt, type Struct } from '../../host/engine/struct.js';
import { icrc } from '../support/icrc.js';
import { PAIRS, PacketBit, PsnBase, REGIONS, type Action } from './action.js';
import { BINDABLE, BINDABLES } from './bindables.js';
import { QKEY, type Pair, type World } from './world.js';

const FIELD = PacketFieldsLayout.fields;
const WORD = (field: keyof typeof FIELD): number => FIELD[field][0] >> 2;
const MULTICAST_QPN = 0xffffff;
const PACKET_MAX = 4160;
const DEFAULT_PKEY = 0xffff;
const ACK = 0x1f;
/** In the scratch memory: PacketFields, and the two GIDs that the ICRC covers. */
const SOURCE_GID = 128;
const TARGET_GID = 144;
const PARSED = 256;

/** Meaning of a PACKET action. */
interface Wanted {
  readonly opcode: number;
  readonly flags: number;
  readonly headers: number;
  readonly headersLength: number;
  readonly psn: number;
  readonly bits: number;
}

function u32(value: number | undefined): number {
  return (value ?? 0) >>> 0;
}

/** Index of something, whatever the number. */
export function wrap(value: number | undefined, count: number): number {
  return u32(value) % count;
}

/**
 * State that the queue pair will have when it has taken the packets of a pair that wait: they are
 * handed over together, so its struct does not show it yet.
 */
class Ahead {
  readonly #pairs = new WeakMap<Pair, { packets: number; left: number; since: number }>();

  /** PSNs that the waiting packets use up. */
  packets(world: World, pair: Pair): number {
    return this.#of(world, pair)?.packets ?? 0;
  }

  /** Bytes that the WRITE in progress will still lack. */
  left(world: World, pair: Pair): number {
    return this.#of(world, pair)?.left ?? pair.struct.messageLeft;
  }

  /** A packet that fits joins those that wait. */
  add(world: World, pair: Pair, packets: number, left: number): void {
    const since = world.intake.flushes;
    this.#pairs.set(pair, { packets: this.packets(world, pair) + packets, left, since });
  }

  #of(world: World, pair: Pair): { packets: number; left: number } | undefined {
    const known = this.#pairs.get(pair);
    return known?.since === world.intake.flushes ? known : undefined;
  }
}

const ahead = new Ahead();

/** A key and an address for the region that an action names; the last two are invalid. */
export function target(world: World, index: number, offset: number): [key: number, at: bigint] {
  if (index >= BINDABLE && index < BINDABLE + BINDABLES) {
    return world.bindables.target(index - BINDABLE, offset);
  }
  const region = world.regions[wrap(index, REGIONS)];
  if (region) return [region.key, BigInt.asUintN(64, region.iova + BigInt(offset))];
  const base = BigInt(world.regions[0]!.buffer.byteOffset + offset);
  const key = wrap(index, REGIONS) === REGIONS - 1 ? 0 : (world.regions[0]!.key ^ 0x5a5a00) >>> 0;
  return [key, BigInt.asUintN(64, base)];
}

function psnOf(world: World, pair: Pair, base: number, delta: number, response: boolean): number {
  const { struct } = pair;
  let from = 0;
  switch (base === PsnBase.AUTO && response ? PsnBase.UNACKED : base) {
    case PsnBase.AUTO:
      from = struct.psnExpected + ahead.packets(world, pair);
      break;
    case PsnBase.EXPECTED:
      from = struct.psnExpected;
      break;
    case PsnBase.UNACKED:
      from = struct.psnUnacked;
      break;
    case PsnBase.MAX:
      from = struct.psnMax - 1;
      break;
    case PsnBase.NEXT:
      from = struct.psnNext - 1;
  }
  return (from + delta) & 0xffffff;
}

/** Bytes of the READ response that is due at this PSN; a path MTU without a READ in flight. */
function responseSize(world: World, pair: Pair, psn: number): number {
  const { struct } = pair;
  const { mtu, sendTail, sendFetched } = struct;
  for (let index = sendTail; index !== sendFetched; index = (index + 1) >>> 0) {
    const entry = index & (struct.sendEntries - 1);
    const at = struct.sendRequests + entry * struct.sendRequestStride;
    const request = structAt(world.device.arena.memory, SendRequestLayout, at);
    if (request.opcode !== WrOpcode.RDMA_READ || request.state !== SendState.STARTED) continue;
    const offset = ((psn - request.psnFirst) & 0xffffff) * mtu;
    if (offset < request.length) return Math.min(mtu, request.length - offset);
  }
  return mtu;
}

/** The payload that fits the opcode and what is going on. */
function plausibleSize(world: World, pair: Pair, wanted: Wanted): number {
  const { flags, opcode, psn } = wanted;
  const { struct } = pair;
  if (!(flags & PacketFlag.PAYLOAD)) return 0;
  if (opcode === Opcode.RC_ATOMIC_WRITE) return 8;
  // The header has 128 bits of the map.
  if (opcode === Opcode.MSP_SELECTIVE_ACKNOWLEDGE) return 0;
  if (flags & PacketFlag.RESPONSE) return responseSize(world, pair, psn);
  if (!(flags & PacketFlag.END)) return struct.mtu;
  if (flags & PacketFlag.START || !(flags & PacketFlag.WRITE)) return 8;
  return Math.min(ahead.left(world, pair), struct.mtu);
}

/** Length that the RETH announces: the payload, or three packets' worth where a message begins. */
function plausibleLength(pair: Pair, flags: number, size: number): number {
  if (flags & PacketFlag.READ) return 2 * pair.struct.mtu + 100;
  if (flags & PacketFlag.FLUSH) return 64;
  return flags & PacketFlag.END ? size : 2 * pair.struct.mtu + 100;
}

function putU64(words: Uint32Array, at: number, value: bigint): void {
  words[at] = Number(value & 0xffffffffn);
  words[at + 1] = Number(value >> 32n);
}

/** Answer checks of the queue pair's peer. */
function checksOf(world: World, pair: Pair): Struct<typeof AnswerChecksLayout> {
  const at = QUEUE_PAIR_PATH + PATH_SIZE + LastLookLayout.size;
  return structAt(world.device.arena.memory, AnswerChecksLayout, pair.qp.handle + at);
}

function fill(world: World, pair: Pair, action: Action, wanted: Wanted, size: number): number {
  const { words } = world.device.arena.memory;
  const { bits, flags, headers } = wanted;
  const at = world.scratch >> 2;
  const operand = action[11] ?? 0;
  const [key, address] = target(world, action[6] ?? 0, action[7] ?? 0);
  const pad = (-size & 3) ^ (bits & PacketBit.BAD_PAD ? 1 + (size & 1) : 0);
  const given = action[8] ?? 0;
  words.fill(0, at, at + (PacketFieldsLayout.size >> 2));
  words[at + WORD('opcode')] = wanted.opcode;
  words[at + WORD('targetQp')] = qpnOf(pair, bits);
  const checks = checksOf(world, pair);
  words[at + WORD('psn')] = wanted.psn;
  words[at + WORD('msn')] = (checks.msnSeen + u32(action[13])) & 0xffffff;
  words[at + WORD('pkey')] = bits & PacketBit.BAD_PKEY ? operand : DEFAULT_PKEY;
  words[at + WORD('padCount')] = pad;
  words[at + WORD('solicited')] = bits & PacketBit.SOLICITED;
  words[at + WORD('ackRequest')] = bits & PacketBit.ACK_REQUEST;
  words[at + WORD('congestion')] = bits & PacketBit.FECN ? 0x80 : 0;
  putU64(words, at + WORD('virtualAddress'), address);
  const invalidates = (headers & Header.IETH) !== 0;
  words[at + WORD('key')] = invalidates ? target(world, operand, 0)[0] : key;
  words[at + WORD('dmaLength')] = given === 0 ? plausibleLength(pair, flags, size) : given - 1;
  const syndrome = action[9] ?? 0;
  words[at + WORD('syndrome')] = syndrome === 0 ? ACK : (syndrome - 1) & 0xff;
  putU64(words, at + WORD('aheadLow'), BigInt(operand >>> 0 || 1) << BigInt(wrap(given, 33)));
  putU64(words, at + WORD('aheadHigh'), BigInt((action[7] ?? 0) >>> 0));
  words[at + WORD('immediate')] = operand;
  words[at + WORD('swapAdd')] = operand;
  words[at + WORD('compare')] = operand & 1 ? 0 : 0x40404040;
  words[at + WORD('qkey')] = bits & PacketBit.BAD_QKEY ? operand : QKEY;
  words[at + WORD('sourceQp')] = pair.struct.targetQp;
  // For persistence, unless the action says otherwise: that is what takes its time.
  words[at + WORD('flush')] = operand || PlacementType.PERSISTENT;
  return pad;
}

/** Turns the packet in the making into one for a request that was executed, or for some packets. */
function repeat(world: World, pair: Pair, choice: number): void {
  const { memory } = world.device.arena;
  const { struct } = pair;
  const index = (struct.resourceHead - 1 - (choice % 3)) & (struct.rdAtomicLimit - 1);
  const resource = structAt(memory, ResourceLayout, struct.resources + index * RESOURCE_SIZE);
  const packets = ((resource.psnLast - resource.psnFirst) & 0xffffff) + 1;
  const skipped = Math.floor(choice / 3) % packets;
  const offset = skipped * struct.mtu;
  const at = world.scratch >> 2;
  memory.words[at + WORD('psn')] = (resource.psnFirst + skipped) & 0xffffff;
  memory.words[at + WORD('key')] = resource.key;
  const left = resource.length - offset;
  const isPart = Math.floor(choice / 12) % 2 === 1;
  memory.words[at + WORD('dmaLength')] = isPart ? Math.min(left, struct.mtu) : left;
  putU64(memory.words, at + WORD('virtualAddress'), resource.address + BigInt(offset));
}

function qpnOf(pair: Pair, bits: number): number {
  if (bits & PacketBit.MULTICAST) return MULTICAST_QPN;
  return bits & PacketBit.BAD_QPN ? pair.qp.qpNum ^ 0x80 : pair.qp.qpNum;
}

/** Writes a PACKET where the next one goes; hands over what waits unless it says HOLD. */
export function putPacket(world: World, action: Action): void {
  const { arena, engine } = world.device;
  const { memory, exports } = arena;
  const pair = world.pairs[wrap(action[1], PAIRS)]!;
  const bits = u32(action[10]);
  const context = structAt(memory, ContextLayout, engine.context);
  const opcode = u32(action[2]) & 0xff;
  const row = context.opcodeTable + opcode * OPCODE_ROW_SIZE;
  const flags = memory.view.getUint16(row, true);
  const headers = memory.view.getUint16(row + 2, true);
  const response = (flags & PacketFlag.RESPONSE) !== 0;
  const psn = psnOf(world, pair, wrap(action[3], 7), action[4] ?? 0, response);
  const wanted = { opcode, flags, headers, headersLength: memory.bytes[row + 4]!, psn, bits };
  const exact = action[5] ?? 0;
  const size = exact === 0 ? plausibleSize(world, pair, wanted) : Math.abs(exact - 1) & 0x0fff;
  const pad = fill(world, pair, action, wanted, size);
  if (wrap(action[3], 7) === PsnBase.REPEAT) repeat(world, pair, (action[4] ?? 0) >>> 0);
  const at = world.intake.next();
  if (exports.build(engine.context, at, world.scratch) === 0) memory.bytes[at] = opcode;
  const { sendMark, keepMark } = checksOf(world, pair);
  const mark = (response ? sendMark : keepMark) ^ (u32(action[13]) >>> 24);
  if (pair.spec.reorder !== undefined) memory.bytes[at + 8]! |= mark & 0x7f;
  if (bits & PacketBit.BAD_VERSION) memory.bytes[at + 1]! |= 1;
  if (bits & PacketBit.UNKNOWN_OPCODE) memory.bytes[at] = 0x40 | opcode;
  const whole = wanted.headersLength + size + pad + 4;
  const length = Math.max(0, Math.min(whole + (action[12] ?? 0), 5000));
  finish(world, pair, at, length, action);
  if (bits & PacketBit.HOLD) expect(world, pair, action, wanted, size);
  if (bits & PacketBit.SEGMENTED) world.intake.flushSegmented();
  else if (!(bits & PacketBit.HOLD)) {
    const before = world.sealed;
    const alone = world.intake.waiting === 1;
    world.intake.flush();
    if (alone && world.sealed !== before) world.opcodes.add(memory.bytes[at]!);
  }
}

/** Notes what this packet will have changed when those behind it are looked at. */
function expect(world: World, pair: Pair, action: Action, wanted: Wanted, size: number): void {
  const { flags } = wanted;
  if (flags & PacketFlag.RESPONSE || (action[3] ?? 0) !== 0 || (action[4] ?? 0) !== 0) return;
  const words = world.device.arena.memory.words;
  const announced = words[(world.scratch >> 2) + WORD('dmaLength')]!;
  const { mtu } = pair.struct;
  const packets = flags & PacketFlag.READ && mtu > 0 ? Math.ceil(announced / mtu) || 1 : 1;
  const before = flags & PacketFlag.START ? announced : ahead.left(world, pair);
  ahead.add(world, pair, packets, Math.max(0, before - size));
}

/** Seals and adds the packet. */
function finish(world: World, pair: Pair, at: number, bare: number, action: Action): void {
  const bits = u32(action[10]);
  const isPacket = bare >= 16 && bare <= PACKET_MAX && bare % 4 === 0;
  const length = isPacket ? (world.keys?.seal(pair, at, bare, u32(action[14])) ?? bare) : bare;
  const source = (bits & PacketBit.OTHER_SOURCE ? world.stranger : world.peer).gid;
  const port = bits & PacketBit.OTHER_PORT ? 50000 + (bits & 3) : world.peer.port;
  const group = bits & PacketBit.MULTICAST && !(bits & PacketBit.BAD_QPN) ? world.group : undefined;
  if (isPacket) {
    const to = group ?? world.context.local.gid;
    const bare = skipsIcrc(world, pair) && (bits & PacketBit.IP_ID) === 0;
    const right = bare ? 0 : seal(world, at, length, source.bytes, to.bytes, port, bits);
    world.device.arena.memory.view.setUint32(at + length - 4, right, true);
    if (bits & PacketBit.BAD_ICRC) world.device.arena.memory.bytes[at + length - 1]! ^= 0x10;
  }
  // The codec parses the packets of the wire as well.
  const { engine, arena } = world.device;
  arena.exports.parse(engine.context, at, length, world.scratch + PARSED);
  world.intake.add(length, source, port, group);
}

/** Did the queue pair agree to packets without an ICRC? */
function skipsIcrc(world: World, pair: Pair): boolean {
  const { memory } = world.device.arena;
  return structAt(memory, PathLayout, pair.qp.handle + QUEUE_PAIR_PATH).skipsIcrc !== 0;
}

function seal(
  world: World,
  packet: number,
  length: number,
  source: Uint8Array,
  to: Uint8Array,
  port: number,
  bits: number,
): number {
  const { arena, engine } = world.device;
  const { bytes } = arena.memory;
  const local = world.context.local.port;
  if (world.family === 'ipv4' && bits & PacketBit.IP_ID) {
    return icrc(ipPacket(bytes.subarray(packet, packet + length), source, to, port, local));
  }
  const from = world.scratch + SOURCE_GID;
  const target = world.scratch + TARGET_GID;
  bytes.set(source, from);
  bytes.set(to, target);
  const at = world.family === 'ipv4' ? 12 : 0;
  const family = world.family === 'ipv4' ? 4 : 6;
  const ports = world.family === 'none' ? ([4791, 4791] as const) : ([port, local] as const);
  const { context } = engine;
  return arena.exports.icrc(context, family, from + at, target + at, ...ports, packet, length);
}

/** The IPv4 packet around it, with an identification that is not 0. */
function ipPacket(
  packet: Uint8Array,
  source: Uint8Array,
  to: Uint8Array,
  port: number,
  local: number,
): Uint8Array {
  const whole = new Uint8Array(28 + packet.length);
  const view = new DataView(whole.buffer);
  view.setUint16(0, 0x4500);
  view.setUint16(2, whole.length);
  view.setUint16(4, 0x1234 ^ packet.length);
  view.setUint16(6, 0x4000);
  whole[9] = 17;
  whole.set(source.subarray(12), 12);
  whole.set(to.subarray(12), 16);
  view.setUint16(20, port);
  view.setUint16(22, local);
  view.setUint16(24, packet.length + 8);
  whole.set(packet, 28);
  return whole;
}

/** Random bytes, not sealed. */
export function putRaw(world: World, seed: number, length: number): void {
  const { bytes } = world.device.arena.memory;
  const at = world.intake.next();
  const size = wrap(length, 5000);
  let state = seed | 1;
  for (let index = 0; index < size; index++) {
    state = Math.imul(state, 1664525) + 1013904223;
    bytes[at + index] = state >>> 24;
  }
  // Half of them go to a queue pair that exists, so that more than the first check looks at them.
  const pair = world.pairs[u32(seed) % PAIRS]!;
  if (seed & 2 && size >= 12) world.device.arena.memory.view.setUint32(at + 4, pair.qp.qpNum);
  world.exports.parse(world.device.engine.context, at, size, world.scratch + PARSED);
  world.intake.add(size, world.peer.gid, world.peer.port, undefined);
  world.intake.flush();
}

/** Datagrams have no connection: what a pair sends goes where an address handle says. */
export function isDatagram(pair: Pair): boolean {
  return pair.spec.type === QpType.UD;
}
