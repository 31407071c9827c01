/**
 * The part of `assembly/transport` that invalidates keys, as the checker compiles it: the fence,
 * LOCAL_INV, binds and REG_MR, and received SEND_WITH_INVs are unchanged; contexts and queue pairs
 * have only the fields that these files use; a completion is a word that the checker reads.
 */
import { readFileSync } from 'node:fs';
import { root } from '../support/paths.js';
import type { Edit, Variant } from './build.js';

/** Sources that are compiled unchanged. */
const REAL = [
  'transport/shared/invalidation-fence.ts',
  'transport/responder/invalidating-receive.ts',
  'transport/requester/local-work.ts',
  'transport/responder/response-queue.ts',
  'transport/shared/status.ts',
  'transport/shared/work-request.ts',
  'wire/psn.ts',
  'wire/syndrome.ts',
];

const CONTEXT = `
import { Arena } from '../../memory/arena';
import { QueuePair } from './queue-pair';
@unmanaged export class Context {
  arena: Arena;
  slotIndex: u32;
  now: u64;
  fenceMicros: u64;
  timers: usize;
  fenceFirst: usize;
  fenceLast: usize;
  fenceHolder: u32;
  scheduled: u32;
}
export function schedule(context: Context, qp: QueuePair): void { context.scheduled = 1; }
export enum EventKind { ASYNC = 2 }
export function pushEvent(context: Context, kind: u32, event: u32, object: usize): void {}
`;

const QUEUE_PAIR = `
import { PacketFlag } from '../../wire/opcode';
@unmanaged export class QueuePair {
  pd: u32;
  binding: u32;
  fenceLink: usize;
  sendTail: u32;
  sendNext: u32;
  /** WcStatus + 1 of the send request, and of the receive request. */
  sent: u32;
  received: u32;
  vendor: u32;
  jobHead: u32;
  jobTail: u32;
  heldJobs: u32;
  flushFrom: u32;
  chargeHeld: u32;
  msn: u32;
  receiveFenced: u8;
  ackPending: u8;
  receiveHeld: u8;
  reserved: u8;
}
export enum JobState { READY = 0, FENCED = 5 }
@unmanaged export class ResponseJob {
  address: u64;
  kind: u32;
  psn: u32;
  psnLast: u32;
  key: u32;
  left: u32;
  msn: u32;
  state: u32;
  fenceEpoch: u32;
  since: u32;
  started: u8;
  beforeAcked: u8;
  solicited: u8;
  repeated: u8;
}
/** For functions that this protocol does not call. */
@unmanaged export class Resource { msn: u32; }
export function resourceAt(qp: QueuePair, index: u32): Resource { return changetype<Resource>(0); }
export function packetCount(qp: QueuePair, length: u32): u32 { return 1; }
/** One entry, behind the queue pair. */
export function jobAt(qp: QueuePair, index: u32): ResponseJob {
  return changetype<ResponseJob>(changetype<usize>(qp) + 64);
}
`;

const STUBS: Readonly<Record<string, string>> = {
  'transport/shared/context.ts': CONTEXT,
  'transport/shared/queue-pair.ts': QUEUE_PAIR,
  'transport/shared/timer-wheel.ts':
    'export function nextTimerMicros(timers: usize): u64 { return 0; }',
  'transport/queue/completion.ts': `
import { Context } from '../shared/context';
import { QueuePair } from '../shared/queue-pair';
import { SendRequest } from '../shared/work-request';
export function enterError(context: Context, qp: QueuePair): void {}
export function completeSend(context: Context, qp: QueuePair, status: u32, vendor: u32): void {
  qp.sent = status + 1;
}
export function completeReceive(
  context: Context, qp: QueuePair, status: u32, opcode: u32, bytes: u32, immediate: u32, flags: u32,
  solicited: bool,
): void {
  qp.received = status + 1;
  qp.receiveHeld = 0;
}
export function fail(context: Context, qp: QueuePair, request: SendRequest, status: u32): void {
  qp.sent = status + 1;
}
`,
  'transport/shared/packet-mark.ts': `
import { QueuePair } from './queue-pair';
export function reorders(qp: QueuePair): bool { return false; }
`,
  'wire/opcode.ts': 'export enum PacketFlag { SEND = 1 }',
};

/** Offsets of a thread's structs from the start of its private memory. */
export const CONTEXT_AT = 0;
export const QUEUE_PAIR_AT = 64;
export const REQUEST_AT = 256;
/** Bytes per thread: a SendRequest has 128. */
export const PRIVATE_BYTES = 384;

