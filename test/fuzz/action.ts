/**
 * Actions of a fuzzer on a world, as numbers: a scenario is a list of actions, an action a list of
 * whole numbers whose first is its kind. Every list means something: what is out of range wraps,
 * what is missing is 0, and 0 is the plausible choice. So scenarios can be cut, joined and changed
 * anywhere, and stay valid when the generator changes.
 */
import { Opcode, WrOpcode } from '#build/abi.js';
import { Kind, PAIRS, PacketBit, PsnBase, REGIONS } from './action-kinds.js';
import type { Action, Below, Scenario } from './action-kinds.js';
import { trailer } from './peer-keys.js';
import { run, wait } from './runs.js';

export * from './action-kinds.js';

const BINDABLE = 64;
const OPCODES = Object.values(Opcode);
const RC_REQUESTS = OPCODES.filter(
  (opcode) => opcode < 0x20 && !(opcode >= 0x0d && opcode <= 0x12),
);
const RC_RESPONSES = [
  ...OPCODES.filter((code) => code >= 0x0d && code <= 0x12),
  Opcode.CNP,
  Opcode.MSP_SELECTIVE_ACKNOWLEDGE,
];
const UC_OPCODES = OPCODES.filter((opcode) => opcode >> 5 === 1);
const UD_OPCODES = OPCODES.filter((opcode) => opcode >> 5 === 3);
const WORK = Object.values(WrOpcode);
const SYNDROMES = [0, 0x20, 0x21, 0x2c, 0x3f, 0x40, 0x60, 0x61, 0x62, 0x63, 0x64, 0x7f, 0xff];
const EDGES = [0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 31, 32, 63, 64, 100, 255, 256, 257, 300, 511, 512];
const FAR = [1024, 1025, 4096, 4097, 8191, 8192, 65535, 2 ** 23, 2 ** 24 - 1, 2 ** 31, 2 ** 32 - 1];

function pick<T>(below: Below, list: readonly T[]): T {
  return list[below(list.length)]!;
}

/** Of pairs 0 .. 10: RC, UC or UD (world.ts `PAIR_SPECS`). */
function opcodesOf(pair: number, below: Below): readonly number[] {
  if (below(12) === 0) return OPCODES;
  const kind = pair % PAIRS;
  if (kind === 2 || kind === 3 || kind === 8) return UC_OPCODES;
  if (kind === 4 || kind === 5 || kind === 7) return UD_OPCODES;
  return below(5) < 2 ? RC_RESPONSES : RC_REQUESTS;
}

/** One that the world began with, or one that work opens and closes. */
function anyRegion(below: Below): number {
  return below(8) === 0 ? BINDABLE + below(12) : below(REGIONS);
}

/** Mostly 0, which stands for what fits. */
function rarely(below: Below, oneIn: number, value: () => number): number {
  return below(oneIn) === 0 ? value() : 0;
}

function anyNumber(below: Below): number {
  const value = below(4) === 0 ? pick(below, FAR) : pick(below, EDGES);
  return below(6) === 0 ? -value : value;
}

function trimmed(action: number[]): Action {
  let length = action.length;
  while (length > 1 && action[length - 1] === 0) length--;
  return action.slice(0, length);
}

function packetFlags(below: Below): number {
  let flags = below(2) === 0 ? PacketBit.ACK_REQUEST : 0;
  if (below(4) === 0) flags |= PacketBit.HOLD;
  if (below(6) === 0) flags |= PacketBit.SOLICITED;
  if (below(5) === 0) flags |= 1 << below(16);
  return flags;
}

export function packet(below: Below, pair: number, opcode?: number): Action {
  return trimmed([
    Kind.PACKET,
    pair,
    opcode ?? pick(below, opcodesOf(pair, below)),
    rarely(below, 8, () => below(7)),
    rarely(below, 6, () => pick(below, [1, -1, 2, -2, 3, -3, 5, -7, anyNumber(below)])),
    rarely(below, 6, () => pick(below, EDGES) + 1),
    rarely(below, 4, () => anyRegion(below)),
    rarely(below, 4, () => anyNumber(below)),
    rarely(below, 6, () => anyNumber(below)),
    rarely(below, 2, () => pick(below, SYNDROMES) + 1),
    packetFlags(below),
    rarely(below, 3, () => anyNumber(below)),
    rarely(below, 40, () => anyNumber(below)),
    // Off the peer's MSN and mark.
    rarely(below, 6, () => (below(2) === 0 ? 1 : anyNumber(below))),
    rarely(below, 4, () => trailer(below)),
  ]);
}

