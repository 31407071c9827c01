/**
 * Requests that take a receive request of a target in another context: the requester posts them as
 * messages to the target's engine (memory/local-channel.ts), which pulls the bytes (inbox.ts) and
 * answers with the state of the entry. The queue pair's timer bounds the wait: what the target has
 * not taken by then is withdrawn, and goes by packets.
 */
import { copyBytes } from '../../memory/bytes';
import {
  LocalMessage,
  LocalMessageState,
  announce,
  channelDone,
  channelHead,
  channelOf,
  channelTail,
  messageAt,
  messageState,
  passWithdrawn,
  setChannelDone,
  setChannelHead,
} from '../../memory/local-channel';
import { LOCAL_MESSAGE_SIZE, LOCAL_VALUE_SIZE } from '../../memory/local-sizes';
import { slotOfNumber } from '../../memory/local-endpoint';
import { completeSend, failOldest } from '../queue/completion';
import { gather } from '../queue/scatter-gather';
import { timeoutOf } from '../requester/retransmit-timer';
import { endRequest } from '../requester/request-packet';
import { noteDrained } from '../requester/requester';
import { Context, findQueuePair, schedule } from '../shared/context';
import { entryOf, withdrawMessages } from '../shared/local-messages';
import { LocalTarget } from '../shared/local-target';
import { Operation, isOf } from '../shared/operation';
import { QueuePair, sendRequestAt, timerOf } from '../shared/queue-pair';
import { QpState, SendFlag, WcStatus } from '../shared/status';
import { armTimer, cancelTimer } from '../shared/timer-wheel';
import { SEND_REQUEST_SIZE, SGE_SIZE, SendRequest, SendState } from '../shared/work-request';

/** Longer ones go by packets, in whose turns other queue pairs have theirs. */
export const LONG_BYTES: u32 = 1 << 24;

export enum Posting {
  POSTED = 0,
  /** The channel is full of this queue pair's messages. */
  FULL = 1,
  /** The request goes by packets. */
  REFUSED = 2,
}

/** Posts the next request to the context of its target. A Posting. */
export function postMessage(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  target: LocalTarget,
): u32 {
  // The receive request of a SEND_WITH_INV completes after a fence.
  if (target.takesMessages == 0 || isOf(request, Operation.INVALIDATE)) return Posting.REFUSED;
  const arena = context.arena;
  const most = arena.localMessagesMax;
  if (most == 0 || request.length > LONG_BYTES) return Posting.REFUSED;
  const channel = channelOf(arena, slotOfNumber(qp.targetQp), context.slotIndex);
  const head = channelHead(channel);
  if (head - channelDone(channel) >= most) passWithdrawn(arena, channel);
  if (head - channelDone(channel) >= most || head - channelTail(channel) >= most) {
    return qp.localPosted != 0 ? Posting.FULL : Posting.REFUSED;
  }
  const entry = messageAt(arena, channel, head);
  if (!describeSource(context, qp, request, changetype<LocalMessage>(entry))) {
    return Posting.REFUSED;
  }
  if (qp.localRun == 0) qp.localRun = nextRun(context);
  const message = changetype<LocalMessage>(entry);
  message.targetQpn = qp.targetQp;
  message.sourceQpn = qp.qpn;
  message.binding = target.binding;
  message.run = qp.localRun;
  message.opcode = request.opcode;
  message.sendFlags = request.sendFlags;
  message.immediate = request.immediate;
  message.length = request.length;
  message.key = request.key;
  message.remoteAddress = request.remoteAddress;
  atomic.store<u32>(entry, LocalMessageState.POSTED);
  setChannelHead(channel, head + 1);
  request.state = SendState.POSTED;
  request.psnFirst = head;
  if (qp.localPosted++ == 0) armMessages(context, qp);
  endRequest(qp);
  return Posting.POSTED;
}

function nextRun(context: Context): u32 {
  context.localRuns++;
  return context.localRuns == 0 ? ++context.localRuns : context.localRuns;
}

