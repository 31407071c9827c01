/**
 * Local work: LOCAL_INV, BIND_MW, REG_MR, BIND_MR send nothing. The requester executes one when its
 * turn to be sent comes, so later requests may rely on it; it completes when all requests before it
 * have completed.
 *
 * LOCAL_INV waits for all requests before it (requester.ts). The others do not: a bind takes no
 * access from requests in flight. A request that removes access from a key completes after a fence
 * (invalidation-fence.ts), and requests behind it wait as well.
 */
import { KeyKind } from '../../region/access-flag';
import { registerFast } from '../../region/fast-region';
import { entryAt, slotIndex } from '../../region/key-table';
import { bindRecorded } from '../../region/layout';
import { bindWindow, invalidateLocal } from '../../region/memory-window';
import { completeSend, fail } from '../queue/completion';
import { Context } from '../shared/context';
import {
  Fence,
  awaitFence,
  beginFence,
  lookAtFence,
  passesAtOnce,
} from '../shared/invalidation-fence';
import { QueuePair } from '../shared/queue-pair';
import { WcStatus, WrOpcode } from '../shared/status';
import { BindRequest, SendRequest, SendState } from '../shared/work-request';

/** False: it failed. */
export function executeLocal(context: Context, qp: QueuePair, request: SendRequest): bool {
  if (request.state == <u32>SendState.FENCED) return endFence(context, qp, request);
  const status = perform(context, qp, request);
  if (status != <u32>WcStatus.SUCCESS) {
    fail(context, qp, request, status);
    return false;
  }
  if (endsAccess(context, request)) {
    const epoch = beginFence(context);
    if (!passesAtOnce(context, qp, epoch)) {
      request.state = SendState.FENCED;
      request.fenceEpoch = epoch;
      request.fenceSince = <u32>context.now;
      awaitFence(context, qp);
      return false;
    }
  }
  endLocal(context, qp, request);
  return true;
}

function endLocal(context: Context, qp: QueuePair, request: SendRequest): void {
  if (qp.sendTail == qp.sendNext++) completeSend(context, qp, WcStatus.SUCCESS, 0);
  else request.state = SendState.DONE;
}

/** Checks the fence of an executed request. False: the fence is still pending, or expired. */
function endFence(context: Context, qp: QueuePair, request: SendRequest): bool {
  const fence = lookAtFence(context, qp, request.fenceEpoch, request.fenceSince);
  if (fence == <u32>Fence.PASSED) {
    endLocal(context, qp, request);
    return true;
  }
  if (fence == <u32>Fence.EXPIRED) {
    const vendor = context.fenceHolder;
    fail(context, qp, request, WcStatus.RESP_TIMEOUT_ERR);
    request.vendorError = vendor;
  }
  return false;
}

/**
 * Can the request remove access that a key allowed before? A window of type 1 and a layout may be
 * bound over a binding; REG_MR, and a window of type 2, require an invalidated key.
 */
function endsAccess(context: Context, request: SendRequest): bool {
  if (request.opcode == <u32>WrOpcode.LOCAL_INV || request.opcode == <u32>WrOpcode.BIND_MR) {
    return true;
  }
  if (request.opcode != <u32>WrOpcode.BIND_MW) return false;
  const arena = context.arena;
  const index = slotIndex(arena, changetype<BindRequest>(request).target);
  return (entryAt(arena, index).access & KeyKind.WINDOW_TYPE_1) != 0;
}

/** A WcStatus, as Linux rxe has it: MW_BIND_ERR of a bind, LOC_QP_OP_ERR of the others. */
function perform(context: Context, qp: QueuePair, request: SendRequest): u32 {
  const arena = context.arena;
  if (request.opcode == <u32>WrOpcode.LOCAL_INV) {
    const killed = invalidateLocal(arena, request.key, qp.pd);
    return killed ? WcStatus.SUCCESS : WcStatus.LOC_QP_OP_ERR;
  }
  const bind = changetype<BindRequest>(request);
  if (request.opcode == <u32>WrOpcode.REG_MR) {
    const registered = registerFast(
      arena,
      context.slotIndex,
      bind.target,
      bind.key,
      bind.base,
      qp.pd,
      bind.address,
      bind.memory,
      bind.length,
      bind.access,
    );
    return registered ? WcStatus.SUCCESS : WcStatus.LOC_QP_OP_ERR;
  }
  if (request.opcode == <u32>WrOpcode.BIND_MR) {
    const done = bindRecorded(arena, context.slotIndex, qp.pd, bind.target);
    return done ? WcStatus.SUCCESS : WcStatus.LOC_QP_OP_ERR;
  }
  if (request.opcode != <u32>WrOpcode.BIND_MW) return WcStatus.LOC_QP_OP_ERR;
  const bound = bindWindow(
    arena,
    bind.target,
    bind.key,
    bind.base,
    qp.pd,
    qp.binding,
    bind.address,
    bind.length,
    bind.access,
  );
  return bound ? WcStatus.SUCCESS : WcStatus.MW_BIND_ERR;
}
