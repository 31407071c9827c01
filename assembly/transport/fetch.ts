/**
 * From the ring to the engine's own copy: the border for posted work. What is wrong with a request
 * is found here, once; it fails in its turn, with the status it deserves.
 */
import { copyBytes } from '../memory/bytes';
import { ringCount } from '../memory/ring';
import { PlacementType, SelectivityLevel, placementOf, selectivityOf } from '../wire/feth';
import { isLocal } from './local-work';
import { QueuePair, sendRequestAt, workRequestAt } from './queue-pair';
import { QpType, SendFlag, WcStatus, WrOpcode } from './status';
import {
  SEND_REQUEST_SIZE,
  SendRequest,
  SendState,
  WORK_REQUEST_SIZE,
  sgeTotal,
} from './work-queue';

/** Longest message (IBA C9-94). */
const MESSAGE_BYTES_MAX: u64 = 0x80000000;
const ATOMIC_BYTES: u64 = 8;
/** Bits of WrOpcode. */
const AWAITS_DATA: u32 =
  (1 << WrOpcode.RDMA_READ) |
  (1 << WrOpcode.ATOMIC_CMP_AND_SWP) |
  (1 << WrOpcode.ATOMIC_FETCH_AND_ADD) |
  (1 << WrOpcode.FLUSH) |
  (1 << WrOpcode.ATOMIC_WRITE);

/** Copies the next entry of the ring. False when there is none. */
export function fetch(qp: QueuePair): bool {
  if (ringCount(qp.sendRing, qp.sendFetched, qp.sendEntries) == 0) return false;
  // The ring can name at most its own entries: what is not complete holds its place.
  if (qp.sendFetched - qp.sendTail >= qp.sendEntries) return false;
  const source = changetype<usize>(workRequestAt(qp, qp.sendFetched));
  const request = sendRequestAt(qp, qp.sendFetched);
  const target = changetype<usize>(request);
  copyBytes(target, source, WORK_REQUEST_SIZE);
  const data = qp.sendStride - WORK_REQUEST_SIZE;
  copyBytes(target + SEND_REQUEST_SIZE, source + WORK_REQUEST_SIZE, data);
  request.state = SendState.FETCHED;
  request.length = 0;
  request.vendorError = 0;
  request.status = check(qp, request);
  if (request.status != <u32>WcStatus.SUCCESS) request.state = SendState.FAILED;
  // From here on the count is believed: where there are no SGEs, there are none.
  if (request.sgeCount > qp.sendSgeMax) request.sgeCount = 0;
  qp.sendFetched++;
  return true;
}

/**
 * READs and atomics wait for data, not for an acknowledgement; FLUSH and ATOMIC WRITE for an answer
 * of the same kind, if an empty one.
 */
export function awaitsData(request: SendRequest): bool {
  // Asked for every packet: one shift, which wraps for codes beyond.
  return ((AWAITS_DATA >>> request.opcode) & 1) != 0;
}

/** FLUSH and ATOMIC WRITE: answered by a READ response without payload. */
export function isPlacement(request: SendRequest): bool {
  return request.opcode == <u32>WrOpcode.FLUSH || request.opcode == <u32>WrOpcode.ATOMIC_WRITE;
}

/** Must everything before it be complete? LOCAL_INV (IBA 10.6.5.1), and a FLUSH with a fence. */
export function waitsForAll(request: SendRequest): bool {
  if (request.opcode == <u32>WrOpcode.LOCAL_INV) return true;
  return (
    request.opcode == <u32>WrOpcode.FLUSH &&
    (request.sendFlags & SendFlag.FENCE) != 0 &&
    request.state == <u32>SendState.FETCHED
  );
}

export function isAtomic(request: SendRequest): bool {
  return (
    request.opcode == <u32>WrOpcode.ATOMIC_CMP_AND_SWP ||
    request.opcode == <u32>WrOpcode.ATOMIC_FETCH_AND_ADD
  );
}

/** Is this an operation of that type of queue pair? (man ibv_post_send) */
function supported(type: u32, opcode: u32): bool {
  if (opcode <= <u32>WrOpcode.SEND_WITH_IMM)
    return type != <u32>QpType.UD || opcode >= <u32>WrOpcode.SEND;
  switch (opcode) {
    case WrOpcode.LOCAL_INV:
    case WrOpcode.BIND_MW:
    case WrOpcode.REG_MR:
    case WrOpcode.BIND_MR:
      return type != <u32>QpType.UD;
    case WrOpcode.RDMA_READ:
    case WrOpcode.ATOMIC_CMP_AND_SWP:
    case WrOpcode.ATOMIC_FETCH_AND_ADD:
    case WrOpcode.SEND_WITH_INV:
    case WrOpcode.FLUSH:
    case WrOpcode.ATOMIC_WRITE:
      return type == <u32>QpType.RC;
    default:
      return false;
  }
}

/** Has what it asks for a meaning? */
function mayFlush(request: SendRequest): bool {
  const placement = placementOf(request.flush);
  const known: u32 = PlacementType.GLOBAL | PlacementType.PERSISTENT;
  return (
    placement != 0 &&
    (placement & ~known) == 0 &&
    selectivityOf(request.flush) <= <u32>SelectivityLevel.MR &&
    request.flush >> 6 == 0 &&
    request.compareAdd >> 32 == 0
  );
}

/** Fills in the length. A WcStatus: LOC_QP_OP_ERR, LOC_LEN_ERR. */
function check(qp: QueuePair, request: SendRequest): u32 {
  if (!supported(qp.type, request.opcode)) return WcStatus.LOC_QP_OP_ERR;
  if (isLocal(request.opcode)) {
    request.sgeCount = 0;
    return WcStatus.SUCCESS;
  }
  // A peer that was told to expect none would refuse it, fatally.
  if (awaitsData(request) && qp.rdAtomicMax == 0) return WcStatus.LOC_QP_OP_ERR;
  if (request.opcode == <u32>WrOpcode.FLUSH) {
    // It carries nothing, whatever its SGEs say (IBA oA19-2).
    request.sgeCount = 0;
    return mayFlush(request) ? WcStatus.SUCCESS : WcStatus.LOC_QP_OP_ERR;
  }
  const word = request.opcode == <u32>WrOpcode.ATOMIC_WRITE;
  if (word && (<u32>request.remoteAddress) & 7) return WcStatus.LOC_QP_OP_ERR;
  if (request.sendFlags & SendFlag.INLINE) {
    if (awaitsData(request) && !word) return WcStatus.LOC_QP_OP_ERR;
    if (request.inlineLength > qp.inlineMax) return WcStatus.LOC_QP_OP_ERR;
    if (word && request.inlineLength != ATOMIC_BYTES) return WcStatus.LOC_LEN_ERR;
    request.length = request.inlineLength;
    request.sgeCount = 0;
    return WcStatus.SUCCESS;
  }
  if (request.sgeCount > qp.sendSgeMax) return WcStatus.LOC_QP_OP_ERR;
  const total = sgeTotal(changetype<usize>(request) + SEND_REQUEST_SIZE, request.sgeCount);
  if (total > MESSAGE_BYTES_MAX) return WcStatus.LOC_LEN_ERR;
  if ((word || isAtomic(request)) && total != ATOMIC_BYTES) return WcStatus.LOC_LEN_ERR;
  request.length = <u32>total;
  return WcStatus.SUCCESS;
}
