/**
 * Enums of verbs.h that the host alone has a use for, and the engine never sees. As in enums.ts,
 * members keep their C names without the prefix, and values are libibverbs'.
 */
import { CountedOperation, WrOpcode } from '#build/abi.js';

/** `ibv_qp_create_send_ops_flags`, IBV_QP_EX_WITH_…: what an extended queue pair will post. */
export const QpExWith = {
  RDMA_WRITE: 1 << WrOpcode.RDMA_WRITE,
  RDMA_WRITE_WITH_IMM: 1 << WrOpcode.RDMA_WRITE_WITH_IMM,
  SEND: 1 << WrOpcode.SEND,
  SEND_WITH_IMM: 1 << WrOpcode.SEND_WITH_IMM,
  RDMA_READ: 1 << WrOpcode.RDMA_READ,
  ATOMIC_CMP_AND_SWP: 1 << WrOpcode.ATOMIC_CMP_AND_SWP,
  ATOMIC_FETCH_AND_ADD: 1 << WrOpcode.ATOMIC_FETCH_AND_ADD,
  LOCAL_INV: 1 << WrOpcode.LOCAL_INV,
  BIND_MW: 1 << WrOpcode.BIND_MW,
  SEND_WITH_INV: 1 << WrOpcode.SEND_WITH_INV,
  TSO: 1 << WrOpcode.TSO,
  FLUSH: 1 << 11,
  ATOMIC_WRITE: 1 << 12,
} as const;

/** `ibv_create_cq_wc_flags`, IBV_WC_EX_WITH_…: fields of an extended completion queue. */
export const WcExWith = {
  BYTE_LEN: 1 << 0,
  IMM: 1 << 1,
  QP_NUM: 1 << 2,
  SRC_QP: 1 << 3,
  SLID: 1 << 4,
  SL: 1 << 5,
  DLID_PATH_BITS: 1 << 6,
  COMPLETION_TIMESTAMP: 1 << 7,
  CVLAN: 1 << 8,
  FLOW_TAG: 1 << 9,
  TM_INFO: 1 << 10,
  COMPLETION_TIMESTAMP_WALLCLOCK: 1 << 11,
} as const;

/** IBV_WC_STANDARD_FLAGS: the fields of `ibv_poll_cq`. */
export const WC_STANDARD_FLAGS = 0x7f;

/** `ibv_create_cq_attr_flags`. */
export const CreateCqAttrFlag = {
  SINGLE_THREADED: 1 << 0,
  IGNORE_OVERRUN: 1 << 1,
} as const;

/** `ib_uverbs_advise_mr_advice`. */
export const AdviseMrAdvice = {
  PREFETCH: 0,
  PREFETCH_WRITE: 1,
  PREFETCH_NO_FAULT: 2,
} as const;

/** `ib_uverbs_advise_mr_flag`. */
export const AdviseMrFlag = {
  FLUSH: 1 << 0,
} as const;

/** `ibv_mr_layout_cap_flags`, IBV_MR_SET_LAYOUT_…: which memory layouts a device has. */
export const MrLayoutCapFlag = {
  SG: 1 << 0,
  INTERLEAVED: 1 << 1,
  INTERLEAVED_REPEAT: 1 << 2,
  INTERLEAVED_NONUNIFORM_REPEAT: 1 << 3,
  INTERLEAVED_NONUNIFORM_DATUM_TOTAL: 1 << 4,
} as const;

/** `ibv_node_type`. */
export const NodeType = {
  UNKNOWN: -1,
  CA: 1,
  SWITCH: 2,
  ROUTER: 3,
  RNIC: 4,
  USNIC: 5,
  USNIC_UDP: 6,
  UNSPECIFIED: 7,
} as const;

/** `ibv_port_state`. */
export const PortState = {
  NOP: 0,
  DOWN: 1,
  INIT: 2,
  ARMED: 3,
  ACTIVE: 4,
  ACTIVE_DEFER: 5,
} as const;

/** `ibv_atomic_cap`. */
export const AtomicCap = {
  NONE: 0,
  HCA: 1,
  GLOB: 2,
} as const;

/** `ibv_gid_type`. */
export const GidType = {
  IB: 0,
  ROCE_V1: 1,
  ROCE_V2: 2,
} as const;

/** `ibv_device_cap_flags`, those that this device has. */
export const DeviceCapFlag = {
  BAD_PKEY_CNTR: 1 << 1,
  BAD_QKEY_CNTR: 1 << 2,
  CURR_QP_STATE_MOD: 1 << 7,
  RC_RNR_NAK_GEN: 1 << 12,
  SRQ_RESIZE: 1 << 13,
  MEM_WINDOW: 1 << 17,
  MEM_MGT_EXTENSIONS: 1 << 21,
  MEM_WINDOW_TYPE_2B: 1 << 24,
} as const;

/** IBV_DEVICE_… of `device_cap_flags_ex`, those that this device has beside DeviceCapFlag. */
export const DeviceCapFlagEx = {
  FLUSH_GLOBAL: 1n << 38n,
  FLUSH_PERSISTENT: 1n << 39n,
  ATOMIC_WRITE: 1n << 40n,
} as const;

/** `ibv_odp_transport_cap_bits`, IBV_ODP_SUPPORT_…. */
export const OdpSupport = {
  SEND: 1 << 0,
  RECV: 1 << 1,
  WRITE: 1 << 2,
  READ: 1 << 3,
  ATOMIC: 1 << 4,
  SRQ_RECV: 1 << 5,
  FLUSH: 1 << 6,
  ATOMIC_WRITE: 1 << 7,
} as const;

/** `ibv_fork_status`. */
export const ForkStatus = {
  DISABLED: 0,
  ENABLED: 1,
  UNNEEDED: 2,
} as const;

/** `ibv_qp_attach_comp_cntr_op`. */
export const QpAttachCompCntrOp = {
  SEND: 1 << CountedOperation.SEND,
  RECV: 1 << CountedOperation.RECV,
  RDMA_READ: 1 << CountedOperation.RDMA_READ,
  REMOTE_RDMA_READ: 1 << CountedOperation.REMOTE_RDMA_READ,
  RDMA_WRITE: 1 << CountedOperation.RDMA_WRITE,
  REMOTE_RDMA_WRITE: 1 << CountedOperation.REMOTE_RDMA_WRITE,
} as const;

/** `ibv_comp_cntr_type`: work requests, or their bytes. */
export const CompCntrType = {
  WRS: 0,
  BYTES: 1,
} as const;

/** `ibv_tph_mem_type`: volatile or persistent memory. */
export const TphMemType = {
  VM: 0,
  PM: 1,
} as const;

/** `ibv_query_qp_data_in_order_flags`. */
export const QueryQpDataInOrderFlag = {
  RETURN_CAPS: 1 << 0,
} as const;
