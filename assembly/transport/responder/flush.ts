/**
 * FLUSH and ATOMIC WRITE at the responder (memory placement extensions, IBA annex A19).
 *
 * The host makes data durable, and may take long. Until then a FLUSH holds its place in the
 * response queue: `nextFlush` hands it to the host, `advanceFlush` reports that it is done.
 * Meanwhile WRITEs are placed and FLUSHes accepted. Held back, in PSN order, are all responses and
 * acknowledgements from the PSN of the FLUSH on, and every visible effect: atomics and ATOMIC
 * WRITEs wait for their turn, READs read in theirs, and the peer must retransmit requests that
 * complete a receive request.
 */
import { List, append, removeFrom, takeFirst } from '../../memory/list';
import { WORD, locateWord } from '../../region/access';
import { AccessFlag } from '../../region/access-flag';
import { countWrite, entryAt, slotIndex, translate } from '../../region/key-table';
import { layoutPieces } from '../../region/layout-pieces';
import {
  PlacementType,
  SelectivityLevel,
  bthOpcode,
  loadU32,
  placementOf,
  rethAddress,
  rethKey,
  rethLength,
  selectivityOf,
} from '../../wire/headers';
import { Header, Opcode, PacketFlag, headersLength } from '../../wire/opcode';
import { headerIn } from '../../wire/packet';
import { psnCompare } from '../../wire/psn';
import { NakCode } from '../../wire/syndrome';
import { executeAtomic } from '../shared/atomics';
import { Context, schedule } from '../shared/context';
import {
  JobState,
  QueuePair,
  Resource,
  ResponseJob,
  jobAt,
  pathOf,
  resourceAt,
} from '../shared/queue-pair';
import { WcStatus } from '../shared/status';
import { defer, pushJob, refuse, remember } from './response-queue';
import { overlapsJob } from './scatter';

/** A FLUSH that the host is to carry out: 16 bytes, then `count` ranges of linear memory. */
@unmanaged
export class FlushRequest {
  /** Arguments of `advanceFlush`. */
  queuePair: u32;
  job: u32;
  serial: u32;
  /** Ranges, 8 bytes each: address, length. At most LAYOUT_PIECES_MAX. */
  count: u32;
  ranges: u64;
}
/** Offset of the ranges; bytes of a FlushRequest with LAYOUT_PIECES_MAX ranges. */
export const FLUSH_REQUEST_RANGES: u32 = 16;
export const FLUSH_MEMORY_SIZE: u32 = 144;

/** The rights that a placement takes, of the queue pair and of the key. */
export function rightsOf(placement: u32): u32 {
  let rights: u32 = 0;
  if (placement & PlacementType.GLOBAL) rights |= AccessFlag.FLUSH_GLOBAL;
  if (placement & PlacementType.PERSISTENT) rights |= AccessFlag.FLUSH_PERSISTENT;
  return rights;
}

/** Has the FETH a meaning, and does the queue pair grant it? */
export function grantsFlush(context: Context, qp: QueuePair, packet: usize): bool {
  const feth = loadU32(headerIn(context.opcodeTable, packet, Header.FETH));
  const placement = placementOf(feth);
  const known: u32 = PlacementType.GLOBAL | PlacementType.PERSISTENT;
  if (placement == 0 || placement & ~known) return false;
  if (selectivityOf(feth) > <u32>SelectivityLevel.MR) return false;
  const rights = rightsOf(placement);
  return (qp.access & rights) == rights;
}

/**
 * Linux rxe retransmits a dropped FLUSH with address 0 instead of its own. The key names the
 * region, which contains the range: the engine flushes the whole region.
 */
function lostAddress(qp: QueuePair, reth: usize): bool {
  return pathOf(qp).doublesFlush != 0 && rethAddress(reth) == 0 && rethLength(reth) > 0;
}

/**
 * A new FLUSH. Earlier WRITEs are visible already: memory is written before the next packet is
 * read.
 */
