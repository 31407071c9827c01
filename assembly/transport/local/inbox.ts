/**
 * Messages of other contexts (outbox.ts): the target's engine executes them as the responder does
 * packets, if every check of the responder passes. Any other message it refuses: it goes by
 * packets then, and so do all behind it.
 */
import { ContextSlot, enter } from '../../memory/arena';
import { copyBytes, moveBytes } from '../../memory/bytes';
import {
  LocalMessage,
  LocalMessageState,
  announce,
  changeState,
  channelHead,
  channelOf,
  channelTail,
  messageAt,
  messageState,
  setChannelTail,
  sourceWords,
  takeSources,
} from '../../memory/local-channel';
import { LOCAL_MESSAGE_SIZE, LOCAL_VALUE_SIZE } from '../../memory/local-sizes';
import { slotOfNumber } from '../../memory/local-endpoint';
import { translateLocal, translateRemote } from '../../region/access';
import { AccessFlag } from '../../region/access-flag';
import { countWrite } from '../../region/key-table';
import { completeReceive, hasCompletionRoom } from '../queue/completion';
import { CountedOperation, countCompletion } from '../queue/completion-counter';
import { peekReceive, takePeeked } from '../queue/receive-queue';
import { receiveCapacity, scatterReceive } from '../queue/scatter-gather';
import { anyAhead } from '../responder/reorder-buffer';
import { Context, findQueuePair } from '../shared/context';
import { servesLocally } from '../shared/local-endpoint';
import { MessageKind, QueuePair, receiveCursor } from '../shared/queue-pair';
import { SendFlag, WcFlag, WcOpcode, WcStatus, WrOpcode } from '../shared/status';
import { SGE_SIZE, Sge } from '../shared/work-request';
import { charge } from './local-path';
import { LONG_BYTES, announceTo, takeAnswers } from './outbox';

/** Up to this length bytes are copied before the receive request is written: both may overlap. */
const SHORT_BYTES: u32 = 256;

/** Takes messages and answers that other contexts have announced. */
export function serveChannels(context: Context): void {
  const arena = context.arena;
  if (arena.localMessagesMax == 0) return;
  const slot = changetype<usize>(context.slot);
  const announced = atomic.load<u32>(slot + offsetof<ContextSlot>('announced'));
  if (announced == context.announcedSeen) return;
  context.announcedSeen = announced;
  const own = context.slotIndex;
  for (let word: u32 = 0; word < sourceWords(arena); word++) {
    for (let bits = takeSources(arena, own, word); bits != 0; bits &= bits - 1) {
      const source = (word << 5) + <u32>ctz<u32>(bits);
      if (source >= arena.contextsMax || source == own) continue;
      takeAnswers(context, source);
      takeMessages(context, source);
    }
  }
}

/** As many messages of a source as one call may copy. */
function takeMessages(context: Context, source: u32): void {
  const arena = context.arena;
  const channel = channelOf(arena, context.slotIndex, source);
  const head = channelHead(channel);
  const before = channelTail(channel);
  let tail = head - min<u32>(head - before, arena.localMessagesMax);
  let answered: bool = false;
  for (; tail != head && context.localLeft != 0; tail++) {
    // Nothing is held that was looked up before: a fence waits for one message.
    enter(arena, context.slot);
    if (takeMessage(context, source, messageAt(arena, channel, tail))) answered = true;
  }
  if (tail != before) setChannelTail(channel, tail);
  if (tail != head) announce(arena, context.slotIndex, source);
  if (answered) announceTo(context, source);
}

/** True: the message has an answer. */
function takeMessage(context: Context, source: u32, entry: usize): bool {
  const posted: u32 = LocalMessageState.POSTED;
  if (messageState(entry) != posted) return false;
  // The source may be hostile: what is checked is a copy.
  const message = changetype<LocalMessage>(context.localMessage);
  copyBytes(context.localMessage, entry, LOCAL_MESSAGE_SIZE);
  const qp = findQueuePair(context, message.targetQpn);
  if (qp == null || !isFrom(qp, message, source)) {
    return changeState(entry, posted, LocalMessageState.REFUSED);
  }
  if (!mayTake(context, qp, message)) {
    // The next one may find the queue pair ready, and must not overtake.
    qp.localRefusedRun = message.run;
    return changeState(entry, posted, LocalMessageState.REFUSED);
  }
  if (!changeState(entry, posted, LocalMessageState.TAKEN)) return false;
  if (execute(context, qp, message, entry)) return true;
  qp.localRefusedRun = message.run;
  return changeState(entry, LocalMessageState.TAKEN, LocalMessageState.REFUSED);
}

/** Is the message for the present incarnation of the queue pair, from its peer? */
function isFrom(qp: QueuePair, message: LocalMessage, source: u32): bool {
  return (
    message.sourceQpn == qp.targetQp &&
    slotOfNumber(message.sourceQpn) == source &&
    message.binding == qp.binding
  );
}

