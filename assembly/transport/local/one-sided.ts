/**
 * One-sided requests on the local path: WRITE, READ, atomics, ATOMIC WRITE and FLUSH. Each function
 * makes the checks of the responder. A request that fails one, or that takes more than a copy, is
 * REFUSED: it goes by packets, and the responder answers it.
 */
import { copyBytes, moveBytes } from '../../memory/bytes';
import {
  WORD,
  allowsRemote,
  locateWord,
  moveRemote,
  translateLocal,
  translateRemote,
} from '../../region/access';
import { AccessFlag } from '../../region/access-flag';
import {
  countAtomic,
  countRead,
  countWrite,
  entryAt,
  slotIndex,
  translate,
} from '../../region/key-table';
import { layoutPieces } from '../../region/layout-pieces';
import { SelectivityLevel, placementOf, selectivityOf } from '../../wire/headers';
import { CountedOperation, countCompletion } from '../queue/completion-counter';
import { gather, inOnePiece, scatterResponse } from '../queue/scatter-gather';
import { rightsOf } from '../responder/flush';
import { executeAtomic } from '../shared/atomics';
import { Context } from '../shared/context';
import { LOCAL_BOUNCE_SIZE, LocalTarget } from '../shared/local-target';
import { Operation, atomicCompared, atomicOperand, isOf, wireOpcode } from '../shared/operation';
import { QueuePair } from '../shared/queue-pair';
import { WcStatus, WrOpcode } from '../shared/status';
import { SEND_REQUEST_SIZE, SendRequest, Sge } from '../shared/work-request';

/** Bytes that are copied before other queue pairs have their turn. */
const CHUNK_BYTES: u32 = 1 << 20;

export enum Outcome {
  DONE = 0,
  /** A part was copied: `sendOffset` bytes. */
  PART = 1,
  /** Not executed: the request goes by packets. */
  REFUSED = 2,
}

/** Executes a one-sided request, or a part of a long one. An Outcome. */
export function executeOneSided(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  target: LocalTarget,
): u32 {
  if (request.opcode == <u32>WrOpcode.RDMA_WRITE) return write(context, qp, request, target);
  // Requests with a response need a place at the target; there is always one, or never.
  if (target.destRdAtomicMax == 0) return Outcome.REFUSED;
  if (request.opcode == <u32>WrOpcode.RDMA_READ) return read(context, qp, request, target);
  if (isOf(request, Operation.ATOMIC)) return atomicOperation(context, qp, request, target);
  if (request.opcode == <u32>WrOpcode.FLUSH) return flush(context, request, target);
  if (request.opcode == <u32>WrOpcode.ATOMIC_WRITE)
    return atomicWrite(context, qp, request, target);
  // An operation that has no effect here.
  return Outcome.REFUSED;
}

/**
 * Moves the next part of a WRITE or READ; `need`: REMOTE_WRITE or REMOTE_READ. An Outcome. An empty
 * request names no byte: neither key nor address is looked at (IBA C9-88).
 */
function transfer(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  target: LocalTarget,
  need: u32,
): u32 {
  if (!(target.access & need)) return Outcome.REFUSED;
  const length = request.length;
  const offset = qp.sendOffset;
  const left = length - offset;
  if (left == 0) return Outcome.DONE;
  const arena = context.arena;
  const key = request.key;
  const pd = target.pd;
  const address = request.remoteAddress + offset;
  const size = min<u32>(left, CHUNK_BYTES);
  // As for packets: the whole message when it begins, then each part, for the key may be gone.
  const checked = offset == 0 ? length : size;
  const place = translateRemote(arena, key, pd, target.binding, address, checked, need);
  if (place == 0 && !allowsRemote(arena, key, pd, address, checked, need)) return Outcome.REFUSED;
  const moved =
    need == <u32>AccessFlag.REMOTE_WRITE
      ? put(context, qp, request, pd, place, address, size)
      : take(context, qp, request, pd, place, address, size);
  if (!moved) return Outcome.REFUSED;
  qp.sendOffset = offset + size;
  return size < left ? Outcome.PART : Outcome.DONE;
}

/** Also the data of a WRITE with immediate data. */
export function write(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  target: LocalTarget,
): u32 {
  const outcome = transfer(context, qp, request, target, AccessFlag.REMOTE_WRITE);
  if (outcome != <u32>Outcome.DONE) return outcome;
  const length = request.length;
  if (length > 0) countWrite(context.arena, request.key, length);
  if (target.queuePair != 0) context.counters.rdmaRecvs++;
  const operation = CountedOperation.REMOTE_RDMA_WRITE;
  countCompletion(target.counterTable, operation, WcStatus.SUCCESS, length);
  return Outcome.DONE;
}

/**
 * Copies the next `length` bytes of the request to `to`, or to the layout of its key. What does not
 * lie in one piece on both sides goes through a buffer, as it would go through packets.
 */
function put(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  pd: u32,
  to: usize,
  address: u64,
  length: u32,
): bool {
  if (to != 0) {
    const from = inOnePiece(context, qp, request, length);
    if (from != 0) {
      moveBytes(to, from, length);
      return true;
    }
  }
  const buffer = context.localBounce;
  const need: u32 = AccessFlag.REMOTE_WRITE;
  for (let done: u32 = 0; done < length; done += LOCAL_BOUNCE_SIZE) {
    const size = min<u32>(length - done, LOCAL_BOUNCE_SIZE);
    if (!gather(context, qp, request, buffer, size)) return false;
    if (to != 0) copyBytes(to + done, buffer, size);
    else if (
      !moveRemote(context.arena, request.key, pd, address + done, buffer, size, need, true)
    ) {
      return false;
    }
  }
  return true;
}

