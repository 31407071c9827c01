/**
 * Attributes of a device: `ibv_query_device` and `ibv_query_device_ex`. Members of verbs.h that
 * mean nothing to a software adapter over UDP are left out.
 */
import {
  LAYOUT_DIMENSIONS_MAX,
  LAYOUT_NESTING_MAX,
  LAYOUT_SG_MAX,
  LAYOUT_SOURCES_MAX,
} from '#build/abi.js';
import type { Gid } from '../../link/endpoint.js';
import {
  AtomicCap,
  DeviceCapFlag,
  DeviceCapFlagEx,
  MrLayoutCapFlag,
  NodeType,
  OdpSupport,
} from '../constants.js';
import type { ContextInternals } from '../internals.js';
import {
  MAX_CQE,
  MAX_INLINE_DATA,
  MAX_MESSAGE_BYTES,
  MAX_QP_WR,
  MAX_SGE,
  MAX_SRQ_WR,
} from '../limits.js';
import { PKEYS, PORTS } from './query-port.js';

/** `ibv_mr_layout_caps`: what memory layouts may be. */
export interface MrLayoutCaps {
  /** Bits of MrLayoutCapFlag. */
  readonly capFlags: number;
  /** Pieces of a composite layout, and of one that BIND_MR binds. */
  readonly maxNumSg: number;
  readonly maxInlineNumSg: number;
  /** Interleaved sources of a layout, and of one that BIND_MR binds. */
  readonly maxNumInterleaved: number;
  readonly maxInlineNumInterleaved: number;
  readonly maxMrStrideDimension: number;
  /** How deep layouts may stand on each other; 1: on regions alone. */
  readonly maxMrNestingLevel: number;
}

/** `ibv_device_attr`, the fields that apply to this device. */
export interface DeviceAttributes {
  readonly maxQp: number;
  readonly maxQpWr: number;
  readonly maxSge: number;
  readonly maxCq: number;
  readonly maxCqe: number;
  readonly maxMr: number;
  readonly maxMrSize: number;
  /** They share places with regions: `maxMr` for all. */
  readonly maxMw: number;
  readonly maxPd: number;
  readonly maxQpRdAtom: number;
  readonly maxMsgSize: number;
  readonly maxSrq: number;
  readonly maxSrqWr: number;
  readonly maxAh: number;
  readonly maxMcastQpAttach: number;
  readonly maxInlineData: number;
  /** A NodeType. */
  readonly nodeType: number;
  /** From the local address, as four groups of four hexadecimal digits. */
  readonly nodeGuid: string;
  readonly sysImageGuid: string;
  /** 0xffffff: no maker's number. */
  readonly vendorId: number;
  /** Sizes of pages that registered memory may have, as a sum. */
  readonly pageSizeCap: number;
  readonly maxSgeRd: number;
  /** Atomics are such towards every context of the device: AtomicCap.HCA. */
  readonly atomicCap: number;
  readonly maxPkeys: number;
  readonly physPortCnt: number;
  /** Bits of DeviceCapFlag. */
  readonly deviceCapFlags: number;
  readonly mrLayoutCaps: MrLayoutCaps;
}

/** `ibv_device_attr_ex`, the fields that apply to this device. */
export interface DeviceAttributesEx {
  readonly origAttr: DeviceAttributes;
  readonly physPortCntEx: number;
  /** Bits of DeviceCapFlag and DeviceCapFlagEx. */
  readonly deviceCapFlagsEx: bigint;
  /** Bits of OdpSupport by service: registered memory is paged in when it is touched. */
  readonly odpCaps: { readonly rc: number; readonly uc: number; readonly ud: number };
  /** Bits of a completion's timestamp that count. */
  readonly completionTimestampMask: bigint;
  /** Ticks a second of `wcReadCompletionTs`, in thousands. */
  readonly hcaCoreClockKhz: number;
  /** Bytes of one allocDm at most. */
  readonly maxDmSize: number;
  /** No moderation. */
  readonly cqModCaps: { readonly maxCqCount: number; readonly maxCqPeriodMicros: number };
}

/** Of an EUI-64. */
const LOCALLY_ADMINISTERED = 1n << 57n;
const PAGE_SIZE_CAP = 4096;
const VENDOR_ID = 0xffffff;
/** Of the device's memory, how much one allocDm may take. */
const DM_SHARE = 8;

