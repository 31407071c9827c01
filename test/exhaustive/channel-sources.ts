/**
 * Messages between contexts on the local path, as the checker compiles them: channels, outbox and
 * inbox are unchanged; contexts and queue pairs have only the fields that these files use, and what
 * a message carries is one word.
 */
import { readFileSync } from 'node:fs';
import { root } from '../support/paths.js';
import type { Variant } from './build.js';

/** Sources that are compiled unchanged. */
const REAL = [
  'transport/local/outbox.ts',
  'transport/local/inbox.ts',
  'transport/shared/local-messages.ts',
  'transport/shared/status.ts',
  'transport/shared/work-request.ts',
];

const CONTEXT = `
import { Arena, ContextSlot } from '../../memory/arena';
import { QueuePair } from './queue-pair';
@unmanaged export class Counters {
  localRequests: u32; localBytes: u32; rdmaRecvs: u32; timeouts: u32; retryExceededErr: u32;
}
@unmanaged export class Context {
  now: u64;
  arena: Arena;
  slot: ContextSlot;
  slotIndex: u32;
  counters: Counters;
  timers: usize;
  localLeft: u32;
  announcedSeen: u32;
  localRuns: u32;
  localMessage: usize;
  localBounce: usize;
  wakes: usize;
  wakeCount: u32;
}
export function schedule(context: Context, qp: QueuePair): void {}
export function findQueuePair(context: Context, qpn: u32): QueuePair | null {
  const qp = changetype<QueuePair>(changetype<usize>(context) + 128);
  return qp.qpn == qpn ? qp : null;
}
`;

const QUEUE_PAIR = `
import { SendRequest, SgeCursor } from './work-request';
export enum MessageKind { NONE = 0 }
@unmanaged export class QueuePair {
  timeoutMicros: u64;
  qpn: u32;
  targetQp: u32;
  pd: u32;
  binding: u32;
  state: u32;
  access: u32;
  receiveCq: u32;
  counterTable: usize;
  sendTail: u32;
  sendNext: u32;
  sendFetched: u32;
  localPosted: u32;
  localRun: u32;
  localRefusedRun: u32;
  retryLeft: u32;
  retryLimit: u32;
  message: u32;
  jobHead: u32;
  jobTail: u32;
  heldJobs: u32;
  nakPending: u32;
  localRefused: u8;
  localLate: u8;
  localPath: u8;
  nakSent: u8;
  receiveHeld: u32;
  /** Posted receive requests; the word that was placed last; digits of what was received, sent. */
  receives: u32;
  placed: u32;
  received: u32;
  sent: u32;
}
export function sendRequestAt(qp: QueuePair, index: u32): SendRequest {
  return changetype<SendRequest>(changetype<usize>(qp) + 128 + <usize>((index & 1) << 7));
}
export function timerOf(qp: QueuePair): usize { return 0; }
export function receiveCursor(qp: QueuePair): SgeCursor {
  return changetype<SgeCursor>(changetype<usize>(qp) + 120);
}
`;

const COMPLETION = `
import { Context } from '../shared/context';
import { abandonMessages } from '../shared/local-messages';
import { QueuePair, sendRequestAt } from '../shared/queue-pair';
import { QpState } from '../shared/status';
export function completeSend(context: Context, qp: QueuePair, status: u32, vendor: u32): void {
  const request = sendRequestAt(qp, qp.sendTail);
  qp.sendTail++;
  if (status == 0) qp.sent = qp.sent * 10 + <u32>request.wrId;
}
export function failOldest(context: Context, qp: QueuePair, status: u32, vendor: u32): void {
  abandonMessages(context, qp);
  qp.state = QpState.ERR;
}
export function hasCompletionRoom(cq: u32): bool { return true; }
export function completeReceive(
  context: Context, qp: QueuePair, status: u32, opcode: u32, bytes: u32, immediate: u32, flags: u32,
  solicited: bool,
): void {
  qp.received = qp.received * 10 + qp.placed;
  qp.receiveHeld = 0;
}
`;

