/**
 * Answers: what a reliable responder sends. READ and atomic responses wait in `jobs`, in the order
 * of their PSNs; one coalesced ACK, or a NAK, waits until the jobs before it are sent.
 */
import { copyBytes } from '../memory/bytes';
import { AccessFlag } from '../region/access-flag';
import { moveRemote } from '../region/layout-use';
import { translateRemote } from '../region/window';
import { bthBits, storeAeth, storeBth, storeU64 } from '../wire/headers';
import { copiesPayload } from '../wire/icrc';
import { Opcode, PacketFlag } from '../wire/opcode';
import { ICRC_SIZE } from '../wire/packet';
import { psnAdd, psnCompare, psnDistance } from '../wire/psn';
import { ACK_WITHOUT_CREDITS, NakCode, SyndromeKind, rnrTimerMicros } from '../wire/syndrome';
import { tellArrival } from './arrival';
import { Context, EventKind, hasRoom, packetStart, pushEvent, schedule } from './context';
import { completeReceive, enterError } from './failure';
import { endReceiveFence } from './invalidating-receive';
import { Aside, sendProbe } from './keep-alive';
import { Fence } from './invalidation-fence';
import { executeWaiting, noteFlush } from './persist';
import {
  JobState,
  QueuePair,
  Resource,
  ResponseJob,
  jobAt,
  packetCount,
  pathOf,
  resourceAt,
} from './queue-pair';
import { jobCount, pushJob } from './response-jobs';
import { AsyncEvent, QpState, WcOpcode, WcStatus } from './status';
import { anyAhead, sendSelectiveAck } from './reorder';
import { awaitsSign, countResponse } from './response-window';
import { finishCopying, finishPacket } from './transmit';

/** RNR timers (20 ms, 491 ms) of who asks again for what is being worked on. */
const SHORTEST_BUSY: u32 = 22;
const LONGEST_BUSY: u32 = 31;
/** BECN: byte 4 of a congestion notification's BTH. */
const BECN: u8 = 0x40;

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
  // What was executed before is answered before the NAK: the peer learns that it succeeded.
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
 * A repeated request at `psn` is about to be answered: what was still to be answered from there on
 * will be asked for again. False when there is no room for one more answer.
 */
export function dropJobsFrom(qp: QueuePair, psn: u32): bool {
  // What is held is not dropped: it will be answered, whether it is asked for again or not.
  if (qp.heldJobs > 0) {
    return psnCompare(psn, jobAt(qp, qp.jobTail).psn) < 0 && jobCount(qp) < qp.rdAtomicLimit;
  }
  while (qp.jobHead != qp.jobTail && psnCompare(jobAt(qp, qp.jobHead - 1).psn, psn) >= 0) {
    qp.jobHead--;
  }
  if (qp.jobHead != qp.jobTail) cutJob(jobAt(qp, qp.jobHead - 1), psn, qp.mtu);
  return jobCount(qp) < qp.rdAtomicLimit;
}

/** Ends a job before `psn`, which it would have reached. */
function cutJob(job: ResponseJob, psn: u32, mtu: u32): void {
  if (psnCompare(job.psnLast, psn) < 0) return;
  job.left = psnDistance(job.psn, psn) * mtu;
  job.psnLast = psnAdd(psn, <u32>-1);
}

/**
 * Sends what waits. True when it stopped because of the quantum or the buffer and has more to send.
 */
export function sendResponses(context: Context, qp: QueuePair, quantum: u32): bool {
  while (qp.asidePending) {
    if (!hasRoom(context)) return true;
    if (qp.asidePending & Aside.CONGESTION) sendCongestionNotification(context, qp);
    else sendProbe(context, qp);
  }
  for (let sent: u32 = 0; qp.jobHead != qp.jobTail; sent++) {
    if (sent == quantum || !hasRoom(context)) return true;
    const job = jobAt(qp, qp.jobTail);
    if (job.kind == <u32>PacketFlag.READ && awaitsSign(context, qp)) return false;
    if (!sendJob(context, qp)) break;
  }
  if (qp.jobHead != qp.jobTail) return sendWithheld(context, qp);
  while (qp.ackPending || qp.nakPending || qp.sackPending) {
    if (!hasRoom(context)) return true;
    const selective = qp.sackPending && !qp.nakPending && anyAhead(qp);
    qp.sackPending = 0;
    if (selective) {
      qp.ackPending = 0;
      sendSelectiveAck(context, qp, NakCode.PSN_SEQUENCE_ERROR);
    } else if (qp.ackPending || qp.nakPending) sendAcknowledge(context, qp);
  }
  return false;
}

/**
 * The newest PSN before `end` that an ACK may have. Those of READs and atomics are acknowledged by
 * their responses alone (IBA 9.7.5.1.2): when such a response is lost, Linux rxe takes an ACK with
 * its PSN for it, and reports success without the data.
 */