export function acceptFlush(context: Context, qp: QueuePair, packet: usize, psn: u32): void {
  const feth = loadU32(headerIn(context.opcodeTable, packet, Header.FETH));
  const reth = headerIn(context.opcodeTable, packet, Header.RETH);
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
  // All atomics have one order: a thread that sees a later one sees all writes before this one.
  atomic.add<u32>(changetype<usize>(context) + offsetof<Context>('flushSerial'), 0);
  remember(qp, PacketFlag.FLUSH, psn, 1);
  const job = pushJob(context, qp, PacketFlag.FLUSH, psn, qp.msn, 0);
  if (!names || !(rights & AccessFlag.FLUSH_PERSISTENT)) return;
  job.address = address;
  job.key = linear != 0 ? 0 : key;
  job.flushLength = length;
  job.wholeRegion = whole ? 1 : 0;
  // Is there nothing before it that the peer wants to be acknowledged?
  job.beforeAcked = u8(qp.ackPending == 0);
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
  const table = context.opcodeTable;
  const reth = headerIn(table, packet, Header.RETH);
  const address = rethAddress(reth);
  const key = rethKey(reth);
  if ((<u32>address) & 7) {
    refuse(context, qp, NakCode.INVALID_REQUEST, psn, WcStatus.LOC_QP_OP_ERR);
    return;
  }
  const linear = locateWord(
    context.arena,
    key,
    qp.pd,
    qp.binding,
    address,
    AccessFlag.REMOTE_WRITE,
  );
  if (linear == 0) {
    refuse(context, qp, NakCode.REMOTE_ACCESS_ERROR, psn, WcStatus.LOC_ACCESS_ERR);
    return;
  }
  // Opaque bytes: no order to turn around.
  const value = load<u64>(packet + headersLength(table, bthOpcode(packet)));
  const held = qp.heldJobs > 0;
  if (!held && overlapsJob(context, qp, linear, WORD)) {
    defer(context, qp);
    return;
  }
  countWrite(context.arena, key, WORD);
  const resource = remember(qp, PacketFlag.ATOMIC_WRITE, psn, 1);
  if (held) {
    holdWord(context, qp, resource, Opcode.RC_ATOMIC_WRITE, address, key, value, 0);
    return;
  }
  atomic.store<u64>(linear, value);
  pushJob(context, qp, PacketFlag.ATOMIC_WRITE, psn, qp.msn, 0);
}

/**
 * An atomic, or ATOMIC WRITE, that waits for what is before it (`executeWaiting`). `value`: its
 * operand.
 */
export function holdWord(
  context: Context,
  qp: QueuePair,
  resource: Resource,
  opcode: u32,
  address: u64,
  key: u32,
  value: u64,
  compare: u64,
): void {
  const job = pushJob(context, qp, resource.kind, resource.psnFirst, resource.msn, 0);
  job.address = address;
  job.key = key;
  job.value = value;
  job.compare = compare;
  job.opcode = <u8>opcode;
  job.state = JobState.WAITING;
  job.resource = qp.resourceHead - 1;
  job.since = <u32>context.now;
  qp.heldJobs++;
}

/** Its turn has come. False: its key does not allow it any more. */
export function executeWaiting(context: Context, qp: QueuePair, job: ResponseJob): bool {
  const write = job.kind == <u32>PacketFlag.ATOMIC_WRITE;
  const need: u32 = write ? AccessFlag.REMOTE_WRITE : AccessFlag.REMOTE_ATOMIC;
  const linear = locateWord(context.arena, job.key, qp.pd, qp.binding, job.address, need);
  if (linear == 0) return false;
  if (write) {
    atomic.store<u64>(linear, job.value);
    return true;
  }
  job.value = executeAtomic(job.opcode, linear, job.value, job.compare);
  resourceAt(qp, job.resource).value = job.value;
  return true;
}

/** The peer asks again for what is not done, or for something behind it. */
export function noteRepeatedRequest(context: Context, qp: QueuePair, psn: u32): void {
  if (qp.heldJobs == 0) return;
  const job = jobAt(qp, qp.jobTail);
  if (job.state == <u32>JobState.READY || psnCompare(psn, job.psn) < 0) return;
  qp.busyPending = 1;
  schedule(context, qp);
}