/** A whole message in order: FIRST, MIDDLE …, LAST. */
function message(below: Below, pair: number): Action[] {
  const kind = pair % PAIRS;
  const service = kind === 2 || kind === 3 || kind === 8 ? 0x20 : 0;
  const write = below(2) === 0;
  const first = service + (write ? Opcode.RC_RDMA_WRITE_FIRST : Opcode.RC_SEND_FIRST);
  const lasts = [first + 2, first + 3];
  if (!write && service === 0) lasts.push(Opcode.RC_SEND_LAST_WITH_INVALIDATE);
  const region = rarely(below, 3, () => anyRegion(below));
  const offset = rarely(below, 3, () => anyNumber(below));
  const flags = below(2) === 0 ? PacketBit.HOLD : 0;
  const of = (opcode: number): number[] => [Kind.PACKET, pair, opcode, 0, 0, 0, region, offset];
  const actions = [[...of(first), 0, 0, flags]];
  // A WRITE's FIRST announces two full packets and one more: see packet.ts.
  for (let count = write ? 1 : below(3); count > 0; count--) {
    actions.push([...of(first + 1), 0, 0, flags]);
  }
  const operand = below(REGIONS);
  actions.push([...of(pick(below, lasts)), 0, 0, PacketBit.ACK_REQUEST, operand]);
  return actions.map(trimmed);
}

/** Requests with responses that have data, and packets between them, delivered together. */
function burst(below: Below, pair: number): Action[] {
  const { RC_RDMA_READ_REQUEST: read, RC_FETCH_ADD: add, RC_COMPARE_SWAP: swap } = Opcode;
  const { RC_RDMA_WRITE_ONLY: write, RC_SEND_ONLY: toReceive } = Opcode;
  const actions: Action[] = [];
  for (let count = 2 + below(4); count > 0; count--) {
    const opcode = pick(below, [read, read, read, add, swap, write, toReceive]);
    const length = opcode === read ? pick(below, [0, 0, 1, 5, 4097, 8193, 30701, 36001]) : 0;
    const psn = rarely(below, 5, () => pick(below, [-1, -2, -3, -5, anyNumber(below)]));
    const again = below(3) === 0;
    const base = again ? PsnBase.REPEAT : psn === 0 ? PsnBase.AUTO : PsnBase.EXPECTED;
    const region = rarely(below, 4, () => anyRegion(below));
    const offset = rarely(below, 3, () => anyNumber(below));
    const flags = (below(2) === 0 ? PacketBit.ACK_REQUEST : 0) | (count > 1 ? PacketBit.HOLD : 0);
    const fecn = below(6) === 0 ? PacketBit.FECN : 0;
    const head = [Kind.PACKET, pair, opcode, base, again ? below(24) : psn, 0, region, offset];
    actions.push(trimmed([...head, length, 0, flags | fecn, below(4)]));
    if (below(10) === 0) actions.push(trimmed([Kind.KEY, region, below(4)]));
  }
  return actions;
}

