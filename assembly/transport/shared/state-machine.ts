/**
 * The state machine of queue pairs as one table: for a transition and a type, the required and the
 * optional attributes (IBA 11.2.5.2, table 91; man ibv_modify_qp). A transition that is not in the
 * table, that lacks a required attribute or has another one changes nothing.
 */
import { QpState, QpType } from './status';

/** `ibv_qp_attr_mask`. */
export enum QpAttribute {
  STATE = 0x000001,
  CUR_STATE = 0x000002,
  EN_SQD_ASYNC_NOTIFY = 0x000004,
  ACCESS_FLAGS = 0x000008,
  PKEY_INDEX = 0x000010,
  PORT = 0x000020,
  QKEY = 0x000040,
  AV = 0x000080,
  PATH_MTU = 0x000100,
  TIMEOUT = 0x000200,
  RETRY_CNT = 0x000400,
  RNR_RETRY = 0x000800,
  RQ_PSN = 0x001000,
  MAX_QP_RD_ATOMIC = 0x002000,
  ALT_PATH = 0x004000,
  MIN_RNR_TIMER = 0x008000,
  SQ_PSN = 0x010000,
  MAX_DEST_RD_ATOMIC = 0x020000,
  PATH_MIG_STATE = 0x040000,
  CAP = 0x080000,
  DEST_QPN = 0x100000,
  RATE_LIMIT = 0x2000000,
}

/** No such change. */
const NEVER: u32 = 0xffffffff;

function step(from: u32, to: u32): u32 {
  return (from << 4) | to;
}

/** Attributes besides STATE that the change must bring; NEVER when it does not exist. */
function required(type: u32, from: u32, to: u32): u32 {
  const rc = type == QpType.RC;
  const ud = type == QpType.UD;
  switch (step(from, to)) {
    case step(QpState.RESET, QpState.INIT):
      return (
        QpAttribute.PKEY_INDEX |
        QpAttribute.PORT |
        (ud ? QpAttribute.QKEY : QpAttribute.ACCESS_FLAGS)
      );
    case step(QpState.INIT, QpState.RTR): {
      if (ud) return 0;
      const connected: u32 =
        QpAttribute.AV | QpAttribute.PATH_MTU | QpAttribute.DEST_QPN | QpAttribute.RQ_PSN;
      if (!rc) return connected;
      return connected | QpAttribute.MAX_DEST_RD_ATOMIC | QpAttribute.MIN_RNR_TIMER;
    }
    case step(QpState.RTR, QpState.RTS):
      if (!rc) return QpAttribute.SQ_PSN;
      return (
        QpAttribute.SQ_PSN |
        QpAttribute.TIMEOUT |
        QpAttribute.RETRY_CNT |
        QpAttribute.RNR_RETRY |
        QpAttribute.MAX_QP_RD_ATOMIC
      );
    case step(QpState.INIT, QpState.INIT):
    case step(QpState.RTS, QpState.RTS):
    case step(QpState.RTS, QpState.SQD):
    case step(QpState.SQD, QpState.SQD):
    case step(QpState.SQD, QpState.RTS):
      return 0;
    case step(QpState.SQE, QpState.RTS):
      // A send error takes a reliable connection to ERR, so it is never in SQE.
      return rc ? NEVER : 0;
    default:
      return to == QpState.RESET || to == QpState.ERR ? 0 : NEVER;
  }
}

/** Attributes that the change may bring besides. */
function optional(type: u32, from: u32, to: u32): u32 {
  const rc = type == QpType.RC;
  const ud = type == QpType.UD;
  const migration: u32 = QpAttribute.ALT_PATH | QpAttribute.PATH_MIG_STATE;
  switch (step(from, to)) {
    case step(QpState.INIT, QpState.INIT):
      return required(type, QpState.RESET, QpState.INIT);
    case step(QpState.INIT, QpState.RTR):
      if (ud) return QpAttribute.PKEY_INDEX | QpAttribute.QKEY;
      return QpAttribute.ALT_PATH | QpAttribute.ACCESS_FLAGS | QpAttribute.PKEY_INDEX;
    case step(QpState.RTR, QpState.RTS):
    case step(QpState.RTS, QpState.RTS):
    case step(QpState.SQD, QpState.RTS): {
      if (ud) return QpAttribute.CUR_STATE | QpAttribute.QKEY;
      const common: u32 = QpAttribute.CUR_STATE | QpAttribute.ACCESS_FLAGS;
      return common | migration | (rc ? QpAttribute.MIN_RNR_TIMER : 0);
    }
    case step(QpState.RTS, QpState.SQD):
      return QpAttribute.EN_SQD_ASYNC_NOTIFY;
    case step(QpState.SQD, QpState.SQD): {
      if (ud) return QpAttribute.PKEY_INDEX | QpAttribute.QKEY;
      const common: u32 = QpAttribute.AV | QpAttribute.ACCESS_FLAGS | QpAttribute.PKEY_INDEX;
      if (!rc) return common | migration;
      return (
        common |
        migration |
        QpAttribute.PORT |
        QpAttribute.TIMEOUT |
        QpAttribute.RETRY_CNT |
        QpAttribute.RNR_RETRY |
        QpAttribute.MAX_QP_RD_ATOMIC |
        QpAttribute.MAX_DEST_RD_ATOMIC |
        QpAttribute.MIN_RNR_TIMER
      );
    }
    case step(QpState.SQE, QpState.RTS):
      if (ud) return QpAttribute.CUR_STATE | QpAttribute.QKEY;
      return QpAttribute.CUR_STATE | QpAttribute.ACCESS_FLAGS;
    default:
      return 0;
  }
}

/** May a queue pair of this type go from `from` to `to` with exactly these attributes? */
export function transitionAllowed(type: u32, from: u32, to: u32, mask: u32): bool {
  const must = required(type, from, to);
  if (must == NEVER) return false;
  const given = mask & ~(<u32>QpAttribute.STATE);
  return (given & must) == must && (given & ~(must | optional(type, from, to))) == 0;
}

/** The attributes (besides STATE) that are missing from `mask`, for an error's text. */
export function missingAttributes(type: u32, from: u32, to: u32, mask: u32): u32 {
  const must = required(type, from, to);
  return must == NEVER ? NEVER : must & ~mask;
}

/** Is a request from the peer served in this state? */
export function serves(state: u32): bool {
  return state >= <u32>QpState.RTR && state <= <u32>QpState.SQE;
}

/** Are responses to our requests taken in this state? */
export function requests(state: u32): bool {
  return state == QpState.RTS || state == QpState.SQD;
}