const QP = "import { QueuePair } from '../shared/queue-pair';";
const STUBS: Readonly<Record<string, string>> = {
  'memory/bytes.ts': `
export function copyBytes(to: usize, from: usize, length: u32): void {
  for (let at: u32 = 0; at < length; at += 4) store<u32>(to + at, load<u32>(from + at));
}
export function moveBytes(to: usize, from: usize, length: u32): void { copyBytes(to, from, length); }
export function powerOfTwo(value: u32): u32 {
  let power: u32 = 1;
  while (power < value) power <<= 1;
  return power;
}
export function roundUp(value: u32, step: u32): u32 { return (value + step - 1) & ~(step - 1); }
`,
  'transport/shared/context.ts': CONTEXT,
  'transport/shared/queue-pair.ts': QUEUE_PAIR,
  'transport/queue/completion.ts': COMPLETION,
  'transport/shared/local-target.ts':
    '@unmanaged export class LocalTarget { binding: u32; takesMessages: u32; }',
  'transport/shared/local-endpoint.ts': `
import { Context } from './context';
import { QueuePair } from './queue-pair';
export function servesLocally(context: Context, qp: QueuePair): bool { return qp.state == 3; }
`,
  'transport/local/local-path.ts': `
import { Context } from '../shared/context';
export function charge(context: Context, bytes: u32): void { context.localLeft--; }
`,
  'transport/shared/operation.ts': `
import { SendRequest } from './work-request';
export enum Operation { INVALIDATE = 1 }
export function isOf(request: SendRequest, flag: u32): bool { return false; }
`,
  'transport/shared/timer-wheel.ts': `
export function armTimer(timers: usize, node: usize, now: u64, delay: u64): void {}
export function cancelTimer(node: usize): void {}
`,
  'transport/queue/completion-counter.ts': `
export enum CountedOperation { REMOTE_RDMA_WRITE = 5 }
export function countCompletion(table: usize, operation: u32, status: u32, length: u32): void {}
`,
  'transport/queue/receive-queue.ts': `
import { Context } from '../shared/context';
${QP}
export function peekReceive(qp: QueuePair): bool { return qp.receives != 0; }
export function takePeeked(context: Context, qp: QueuePair): void {
  qp.receives--;
  qp.receiveHeld = 1;
}
`,
  'transport/queue/scatter-gather.ts': `
import { Context } from '../shared/context';
${QP}
import { SendRequest } from '../shared/work-request';
export function gather(
  context: Context, qp: QueuePair, request: SendRequest, target: usize, length: u32,
): bool {
  store<u32>(target, <u32>request.wrId);
  return true;
}
export function receiveCapacity(qp: QueuePair): u64 { return 4; }
export function scatterReceive(context: Context, qp: QueuePair, source: usize, size: u32): u32 {
  qp.placed = load<u32>(source);
  return 0;
}
`,
  'transport/requester/retransmit-timer.ts': `
${QP}
export function timeoutOf(qp: QueuePair): u64 { return 0; }
`,
  'transport/requester/request-packet.ts': `
${QP}
export function endRequest(qp: QueuePair): void { qp.sendNext++; }
`,
  'transport/requester/requester.ts': `
import { Context } from '../shared/context';
${QP}
export function noteDrained(context: Context, qp: QueuePair): void {}
`,
  'transport/responder/reorder-buffer.ts': `
${QP}
export function anyAhead(qp: QueuePair): bool { return false; }
`,
};

/** Bytes per thread: context, queue pair at 128, requests at 256, copies from 512 on. */
export const CHANNEL_PRIVATE_BYTES = 704;