/** Requests of our own, and answers to them, in and out of order. */
function answers(below: Below, pair: number): Action[] {
  const { SEND, RDMA_WRITE, RDMA_READ, ATOMIC_FETCH_AND_ADD } = WrOpcode;
  const actions: Action[] = [];
  for (let count = 1 + below(4); count > 0; count--) {
    const opcode = pick(below, [SEND, RDMA_WRITE, RDMA_READ, RDMA_READ, ATOMIC_FETCH_AND_ADD]);
    const length = opcode === ATOMIC_FETCH_AND_ADD ? 8 : pick(below, [0, 8, 600, 1500]);
    const shape = below(5) === 0 ? below(16) : 1;
    actions.push([Kind.SEND, pair, opcode, length, shape, 0, 0, below(2) === 0 ? 2 : 0]);
  }
  for (let count = 1 + below(5); count > 0; count--) {
    const opcode = pick(below, RC_RESPONSES);
    const base = pick(below, [PsnBase.UNACKED, PsnBase.UNACKED, PsnBase.MAX, PsnBase.NEXT]);
    const delta = rarely(below, 2, () => pick(below, [1, 2, 3, -1, -2]));
    const syndrome = rarely(below, 2, () => pick(below, SYNDROMES) + 1);
    const flags = below(2) === 0 ? PacketBit.HOLD : 0;
    // PSNs that a selective acknowledgement reports as arrived.
    const arrived = rarely(below, 2, () => below(256));
    const far = rarely(below, 8, () => below(256));
    actions.push(
      trimmed([Kind.PACKET, pair, opcode, base, delta, 0, 0, far, far, syndrome, flags, arrived]),
      ...(below(4) === 0 ? [time(below)] : []),
    );
  }
  return actions;
}

/** Requests of several packets, of which maps say which have arrived, soon or late or never. */
function losses(below: Below, pair: number): Action[] {
  const { RDMA_WRITE, RDMA_READ, SEND } = WrOpcode;
  const actions: Action[] = below(3) > 0 ? [connect(below, pair)] : [];
  for (let count = 2 + below(4); count > 0; count--) {
    const opcode = pick(below, [RDMA_WRITE, RDMA_WRITE, SEND, RDMA_READ]);
    const length = pick(below, [8, 600, 1500, 3000, 9000]);
    actions.push([Kind.SEND, pair, opcode, length, 1, 0, 0, 2], [Kind.TIME, 1 + below(300)]);
  }
  for (let count = 2 + below(6); count > 0; count--) {
    const isMap = below(4) > 0;
    const opcode = isMap ? Opcode.MSP_SELECTIVE_ACKNOWLEDGE : Opcode.RC_ACKNOWLEDGE;
    const psn = pick(below, [0, 0, 0, 1, 2, 3]);
    const syndrome = isMap ? pick(below, [0x61, 0x61, 0x20]) : 0;
    const map = pick(below, [1, 2, 3, 4, 6, 8, 12, below(64)]);
    const head = [Kind.PACKET, pair, opcode, PsnBase.UNACKED, psn, 0, 0, 0];
    actions.push(trimmed([...head, 0, syndrome, 0, map]));
    const micros = pick(below, [0, 1, 5, 50, 500, 5000, 50_000]);
    if (micros > 0) actions.push([Kind.TIME, micros]);
  }
  return actions;
}

/** READs and what is behind them, of which some responses arrive, in any order, and ACKs. */
function holes(below: Below, pair: number): Action[] {
  const { RDMA_WRITE, RDMA_READ, ATOMIC_FETCH_AND_ADD: ADD } = WrOpcode;
  const { RC_RDMA_READ_RESPONSE_MIDDLE: DATA, RC_ATOMIC_ACKNOWLEDGE, RC_ACKNOWLEDGE } = Opcode;
  const actions: Action[] = below(2) > 0 ? [connect(below, pair)] : [];
  for (let count = 2 + below(3); count > 0; count--) {
    const opcode = pick(below, [RDMA_READ, RDMA_READ, RDMA_READ, RDMA_WRITE, ADD]);
    const length = opcode === ADD ? 8 : pick(below, [600, 3000, 9000]);
    actions.push([Kind.SEND, pair, opcode, length, 1, 0, 0, 2], [Kind.TIME, 1 + below(300)]);
  }
  for (let count = 4 + below(10); count > 0; count--) {
    const opcode = pick(below, [DATA, DATA, DATA, DATA, RC_ATOMIC_ACKNOWLEDGE, RC_ACKNOWLEDGE]);
    const psn = pick(below, [0, 1, 1, 2, 3, 4, 6, 9]);
    actions.push(trimmed([Kind.PACKET, pair, opcode, PsnBase.UNACKED, psn]));
    const micros = pick(below, [0, 0, 1, 50, 5000]);
    if (micros > 0) actions.push([Kind.TIME, micros]);
    if (below(30) === 0) actions.push(trimmed([Kind.KEY, anyRegion(below), below(4)]));
  }
  return actions;
}