function read(context: Context, qp: QueuePair, request: SendRequest, target: LocalTarget): u32 {
  const outcome = transfer(context, qp, request, target, AccessFlag.REMOTE_READ);
  if (outcome != <u32>Outcome.DONE) return outcome;
  const length = request.length;
  if (length > 0) countRead(context.arena, request.key, length);
  const operation = CountedOperation.REMOTE_RDMA_READ;
  countCompletion(target.counterTable, operation, WcStatus.SUCCESS, length);
  return Outcome.DONE;
}

/** Copies `length` bytes from `from`, or from the layout of the key, to the SGEs of a READ. */
function take(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  pd: u32,
  from: usize,
  address: u64,
  length: u32,
): bool {
  const offset = qp.sendOffset;
  if (from != 0) {
    const to = resultPlace(context, qp, request, offset, length);
    if (to != 0) {
      moveBytes(to, from, length);
      return true;
    }
  }
  const buffer = context.localBounce;
  const need: u32 = AccessFlag.REMOTE_READ;
  for (let done: u32 = 0; done < length; done += LOCAL_BOUNCE_SIZE) {
    const size = min<u32>(length - done, LOCAL_BOUNCE_SIZE);
    if (from != 0) copyBytes(buffer, from + done, size);
    else if (
      !moveRemote(context.arena, request.key, pd, address + done, buffer, size, need, false)
    ) {
      return false;
    }
    if (!scatterResponse(context, qp, request, offset + done, buffer, size)) return false;
  }
  return true;
}

/** Where `length` bytes of the result go, if the request has one SGE that allows it; else 0. */
function resultPlace(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  offset: u32,
  length: u32,
): usize {
  if (request.sgeCount != 1) return 0;
  const sge = changetype<Sge>(changetype<usize>(request) + SEND_REQUEST_SIZE);
  const need: u32 = AccessFlag.LOCAL_WRITE;
  return translateLocal(context.arena, sge.lkey, qp.pd, sge.address + offset, length, need);
}

/** The linear address of the word that the request names; 0: not allowed, or not aligned. */
function wordOf(context: Context, request: SendRequest, target: LocalTarget, need: u32): usize {
  const address = request.remoteAddress;
  if (!(target.access & need) || (<u32>address) & 7) return 0;
  return locateWord(context.arena, request.key, target.pd, target.binding, address, need);
}

function atomicOperation(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  target: LocalTarget,
): u32 {
  const linear = wordOf(context, request, target, AccessFlag.REMOTE_ATOMIC);
  if (linear == 0) return Outcome.REFUSED;
  // An atomic cannot be undone: the place of its result is found before.
  const to = resultPlace(context, qp, request, 0, WORD);
  if (to == 0) return Outcome.REFUSED;
  countAtomic(context.arena, request.key);
  const opcode = wireOpcode(request);
  const operand = atomicOperand(opcode, request);
  const compared = atomicCompared(opcode, request);
  store<u64>(to, executeAtomic(opcode, linear, operand, compared));
  return Outcome.DONE;
}

/** 8 bytes, never torn, after everything before them. */
function atomicWrite(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  target: LocalTarget,
): u32 {
  const linear = wordOf(context, request, target, AccessFlag.REMOTE_WRITE);
  const buffer = context.localBounce;
  if (linear == 0 || !gather(context, qp, request, buffer, WORD)) return Outcome.REFUSED;
  countWrite(context.arena, request.key, WORD);
  atomic.store<u64>(linear, load<u64>(buffer));
  return Outcome.DONE;
}

/**
 * A FLUSH for global visibility: what was written before is visible to all threads that see a later
 * atomic operation. The host of the target makes bytes durable: such a FLUSH goes by packets.
 */
function flush(context: Context, request: SendRequest, target: LocalTarget): u32 {
  const rights = rightsOf(placementOf(request.flush));
  if ((target.access & rights) != rights) return Outcome.REFUSED;
  const whole = selectivityOf(request.flush) == <u32>SelectivityLevel.MR;
  const length = <u32>request.compareAdd;
  if (whole || length > 0) {
    if (rights & AccessFlag.FLUSH_PERSISTENT) return Outcome.REFUSED;
    if (!mayFlush(context, request, target.pd, whole, length, rights)) return Outcome.REFUSED;
  }
  atomic.add<u32>(changetype<usize>(context) + offsetof<Context>('flushSerial'), 0);
  return Outcome.DONE;
}

function mayFlush(
  context: Context,
  request: SendRequest,
  pd: u32,
  whole: bool,
  length: u32,
  rights: u32,
): bool {
  const arena = context.arena;
  const key = request.key;
  let address = request.remoteAddress;
  let bytes = length;
  if (whole) {
    const entry = entryAt(arena, slotIndex(arena, key));
    address = entry.iova;
    bytes = entry.length;
  }
  if (translate(arena, key, pd, address, bytes, rights) != 0) return true;
  const first = whole ? 0 : request.remoteAddress;
  return layoutPieces(arena, key, pd, first, whole ? 0 : length, whole, rights, 0) != 0;
}