function psnToAcknowledge(qp: QueuePair, end: u32): u32 {
  let psn = psnAdd(end, <u32>-1);
  for (let back: u32 = 1; back <= qp.rdAtomicLimit; back++) {
    const resource = resourceAt(qp, qp.resourceHead - back);
    if (resource.kind == 0) break;
    if (psnCompare(resource.psnFirst, psn) > 0) continue;
    if (resource.psnLast != psn) break;
    psn = psnAdd(resource.psnFirst, <u32>-1);
  }
  return psn;
}

/**
 * The oldest answer is held. Nothing from its request on is acknowledged, not even by a NAK; what
 * is before it is, once. A peer that asks for it again is told to wait for as long as it has been
 * waiting: for a slow disk its retries would not last. True when there was no room.
 */
function sendWithheld(context: Context, qp: QueuePair): bool {
  const job = jobAt(qp, qp.jobTail);
  if (!qp.busyPending && (!qp.ackPending || job.started)) return tellArrival(context, qp);
  if (!hasRoom(context)) return true;
  const msn = (job.msn - 1) & 0xffffff;
  if (qp.busyPending) {
    const waited = <u32>context.now - job.since;
    let code = SHORTEST_BUSY;
    while (code < LONGEST_BUSY && rnrTimerMicros(code) < waited) code++;
    sendAeth(context, qp, SyndromeKind.RNR_NAK | code, msn, job.psn);
    // Perhaps it was told what has arrived, and that got lost.
    qp.sackPending = 1;
  } else {
    sendAeth(context, qp, ACK_WITHOUT_CREDITS, msn, psnToAcknowledge(qp, job.psn));
    if (psnAdd(job.psnLast, 1) == qp.psnExpected) qp.ackPending = 0;
  }
  qp.busyPending = 0;
  job.started = 1;
  return tellArrival(context, qp);
}

function sendAcknowledge(context: Context, qp: QueuePair): void {
  let syndrome: u32 = ACK_WITHOUT_CREDITS;
  let psn: u32 = 0;
  if (qp.nakPending) {
    syndrome = qp.nakPending;
    psn = qp.nakPsn;
    // A NAK tells all that an ACK would, and more; but not that of a request of long ago.
    if (psnCompare(psnAdd(psn, 1), qp.psnExpected) >= 0) qp.ackPending = 0;
  } else {
    psn = psnToAcknowledge(qp, qp.psnExpected);
    qp.ackPending--;
  }
  qp.nakPending = 0;
  sendAeth(context, qp, syndrome, qp.msn, psn);
}

function sendAeth(context: Context, qp: QueuePair, syndrome: u32, msn: u32, psn: u32): void {
  qp.ackOwed = 0;
  const packet = packetStart(context);
  storeBth(packet, Opcode.RC_ACKNOWLEDGE, 0, context.pkey, qp.targetQp, 0, psn);
  storeAeth(packet + 12, syndrome, msn);
  finishPacket(context, pathOf(qp), qp.qpn, 16 + ICRC_SIZE);
}

/** Tells the peer that its packets met congestion (IBA A17.9.3). */
function sendCongestionNotification(context: Context, qp: QueuePair): void {
  qp.asidePending &= ~(<u8>Aside.CONGESTION);
  const packet = packetStart(context);
  storeBth(packet, Opcode.CNP, 0, context.pkey, qp.targetQp, 0, 0);
  store<u8>(packet, BECN, 4);
  memory.fill(packet + 12, 0, 16);
  context.counters.cnpsSent++;
  finishPacket(context, pathOf(qp), qp.qpn, 28 + ICRC_SIZE);
}

/** One packet of the oldest job. False: it ended in a NAK, or is held. */
function sendJob(context: Context, qp: QueuePair): bool {
  const job = jobAt(qp, qp.jobTail);
  if (job.state == <u32>JobState.FENCED) {
    const fence = endReceiveFence(context, qp, job);
    if (fence != <u32>Fence.EXPIRED) return fence == <u32>Fence.PASSED;
    return endJobs(context, qp, job, NakCode.REMOTE_OPERATIONAL_ERROR);
  }
  if (job.state != <u32>JobState.READY && !getReady(context, qp, job)) return false;
  if (job.kind == <u32>PacketFlag.ATOMIC) {
    sendAtomicAcknowledge(context, qp, job);
    return true;
  }
  // FLUSH and ATOMIC WRITE are answered as a READ of no byte.
  return sendReadResponse(context, qp, job);
}

/** The oldest job was held: is it still? What only waited for its turn is executed. */
function getReady(context: Context, qp: QueuePair, job: ResponseJob): bool {
  if (job.state == <u32>JobState.FAILED) return endJobs(context, qp, job, job.reference);
  if (job.state != <u32>JobState.WAITING) return false;
  if (!executeWaiting(context, qp, job)) {
    return endJobs(context, qp, job, NakCode.REMOTE_ACCESS_ERROR);
  }
  job.state = JobState.READY;
  qp.heldJobs--;
  // A FLUSH behind it is about its effect, too.
  if (qp.heldJobs > 0) noteFlush(context, qp);
  return true;
}

