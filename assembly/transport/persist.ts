/**
 * FLUSH and ATOMIC WRITE at the responder (memory placement extensions, IBA annex A19).
 *
 * What has to become durable the host makes so, and it may take long. Until then the FLUSH holds
 * its place among the answers: `nextFlush` tells the host what to do, `advanceFlush` says that it is
 * done. Meanwhile WRITEs are placed and FLUSHes taken in. Held back, in the order of PSNs, are all
 * answers and acknowledgements from its PSN on, and the effect of whatever somebody could see:
 * atomics and ATOMIC WRITEs wait for their turn, READs are read in theirs, and what would complete
 * a receive request is asked for again.
 */
import { AccessFlag } from '../region/access-flag';
import { countAtomic, countWrite, entryAt, slotIndex, translate } from '../region/key-table';
import { layoutPieces } from '../region/layout-pieces';
import { locateRemote } from '../region/layout-use';
import { translateRemote } from '../region/window';
import { PlacementType, SelectivityLevel, placementOf, selectivityOf } from '../wire/feth';
import { loadU32, rethAddress, rethKey, rethLength } from '../wire/headers';
import { PacketFlag } from '../wire/opcode';
import { psnCompare } from '../wire/psn';
import { NakCode } from '../wire/syndrome';
import { Context, schedule } from './context';
import { overlapsJob } from './place';
import {
  JobState,
  QueuePair,
  Resource,
  ResponseJob,
  jobAt,
  pathOf,
  resourceAt,
} from './queue-pair';
import { defer } from './responder';
import { refuse, remember } from './response';
import { pushJob } from './response-jobs';
import { WcStatus } from './status';

const FETH: usize = 12;
const FLUSH_RETH: usize = 16;
const ATOMIC_WRITE_RETH: usize = 12;
const ATOMIC_WRITE_PAYLOAD: usize = 28;
const WORD: u32 = 8;

/** A FLUSH that the host is to carry out: 16 bytes, then `count` ranges of linear memory. */
@unmanaged
export class FlushRequest {
  /** What `advanceFlush` takes. */
  queuePair: u32;
  job: u32;
  serial: u32;
  /** Ranges, 8 bytes each: address, length. At most LAYOUT_PIECES_MAX. */
  count: u32;
  ranges: u64;
}
/** Where the ranges begin, and bytes of the whole with LAYOUT_PIECES_MAX of them. */
export const FLUSH_REQUEST_RANGES: u32 = 16;
export const FLUSH_MEMORY_SIZE: u32 = 144;

/** The rights that a placement takes, of the queue pair and of the key. */
function rightsOf(placement: u32): u32 {
  let rights: u32 = 0;
  if (placement & PlacementType.GLOBAL) rights |= AccessFlag.FLUSH_GLOBAL;
  if (placement & PlacementType.PERSISTENT) rights |= AccessFlag.FLUSH_PERSISTENT;
  return rights;
}

/** Has the FETH a meaning, and does the queue pair grant it? */
export function grantsFlush(qp: QueuePair, packet: usize): bool {
  const feth = loadU32(packet + FETH);
  const placement = placementOf(feth);
  const known: u32 = PlacementType.GLOBAL | PlacementType.PERSISTENT;
  if (placement == 0 || placement & ~known) return false;
  if (selectivityOf(feth) > <u32>SelectivityLevel.MR) return false;
  const rights = rightsOf(placement);
  return (qp.access & rights) == rights;
}

/**
 * Linux rxe repeats a FLUSH that we did not take with address 0 in place of its own. Of the region
 * we know, and that it has the range: all of it is flushed.
 */
function lostAddress(qp: QueuePair, reth: usize): bool {
  return pathOf(qp).doublesFlush != 0 && rethAddress(reth) == 0 && rethLength(reth) > 0;
}

/** A new FLUSH. What is to be seen by everybody is: memory is written before the next packet. */
export function acceptFlush(context: Context, qp: QueuePair, packet: usize, psn: u32): void {
  const feth = loadU32(packet + FETH);
  const reth = packet + FLUSH_RETH;
  const key = rethKey(reth);
  const whole = selectivityOf(feth) == <u32>SelectivityLevel.MR || lostAddress(qp, reth);
  const rights = rightsOf(placementOf(feth));
  let address = whole ? 0 : rethAddress(reth);
  let length = whole ? 0 : rethLength(reth);
  // A range of no byte is about order alone: neither key nor address is looked at (IBA C9-88).
  const names = whole || length > 0;
  let linear: usize = 0;
  if (names) {
    let first = address;
    let bytes = length;
    if (whole) {
      const entry = entryAt(context.arena, slotIndex(context.arena, key));
      first = entry.iova;
      bytes = entry.length;
    }
    linear = translate(context.arena, key, qp.pd, first, bytes, rights);
    if (linear != 0) {
      address = linear;
      length = bytes;
    } else if (!layoutPieces(context.arena, key, qp.pd, address, length, whole, rights, 0)) {
      refuse(context, qp, NakCode.REMOTE_ACCESS_ERROR, psn, WcStatus.LOC_ACCESS_ERR);
      return;
    }
  }
  // All atomics are in one order: who sees a later one of ours sees what was written before.
  atomic.add<u32>(changetype<usize>(context) + offsetof<Context>('flushSerial'), 0);
  remember(qp, PacketFlag.FLUSH, psn, 1);
  const job = pushJob(context, qp, PacketFlag.FLUSH, psn, qp.msn, 0);
  if (!names || !(rights & AccessFlag.FLUSH_PERSISTENT)) return;
  job.address = address;
  job.key = linear != 0 ? 0 : key;
  // Of what the job answers with there is none; until then it is what has to be flushed.
  job.value = length;
  job.compare = whole ? 1 : 0;
  // Is there nothing before it that the peer wants to be acknowledged?
  job.started = u32(qp.ackPending == 0);
  job.state = JobState.NEW;
  job.serial = ++context.flushSerial;
  job.since = <u32>context.now;
  if (qp.heldJobs++ == 0) {
    qp.flushFrom = qp.jobHead - 1;
    qp.chargeHeld = 0;
  }
  noteFlush(context, qp);
}

