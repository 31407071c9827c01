/**
 * Copies posted requests from the send ring to the engine's own memory and checks them: the ring is
 * hostile, so this is the only check. A request that fails completes in its turn with its status.
 */
import { copyBytes } from '../../memory/bytes';
import { ringCount } from '../../memory/ring';
import { PlacementType, SelectivityLevel, placementOf, selectivityOf } from '../../wire/headers';
import { Operation, awaitsData, isOf, operationOf } from '../shared/operation';
import { QueuePair, sendRequestAt, workRequestAt } from '../shared/queue-pair';
import { SendFlag, WcStatus } from '../shared/status';
import {
  SEND_REQUEST_SIZE,
  SendRequest,
  SendState,
  WORK_REQUEST_SIZE,
  sgeTotal,
} from '../shared/work-request';

/** Longest message (IBA C9-94). */
const MESSAGE_BYTES_MAX: u64 = 0x80000000;
const WORD_BYTES: u64 = 8;
/** Copies the next entry of the ring. False: the ring is empty. */
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
  request.operation = operationOf(request.opcode);
  request.state = SendState.FETCHED;
  request.length = 0;
  request.vendorError = 0;
  request.status = check(qp, request);
  if (request.status != <u32>WcStatus.SUCCESS) request.state = SendState.FAILED;
  // From here on the count is trusted, so a wrong one becomes 0.
  if (request.sgeCount > qp.sendSgeMax) request.sgeCount = 0;
  qp.sendFetched++;
  return true;
}

/** Must all requests before it be complete? */
export function waitsForAll(request: SendRequest): bool {
  if (isOf(request, Operation.AFTER_ALL)) return true;
  return (
    isOf(request, Operation.FENCE_ALL) &&
    (request.sendFlags & SendFlag.FENCE) != 0 &&
    request.state == <u32>SendState.FETCHED
  );
}

/** Are placement, selectivity and length of a FLUSH defined? */
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

/**
 * Checks a request and fills in its length. A WcStatus: LOC_QP_OP_ERR for an opcode that this type
 * of queue pair does not have (man ibv_post_send), or without a row; LOC_LEN_ERR.
 */
function check(qp: QueuePair, request: SendRequest): u32 {
  if (!((request.operation >>> qp.type) & 1)) return WcStatus.LOC_QP_OP_ERR;
  if (isOf(request, Operation.LOCAL)) {
    request.sgeCount = 0;
    return WcStatus.SUCCESS;
  }
  // A peer with `max_dest_rd_atomic` 0 would refuse it, fatally.
  if (awaitsData(request) && qp.rdAtomicMax == 0) return WcStatus.LOC_QP_OP_ERR;
  if (isOf(request, Operation.NO_SGES)) {
    // IBA oA19-2.
    request.sgeCount = 0;
    return mayFlush(request) ? WcStatus.SUCCESS : WcStatus.LOC_QP_OP_ERR;
  }
  const word = isOf(request, Operation.WORD);
  if (isOf(request, Operation.EMPTY) && (<u32>request.remoteAddress) & 7) {
    return WcStatus.LOC_QP_OP_ERR;
  }
  if (request.sendFlags & SendFlag.INLINE) {
    if (!isOf(request, Operation.INLINE)) return WcStatus.LOC_QP_OP_ERR;
    if (request.inlineLength > qp.inlineMax) return WcStatus.LOC_QP_OP_ERR;
    if (word && request.inlineLength != WORD_BYTES) return WcStatus.LOC_LEN_ERR;
    request.length = request.inlineLength;
    request.sgeCount = 0;
    return WcStatus.SUCCESS;
  }
  if (request.sgeCount > qp.sendSgeMax) return WcStatus.LOC_QP_OP_ERR;
  const total = sgeTotal(changetype<usize>(request) + SEND_REQUEST_SIZE, request.sgeCount);
  if (total > MESSAGE_BYTES_MAX) return WcStatus.LOC_LEN_ERR;
  if (word && total != WORD_BYTES) return WcStatus.LOC_LEN_ERR;
  request.length = <u32>total;
  return WcStatus.SUCCESS;
}