function sendAtomicAcknowledge(context: Context, qp: QueuePair, job: ResponseJob): void {
  const packet = packetStart(context);
  storeBth(packet, Opcode.RC_ATOMIC_ACKNOWLEDGE, 0, context.pkey, qp.targetQp, 0, job.psn);
  storeAeth(packet + 12, ACK_WITHOUT_CREDITS, job.msn);
  storeU64(packet + 16, job.value);
  endJob(qp, job);
  finishPacket(context, pathOf(qp), qp.qpn, 24 + ICRC_SIZE);
}

function sendReadResponse(context: Context, qp: QueuePair, job: ResponseJob): bool {
  const size = min<u32>(job.left, qp.mtu);
  const last = job.psn == job.psnLast;
  let opcode: u32 = Opcode.RC_RDMA_READ_RESPONSE_MIDDLE;
  if (last && !job.started) opcode = Opcode.RC_RDMA_READ_RESPONSE_ONLY;
  else if (last) opcode = Opcode.RC_RDMA_READ_RESPONSE_LAST;
  else if (!job.started) opcode = Opcode.RC_RDMA_READ_RESPONSE_FIRST;
  const header: u32 = opcode == <u32>Opcode.RC_RDMA_READ_RESPONSE_MIDDLE ? 12 : 16;
  const packet = packetStart(context);
  const source = copiesPayload(size) ? inMemory(context, qp, job, size) : 0;
  if (source == 0 && size > 0 && !readMemory(context, qp, job, packet + header, size)) {
    return endUnreadable(context, qp, job);
  }
  const pad: u32 = (0 - size) & 3;
  storeBth(packet, opcode, bthBits(0, pad), context.pkey, qp.targetQp, 0, job.psn);
  if (header == 16) storeAeth(packet + 12, ACK_WITHOUT_CREDITS, job.msn);
  if (pad) store<u32>(packet + header + size, 0);
  if (job.kind == <u32>PacketFlag.READ) countResponse(context, qp);
  const only = last && !job.started;
  job.started = 1;
  if (only) endJob(qp, job);
  else {
    job.psn = psnAdd(job.psn, 1);
    job.address += size;
    job.left -= size;
    if (last) qp.jobTail++;
  }
  const length = header + size + pad + ICRC_SIZE;
  finishCopying(context, pathOf(qp), qp.qpn, length, header, source);
  return true;
}

/** A response of one packet was sent: the job ends, or the response is sent a second time. */
function endJob(qp: QueuePair, job: ResponseJob): void {
  if (job.repeated < 2) {
    qp.jobTail++;
    return;
  }
  job.repeated = 1;
  job.started = 0;
}

/** Where the next bytes of a READ lie in one piece; 0: they do not, or may not be read. */
function inMemory(context: Context, qp: QueuePair, job: ResponseJob, size: u32): usize {
  const need: u32 = AccessFlag.REMOTE_READ;
  return translateRemote(context.arena, job.key, qp.pd, qp.binding, job.address, size, need);
}

/** The next bytes of a READ to `target`. False when its key does not allow it any more. */
function readMemory(
  context: Context,
  qp: QueuePair,
  job: ResponseJob,
  target: usize,
  size: u32,
): bool {
  const from = inMemory(context, qp, job, size);
  if (from == 0) {
    const arena = context.arena;
    const read: u32 = AccessFlag.REMOTE_READ;
    return moveRemote(arena, job.key, qp.pd, job.address, target, size, read, false);
  }
  copyBytes(target, from, size);
  return true;
}

/** A READ whose memory is gone ends in a NAK. True: there may be more to send. */
function endUnreadable(context: Context, qp: QueuePair, job: ResponseJob): bool {
  const psn = job.psn;
  if (job.repeated) {
    // Whoever still waits for it is told; when it is a late copy, nobody does, and the memory
    // may rightly be gone.
    qp.jobTail++;
    sendNak(context, qp, NakCode.REMOTE_ACCESS_ERROR, psn);
    return true;
  }
  return endJobs(context, qp, job, NakCode.REMOTE_ACCESS_ERROR);
}

/** The oldest request is not executed: nothing behind it is answered. False: there is no more. */
function endJobs(context: Context, qp: QueuePair, job: ResponseJob, syndrome: u32): bool {
  const psn = job.psn;
  qp.jobHead = qp.jobTail;
  qp.heldJobs = 0;
  const access = syndrome == <u32>NakCode.REMOTE_ACCESS_ERROR;
  // In ERR there is a NAK of something later under way: this one goes in its place.
  if (qp.state == <u32>QpState.ERR) qp.nakPending = 0;
  else {
    const status: u32 = access ? WcStatus.LOC_ACCESS_ERR : WcStatus.LOC_QP_OP_ERR;
    refuse(context, qp, syndrome, psn, status);
  }
  sendNak(context, qp, syndrome, psn);
  return false;
}
