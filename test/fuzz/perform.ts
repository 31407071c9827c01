/** Carries out the actions of a scenario on a world. */
import { BindRequestLayout, QpState, QpType, RING_HEADER_SIZE } from '#build/abi.js';
import { SendFlag, WORK_REQUEST_SIZE, WrOpcode } from '#build/abi.js';
import { RECEIVE_REQUEST_SIZE, SGE_SIZE, WorkRequestLayout } from '#build/abi.js';
import { CompletionQueueLayout } from '#build/abi.js';
import { structAt } from '../../host/engine/struct.js';
import { Mtu, AccessFlag, type QpAttributes, type Sge } from '../../host/index.js';
import { PROGRAM, KINDS, Kind, PAIRS, REGIONS, type Action } from './action.js';
import { isDatagram, putPacket, putRaw, target, wrap } from './packet.js';
import { QKEY, type Pair, type World } from './world.js';

const MTUS = [Mtu.MTU_256, Mtu.MTU_512, Mtu.MTU_1024];
const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC } = AccessFlag;
const FLUSHES = AccessFlag.FLUSH_GLOBAL | AccessFlag.FLUSH_PERSISTENT;
const ALL = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | FLUSHES;
const ACCESS = [ALL, LOCAL_WRITE, REMOTE_READ, LOCAL_WRITE | REMOTE_WRITE];
const DEPTHS = [4, 1, 0, 2];
const RETRIES = [7, 0, 1, 3];
const TIMEOUTS = [10, 0, 1, 14];
const RNR_TIMERS = [12, 0, 1, 31];
const REORDERS = [8, 0, 1, 128];
const RECEIVE_BUFFERS = [0, 2000, 100, 1 << 20];
const TARGET_QPN = 0x123456;
/** Microseconds of one TIME action: some hours. */
const TIME_MAX = 2 ** 34;

/** Records of posted work requests. */
export interface Books {
  /** A fresh wrId for a request of this pair. */
  next(pair: Pair, shared?: boolean): bigint;
  /** The pair was reset: its requests are gone. */
  forget(pair: Pair): void;
}

/** The peer's queue pair of a pair. */
function targetOf(world: World, pair: Pair): number {
  return TARGET_QPN + world.pairs.indexOf(pair);
}

function choice<T>(list: readonly T[], options: number, shift: number): T {
  return list[(options >> shift) & 3] ?? list[0]!;
}

/** RESET, then up to the level that the action says. */
function connect(world: World, pair: Pair, action: Action, books: Books): void {
  const options = action[2] ?? 0;
  const psn = (action[3] ?? 0) & 0xffffff;
  const level = wrap(action[4], 7);
  books.forget(pair);
  world.keys?.forget(pair);
  if (pair.spec.tiny) world.rebuild(pair);
  else world.modify(pair, { qpState: QpState.RESET });
  if (level === 3) return;
  const { type } = pair.spec;
  const targetQpn = targetOf(world, pair);
  world.keys?.give(pair, options, targetQpn, true);
  const access = choice(ACCESS, options, 2);
  const own: QpAttributes = type === QpType.UD ? { qkey: QKEY } : { qpAccessFlags: access };
  world.modify(pair, { qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, ...own });
  world.keys?.give(pair, options, targetQpn, false);
  if (isDatagram(pair) && options & (1 << 18)) world.try(() => pair.qp.attachMcast(world.group));
  if (level === 2) return;
  world.modify(pair, toRtr(world, pair, options, psn));
  if (level === 1) return;
  world.modify(pair, toRts(pair, options, psn));
  if (level === 4) world.modify(pair, { qpState: QpState.SQD, enSqdAsyncNotify: true });
  if (level === 6) world.modify(pair, { qpState: QpState.ERR });
}

function toRtr(world: World, pair: Pair, options: number, psn: number): QpAttributes {
  if (isDatagram(pair)) return { qpState: QpState.RTR };
  const connected: QpAttributes = {
    qpState: QpState.RTR,
    ahAttr: {
      dgid: world.peer.gid,
      port: world.peer.port,
      receiveBufferBytes: choice(RECEIVE_BUFFERS, options, 16),
      reorderPackets: choice(REORDERS, options, 20),
      skipIcrc: (options >>> 24) % 4 === 1,
    },
    pathMtu: MTUS[(options & 3) % 3]!,
    destQpNum: targetOf(world, pair),
    rqPsn: psn,
  };
  if (pair.spec.type !== QpType.RC) return connected;
  const maxDestRdAtomic = choice(DEPTHS, options, 4);
  return { ...connected, maxDestRdAtomic, minRnrTimer: choice(RNR_TIMERS, options, 14) };
}

