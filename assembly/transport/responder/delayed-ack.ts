/**
 * Delayed acknowledgements. Between Verbena peers a requester sets no AckReq bit if no completion
 * depends on the answer (ack-request.ts `isAwaited`). The responder acknowledges such a message
 * with the next requested acknowledgement, or after a short time. So an application's answer does
 * not cost two acknowledgements.
 *
 * A responder may acknowledge at any time (IBA 9.7.5.1.2). A requester must not rely on it: its own
 * timers run as always.
 */
import { List, prepend, removeFrom, takeFirst } from '../../memory/list';
import { Context, schedule } from '../shared/context';
import { QueuePair } from '../shared/queue-pair';
import { serves } from '../shared/state-machine';

/** Shorter than a requester's shortest timeout (retransmit-timer.ts `REPEAT_SLACK_MICROS`). */
const DELAY_MICROS: u64 = 500;
/**
 * Where a link paces itself a packet costs ten times as much, and few arrive in that time. Shorter
 * than DELAYED_ACK_SLACK_MICROS of a requester without losses; one with losses sets AckReq each
 * time.
 */
const DELAY_MICROS_PACED: u64 = 5000;

function delayedAcks(context: Context): List {
  return changetype<List>(changetype<usize>(context) + offsetof<Context>('delayedAckFirst'));
}

function linkOf(qp: QueuePair): usize {
  return changetype<usize>(qp) + offsetof<QueuePair>('delayedAckLink');
}

/** A message without AckReq has arrived. */
export function delayAck(context: Context, qp: QueuePair): void {
  // Only a Verbena peer omits AckReq where it expects an acknowledgement.
  if (qp.reorderPeer == 0) return;
  qp.ackDelayed = 1;
  prepend(delayedAcks(context), linkOf(qp));
  if (context.delayedAckMicros != 0) return;
  context.delayedAckMicros = context.now + (context.paced ? DELAY_MICROS_PACED : DELAY_MICROS);
}

/** After the delay: sends the acknowledgements that no other acknowledgement has covered. */
export function sendDelayedAcks(context: Context): void {
  if (context.delayedAckMicros == 0 || context.now < context.delayedAckMicros) return;
  context.delayedAckMicros = 0;
  const list = delayedAcks(context);
  for (let link = takeFirst(list); link != 0; link = takeFirst(list)) {
    const qp = changetype<QueuePair>(link - offsetof<QueuePair>('delayedAckLink'));
    if (qp.ackDelayed && serves(qp.state)) acknowledgeLater(context, qp);
  }
}

/** Removes a queue pair from the list: reset or destroyed. */
export function forgetDelayedAck(context: Context, qp: QueuePair): void {
  removeFrom(delayedAcks(context), linkOf(qp));
  if (context.delayedAckFirst == 0) context.delayedAckMicros = 0;
}

/** The peer wants an acknowledgement: one for all that is taken in before answers are sent. */
export function acknowledgeLater(context: Context, qp: QueuePair): void {
  if (qp.ackPending) context.counters.ackDeferred++;
  qp.ackPending = 1;
  schedule(context, qp);
}
