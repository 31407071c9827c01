/**
 * Messages that a queue pair has posted to the context of its target (memory/local-channel.ts), as
 * their source withdraws them. Requests `sendNext - localPosted` to `sendNext - 1` are messages.
 */
import {
  LocalMessageState,
  changeState,
  channelOf,
  messageAt,
  messageState,
} from '../../memory/local-channel';
import { slotOfNumber } from '../../memory/local-endpoint';
import { Context } from './context';
import { QueuePair, sendRequestAt } from './queue-pair';
import { SendRequest, SendState } from './work-request';

/** The entry of a request that is POSTED. */
export function entryOf(context: Context, qp: QueuePair, request: SendRequest): usize {
  const arena = context.arena;
  const channel = channelOf(arena, slotOfNumber(qp.targetQp), context.slotIndex);
  return messageAt(arena, channel, request.psnFirst);
}

/**
 * The newest message first, so that none is executed behind one that is not. What the target has
 * taken stays: `localPosted` of them.
 */
export function withdrawMessages(context: Context, qp: QueuePair): void {
  while (qp.localPosted != 0) {
    const request = sendRequestAt(qp, qp.sendNext - 1);
    const entry = entryOf(context, qp, request);
    const state = messageState(entry);
    if (state == <u32>LocalMessageState.TAKEN || state == <u32>LocalMessageState.DONE) return;
    const isPosted = state == <u32>LocalMessageState.POSTED;
    if (isPosted && !changeState(entry, state, LocalMessageState.WITHDRAWN)) return;
    request.state = SendState.FETCHED;
    qp.sendNext--;
    qp.localPosted--;
  }
}

/** The queue pair ends: what its target is executing is not executed, unless it is done. */
export function abandonMessages(context: Context, qp: QueuePair): void {
  withdrawMessages(context, qp);
  for (; qp.localPosted != 0; qp.localPosted--) {
    const request = sendRequestAt(qp, qp.sendNext - qp.localPosted);
    const entry = entryOf(context, qp, request);
    changeState(entry, LocalMessageState.TAKEN, LocalMessageState.WITHDRAWN);
  }
}