function toRts(pair: Pair, options: number, psn: number): QpAttributes {
  const ready: QpAttributes = { qpState: QpState.RTS, sqPsn: psn ^ 0x800 };
  if (pair.spec.type !== QpType.RC) return ready;
  return {
    ...ready,
    maxRdAtomic: choice(DEPTHS, options, 6),
    retryCnt: choice(RETRIES, options, 8),
    rnrRetry: choice(RETRIES, options, 10),
    timeout: choice(TIMEOUTS, options, 12),
  };
}

/** `length` bytes in `count` pieces of a region, one behind another. */
function pieces(world: World, action: Action, at: number): Sge[] {
  const length = (action[at] ?? 0) >>> 0;
  const shape = wrap(action[at + 1], 16);
  const count = shape & 3 || 1;
  const [lkey, start] = target(world, action[at + 2] ?? 0, action[at + 3] ?? 0);
  const list: Sge[] = [];
  const size = Math.floor(length / count);
  for (let index = 0; index < count; index++) {
    const addr = BigInt.asUintN(64, start + BigInt(index * size));
    list.push({ addr, length: index === count - 1 ? length - index * size : size, lkey });
  }
  if (shape === 0 && length === 0) return [];
  // An empty SGE in front, or an invalid lkey at the end.
  if (shape & 8 && count < 3) list.unshift({ addr: start, length: 0, lkey });
  if (shape & 4) list.push({ ...list.pop()!, lkey: 0x777 });
  return list;
}

function send(world: World, pair: Pair, action: Action, books: Books): void {
  const sendFlags = (action[7] ?? 0) & 15;
  const length = (action[3] ?? 0) >>> 0;
  const operand = action[10] ?? 0;
  const [rkey, remoteAddr] = target(world, action[8] ?? 0, action[9] ?? 0);
  const given = action[2] ?? 0;
  const opcode = given >= WrOpcode.REG_MR && isBinding(given) ? given : given & 15;
  if (isBinding(opcode)) return bind(world, pair, action, opcode, books);
  const inline = (sendFlags & SendFlag.INLINE) !== 0 && length <= 400;
  const request = {
    opcode,
    sendFlags: inline ? sendFlags : sendFlags & ~SendFlag.INLINE,
    immData: operand >>> 0,
    ...(inline ? { inline: new Uint8Array(length) } : { sgList: pieces(world, action, 3) }),
  };
  const ud = {
    ah: world.handles[wrap(operand, world.handles.length)]!,
    // With the device's own address: to a queue pair that it has.
    remoteQpn: operand & 8 ? world.pairs[wrap(operand >> 4, PAIRS)]!.qp.qpNum : TARGET_QPN,
    remoteQkey: operand & 4 ? 0x80000000 : QKEY,
  };
  const wrId = books.next(pair);
  const invalidateRkey = target(world, operand, 0)[0];
  if (isDatagram(pair)) world.try(() => pair.qp.postSend({ wrId, ...request, ud }));
  else if (opcode === 7 || opcode === 9) {
    world.try(() => pair.qp.postSend({ wrId, ...request, invalidateRkey }));
  } else if (opcode === 5 || opcode === 6) {
    const atomic = { remoteAddr, rkey, compareAdd: 1n, swap: 2n };
    world.try(() => pair.qp.postSend({ wrId, ...request, atomic }));
  } else if (opcode === WrOpcode.FLUSH) {
    const type = 1 + (operand & 1);
    const flush = { remoteAddr, rkey, length, type, level: (operand >> 1) & 1 };
    world.try(() => pair.qp.postSend({ wrId, ...request, flush }));
  } else {
    world.try(() => pair.qp.postSend({ wrId, ...request, rdma: { remoteAddr, rkey } }));
  }
}

function isBinding(opcode: number): boolean {
  const { BIND_MW, REG_MR, BIND_MR } = WrOpcode;
  return opcode === BIND_MW || opcode === REG_MR || opcode === BIND_MR;
}

/** BIND_MW, REG_MR, BIND_MR as applications post them; what is no binding of the kind fails. */
function bind(world: World, pair: Pair, action: Action, opcode: number, books: Books): void {
  const length = (action[3] ?? 0) >>> 0;
  const binding = world.bindables.binding(action[8] ?? 0, action[9] ?? 0, length, action[10] ?? 0);
  const target = opcode === WrOpcode.BIND_MR ? world.bindables.layoutKey(4) : binding.target;
  writeBinding(world, pair, action, opcode, { ...binding, target, wrId: books.next(pair) });
  doorbell(world, pair, 0);
}

const BIND = BindRequestLayout.fields;
type BindField = keyof typeof BIND;
/** Fields that a hostile entry may set to any number. */
const BIND_FIELDS: readonly BindField[] = [
  'target',
  'key',
  'base',
  'access',
  'length',
  'address',
  'memory',
];