/** A retransmission that proves needless, and then packets that may be as late. */
function late(below: Below, pair: number): Action[] {
  const micros = pick(below, [100, 1000, 1000, 20_000]);
  const ack = [Kind.PACKET, pair, Opcode.RC_ACKNOWLEDGE, PsnBase.MAX];
  const opcode = Opcode.MSP_SELECTIVE_ACKNOWLEDGE;
  const overtaken = [Kind.PACKET, pair, opcode, PsnBase.UNACKED, 0, 0, 0, 0, 0, 0x61, 0, 1];
  const one = [Kind.SEND, pair, WrOpcode.RDMA_WRITE, 8, 1, 0, 0, 2];
  const actions: Action[] = [connect(below, pair), one, [Kind.TIME, micros], ack];
  for (let count = 2 + below(3); count > 0; count--) {
    actions.push(one, [Kind.TIME, 1 + below(3)], one, [Kind.TIME, micros], overtaken);
    const more = pick(below, [0, 1, micros >> 5, micros >> 3, micros >> 1, 2 * micros]);
    if (more > 0) actions.push([Kind.TIME, more]);
    if (below(4) === 0) actions.push(overtaken);
    actions.push(ack);
  }
  return actions;
}

/** Requests that come ahead of what is expected, in any order, and then what was missing. */
function gaps(below: Below, pair: number): Action[] {
  const { RC_RDMA_READ_REQUEST: read, RC_FETCH_ADD: add, RC_SEND_ONLY: toReceive } = Opcode;
  const { RC_RDMA_WRITE_ONLY: write, RC_SEND_ONLY_WITH_INVALIDATE: invalidate } = Opcode;
  const actions: Action[] = [];
  for (let count = 1 + below(6); count > 0; count--) {
    const opcode = pick(below, [write, write, toReceive, read, add, invalidate, below(24)]);
    const delta = pick(below, [1, 2, 2, 3, 4, 5, 8, 9, 32, 64, 65, 130]);
    const bits = below(3) === 0 ? PacketBit.ACK_REQUEST : 0;
    const region = rarely(below, 6, () => anyRegion(below));
    const head = [Kind.PACKET, pair, opcode, PsnBase.EXPECTED, delta, 0, region];
    actions.push(trimmed([...head, 0, 0, 0, bits | (below(4) === 0 ? PacketBit.HOLD : 0)]));
  }
  const first = pick(below, [write, toReceive, read]);
  const length = rarely(below, 4, () => pick(below, [2000, 16000, 30701, 36001]));
  actions.push(trimmed([Kind.PACKET, pair, first, 0, 0, 0, 0, 0, length]));
  return actions;
}

/** Round trips that get longer, and then a loss. */
function roundTrips(below: Below, pair: number): Action[] {
  const actions: Action[] = [];
  const ack = [Kind.PACKET, pair, Opcode.RC_ACKNOWLEDGE, PsnBase.MAX];
  for (const micros of [1 + below(50), 500 + below(3000), 500 + below(3000)]) {
    actions.push([Kind.SEND, pair, WrOpcode.SEND, 8, 1, 0, 0, 2], [Kind.TIME, micros], ack);
  }
  actions.push([Kind.SEND, pair, WrOpcode.RDMA_WRITE, 3000, 1, 0, 0, 2]);
  actions.push([...ack, -1 - below(3), 0, 0, 0, 0, 0x61], [Kind.PACKET, pair, Opcode.CNP]);
  return actions;
}

export function connect(below: Below, pair: number): Action {
  let options = below(3);
  for (let shift = 2; shift < 18; shift += 2) {
    if (below(3) === 0) options |= below(4) << shift;
  }
  if (below(3) > 0) options |= 1 << 18;
  if (below(3) === 0) options |= below(64) << 20;
  const psn = below(3) === 0 ? 0xfffffe - below(4) : below(1 << 24);
  return trimmed([Kind.CONNECT, pair, options, psn, rarely(below, 5, () => below(7))]);
}