const FIND = "import * as windows from './region/memory-window';";
const ENTRY = `
import { Context } from './transport/shared/context';
import { JobState, QueuePair, jobAt } from './transport/shared/queue-pair';
import { BindRequest, SendRequest } from './transport/shared/work-request';
import { executeLocal } from './transport/requester/local-work';
import { scheduleFenced } from './transport/shared/invalidation-fence';
import {
  Invalidation, endReceiveFence, invalidateReceived,
} from './transport/responder/invalidating-receive';
import { WcStatus, WrOpcode } from './transport/shared/status';
import { lockArena, unlockArena } from './memory/arena';
import { fastRevoked, revokeFast } from './region/fast-region';
import * as reaping from './region/reap';
import * as pool from './region/pool';
import * as poolVerbs from './region/pool-verbs';
function contextOf(at: usize): Context { return changetype<Context>(at); }
function queuePairOf(at: usize): QueuePair { return changetype<QueuePair>(at + ${QUEUE_PAIR_AT}); }
function requestOf(at: usize): SendRequest { return changetype<SendRequest>(at + ${REQUEST_AT}); }
export function contextBytes(): u32 {
  const ends = offsetof<Context>() <= ${QUEUE_PAIR_AT} && offsetof<QueuePair>() <= 64;
  return u32(ends && offsetof<SendRequest>() == 128);
}
export function makeContext(arena: usize, slot: u32, at: usize, pd: u32): void {
  const context = contextOf(at);
  context.arena = changetype<Arena>(arena);
  context.slotIndex = slot;
  context.now = 1000000;
  const qp = queuePairOf(at);
  qp.pd = pd;
  qp.binding = 1;
}
/** Executes a work request. Returns 0 while it is pending, else its status + 1. */
export function execute(
  arena: usize, at: usize, opcode: u32, key: u32, base: u32, address: u32, length: u32, access: u32,
): u32 {
  const request = requestOf(at);
  const bind = changetype<BindRequest>(request);
  memory.fill(changetype<usize>(request), 0, 128);
  request.opcode = opcode;
  request.key = key;
  if (opcode != <u32>WrOpcode.LOCAL_INV) {
    bind.target = key;
    bind.base = base;
    bind.address = address;
    bind.memory = address;
    bind.length = length;
    bind.access = access;
  }
  const qp = queuePairOf(at);
  qp.sendTail = qp.sendNext = 0;
  qp.sent = 0;
  executeLocal(contextOf(at), qp, request);
  return qp.sent;
}
/** Receives a SEND_WITH_INV of the peer. */
export function receive(arena: usize, at: usize, key: u32): u32 {
  const qp = queuePairOf(at);
  qp.received = 0;
  qp.receiveHeld = 1;
  const found = invalidateReceived(contextOf(at), qp, key, 7, 8, false);
  if (found == Invalidation.HELD) return 0;
  return (found == Invalidation.PASSED ? WcStatus.SUCCESS : WcStatus.REM_INV_REQ_ERR) + 1;
}
/** A later turn, after micros microseconds: a pending fence is checked again. */
export function lookAgain(arena: usize, at: usize, micros: u32): u32 {
  const context = contextOf(at);
  const qp = queuePairOf(at);
  context.now += micros;
  scheduleFenced(context);
  if (!qp.receiveFenced) {
    executeLocal(context, qp, requestOf(at));
    return qp.sent;
  }
  endReceiveFence(context, qp, jobAt(qp, 0));
  return qp.received;
}
export function revokeRegion(arena: usize, slot: u32, key: u32): u32 {
  return revokeFast(changetype<Arena>(arena), slot, key);
}
export function regionRevoked(arena: usize, slot: u32, key: u32): u32 {
  return u32(fastRevoked(changetype<Arena>(arena), key));
}
export function poolOpen(arena: usize, slot: u32, p: usize): u32 {
  const parameters = changetype<poolVerbs.PoolParameters>(p);
  return poolVerbs.openPool(changetype<Arena>(arena), slot, parameters);
}
export function poolAdd(arena: usize, slot: u32, key: u32): u32 {
  return pool.addNode(changetype<Arena>(arena), slot, 0, key, 0);
}
export function poolTake(arena: usize, slot: u32, user: u32, bucket: u32): u32 {
  return pool.takeNode(changetype<Arena>(arena), slot, 0, user, bucket, 0xffffffff);
}
export function poolGive(arena: usize, slot: u32, user: u32, bucket: u32, at: u32): u32 {
  return pool.giveNode(changetype<Arena>(arena), slot, 0, user, bucket, at);
}
export function poolDrain(arena: usize, slot: u32, bucket: u32): u32 {
  pool.drainBucket(changetype<Arena>(arena), slot, 0, bucket, 64);
  return 0;
}
`;

/** Exports `reap`, with `reaping` and the lock imported: 0, or an errno: to be repeated. */
export const REAP = `
/** Reclaims a dead slot, as the owner of the lock does (host/device/sharing/members.ts). */
export function reap(arena: usize, slot: u32, dead: u32): u32 {
  const a = changetype<Arena>(arena);
  const taken = lockArena(a);
  const errno = reaping.reapSlot(a, dead);
  unlockArena(a, taken);
  return errno;
}
`;

/** Without its number of looks a reclamation waits for ever: each number would be a state. */
export const REAP_WAITS: Edit = {
  file: 'region/reap.ts',
  find: 'for (let turn: u32 = 0; turn < SPINS_MAX; turn++) if (allQuiesced(arena, epoch)) return true;',
  replace: 'while (SPINS_MAX > 0) if (allQuiesced(arena, epoch)) return true;',
};

/**
 * One check of a fence per call, since a second check leads to the same state. A thread that
 * rebuilds tables waits in place: a repeated call in a new epoch would make too many states.
 */
const LOOKS: readonly Edit[] = [
  {
    file: 'transport/shared/invalidation-fence.ts',
    find: 'const LOOKS: u32 = 64;',
    replace: 'const LOOKS: u32 = 1;',
  },
  REAP_WAITS,
  {
    file: 'region/pool-repair.ts',
    find: 'while (atomic.load<u32>(place) != 0) if (++turn > SPINS_MAX) return false;',
    replace: 'while (atomic.load<u32>(place) != 0 && turn < SPINS_MAX) {}',
  },
];

/** The protocol with the effects of work requests on keys, and with pools. */
export function fenceVariant(base: Variant): Variant {
  const added: Record<string, string> = { ...STUBS };
  for (const file of REAL) {
    added[file] = readFileSync(new URL(`assembly/${file}`, root), 'utf8');
  }
  const entry = { file: 'entry.ts', find: FIND, replace: FIND + ENTRY + REAP };
  return {
    ...base,
    name: `fences-${base.name}`,
    added,
    edits: [...LOOKS, entry, ...base.edits],
  };
}