function writeBinding(
  world: World,
  pair: Pair,
  action: Action,
  opcode: number,
  fields: { readonly [F in BindField]?: number | bigint },
): void {
  const { memory } = world.device.arena;
  const { at, stride, entries } = world.ring(pair, 0);
  const full = (memory.words[at >> 2]! - memory.words[(at + 64) >> 2]!) >>> 0 >= entries;
  if (full || pair.struct.state < QpState.RTS) return;
  const head = memory.words[at >> 2]!;
  const base = at + RING_HEADER_SIZE + (head & (entries - 1)) * stride;
  memory.words.fill(0, base >> 2, (base + stride) >> 2);
  const entry = structAt(memory, BindRequestLayout, base) as Record<BindField, number | bigint>;
  for (const [name, value] of Object.entries(fields) as [BindField, number | bigint][]) {
    entry[name] = BIND[name][1] === 'u64' ? BigInt.asUintN(64, BigInt(value)) : Number(value);
  }
  entry.opcode = opcode;
  entry.sendFlags = action[7] ?? 0;
  // One number that is not what it should be.
  const spoiled = BIND_FIELDS[wrap(action[5], BIND_FIELDS.length + 1) - 1];
  if (spoiled) {
    const value = BigInt(Math.trunc(action[6] ?? 0));
    const isLong = BIND[spoiled][1] === 'u64';
    entry[spoiled] = isLong ? BigInt.asUintN(64, value) : Number(BigInt.asUintN(32, value));
  }
  memory.words[at >> 2] = head + 1;
}

function receive(world: World, pair: Pair, action: Action, books: Books): void {
  const sgList = pieces(world, action, 2);
  for (let count = wrap(action[6], 8) || 1; count > 0; count--) {
    const request = { wrId: books.next(pair, !!pair.srq), sgList: sgList.slice(0, 3) };
    world.try(() => (pair.srq ? pair.srq.postRecv(request) : pair.qp.postRecv(request)));
  }
}

/** Changes of state, and attributes with any value. */
function change(world: World, pair: Pair, action: Action): void {
  const value = action[3] ?? 0;
  const small = value >>> 0;
  switch (wrap(action[2], 11)) {
    case 0:
      world.modify(pair, { qpState: QpState.SQD, enSqdAsyncNotify: (value & 1) !== 0 });
      break;
    case 1:
      world.modify(pair, { qpState: QpState.RTS });
      break;
    case 2:
      world.modify(pair, { qpState: QpState.ERR });
      break;
    case 3:
      world.modify(pair, { qpState: QpState.RTS, qpAccessFlags: small });
      break;
    case 4:
      world.modify(pair, { qpState: QpState.SQD, maxDestRdAtomic: small, maxRdAtomic: small >> 2 });
      break;
    case 5:
      world.modify(pair, { qpState: QpState.SQD, timeout: small, retryCnt: small, rnrRetry: 7 });
      break;
    case 6:
      world.modify(pair, { qpState: small % 9, curQpState: Math.floor(small / 9) % 9 });
      break;
    case 7:
      world.modify(pair, { qpState: QpState.RTS, qkey: small });
      break;
    case 8:
      world.try(() => pair.srq?.modify({ srqLimit: wrap(value, 17) }));
      break;
    case 10:
      world.try(() => pair.qp.rotateKey());
      break;
    default:
      world.try(() => pair.cq.reqNotify((value & 1) !== 0));
  }
}

function changeKey(world: World, action: Action): void {
  const what = wrap(action[2], 4);
  // Another participant is changing the key, and is stopped until the next action is over.
  if (what === 1) return world.freeze(target(world, action[1] ?? 0, 0)[0]);
  const index = wrap(action[1], REGIONS);
  if (index >= world.regions.length) return;
  world.frozen?.();
  if (what === 0) world.renew(index);
  else world.kill(index);
}

function passTime(world: World, micros: number): void {
  if (micros > 0) world.clock.advance(Math.min(micros, TIME_MAX));
  else world.clock.step();
}

/** A word of what the application shares: its send ring, receive ring, completion ring. */
function sharedWord(world: World, pair: Pair, which: number, word: number): number {
  if (which === 2) {
    const { memory } = world.device.arena;
    const cq = structAt(memory, CompletionQueueLayout, pair.cq.handle);
    return (cq.ring >> 2) + (word % ((RING_HEADER_SIZE + cq.entries * 64) >> 2));
  }
  const { at, stride, entries } = world.ring(pair, which);
  return (at >> 2) + (word % ((RING_HEADER_SIZE + entries * stride) >> 2));
}

function scribble(world: World, pair: Pair, action: Action): void {
  const { words } = world.device.arena.memory;
  const which = wrap(action[2], 4);
  const word = (action[3] ?? 0) >>> 0;
  const at =
    which === PROGRAM ? world.bindables.program(word) : sharedWord(world, pair, which, word);
  words[at] = (action[4] ?? 0) >>> 0;
}