export function send(below: Below, pair: number): Action {
  return trimmed([
    Kind.SEND,
    pair,
    below(8) === 0 ? below(16) : pick(below, WORK),
    pick(below, [0, 1, 8, 8, 8, 40, 255, 256, 300, 600, 1500, 3000, 5000, 20000]),
    below(2) === 0 ? below(4) : below(16),
    rarely(below, 4, () => anyRegion(below)),
    rarely(below, 6, () => anyNumber(below)),
    below(2) === 0 ? 2 : below(16),
    rarely(below, 4, () => anyRegion(below)),
    rarely(below, 6, () => anyNumber(below)),
    below(REGIONS * 4),
  ]);
}

export function receive(below: Below, pair: number): Action {
  return trimmed([
    Kind.RECEIVE,
    pair,
    pick(below, [0, 2, 8, 40, 100, 300, 600, 1500, 1500]),
    below(2) === 0 ? below(4) : below(16),
    rarely(below, 5, () => anyRegion(below)),
    rarely(below, 6, () => anyNumber(below)),
    1 + below(4),
  ]);
}

export function time(below: Below): Action {
  return trimmed([Kind.TIME, pick(below, [0, 0, 0, 1, 100, 5000, 1_000_000, 20_000_000])]);
}

function state(below: Below, pair: number): Action {
  return trimmed([Kind.STATE, pair, below(11), below(3) === 0 ? below(81) : anyNumber(below)]);
}

/** A key is opened by work, used by the peer, and closed again; or not quite. */
function bindings(below: Below, pair: number): Action[] {
  const { BIND_MW, REG_MR, BIND_MR, LOCAL_INV } = WrOpcode;
  const which = below(4);
  const rights = below(4) + (below(4) === 0 ? 4 * below(32) : 0);
  const spoiled = rarely(below, 5, () => below(8));
  const value = rarely(below, 2, () => anyNumber(below));
  const flags = below(2) === 0 ? 2 : below(16);
  const opcode =
    below(8) === 0 ? pick(below, [BIND_MW, REG_MR, BIND_MR]) : which < 2 ? BIND_MW : REG_MR;
  const length = pick(below, [4096, 4096, 64, 512, 0, 4097]);
  const offset = rarely(below, 6, () => anyNumber(below));
  const open = [Kind.SEND, pair, opcode, length, 1, spoiled, value, flags, which, offset, rights];
  const actions: Action[] = [trimmed(open)];
  // Another participant is changing its entry.
  const frozen = BINDABLE + pick(below, [which, 5, 6]);
  if (below(6) === 0) actions.unshift([Kind.KEY, frozen, 1]);
  const region = BINDABLE + (below(5) === 0 ? below(12) : which);
  const at = rarely(below, 2, () => anyNumber(below));
  const { RC_RDMA_WRITE_ONLY, RC_RDMA_READ_REQUEST, RC_FETCH_ADD } = Opcode;
  const { RC_SEND_ONLY_WITH_INVALIDATE: invalidate, UC_RDMA_WRITE_ONLY } = Opcode;
  const uses = [RC_RDMA_WRITE_ONLY, RC_RDMA_READ_REQUEST, RC_FETCH_ADD, UC_RDMA_WRITE_ONLY];
  for (let count = below(4); count > 0; count--) {
    const use = [Kind.PACKET, pair, pick(below, uses), 0, 0, 0, region, at];
    actions.push(trimmed([...use, 0, 0, PacketBit.ACK_REQUEST]));
  }
  if (below(3) === 0) actions.push([Kind.PACKET, pair, invalidate, 0, 0, 0, 0, 0, 0, 0, 0, region]);
  const { SEND, RDMA_WRITE } = WrOpcode;
  if (below(3) === 0) actions.push([Kind.SEND, pair, pick(below, [SEND, RDMA_WRITE]), 64, 1]);
  const close = [Kind.SEND, pair, LOCAL_INV, 0, 1, 0, 0, 2, 0, 0, region];
  // It may have to wait for its turn to complete.
  if (below(3) === 0) actions.unshift([Kind.SEND, pair, RDMA_WRITE, 64, 1, 0, 0, 2]);
  const ack = [Kind.PACKET, pair, Opcode.RC_ACKNOWLEDGE, PsnBase.MAX];
  if (below(2) === 0) actions.push(ack);
  if (below(3) > 0) actions.push(close);
  if (below(3) === 0) actions.push(trimmed(open));
  return actions;
}

