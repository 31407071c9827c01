/**
 * Sends responses of a reliable responder in PSN order: READ, atomic, FLUSH and ATOMIC WRITE
 * responses from the response queue, then one coalesced ACK, or a NAK.
 */
import { copyBytes } from '../../memory/bytes';
import { moveRemote, translateRemote } from '../../region/access';
import { AccessFlag } from '../../region/access-flag';
import { bthBits, storeAeth, storeBth, storeU64 } from '../../wire/headers';
import { copiesPayload } from '../../wire/icrc';
import { Opcode, PacketFlag } from '../../wire/opcode';
import { ICRC_SIZE } from '../../wire/packet';
import { psnAdd, psnCompare } from '../../wire/psn';
import { ACK_WITHOUT_CREDITS, NakCode, SyndromeKind, rnrTimerMicros } from '../../wire/syndrome';
import { Context, hasRoom, packetStart, schedule } from '../shared/context';
import { Fence } from '../shared/invalidation-fence';
import { Aside, awaitsSign, countResponse, sendProbe } from '../shared/keep-alive';
import { answeredPsn } from '../shared/packet-mark';
import { JobState, QueuePair, ResponseJob, jobAt, pathOf, resourceAt } from '../shared/queue-pair';
import { finishCopying, finishPacket } from '../shared/send-buffer';
import { QpState, WcStatus } from '../shared/status';
import { executeWaiting, noteFlush } from './flush';
import { endReceiveFence } from './invalidating-receive';
import { anyAhead } from './reorder-buffer';
import { refuse, sendNak } from './response-queue';
import { sendSelectiveAck, takeDuplicate, reportArrivals } from './selective-ack';

/** RNR timers (20 ms, 491 ms) for a peer that retransmits a held request. */
const SHORTEST_BUSY: u32 = 22;
const LONGEST_BUSY: u32 = 31;
/** BECN: byte 4 of a congestion notification's BTH. */
const BECN: u8 = 0x40;
/** A queue pair sends no more than one congestion notification in this time (DCQCN). */
const NOTIFY_MICROS: u32 = 50;

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
 * is before it is, once. A peer that retransmits it gets an RNR NAK with the time that it has
 * waited so far: otherwise a slow disk would use up its retries. True when the buffer was full.
 */
function sendWithheld(context: Context, qp: QueuePair): bool {
  const job = jobAt(qp, qp.jobTail);
  if (!qp.busyPending && (!qp.ackPending || job.beforeAcked)) return reportArrivals(context, qp);
  if (!hasRoom(context)) return true;
  const msn = (job.msn - 1) & 0xffffff;
  if (qp.busyPending) {
    const waited = <u32>context.now - job.since;
    let code = SHORTEST_BUSY;
    while (code < LONGEST_BUSY && rnrTimerMicros(code) < waited) code++;
    sendAeth(context, qp, SyndromeKind.RNR_NAK | code, msn, job.psn);
    // A report of arrivals may have been lost.
    qp.sackPending = 1;
  } else {
    sendAeth(context, qp, ACK_WITHOUT_CREDITS, msn, psnToAcknowledge(qp, job.psn));
    if (psnAdd(job.psnLast, 1) == qp.psnExpected) qp.ackPending = 0;
  }
  qp.busyPending = 0;
  job.beforeAcked = 1;
  return reportArrivals(context, qp);
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
  qp.ackDelayed = 0;
  const packet = packetStart(context);
  const reports = takeDuplicate(qp);
  storeBth(packet, Opcode.RC_ACKNOWLEDGE, 0, context.pkey, qp.targetQp, reports, psn);
  storeAeth(packet + 12, syndrome, msn);
  finishPacket(context, pathOf(qp), qp.qpn, 16 + ICRC_SIZE);
}

/** A switch has marked a packet of the peer: a notification is to be sent. */
export function noteCongestion(context: Context, qp: QueuePair): void {
  const micros = <u32>context.now - qp.notifiedMicros;
  if (qp.notifiedMicros != 0 && micros < NOTIFY_MICROS) return;
  qp.asidePending |= <u8>Aside.CONGESTION;
  schedule(context, qp);
}

/** Tells the peer that its packets met congestion (IBA A17.9.3). */
function sendCongestionNotification(context: Context, qp: QueuePair): void {
  qp.asidePending &= ~(<u8>Aside.CONGESTION);
  qp.notifiedMicros = max<u32>(<u32>context.now, 1);
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
  if (job.state == <u32>JobState.FAILED) return endJobs(context, qp, job, job.nak);
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
  const psn = answeredPsn(qp, job.psn);
  storeBth(packet, Opcode.RC_ATOMIC_ACKNOWLEDGE, 0, context.pkey, qp.targetQp, 0, psn);
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
  const psn = answeredPsn(qp, job.psn);
  storeBth(packet, opcode, bthBits(0, pad), context.pkey, qp.targetQp, 0, psn);
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
    // A peer that still waits gets the NAK. If the request was a late copy, no request waits, and
    // its memory may be invalidated.
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