/** A new ATOMIC WRITE: 8 bytes, never torn, after everything before them. */
export function acceptAtomicWrite(context: Context, qp: QueuePair, packet: usize, psn: u32): void {
  const reth = packet + ATOMIC_WRITE_RETH;
  const address = rethAddress(reth);
  const key = rethKey(reth);
  if ((<u32>address) & 7) {
    refuse(context, qp, NakCode.INVALID_REQUEST, psn, WcStatus.LOC_QP_OP_ERR);
    return;
  }
  const linear = locateWord(context, qp, key, address, AccessFlag.REMOTE_WRITE);
  if (linear == 0) {
    refuse(context, qp, NakCode.REMOTE_ACCESS_ERROR, psn, WcStatus.LOC_ACCESS_ERR);
    return;
  }
  // Opaque bytes: no order to turn around.
  const value = load<u64>(packet + ATOMIC_WRITE_PAYLOAD);
  const held = qp.heldJobs > 0;
  if (!held && overlapsJob(context, qp, linear, WORD)) {
    defer(context, qp);
    return;
  }
  countWrite(context.arena, key, WORD);
  const resource = remember(qp, PacketFlag.ATOMIC_WRITE, psn, 1);
  if (held) {
    holdWord(context, qp, resource, address, key, value);
    return;
  }
  atomic.store<u64>(linear, value);
  pushJob(context, qp, PacketFlag.ATOMIC_WRITE, psn, qp.msn, 0);
}

/** The linear address of a word that a peer names, 0: not allowed, or not at a multiple of 8. */
function locateWord(context: Context, qp: QueuePair, key: u32, address: u64, need: u32): usize {
  let linear = translateRemote(context.arena, key, qp.pd, qp.binding, address, WORD, need);
  if (linear == 0) linear = locateRemote(context.arena, key, qp.pd, address, WORD, need);
  // Where a region's address disagrees with memory modulo 8 a Wasm atomic would trap.
  return linear & 7 ? 0 : linear;
}

/** An atomic, or ATOMIC WRITE, that waits for what is before it. `value`: its operand. */
export function holdWord(
  context: Context,
  qp: QueuePair,
  resource: Resource,
  address: u64,
  key: u32,
  value: u64,
): ResponseJob {
  const job = pushJob(context, qp, resource.kind, resource.psnFirst, resource.msn, 0);
  job.address = address;
  job.key = key;
  job.value = value;
  job.state = JobState.WAITING;
  job.reference = qp.resourceHead - 1;
  job.since = <u32>context.now;
  qp.heldJobs++;
  return job;
}

/** Its turn has come. False: its key does not allow it any more. */
export function executeWaiting(context: Context, qp: QueuePair, job: ResponseJob): bool {
  const write = job.kind == <u32>PacketFlag.ATOMIC_WRITE;
  const need: u32 = write ? AccessFlag.REMOTE_WRITE : AccessFlag.REMOTE_ATOMIC;
  const linear = locateWord(context, qp, job.key, job.address, need);
  if (linear == 0) return false;
  if (write) {
    atomic.store<u64>(linear, job.value);
    return true;
  }
  const swap = job.started != 0;
  job.started = 0;
  job.value = swap
    ? atomic.cmpxchg<u64>(linear, job.compare, job.value)
    : atomic.add<u64>(linear, job.value);
  resourceAt(qp, job.reference).value = job.value;
  return true;
}

/** The peer asks again for what is not done, or for something behind it. */
export function noteImpatience(context: Context, qp: QueuePair, psn: u32): void {
  if (qp.heldJobs == 0) return;
  const job = jobAt(qp, qp.jobTail);
  if (job.state == <u32>JobState.READY || psnCompare(psn, job.psn) < 0) return;
  qp.busyPending = 1;
  schedule(context, qp);
}