/** Does the queue pair await a message, and has it nothing else to see to? */
function mayTake(context: Context, qp: QueuePair, message: LocalMessage): bool {
  if (message.run == qp.localRefusedRun || !qp.localPath || !servesLocally(context, qp)) {
    return false;
  }
  return (
    qp.message == <u32>MessageKind.NONE &&
    qp.jobHead == qp.jobTail &&
    (qp.heldJobs | qp.nakSent | qp.nakPending) == 0 &&
    !anyAhead(qp)
  );
}

/** False: a check fails, and the receive request is as it was. */
function execute(context: Context, qp: QueuePair, message: LocalMessage, entry: usize): bool {
  if (message.length > LONG_BYTES) return false;
  const opcode = message.opcode;
  const writes = opcode == <u32>WrOpcode.RDMA_WRITE_WITH_IMM;
  const immediate = writes || opcode == <u32>WrOpcode.SEND_WITH_IMM;
  if (!immediate && opcode != <u32>WrOpcode.SEND) return false;
  if (!hasCompletionRoom(qp.receiveCq)) return false;
  // A message that is refused takes nothing from a shared receive queue.
  if (!qp.receiveHeld && !peekReceive(qp)) return false;
  const length = message.length;
  const placed = writes
    ? placeWrite(context, qp, message, entry)
    : placeSend(context, qp, message, entry);
  // From here on it is executed, unless the source has given it up meanwhile.
  const done: u32 = LocalMessageState.DONE;
  if (!placed || !changeState(entry, LocalMessageState.TAKEN, done)) {
    forgetPlaced(qp);
    return false;
  }
  if (!qp.receiveHeld) takePeeked(context, qp);
  charge(context, length);
  context.counters.rdmaRecvs++;
  if (writes) {
    if (length > 0) countWrite(context.arena, message.key, length);
    const operation = CountedOperation.REMOTE_RDMA_WRITE;
    countCompletion(qp.counterTable, operation, WcStatus.SUCCESS, length);
  }
  completeReceive(
    context,
    qp,
    WcStatus.SUCCESS,
    writes ? WcOpcode.RECV_RDMA_WITH_IMM : WcOpcode.RECV,
    length,
    message.immediate,
    immediate ? WcFlag.WITH_IMM : 0,
    (message.sendFlags & SendFlag.SOLICITED) != 0,
  );
  return true;
}

function forgetPlaced(qp: QueuePair): void {
  const cursor = receiveCursor(qp);
  cursor.index = 0;
  cursor.offset = 0;
}

function placeSend(context: Context, qp: QueuePair, message: LocalMessage, entry: usize): bool {
  if (<u64>message.length > receiveCapacity(qp)) return false;
  forgetPlaced(qp);
  return placeAll(context, qp, message, entry, 0);
}

function placeWrite(context: Context, qp: QueuePair, message: LocalMessage, entry: usize): bool {
  const need: u32 = AccessFlag.REMOTE_WRITE;
  if (!(qp.access & need)) return false;
  // A zero-length WRITE names no byte: neither key nor address is looked at (IBA C9-88).
  const length = message.length;
  if (length == 0) return true;
  const key = message.key;
  const address = message.remoteAddress;
  const to = translateRemote(context.arena, key, qp.pd, qp.binding, address, length, need);
  return to != 0 && placeAll(context, qp, message, entry, to);
}

/**
 * Copies the bytes of a message to `to`; 0: to the receive request. False: a key does not allow it,
 * or not in one piece.
 */
function placeAll(
  context: Context,
  qp: QueuePair,
  message: LocalMessage,
  entry: usize,
  to: usize,
): bool {
  const behind = entry + <usize>LOCAL_MESSAGE_SIZE;
  let left = message.length;
  if (message.sgeCount == 0) {
    return left <= LOCAL_VALUE_SIZE && place(context, qp, behind, to, left);
  }
  const count = min<u32>(message.sgeCount, LOCAL_VALUE_SIZE / SGE_SIZE);
  let target = to;
  for (let index: u32 = 0; index < count && left > 0; index++) {
    const sge = changetype<Sge>(behind + <usize>(index * SGE_SIZE));
    const piece = min<u32>(sge.length, left);
    if (piece == 0) continue;
    const from = translateLocal(context.arena, sge.lkey, message.pd, sge.address, piece, 0);
    if (from == 0 || !place(context, qp, from, target, piece)) return false;
    left -= piece;
    if (to != 0) target += piece;
  }
  return left == 0;
}

function place(context: Context, qp: QueuePair, from: usize, to: usize, length: u32): bool {
  if (to != 0) {
    moveBytes(to, from, length);
    return true;
  }
  let source = from;
  if (length <= SHORT_BYTES) {
    copyBytes(context.localBounce, from, length);
    source = context.localBounce;
  }
  return scatterReceive(context, qp, source, length) == <u32>WcStatus.SUCCESS;
}
