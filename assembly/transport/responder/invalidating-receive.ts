/**
 * A received SEND_WITH_INV: invalidates the key, and completes its receive request after the fence
 * of that invalidation (invalidation-fence.ts). While the fence is pending, the completion and all
 * acknowledgements from this message on wait in the response queue; a message that needs a receive
 * request is deferred. `npm run exhaustive` visits the schedules of this file.
 */
import { invalidateRemote } from '../../region/memory-window';
import { PacketFlag } from '../../wire/opcode';
import { completeReceive } from '../queue/completion';
import { Context } from '../shared/context';
import {
  Fence,
  awaitFence,
  beginFence,
  lookAtFence,
  passesAtOnce,
} from '../shared/invalidation-fence';
import { JobState, QueuePair, ResponseJob } from '../shared/queue-pair';
import { WcFlag, WcOpcode, WcStatus } from '../shared/status';
import { pushJob } from './response-queue';

export enum Invalidation {
  /** The queue pair has no right to invalidate that key. */
  REFUSED = 0,
  /** The receive request may complete now. */
  PASSED = 1,
  /** The receive request completes in `endReceiveFence`. */
  HELD = 2,
}

/** `bytes`: length of the message, which completes at `psn`. Returns an Invalidation. */
export function invalidateReceived(
  context: Context,
  qp: QueuePair,
  key: u32,
  psn: u32,
  bytes: u32,
  solicited: bool,
): u32 {
  if (!invalidateRemote(context.arena, key, qp.pd, qp.binding)) return Invalidation.REFUSED;
  const epoch = beginFence(context);
  if (passesAtOnce(context, qp, epoch)) return Invalidation.PASSED;
  const job = pushJob(context, qp, PacketFlag.SEND, psn, qp.msn, 0);
  job.key = key;
  job.left = bytes;
  job.solicited = <u8>solicited;
  job.fenceEpoch = epoch;
  job.since = <u32>context.now;
  job.state = JobState.FENCED;
  // 1: no earlier message waits for its acknowledgement.
  job.beforeAcked = u8(qp.ackPending == 0);
  if (qp.heldJobs++ == 0) {
    qp.flushFrom = qp.jobHead - 1;
    qp.chargeHeld = 0;
  }
  qp.receiveFenced = 1;
  awaitFence(context, qp);
  return Invalidation.HELD;
}

/** Checks the fence of `job`, the oldest one. Returns a Fence; EXPIRED: the caller ends the job. */
export function endReceiveFence(context: Context, qp: QueuePair, job: ResponseJob): u32 {
  const fence = lookAtFence(context, qp, job.fenceEpoch, job.since);
  if (fence == <u32>Fence.PENDING) return fence;
  const opcode: u32 = WcOpcode.RECV;
  if (fence == <u32>Fence.EXPIRED) {
    const late: u32 = WcStatus.RESP_TIMEOUT_ERR;
    if (qp.receiveHeld) completeReceive(context, qp, late, opcode, 0, 0, 0, false);
    return fence;
  }
  qp.jobTail++;
  qp.heldJobs--;
  qp.receiveFenced = 0;
  qp.ackPending = 1;
  // In ERR the receive request was flushed together with all others.
  if (!qp.receiveHeld) return fence;
  const solicited = job.solicited != 0;
  const status: u32 = WcStatus.SUCCESS;
  const flag: u32 = WcFlag.WITH_INV;
  completeReceive(context, qp, status, opcode, job.left, job.key, flag, solicited);
  return fence;
}
