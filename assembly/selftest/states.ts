/**
 * Checks of shared/state-machine.ts: the optional attributes of each transition, bit by bit (IBA
 * table 91; man ibv_modify_qp), and of the places of local endpoints.
 */
import { LOCAL_ENDPOINT_SIZE } from '../memory/local-sizes';
import { localEndpointAt } from '../memory/local-endpoint';
import {
  QpAttribute,
  missingAttributes,
  transitionAllowed,
} from '../transport/shared/state-machine';
import { QpState, QpType } from '../transport/shared/status';
import { CONTEXTS, freshArena } from './arena';
import { OTHER } from './memory';
import { begin, end, same } from './tap';

const ATTRIBUTE_BITS: u32 = 26;
const ACCESS: u32 = QpAttribute.ACCESS_FLAGS;
const PKEY: u32 = QpAttribute.PKEY_INDEX;
const QKEY: u32 = QpAttribute.QKEY;
const CURRENT: u32 = QpAttribute.CUR_STATE;
const PATHS: u32 = QpAttribute.ALT_PATH | QpAttribute.PATH_MIG_STATE;
const TIMER: u32 = QpAttribute.MIN_RNR_TIMER;

export function checkStates(): void {
  begin('a transition takes its optional attributes, and no others');
  const types: StaticArray<u32> = [QpType.RC, QpType.UC, QpType.UD];
  for (let index = 0; index < types.length; index++) {
    const type = types[index];
    const rc = type == QpType.RC;
    const ud = type == QpType.UD;
    takes(type, QpState.INIT, QpState.RTR, ud ? PKEY | QKEY : QpAttribute.ALT_PATH | ACCESS | PKEY);
    const running: u32 = ud ? CURRENT | QKEY : CURRENT | ACCESS | PATHS | (rc ? TIMER : 0);
    takes(type, QpState.RTR, QpState.RTS, running);
    takes(type, QpState.RTS, QpState.RTS, running);
    takes(type, QpState.SQD, QpState.RTS, running);
    takes(type, QpState.RTS, QpState.SQD, QpAttribute.EN_SQD_ASYNC_NOTIFY);
    takes(type, QpState.SQD, QpState.SQD, drained(rc, ud));
    takes(type, QpState.RTS, QpState.ERR, 0);
    takes(type, QpState.RTS, QpState.RESET, 0);
    if (!rc) takes(type, QpState.SQE, QpState.RTS, ud ? CURRENT | QKEY : CURRENT | ACCESS);
  }
  end();
  checkEndpoints();
}

function drained(rc: bool, ud: bool): u32 {
  if (ud) return PKEY | QKEY;
  const common: u32 = QpAttribute.AV | ACCESS | PKEY | PATHS;
  if (!rc) return common;
  const timers: u32 = QpAttribute.TIMEOUT | QpAttribute.RETRY_CNT | QpAttribute.RNR_RETRY | TIMER;
  const reads: u32 = QpAttribute.MAX_QP_RD_ATOMIC | QpAttribute.MAX_DEST_RD_ATOMIC;
  return common | timers | reads | QpAttribute.PORT;
}

/** With what it requires, each attribute alone is taken if it is in `optional`. */
function takes(type: u32, from: u32, to: u32, optional: u32): void {
  const required = missingAttributes(type, from, to, QpAttribute.STATE);
  for (let bit: u32 = 1; bit < ATTRIBUTE_BITS; bit++) {
    const attribute: u32 = 1 << bit;
    if (required & attribute) continue;
    const allowed = transitionAllowed(type, from, to, QpAttribute.STATE | required | attribute);
    const at = ((<u64>type) << 40) | ((<u64>from) << 36) | ((<u64>to) << 32) | attribute;
    same(u64(allowed), u64((optional & attribute) != 0), 'attribute', at);
  }
}

function checkEndpoints(): void {
  begin('each queue pair of each context has a place of its own among the local endpoints');
  const arena = freshArena(16);
  const count: u32 = 8;
  same(localEndpointAt(arena, 0x10001), 0, 'an arena without endpoints');
  arena.localEndpoints = OTHER;
  arena.localEndpointsMax = count;
  for (let slot: u32 = 0; slot < CONTEXTS; slot++) {
    for (let number: u32 = 0; number < 4 * count; number++) {
      const place = OTHER + <usize>((slot * count + (number % count)) * LOCAL_ENDPOINT_SIZE);
      same(localEndpointAt(arena, (slot << 16) | number), place, 'place', (slot << 16) | number);
    }
  }
  same(localEndpointAt(arena, CONTEXTS << 16), 0, 'no such context');
  end();
}
