/** Checks of the responder's queue of answers, and of the lists of a context. */
import { Arena, enter, leave } from '../memory/arena';
import { allocProtectionDomain, attachProtectionDomain } from '../region/protection-domain';
import {
  dropJobsFrom,
  jobCount,
  pushJob,
  pushRead,
  unsentFrom,
} from '../transport/responder/response-queue';
import { schedule } from '../transport/shared/context';
import {
  Fence,
  awaitFence,
  beginFence,
  forgetFence,
  lookAtFence,
  passesAtOnce,
} from '../transport/shared/invalidation-fence';
import { JobState, QueuePair, RESPONSE_JOB_SIZE, jobAt } from '../transport/shared/queue-pair';
import { PacketFlag } from '../wire/opcode';
import { freshArena, slotOf } from './arena';
import { freshContext, freshQueuePair } from './context';
import { begin, end, same } from './tap';

const MTU: u32 = 1024;

export function checkJobs(): void {
  const arena = freshArena(16);
  const pd = allocProtectionDomain(arena, 0);
  checkUnsent(arena, pd);
  checkCuts(arena, pd);
  checkFreshJobs(arena, pd);
  checkLists(arena, pd);
}

function checkUnsent(arena: Arena, pd: u32): void {
  begin('of a repeated READ the responses are sent that no waiting answer will send');
  const context = freshContext(arena);
  const qp = freshQueuePair(context, pd);
  qp.mtu = MTU;
  same(unsentFrom(qp, 100, 8), 8, 'nothing waits');
  pushRead(context, qp, 104, 0, 1, 2 * MTU, 1, 0);
  pushRead(context, qp, 106, 0, 1, 3 * MTU, 2, 0);
  for (let psn: u32 = 90; psn < 120; psn++) {
    const waits = psn >= 104 && psn < 109;
    const before = psn < 104 ? min<u32>(104 - psn, 8) : 8;
    same(unsentFrom(qp, psn, 8), waits ? 0 : before, 'from', psn);
  }
  end();
}

function checkCuts(arena: Arena, pd: u32): void {
  begin('a READ that is being answered ends where the peer goes back to');
  for (let psn: u32 = 100; psn <= 112; psn++) {
    const context = freshContext(arena);
    const qp = freshQueuePair(context, pd);
    qp.mtu = MTU;
    pushRead(context, qp, 102, 0, 1, 5 * MTU + 7, 1, 0);
    pushRead(context, qp, 108, 0, 1, 100, 2, 0);
    same(u64(dropJobsFrom(qp, psn)), 1, 'room', psn);
    same(jobCount(qp), psn <= 102 ? 0 : psn <= 108 ? 1 : 2, 'answers', psn);
    if (psn <= 102) continue;
    const first = jobAt(qp, qp.jobTail);
    same(first.psn, 102, 'begin', psn);
    same(first.psnLast, min<u32>(psn - 1, 107), 'end', psn);
    same(first.left, psn < 108 ? (psn - 102) * MTU : 5 * MTU + 7, 'bytes', psn);
  }
  end();
}

function checkFreshJobs(arena: Arena, pd: u32): void {
  begin('an answer begins anew, whatever was in its place');
  const context = freshContext(arena);
  const qp = freshQueuePair(context, pd);
  qp.mtu = MTU;
  for (let state: u32 = JobState.READY; state <= <u32>JobState.FENCED; state++) {
    const before = jobAt(qp, qp.jobHead);
    memory.fill(changetype<usize>(before), 0xff, RESPONSE_JOB_SIZE);
    before.state = state;
    const job = pushJob(context, qp, PacketFlag.ATOMIC, 7, 9, 0);
    same(changetype<usize>(job), changetype<usize>(before), 'place', state);
    same(job.state, JobState.READY, 'state', state);
    same(job.started + job.beforeAcked + job.repeated + job.left, 0, 'progress', state);
    same(u64(job.psn == 7 && job.psnLast == 7 && job.msn == 9), 1, 'numbers', state);
    qp.jobTail = qp.jobHead;
  }
  end();
}

function checkLists(arena: Arena, pd: u32): void {
  begin('a queue pair that has something to send is on the list of its context');
  const context = freshContext(arena);
  const qp = freshQueuePair(context, pd);
  same(context.readyFirst, 0, 'before');
  schedule(context, qp);
  same(context.readyFirst, changetype<usize>(qp) + offsetof<QueuePair>('readyLink'), 'first');
  same(context.readyLast, context.readyFirst, 'last');
  end();

  begin('a queue pair that is reset waits for no fence');
  const other = freshQueuePair(context, pd);
  attachProtectionDomain(arena, pd, 1);
  enter(arena, slotOf(arena, 1));
  const epoch = beginFence(context);
  same(u64(passesAtOnce(context, qp, epoch)), 0, 'another engine is in a call');
  awaitFence(context, qp);
  awaitFence(context, other);
  forgetFence(context, qp);
  const link = changetype<usize>(other) + offsetof<QueuePair>('fenceLink');
  same(context.fenceFirst, link, 'the other one waits');
  same(context.fenceLast, link, 'alone');
  same(u64(context.fenceMicros != 0), 1, 'and is looked at');
  same(lookAtFence(context, other, epoch, <u32>context.now), Fence.PENDING, 'inside');
  leave(slotOf(arena, 1));
  same(lookAtFence(context, other, epoch, <u32>context.now), Fence.PASSED, 'outside');
  forgetFence(context, other);
  same(context.fenceFirst, 0, 'none waits');
  same(context.fenceMicros, 0, 'and none is looked at');
  end();
}