/** The peer retransmitted a packet from before a held FLUSH: it is acknowledged again. */
export function acknowledgeAgain(qp: QueuePair, psn: u32): void {
  if (qp.heldJobs == 0) return;
  let index = qp.jobTail;
  while (jobAt(qp, index).state == <u32>JobState.READY) index++;
  const job = jobAt(qp, index);
  const withholds = job.kind == <u32>PacketFlag.FLUSH || job.state == <u32>JobState.FENCED;
  if (withholds && psnCompare(psn, job.psn) < 0) job.beforeAcked = 0;
}

/** Queue pairs with FLUSHes for the host. */
function flushList(context: Context): List {
  return changetype<List>(changetype<usize>(context) + offsetof<Context>('flushFirst'));
}

function flushLink(qp: QueuePair): usize {
  return changetype<usize>(qp) + offsetof<QueuePair>('flushLink');
}

/** The queue pair has new FLUSHes for the host. */
export function noteFlush(context: Context, qp: QueuePair): void {
  append(flushList(context), flushLink(qp));
}

/** Takes a queue pair off that list, for its end: the host's answers come too late. */
export function forgetFlushes(context: Context, qp: QueuePair): void {
  qp.jobTail = qp.jobHead;
  qp.heldJobs = 0;
  removeFrom(flushList(context), flushLink(qp));
}

/** The next FLUSH of this queue pair that may be executed now, or null. */
function takeFlush(qp: QueuePair): ResponseJob | null {
  let index = qp.flushFrom;
  // The oldest answers may have left since.
  if (index - qp.jobTail > qp.jobHead - qp.jobTail) index = qp.jobTail;
  while (index != qp.jobHead) {
    const job = jobAt(qp, index);
    // A waiting FLUSH becomes durable together with those behind it.
    if (job.state == <u32>JobState.WAITING) break;
    index++;
    if (job.state != <u32>JobState.NEW) continue;
    qp.flushFrom = index;
    return job;
  }
  qp.flushFrom = index;
  return null;
}

/** Hands the oldest new FLUSH to the host. False: no FLUSH is new. */
export function nextFlushOf(context: Context, request: FlushRequest): bool {
  while (context.flushFirst != 0) {
    const link = context.flushFirst - offsetof<QueuePair>('flushLink');
    const qp = changetype<QueuePair>(link);
    const job = takeFlush(qp);
    if (job == null) {
      takeFirst(flushList(context));
      continue;
    }
    const count = describe(context, qp, job, request);
    job.state = count == 0 ? JobState.FAILED : JobState.ASKED;
    job.nak = NakCode.REMOTE_ACCESS_ERROR;
    job.answersLeft = count;
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

/** Writes the ranges; 0: the layout is gone since. */
function describe(context: Context, qp: QueuePair, job: ResponseJob, request: FlushRequest): u32 {
  const ranges = changetype<usize>(request) + FLUSH_REQUEST_RANGES;
  if (job.key != 0) {
    const rights: u32 = AccessFlag.FLUSH_PERSISTENT;
    const whole = job.wholeRegion != 0;
    const length = job.flushLength;
    return layoutPieces(context.arena, job.key, qp.pd, job.address, length, whole, rights, ranges);
  }
  store<u32>(ranges, <u32>job.address);
  store<u32>(ranges, job.flushLength, 4);
  return 1;
}

/** The FLUSH with this serial number; null: its queue pair has forgotten it. */
function findFlush(qp: QueuePair, index: u32, serial: u32): ResponseJob | null {
  if (index - qp.jobTail >= qp.jobHead - qp.jobTail) return null;
  const job = jobAt(qp, index);
  return job.serial == serial && job.state == <u32>JobState.ASKED ? job : null;
}

/** The host will send `count` answers instead of one per range. */
export function expectAnswers(qp: QueuePair, index: u32, serial: u32, count: u32): void {
  const job = findFlush(qp, index, serial);
  if (job != null) job.answersLeft = count;
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
    job.nak = NakCode.REMOTE_OPERATIONAL_ERROR;
  } else {
    job.answersLeft--;
    if (job.answersLeft != 0) return;
    job.state = JobState.READY;
    qp.heldJobs--;
  }
  schedule(context, qp);
}