const WORK = WorkRequestLayout.fields;
/** Fields of a hostile send entry, in the order in which an ENTRY gives them. */
const FIELDS = [
  WORK.opcode,
  WORK.sendFlags,
  WORK.sgeCount,
  WORK.inlineLength,
  WORK.addressHandle,
] as const;

/** Writes a whole entry where the ring's head stands, moves the head, rings the bell. */
function entry(world: World, pair: Pair, action: Action): void {
  const { words } = world.device.arena.memory;
  const which = wrap(action[2], 2);
  const { at, stride, entries } = world.ring(pair, which);
  const head = words[at >> 2]!;
  const base = (at + RING_HEADER_SIZE + (head & (entries - 1)) * stride) >> 2;
  words.fill(0, base, base + (stride >> 2));
  const header = which === 0 ? WORK_REQUEST_SIZE : RECEIVE_REQUEST_SIZE;
  if (which === 0) {
    FIELDS.forEach(([offset], index) => {
      words[base + (offset >> 2)] = (action[3 + index] ?? 0) >>> 0;
    });
    const handle = action[7] ?? 0;
    const known = world.handles[wrap(handle, world.handles.length)]!.handle;
    if (handle >= 0 && handle < 8) words[base + (WORK.addressHandle[0] >> 2)] = known;
    else if (handle > 0 && handle < 1024) {
      words[base + (WORK.addressHandle[0] >> 2)] = known + handle - 100;
    }
  } else {
    words[base + 2] = (action[5] ?? 0) >>> 0;
  }
  const [key, address] = target(world, action[8] ?? 0, action[9] ?? 0);
  if (which === 0) {
    words[base + (WORK.remoteAddress[0] >> 2)] = Number(address & 0xffffffffn);
    words[base + (WORK.key[0] >> 2)] = key;
  }
  // SGEs: of a length that may be absurd, with a key that is right more often than not.
  const room = (stride - header) / SGE_SIZE;
  for (let index = 0; index < room; index++) {
    const to = base + ((header + index * SGE_SIZE) >> 2);
    words[to] = Number(address & 0xffffffffn);
    words[to + 1] = Number(address >> 32n);
    words[to + 2] = (action[10] ?? 8) >>> 0;
    words[to + 3] = key;
  }
  words[at >> 2] = head + 1 + wrap(action[11], 4);
  doorbell(world, pair, which);
}

function doorbell(world: World, pair: Pair, which: number): void {
  const { exports, device } = world;
  const now = device.clock.now();
  if (which === 0) exports.postSend(device.engine.context, pair.qp.handle, now);
  else exports.postRecv(device.engine.context, pair.qp.handle, now);
  device.engine.drain();
}

/** Carries out one action. Throws what is a finding. */
export function perform(world: World, action: Action, books: Books): void {
  const pair = world.pairs[wrap(action[1], PAIRS)]!;
  const kind = wrap(action[0], KINDS);
  // Verbs that end a key or a queue pair wait for engines that are in a call.
  if (kind === Kind.KEY || kind === Kind.STATE) world.other.enter(false);
  const thaw = world.frozen;
  // Queued packets come first, except that more of them may join.
  if (kind !== Kind.PACKET) {
    world.intake.flush();
    world.finishStore();
  }
  dispatch(world, pair, kind, action, books);
  thaw?.();
}

function dispatch(world: World, pair: Pair, kind: number, action: Action, books: Books): void {
  switch (kind) {
    case Kind.PACKET:
      pair.touched = true;
      return putPacket(world, action);
    case Kind.RAW:
      return putRaw(world, action[1] ?? 0, action[2] ?? 0);
    case Kind.TIME:
      return passTime(world, action[1] ?? 0);
    case Kind.ENGINE:
      return world.other.enter((action[1] ?? 0) % 2 === 1);
    case Kind.KEY:
      return changeKey(world, action);
    case Kind.WIRE:
      return world.link.hold((action[1] ?? 0) % 2 === 1);
    case Kind.POLL:
      return;
  }
  pair.touched = true;
  switch (kind) {
    case Kind.CONNECT:
      return connect(world, pair, action, books);
    case Kind.SEND:
      return send(world, pair, action, books);
    case Kind.RECEIVE:
      return receive(world, pair, action, books);
    case Kind.STATE:
      return change(world, pair, action);
    case Kind.ENTRY:
      return entry(world, pair, action);
    case Kind.SCRIBBLE:
      return scribble(world, pair, action);
    case Kind.LATER:
      world.later.push(() => scribble(world, pair, action));
      return;
    default:
      return doorbell(world, pair, wrap(action[2], 2));
  }
}
