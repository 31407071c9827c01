/** The queue of requests that wait for a response, in PSN order (response.ts). */
import { psnCompare } from '../wire/psn';
import { Context, schedule } from './context';
import { JobState, QueuePair, ResponseJob, jobAt } from './queue-pair';

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
  job.repeated = repeated;
  job.psn = psn;
  job.psnLast = psn;
  job.left = 0;
  job.msn = msn;
  job.started = 0;
  job.state = JobState.READY;
  schedule(context, qp);
  return job;
}