/** The work request names what was recorded before: what fits into a layout fits into it. */
const MR_LAYOUT_CAPS: MrLayoutCaps = {
  capFlags: Object.values(MrLayoutCapFlag).reduce((sum, flag) => sum | flag, 0),
  maxNumSg: LAYOUT_SG_MAX,
  maxInlineNumSg: LAYOUT_SG_MAX,
  maxNumInterleaved: LAYOUT_SOURCES_MAX,
  maxInlineNumInterleaved: LAYOUT_SOURCES_MAX,
  maxMrStrideDimension: LAYOUT_DIMENSIONS_MAX,
  maxMrNestingLevel: LAYOUT_NESTING_MAX,
};

export function queryDevice(context: ContextInternals): DeviceAttributes {
  const { limits } = context.device;
  const guid = guidOf(context.local.gid);
  return {
    maxQp: limits.queuePairsMax,
    maxQpWr: MAX_QP_WR,
    maxSge: MAX_SGE,
    maxCq: limits.completionQueuesMax,
    maxCqe: MAX_CQE,
    maxMr: limits.regionsMax,
    maxMrSize: limits.memoryBytes,
    maxMw: limits.regionsMax,
    maxPd: limits.protectionDomainsMax,
    maxQpRdAtom: limits.rdAtomicMax,
    maxMsgSize: MAX_MESSAGE_BYTES,
    maxSrq: limits.sharedReceiveQueuesMax,
    maxSrqWr: MAX_SRQ_WR,
    maxAh: limits.addressHandlesMax,
    maxMcastQpAttach: limits.multicastMax,
    maxInlineData: MAX_INLINE_DATA,
    nodeType: NodeType.CA,
    nodeGuid: guid,
    sysImageGuid: guid,
    vendorId: VENDOR_ID,
    pageSizeCap: PAGE_SIZE_CAP,
    maxSgeRd: MAX_SGE,
    atomicCap: AtomicCap.HCA,
    maxPkeys: PKEYS,
    physPortCnt: PORTS,
    deviceCapFlags:
      DeviceCapFlag.BAD_PKEY_CNTR |
      DeviceCapFlag.BAD_QKEY_CNTR |
      DeviceCapFlag.CURR_QP_STATE_MOD |
      DeviceCapFlag.RC_RNR_NAK_GEN |
      DeviceCapFlag.SRQ_RESIZE |
      DeviceCapFlag.MEM_WINDOW |
      DeviceCapFlag.MEM_WINDOW_TYPE_2B |
      DeviceCapFlag.MEM_MGT_EXTENSIONS,
    mrLayoutCaps: MR_LAYOUT_CAPS,
  };
}

export function queryDeviceEx(context: ContextInternals): DeviceAttributesEx {
  const datagram = OdpSupport.SEND | OdpSupport.RECV | OdpSupport.SRQ_RECV;
  const unreliable = datagram | OdpSupport.WRITE;
  const origAttr = queryDevice(context);
  const { FLUSH_GLOBAL, FLUSH_PERSISTENT, ATOMIC_WRITE } = DeviceCapFlagEx;
  return {
    origAttr,
    physPortCntEx: PORTS,
    deviceCapFlagsEx:
      BigInt(origAttr.deviceCapFlags) | FLUSH_GLOBAL | FLUSH_PERSISTENT | ATOMIC_WRITE,
    odpCaps: {
      rc:
        unreliable |
        OdpSupport.READ |
        OdpSupport.ATOMIC |
        OdpSupport.FLUSH |
        OdpSupport.ATOMIC_WRITE,
      uc: unreliable,
      ud: datagram,
    },
    completionTimestampMask: (1n << 64n) - 1n,
    hcaCoreClockKhz: 1_000_000,
    maxDmSize: Math.floor(context.device.limits.memoryBytes / DM_SHARE),
    cqModCaps: { maxCqCount: 0, maxCqPeriodMicros: 0 },
  };
}

/** XOR of both halves of the GID, marked as locally administered. */
function guidOf(gid: Gid): string {
  const view = new DataView(gid.bytes.buffer, gid.bytes.byteOffset);
  const guid = (view.getBigUint64(0) ^ view.getBigUint64(8)) | LOCALLY_ADMINISTERED;
  return guid
    .toString(16)
    .padStart(16, '0')
    .replace(/(?!^)(?=(?:.{4})+$)/g, ':');
}