/** Short bytes are copied to the entry; the target finds long ones by their keys. */
function describeSource(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  message: LocalMessage,
): bool {
  const length = request.length;
  const behind = changetype<usize>(message) + LOCAL_MESSAGE_SIZE;
  message.sgeCount = 0;
  if (length <= LOCAL_VALUE_SIZE) return gather(context, qp, request, behind, length);
  const count = request.sgeCount;
  if (count == 0 || count * SGE_SIZE > LOCAL_VALUE_SIZE) return false;
  message.pd = qp.pd;
  message.sgeCount = count;
  copyBytes(behind, changetype<usize>(request) + SEND_REQUEST_SIZE, count * SGE_SIZE);
  return true;
}

/** Tells the context of a slot that there are messages or answers for it. */
export function announceTo(context: Context, slot: u32): void {
  if (!announce(context.arena, slot, context.slotIndex)) return;
  const at = context.wakes + <usize>((slot >>> 5) << 2);
  const one: u32 = 1;
  store<u32>(at, load<u32>(at) | (one << (slot & 31)));
  context.wakeCount++;
}

/** The wait for an answer begins. */
function armMessages(context: Context, qp: QueuePair): void {
  if (qp.timeoutMicros == 0) return;
  armTimer(context.timers, timerOf(qp), context.now, timeoutOf(qp));
}

/** A context has announced something: takes the answers to messages for it. */
export function takeAnswers(context: Context, target: u32): void {
  const arena = context.arena;
  const channel = channelOf(arena, target, context.slotIndex);
  const head = channelHead(channel);
  const first = channelDone(channel);
  const count = min<u32>(head - first, arena.localMessagesMax);
  let index = head - count;
  for (; index != head; index++) {
    const entry = messageAt(arena, channel, index);
    const state = messageState(entry);
    if (state == <u32>LocalMessageState.POSTED || state == <u32>LocalMessageState.TAKEN) break;
    const qp = findQueuePair(context, changetype<LocalMessage>(entry).sourceQpn);
    if (qp == null || qp.localPosted == 0) continue;
    settleMessages(context, qp);
    schedule(context, qp);
  }
  if (index != first) setChannelDone(channel, index);
}

/** Completes what the target has executed. What it refused goes by packets, and all behind it. */
export function settleMessages(context: Context, qp: QueuePair): void {
  const before = qp.localPosted;
  while (qp.localPosted != 0) {
    const request = sendRequestAt(qp, qp.sendTail);
    const state = messageState(entryOf(context, qp, request));
    if (state == <u32>LocalMessageState.POSTED || state == <u32>LocalMessageState.TAKEN) break;
    if (state != <u32>LocalMessageState.DONE) {
      qp.localRun = 0;
      qp.localRefused = 1;
      withdrawMessages(context, qp);
      break;
    }
    qp.localPosted--;
    qp.retryLeft = qp.retryLimit;
    context.counters.localRequests++;
    context.counters.localBytes += request.length;
    completeSend(context, qp, WcStatus.SUCCESS, 0);
    if (qp.state == <u32>QpState.ERR) return;
  }
  if (qp.localPosted == before) return;
  context.slot.localRequests = context.counters.localRequests;
  if (qp.localPosted != 0) {
    armMessages(context, qp);
    return;
  }
  cancelTimer(timerOf(qp));
  if (qp.state == <u32>QpState.SQD) noteDrained(context, qp);
}

/** The timer fired: what the target has not taken goes by packets. */
export function expireMessages(context: Context, qp: QueuePair): void {
  qp.localLate = 0;
  if (qp.localPosted == 0) return;
  withdrawMessages(context, qp);
  if (qp.localPosted == 0) {
    qp.localRefused = 1;
    return;
  }
  // The target was stopped, or died, while it executed a message.
  context.counters.timeouts++;
  if (qp.retryLeft == 0) {
    context.counters.retryExceededErr++;
    failOldest(context, qp, WcStatus.RETRY_EXC_ERR, 0);
    return;
  }
  qp.retryLeft--;
  armMessages(context, qp);
}
