/**
 * The queue of requests that wait for a response, in PSN order, and the requests that the responder
 * remembers for retransmissions of the peer. Also the pending NAK, which follows the queue.
 */
import { PacketFlag } from '../../wire/opcode';
import { psnAdd, psnCompare, psnDistance } from '../../wire/psn';
import { NakCode } from '../../wire/syndrome';
import { completeReceive, enterError } from '../queue/completion';
import { Context, EventKind, pushEvent, schedule } from '../shared/context';
import { reorders } from '../shared/packet-mark';
import {
  JobState,
  QueuePair,
  Resource,
  ResponseJob,
  jobAt,
  packetCount,
  resourceAt,
} from '../shared/queue-pair';
import { AsyncEvent, WcOpcode } from '../shared/status';

/** Number of requests that wait for a response, repeated ones included. */
export function jobCount(qp: QueuePair): u32 {
  return qp.jobHead - qp.jobTail;
}

/**
 * Number of requests that wait for their first response: these count against the peer's limit of
 * outstanding requests. A repeated one may have been answered long ago.
 */
export function firstJobCount(qp: QueuePair): u32 {
  let count: u32 = 0;
  for (let index = qp.jobTail; index != qp.jobHead; index++) {
    const job = jobAt(qp, index);
    // A SEND that waits for its fence does not count.
    if (!job.repeated && job.state != <u32>JobState.FENCED) count++;
  }
  return count;
}

/**
 * Adds a response of one packet, READY, in PSN order: behind all others, or before the held ones if
 * its request precedes them.
 */
export function pushJob(
  context: Context,
  qp: QueuePair,
  kind: u32,
  psn: u32,
  msn: u32,
  repeated: u32,
): ResponseJob {
  const before = qp.heldJobs > 0 && psnCompare(psn, jobAt(qp, qp.jobTail).psn) < 0;
  const job = jobAt(qp, before ? --qp.jobTail : qp.jobHead++);
  job.kind = kind;
  job.repeated = <u8>repeated;
  job.psn = psn;
  job.psnLast = psn;
  job.left = 0;
  job.msn = msn;
  job.started = 0;
  job.beforeAcked = 0;
  job.state = JobState.READY;
  schedule(context, qp);
  return job;
}

/** The request must wait for READs before it: the NAK after their responses requests it again. */
export function defer(context: Context, qp: QueuePair): void {
  sendNak(context, qp, NakCode.PSN_SEQUENCE_ERROR, qp.psnExpected);
  qp.nakSent = 1;
}

export function sendNak(context: Context, qp: QueuePair, syndrome: u32, psn: u32): void {
  // A NAK that ends the connection is never displaced by one that asks for more.
  if (qp.nakPending >= <u32>NakCode.INVALID_REQUEST) return;
  qp.nakPending = syndrome;
  qp.nakPsn = psn;
  schedule(context, qp);
}

/**
 * A fatal NAK (IBA class C): the answer goes out, the queue pair goes to ERR, and a receive
 * request in hand, or an asynchronous event, tells the application.
 */
export function refuse(
  context: Context,
  qp: QueuePair,
  syndrome: u32,
  psn: u32,
  status: u32,
): void {
  if (qp.receiveHeld) completeReceive(context, qp, status, WcOpcode.RECV, 0, 0, 0, false);
  else {
    const access = syndrome == <u32>NakCode.REMOTE_ACCESS_ERROR;
    const event: u32 = access ? AsyncEvent.QP_ACCESS_ERR : AsyncEvent.QP_REQ_ERR;
    pushEvent(context, EventKind.ASYNC, event, changetype<usize>(qp));
  }
  const unanswered = qp.jobTail;
  const held = qp.heldJobs;
  enterError(context, qp);
  // Executed requests are acknowledged before the NAK: the peer learns that they succeeded.
  qp.jobTail = unanswered;
  qp.heldJobs = held;
  sendNak(context, qp, syndrome, psn);
}

