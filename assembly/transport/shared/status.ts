/**
 * Numbers that leave the engine as results. Names are those of the C enums without their prefix;
 * values are those of libibverbs (verbs.h), so tables of C programs apply. Sentences are in
 * `explain/`: a string here would be a data segment.
 */

/** Completion status: `ibv_wc_status`. */
export enum WcStatus {
  SUCCESS = 0,
  LOC_LEN_ERR = 1,
  LOC_QP_OP_ERR = 2,
  LOC_EEC_OP_ERR = 3,
  LOC_PROT_ERR = 4,
  WR_FLUSH_ERR = 5,
  MW_BIND_ERR = 6,
  BAD_RESP_ERR = 7,
  LOC_ACCESS_ERR = 8,
  REM_INV_REQ_ERR = 9,
  REM_ACCESS_ERR = 10,
  REM_OP_ERR = 11,
  RETRY_EXC_ERR = 12,
  RNR_RETRY_EXC_ERR = 13,
  LOC_RDD_VIOL_ERR = 14,
  REM_INV_RD_REQ_ERR = 15,
  REM_ABORT_ERR = 16,
  INV_EECN_ERR = 17,
  INV_EEC_STATE_ERR = 18,
  FATAL_ERR = 19,
  RESP_TIMEOUT_ERR = 20,
  GENERAL_ERR = 21,
}

/** Operation of a completion: `ibv_wc_opcode`. */
export enum WcOpcode {
  SEND = 0,
  RDMA_WRITE = 1,
  RDMA_READ = 2,
  COMP_SWAP = 3,
  FETCH_ADD = 4,
  BIND_MW = 5,
  LOCAL_INV = 6,
  TSO = 7,
  FLUSH = 8,
  ATOMIC_WRITE = 9,
  /** As Linux numbers it for its own; libibverbs has none. */
  REG_MR = 10,
  /** A number of our own. */
  BIND_MR = 11,
  RECV = 128,
  RECV_RDMA_WITH_IMM = 129,
}

/** Completion flags: `ibv_wc_flags`. */
export enum WcFlag {
  GRH = 1,
  WITH_IMM = 2,
  WITH_INV = 8,
}

/** Operation of a work request: `ibv_wr_opcode`. */
export enum WrOpcode {
  RDMA_WRITE = 0,
  RDMA_WRITE_WITH_IMM = 1,
  SEND = 2,
  SEND_WITH_IMM = 3,
  RDMA_READ = 4,
  ATOMIC_CMP_AND_SWP = 5,
  ATOMIC_FETCH_AND_ADD = 6,
  LOCAL_INV = 7,
  BIND_MW = 8,
  SEND_WITH_INV = 9,
  TSO = 10,
  DRIVER1 = 11,
  FLUSH = 14,
  ATOMIC_WRITE = 15,
  /** As Linux numbers it for its own; libibverbs has none. */
  REG_MR = 32,
  /** Binds the layout that was recorded in a region. A number of our own. */
  BIND_MR = 33,
}

/** `ibv_send_flags`. */
export enum SendFlag {
  FENCE = 1,
  SIGNALED = 2,
  SOLICITED = 4,
  INLINE = 8,
}

/** `ibv_qp_type`. */
export enum QpType {
  RC = 2,
  UC = 3,
  UD = 4,
}

/** `ibv_qp_state`. */
export enum QpState {
  RESET = 0,
  INIT = 1,
  RTR = 2,
  RTS = 3,
  SQD = 4,
  SQE = 5,
  ERR = 6,
}

/** `vendor_err` of RETRY_EXC_ERR: the path MTU in bytes is added. 0: the peer is silent. */
export enum VendorError {
  /** The peer answers short packets, and none of the path MTU. */
  PATH_MTU = 0x10000,
  /** The system refuses packets of the path MTU: the interface is smaller. */
  PATH_MTU_REFUSED = 0x20000,
}

/**
 * How the window of a path follows the network (path-control.ts). A larger value is a target for
 * round trips in microseconds, on paths that are shorter; others have AUTO.
 */
export enum CongestionControl {
  /** CUBIC, but for losses of a path without a queue, which are those of its link. */
  AUTO = 0,
  /** Each loss cuts, as in RFC 9438. */
  CUBIC = 1,
}

/** `ibv_mtu`. */
export enum Mtu {
  MTU_256 = 1,
  MTU_512 = 2,
  MTU_1024 = 3,
  MTU_2048 = 4,
  MTU_4096 = 5,
}

/** Asynchronous event: `ibv_event_type`. */
export enum AsyncEvent {
  CQ_ERR = 0,
  QP_FATAL = 1,
  QP_REQ_ERR = 2,
  QP_ACCESS_ERR = 3,
  COMM_EST = 4,
  SQ_DRAINED = 5,
  PATH_MIG = 6,
  PATH_MIG_ERR = 7,
  DEVICE_FATAL = 8,
  PORT_ACTIVE = 9,
  PORT_ERR = 10,
  LID_CHANGE = 11,
  PKEY_CHANGE = 12,
  SM_CHANGE = 13,
  SRQ_ERR = 14,
  SRQ_LIMIT_REACHED = 15,
  QP_LAST_WQE_REACHED = 16,
  CLIENT_REREGISTER = 17,
  GID_CHANGE = 18,
  WQ_FATAL = 19,
  /** Of our own: the path MTU of a queue pair is too large (requester/path-mtu.ts). */
  PATH_MTU_ERR = 64,
}