/** What came before a FLUSH that is under way is asked for again: acknowledged once more. */
export function acknowledgeAgain(qp: QueuePair, psn: u32): void {
  if (qp.heldJobs == 0) return;
  let index = qp.jobTail;
  while (jobAt(qp, index).state == <u32>JobState.READY) index++;
  const job = jobAt(qp, index);
  const withholds = job.kind == <u32>PacketFlag.FLUSH || job.state == <u32>JobState.FENCED;
  if (withholds && psnCompare(psn, job.psn) < 0) job.started = 0;
}

/** The queue pair has FLUSHes that the host is to be told of. */
export function noteFlush(context: Context, qp: QueuePair): void {
  if (qp.flushing) return;
  qp.flushing = 1;
  qp.flushNext = 0;
  if (context.flushLast == 0) context.flushFirst = changetype<usize>(qp);
  else changetype<QueuePair>(context.flushLast).flushNext = changetype<usize>(qp);
  context.flushLast = changetype<usize>(qp);
}

/** Takes a queue pair off that list, for its end: the host's answers come too late. */
export function forgetFlushes(context: Context, qp: QueuePair): void {
  qp.jobTail = qp.jobHead;
  qp.heldJobs = 0;
  if (!qp.flushing) return;
  const target = changetype<usize>(qp);
  let before: usize = 0;
  let at = context.flushFirst;
  while (at != target) {
    before = at;
    at = changetype<QueuePair>(at).flushNext;
  }
  if (before == 0) context.flushFirst = qp.flushNext;
  else changetype<QueuePair>(before).flushNext = qp.flushNext;
  if (context.flushLast == target) context.flushLast = before;
  qp.flushing = 0;
}

/** The next FLUSH of this queue pair; null: there is none that might be carried out now. */
function takeFlush(qp: QueuePair): ResponseJob | null {
  let index = qp.flushFrom;
  // The oldest answers may have left since.
  if (index - qp.jobTail > qp.jobHead - qp.jobTail) index = qp.jobTail;
  while (index != qp.jobHead) {
    const job = jobAt(qp, index);
    // What waits is to become durable with the FLUSHes behind it.
    if (job.state == <u32>JobState.WAITING) break;
    index++;
    if (job.state != <u32>JobState.NEW) continue;
    qp.flushFrom = index;
    return job;
  }
  qp.flushFrom = index;
  return null;
}

/** The oldest FLUSH that the host was not told of. False: there is none. */
export function nextFlushOf(context: Context, request: FlushRequest): bool {
  while (context.flushFirst != 0) {
    const qp = changetype<QueuePair>(context.flushFirst);
    const job = takeFlush(qp);
    if (job == null) {
      forgetFirst(context);
      continue;
    }
    const count = describe(context, qp, job, request);
    job.state = count == 0 ? JobState.FAILED : JobState.ASKED;
    job.reference = count == 0 ? NakCode.REMOTE_ACCESS_ERROR : count;
    if (count > 0) {
      request.queuePair = <u32>changetype<usize>(qp);
      request.job = qp.flushFrom - 1;
      request.serial = job.serial;
      request.count = count;
      return true;
    }
    schedule(context, qp);
  }
  return false;
}

function forgetFirst(context: Context): void {
  const qp = changetype<QueuePair>(context.flushFirst);
  context.flushFirst = qp.flushNext;
  if (context.flushFirst == 0) context.flushLast = 0;
  qp.flushing = 0;
}

/** Writes the ranges; 0: the layout is gone since. */
function describe(context: Context, qp: QueuePair, job: ResponseJob, request: FlushRequest): u32 {
  const ranges = changetype<usize>(request) + FLUSH_REQUEST_RANGES;
  if (job.key != 0) {
    const rights: u32 = AccessFlag.FLUSH_PERSISTENT;
    const whole = job.compare != 0;
    const length = <u32>job.value;
    return layoutPieces(context.arena, job.key, qp.pd, job.address, length, whole, rights, ranges);
  }
  store<u32>(ranges, <u32>job.address);
  store<u32>(ranges, <u32>job.value, 4);
  return 1;
}

/** The FLUSH with this serial number; null: its queue pair has forgotten it. */
function findFlush(qp: QueuePair, index: u32, serial: u32): ResponseJob | null {
  if (index - qp.jobTail >= qp.jobHead - qp.jobTail) return null;
  const job = jobAt(qp, index);
  return job.serial == serial && job.state == <u32>JobState.ASKED ? job : null;
}

/** The host answers so many times, if not once for each range. */
export function expectAnswers(qp: QueuePair, index: u32, serial: u32, count: u32): void {
  const job = findFlush(qp, index, serial);
  if (job != null) job.reference = count;
}

/** One of the host's answers. A FLUSH of which any part failed is never acknowledged. */
export function takeAnswer(
  context: Context,
  qp: QueuePair,
  index: u32,
  serial: u32,
  failed: bool,
): void {
  const job = findFlush(qp, index, serial);
  if (job == null) return;
  if (failed) {
    job.state = JobState.FAILED;
    job.reference = NakCode.REMOTE_OPERATIONAL_ERROR;
  } else {
    job.reference--;
    if (job.reference != 0) return;
    job.state = JobState.READY;
    job.started = 0;
    qp.heldJobs--;
  }
  schedule(context, qp);
}