/** Ring number of a SCRIBBLE that stands for the program of a layout. */
export const PROGRAM = 3;

/** Into streams of layouts (bindables.ts). */
const OFFSETS = [0, 0, 1, 7, 8, 12, 96, 100, 313, 413, 600, 800, 1400, 1912];

/** A word of a layout's program, mostly to what no compiler writes there. */
function spoil(below: Below, pair: number): Action {
  const value = below(3) > 0 ? pick(below, [0, 0, 1, 9, 0x7fffffff]) : anyNumber(below);
  return [Kind.SCRIBBLE, pair, PROGRAM, below(1024), value];
}

/** A memory layout is bound, sent from, received into, and named by the peer. */
function layouts(below: Below, pair: number): Action[] {
  const region = BINDABLE + 7 + below(5);
  const at = below(5) === 0 ? anyNumber(below) : pick(below, OFFSETS);
  const length = pick(below, [1, 8, 8, 40, 300, 600, 800, 1000, 3000]);
  const bit = PacketBit.ACK_REQUEST;
  const { RC_RDMA_WRITE_ONLY, RC_RDMA_READ_REQUEST: read, RC_FETCH_ADD, RC_SEND_ONLY } = Opcode;
  const remote = [RC_RDMA_WRITE_ONLY, read, read, RC_FETCH_ADD];
  const { SEND, RDMA_WRITE, RDMA_READ, BIND_MR, LOCAL_INV } = WrOpcode;
  const actions: Action[] = [];
  for (let count = 1 + below(4); count > 0; count--) {
    const which = below(7);
    if (which < 2) {
      const work = pick(below, [SEND, RDMA_WRITE, RDMA_READ]);
      actions.push([Kind.SEND, pair, work, length, 1, region, at, 2]);
    } else if (which === 2) {
      actions.push([Kind.RECEIVE, pair, length, 1, region, at, 1]);
      actions.push([Kind.PACKET, pair, RC_SEND_ONLY, 0, 0, 0, 0, 0, length, 0, bit]);
    } else if (which < 6) {
      const use = [Kind.PACKET, pair, pick(below, remote), 0, 0, 0, region, at];
      actions.push([...use, length, 0, bit]);
    } else {
      actions.push(trimmed([Kind.SEND, pair, BIND_MR, 0, 1, 0, 0, 2, rarely(below, 4, () => 2)]));
    }
  }
  if (below(6) === 0) actions.push([Kind.SEND, pair, LOCAL_INV, 0, 1, 0, 0, 2, 0, 0, region]);
  if (below(4) === 0) actions.push([...actions[0]!]);
  return actions;
}

/** One step of the fuzzer of received packets: one action, or a message of several. */
export function receiveStep(below: Below, pair: number): readonly Action[] {
  const other = below(25) === 0 ? below(PAIRS) : pair;
  const dice = below(100);
  if (dice < 4) return below(3) > 0 ? bindings(below, other) : layouts(below, other);
  if (dice < 44) return [packet(below, other)];
  if (dice < 50) return below(8) === 0 ? run(below, other) : burst(below, other);
  if (dice < 52) return answers(below, other);
  if (dice < 53) return holes(below, other);
  if (dice < 54) return losses(below, other);
  if (dice < 55) return late(below, other);
  if (dice < 56) return roundTrips(below, other);
  if (dice < 59) return gaps(below, other);
  if (dice < 66) return message(below, other);
  if (dice < 74) return [send(below, other)];
  if (dice < 81) return [receive(below, other)];
  if (dice < 87) return [time(below)];
  if (dice < 90) return [state(below, other)];
  if (dice < 91) return [trimmed([Kind.KEY, anyRegion(below), below(4)])];
  if (dice < 93) return [trimmed([Kind.ENGINE, below(3) > 0 ? 1 : 0])];
  if (dice < 96) return [trimmed([Kind.POLL, below(3)])];
  if (dice < 97) return below(3) > 0 ? [trimmed([Kind.WIRE, below(2)])] : wait(below, other);
  return [[Kind.RAW, below(1 << 30), below(4) === 0 ? below(4300) : below(80)]];
}