const FIND = "import * as windows from './region/memory-window';";
const ENTRY = `
import { closeChannels } from './memory/local-channel';
import { slotOfNumber } from './memory/local-endpoint';
import { Context, Counters } from './transport/shared/context';
import { QueuePair, sendRequestAt } from './transport/shared/queue-pair';
import { LocalTarget } from './transport/shared/local-target';
import { abandonMessages } from './transport/shared/local-messages';
import { Posting, announceTo, expireMessages, postMessage, settleMessages } from './transport/local/outbox';
import { serveChannels } from './transport/local/inbox';
function contextOf(at: usize): Context { return changetype<Context>(at); }
function queuePairOf(at: usize): QueuePair { return changetype<QueuePair>(at + 128); }
export function makeChannelEnd(
  arena: usize, slot: u32, at: usize, qpn: u32, peer: u32, requests: u32, receives: u32,
): u32 {
  const context = contextOf(at);
  context.arena = changetype<Arena>(arena);
  context.slot = contextSlot(context.arena, slot);
  context.slotIndex = slot;
  context.localMessage = at + 512;
  context.localBounce = at + 576;
  context.wakes = at + 640;
  context.counters = changetype<Counters>(at + 676);
  const qp = queuePairOf(at);
  qp.qpn = qpn;
  qp.targetQp = peer;
  qp.binding = 7;
  qp.state = 3;
  qp.localPath = 1;
  qp.receives = receives;
  qp.sendFetched = requests;
  qp.retryLeft = qp.retryLimit = 1;
  for (let index: u32 = 0; index < requests; index++) {
    const request = sendRequestAt(qp, index);
    request.wrId = index + 1;
    request.opcode = 2;
    request.length = 4;
  }
  return u32(offsetof<Context>() <= 128 && offsetof<QueuePair>() <= 120);
}
export function postAll(arena: usize, at: usize): u32 { return post(at, 2); }
export function postOne(arena: usize, at: usize): u32 { return post(at, 1); }
export function postReceive(arena: usize, at: usize): u32 {
  queuePairOf(at).receives++;
  return 0;
}
function post(at: usize, most: u32): u32 {
  const context = contextOf(at);
  const qp = queuePairOf(at);
  const target = changetype<LocalTarget>(at + 664);
  target.binding = 7;
  target.takesMessages = 1;
  enter(context.arena, context.slot);
  for (let count: u32 = 0; count < most && qp.sendNext != qp.sendFetched; count++) {
    const request = sendRequestAt(qp, qp.sendNext);
    if (postMessage(context, qp, request, target) != Posting.POSTED) break;
  }
  if (qp.localPosted != 0) announceTo(context, slotOfNumber(qp.targetQp));
  leave(context.slot);
  return qp.localPosted;
}
/** A turn of either side. Returns how many messages have no answer. */
export function serve(arena: usize, at: usize): u32 {
  const context = contextOf(at);
  enter(context.arena, context.slot);
  context.localLeft = 1000;
  serveChannels(context);
  leave(context.slot);
  return queuePairOf(at).localPosted;
}
export function expire(arena: usize, at: usize): u32 {
  const context = contextOf(at);
  const qp = queuePairOf(at);
  enter(context.arena, context.slot);
  settleMessages(context, qp);
  expireMessages(context, qp);
  leave(context.slot);
  return qp.localPosted;
}
export function abandon(arena: usize, at: usize): u32 {
  abandonMessages(contextOf(at), queuePairOf(at));
  queuePairOf(at).state = 6;
  return 0;
}
export function closeSlot(arena: usize, slot: u32, dead: u32): u32 {
  closeChannels(changetype<Arena>(arena), dead);
  return 0;
}
export function sentBy(at: usize): u32 { return queuePairOf(at).sent; }
export function receivedBy(at: usize): u32 { return queuePairOf(at).received; }
export function leftBy(at: usize): u32 {
  const qp = queuePairOf(at);
  return qp.sendFetched - qp.sendNext;
}
export function hasFailed(at: usize): u32 { return u32(queuePairOf(at).state != 3); }
`;

/** The protocol of messages between contexts. */
export function channelVariant(base: Variant): Variant {
  const added: Record<string, string> = { ...STUBS };
  for (const file of REAL) {
    added[file] = readFileSync(new URL(`assembly/${file}`, root), 'utf8');
  }
  const entry = { file: 'entry.ts', find: FIND, replace: FIND + ENTRY };
  return { ...base, name: `channels-${base.name}`, added, edits: [entry, ...base.edits] };
}