/** Takes a place for what has to be answered, and perhaps to be answered again. */
export function remember(qp: QueuePair, kind: u32, psn: u32, packets: u32): Resource {
  // The count of messages moves when a READ or atomic begins to be executed (IBA C9-148).
  qp.msn = (qp.msn + 1) & 0xffffff;
  qp.psnExpected = psnAdd(psn, packets);
  const resource = resourceAt(qp, qp.resourceHead++);
  resource.kind = kind;
  resource.psnFirst = psn;
  resource.psnLast = psnAdd(psn, packets - 1);
  resource.msn = qp.msn;
  return resource;
}

/** Queues the answer to a READ. */
export function pushRead(
  context: Context,
  qp: QueuePair,
  psn: u32,
  address: u64,
  key: u32,
  length: u32,
  msn: u32,
  repeated: u32,
): void {
  const job = pushJob(context, qp, PacketFlag.READ, psn, msn, repeated);
  job.address = address;
  job.psnLast = psnAdd(psn, packetCount(qp, length) - 1);
  job.key = key;
  job.left = length;
}

/** Queues the answer to an atomic: the value that memory held before. */
export function pushAtomic(
  context: Context,
  qp: QueuePair,
  psn: u32,
  value: u64,
  msn: u32,
  repeated: u32,
): void {
  pushJob(context, qp, PacketFlag.ATOMIC, psn, msn, repeated).value = value;
}

/**
 * Number of requests that may wait for a response at once. The peer's new requests find room
 * whatever it requests again, if it does selective repeat: `dropJobsFrom` drops nothing then.
 */
export function jobRoom(qp: QueuePair): u32 {
  return reorders(qp) ? 2 * qp.rdAtomicLimit - 1 : qp.rdAtomicLimit;
}

/** How many of `packets` responses from `psn` on no job that waits will send. */
export function unsentFrom(qp: QueuePair, psn: u32, packets: u32): u32 {
  let left = packets;
  for (let index = qp.jobTail; index != qp.jobHead; index++) {
    const job = jobAt(qp, index);
    const ahead = psnDistance(psn, job.psn);
    if (psnDistance(job.psn, psn) <= psnDistance(job.psn, job.psnLast)) return 0;
    if (ahead < left) left = ahead;
  }
  return left;
}

/**
 * A repeated request at `psn` is about to be answered. A peer that goes back to it will request
 * again what was still to be answered from there on; a peer that does selective repeat will not.
 * False: no room for one more answer.
 */
export function dropJobsFrom(qp: QueuePair, psn: u32): bool {
  // Held jobs are not dropped: they are answered with or without a retransmission.
  if (qp.heldJobs > 0) {
    return psnCompare(psn, jobAt(qp, qp.jobTail).psn) < 0 && jobCount(qp) < qp.rdAtomicLimit;
  }
  if (reorders(qp)) return hasRoomForRepeated(qp);
  while (qp.jobHead != qp.jobTail && psnCompare(jobAt(qp, qp.jobHead - 1).psn, psn) >= 0) {
    qp.jobHead--;
  }
  if (qp.jobHead != qp.jobTail) cutJob(jobAt(qp, qp.jobHead - 1), psn, qp.mtu);
  return jobCount(qp) < qp.rdAtomicLimit;
}

function hasRoomForRepeated(qp: QueuePair): bool {
  const jobs = jobCount(qp) - <u32>qp.receiveFenced;
  return jobs == 0 || jobs - firstJobCount(qp) < qp.rdAtomicLimit - 1;
}

/** Ends a job before `psn`, which it would have reached. */
function cutJob(job: ResponseJob, psn: u32, mtu: u32): void {
  if (psnCompare(job.psnLast, psn) < 0) return;
  job.left = psnDistance(job.psn, psn) * mtu;
  job.psnLast = psnAdd(psn, <u32>-1);
}