/** Which rings a world shares with the application: of sends, of receives, of completions. */
const RINGS = 3;

function hostileEntry(below: Below, pair: number): Action {
  const entry = [Kind.ENTRY, pair, below(5) === 0 ? 1 : 0];
  entry.push(below(4) === 0 ? anyNumber(below) : pick(below, WORK));
  for (let field = 0; field < 9; field++) {
    entry.push(rarely(below, 3, () => anyNumber(below)));
  }
  return trimmed(entry);
}

/** One step of the fuzzer of posted work. */
export function postedStep(below: Below, pair: number): readonly Action[] {
  const other = below(25) === 0 ? below(PAIRS) : pair;
  const dice = below(100);
  // More than the ring has room for: one of them is too many.
  if (below(60) === 0) return Array.from({ length: 20 }, () => hostileEntry(below, other));
  const ring = below(4) === 0 ? below(RINGS) : below(2);
  // Words 0 and 16 are head and tail, the rest entries.
  const word = below(5) === 0 ? pick(below, [0, 16]) : 32 + below(256);
  if (dice < 5) return bindings(below, other);
  if (dice < 12) return [spoil(below, other), ...layouts(below, other)];
  if (dice < 30) return [hostileEntry(below, other)];
  if (dice < 42) return [[Kind.SCRIBBLE, other, ring, word, anyNumber(below)]];
  if (dice < 50) return [[Kind.LATER, other, ring, word, anyNumber(below)]];
  if (dice < 56) return [trimmed([Kind.DOORBELL, other, ring])];
  return receiveStep(below, pair);
}

/** A pair of queue pairs is connected, given work and receives, and then things happen. */
export function generate(
  below: Below,
  step: (below: Below, pair: number) => readonly Action[],
): Scenario {
  const pair = below(PAIRS);
  const actions: Action[] = [connect(below, pair)];
  if (below(8) === 0) actions.push(connect(below, below(PAIRS)));
  for (let count = below(3); count > 0; count--) actions.push(receive(below, pair));
  for (let count = below(4); count > 0; count--) actions.push(send(below, pair));
  for (let count = 4 + below(40); count > 0; count--) actions.push(...step(below, pair));
  return actions;
}

/** A neighbour of `scenario`, perhaps crossed with `other`. */
export function mutate(
  below: Below,
  scenario: Scenario,
  other: Scenario,
  step: (below: Below, pair: number) => readonly Action[],
): Scenario {
  const actions = scenario.map((action) => [...action]);
  for (let count = 1 + below(4); count > 0; count--) {
    const at = below(actions.length);
    const action = actions[at]!;
    const pair = actions[0]![1] ?? 0;
    switch (below(6)) {
      case 0:
      case 1:
        action[1 + below(14)] = below(3) === 0 ? anyNumber(below) : below(12);
        for (let index = 0; index < action.length; index++) action[index] ??= 0;
        break;
      case 2:
        if (actions.length > 1) actions.splice(at, 1);
        break;
      case 3:
        actions.splice(at, 0, [...action]);
        break;
      case 4:
        actions.splice(at + 1, 0, ...step(below, pair).map((one) => [...one]));
        break;
      default: {
        const from = below(other.length);
        const part = other.slice(from, from + 1 + below(8));
        actions.splice(at + 1, 0, ...part.map((one) => [...one]));
      }
    }
  }
  return actions.slice(0, 120);
}
