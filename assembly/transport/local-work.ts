/**
 * Work that sends nothing: LOCAL_INV, BIND_MW, REG_MR, BIND_MR. It is executed when its turn to be
 * sent has come, so what is posted behind it may rely on it, and completes when everything before
 * it has.
 *
 * LOCAL_INV waits for everything before it (requester.ts); the others do not: a bind takes nothing
 * away from what is under way.
 */
import { registerFast } from '../region/fast-region';
import { bindRecorded } from '../region/layout';
import { bindWindow, invalidateLocal } from '../region/window';
import { Context } from './context';
import { completeSend } from './failure';
import { QueuePair } from './queue-pair';
import { fail } from './requester';
import { WcStatus, WrOpcode } from './status';
import { BindRequest, SendRequest, SendState } from './work-queue';

/** Does an operation take place here alone? */
export function isLocal(opcode: u32): bool {
  return (
    opcode == <u32>WrOpcode.LOCAL_INV ||
    opcode == <u32>WrOpcode.BIND_MW ||
    opcode == <u32>WrOpcode.REG_MR ||
    opcode == <u32>WrOpcode.BIND_MR
  );
}

/** False: it failed. */
export function executeLocal(context: Context, qp: QueuePair, request: SendRequest): bool {
  const status = perform(context, qp, request);
  if (status != <u32>WcStatus.SUCCESS) {
    fail(context, qp, request, status);
    return false;
  }
  if (qp.sendTail == qp.sendNext++) completeSend(context, qp, WcStatus.SUCCESS, 0);
  else request.state = SendState.DONE;
  return true;
}

/** A WcStatus, as Linux rxe has it: MW_BIND_ERR of a bind, LOC_QP_OP_ERR of the others. */
function perform(context: Context, qp: QueuePair, request: SendRequest): u32 {
  const arena = context.arena;
  if (request.opcode == <u32>WrOpcode.LOCAL_INV) {
    // This context is in no copy now; that others have left theirs is asked when the memory is
    // deregistered.
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
