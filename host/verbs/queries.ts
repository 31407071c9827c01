/**
 * What a device and its one port are: `ibv_query_device` and its kin. Members of verbs.h that mean
 * nothing to a software adapter over UDP are left out.
 */
import {
  LAYOUT_DIMENSIONS_MAX,
  LAYOUT_NESTING_MAX,
  LAYOUT_SG_MAX,
  LAYOUT_SOURCES_MAX,
  Mtu,
  WrOpcodeName,
} from '#build/abi.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { Gid } from '../link/endpoint.js';
import {
  AtomicCap,
  DeviceCapFlag,
  DeviceCapFlagEx,
  GidType,
  MrLayoutCapFlag,
  NodeType,
  OdpSupport,
  QueryQpDataInOrderFlag,
} from './constants.js';
import type { Context } from './context.js';
import {
  MAX_CQE,
  MAX_INLINE_DATA,
  MAX_MESSAGE_BYTES,
  MAX_QP_WR,
  MAX_SGE,
  MAX_SRQ_WR,
} from './limits.js';

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

/** `ibv_device_attr`, what of it means something here. */
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

/** `ibv_device_attr_ex`, what of it means something here. */
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

/** `ibv_port_attr`, what of it means something here. */
export interface PortAttributes {
  readonly state: 'ACTIVE' | 'DOWN';
  /** An Mtu. */
  readonly maxMtu: number;
  /** The largest Mtu whose packets the link carries. */
  readonly activeMtu: number;
  readonly gidTblLen: number;
  readonly pkeyTblLen: number;
  readonly maxMsgSz: number;
  /** The link's name. */
  readonly linkLayer: string;
}

/** `ibv_gid_entry`. */
export interface GidEntry {
  readonly gid: Gid;
  readonly gidIndex: number;
  readonly portNum: number;
  /** A GidType. */
  readonly gidType: number;
}

const PORTS = 1;
/** Of an EUI-64. */
const LOCALLY_ADMINISTERED = 1n << 57n;
const PKEYS = 1;
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

export function queryDevice(context: Context): DeviceAttributes {
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

export function queryDeviceEx(context: Context): DeviceAttributesEx {
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

export function queryPort(context: Context, portNum: number): PortAttributes {
  checkPort('queryPort', portNum);
  const { info, closed } = context.device;
  let activeMtu: number = Mtu.MTU_256;
  while (activeMtu < Mtu.MTU_4096 && (128 << (activeMtu + 1)) + 64 <= info.packetSizeMax) {
    activeMtu++;
  }
  return {
    state: closed || context.failure ? 'DOWN' : 'ACTIVE',
    maxMtu: Mtu.MTU_4096,
    activeMtu,
    gidTblLen: 1,
    pkeyTblLen: PKEYS,
    maxMsgSz: MAX_MESSAGE_BYTES,
    linkLayer: info.name,
  };
}

export function queryGidEx(context: Context, portNum: number, gidIndex: number): GidEntry {
  checkPort('queryGidEx', portNum);
  if (gidIndex !== 0) {
    throw new RefusalError('ENODATA', `queryGidEx: the table has no entry ${gidIndex}, only 0`);
  }
  return { gid: context.local.gid, gidIndex, portNum, gidType: GidType.ROCE_V2 };
}

export function queryGidTable(context: Context, maxEntries: number): GidEntry[] {
  if (!Number.isInteger(maxEntries) || maxEntries < 1) {
    throw new RefusalError('EINVAL', `queryGidTable: 1 entry does not fit into ${maxEntries}`);
  }
  return [queryGidEx(context, PORTS, 0)];
}

export function queryPkey(context: Context, portNum: number, index: number): number {
  checkPort('queryPkey', portNum);
  if (index !== 0) throw new RefusalError('EINVAL', `queryPkey: there is no entry ${index}`);
  return context.device.limits.pkey;
}

export function getPkeyIndex(context: Context, portNum: number, pkey: number): number {
  checkPort('getPkeyIndex', portNum);
  if (pkey !== context.device.limits.pkey) {
    throw new RefusalError('EINVAL', `getPkeyIndex: 0x${pkey.toString(16)} is not in the table`);
  }
  return 0;
}

/**
 * What is known of the order in which the bytes of a message arrive: nothing. Packets take effect
 * in order, but who looks on from another thread may see the bytes of one in any order.
 */
export function queryDataInOrder(op: number, flags: number): number {
  if (WrOpcodeName[op] === undefined) throw new MisuseError('op', `${op} is no WrOpcode`);
  if (flags & ~QueryQpDataInOrderFlag.RETURN_CAPS) {
    throw new MisuseError('flags', `must be made of QueryQpDataInOrderFlag, got ${flags}`);
  }
  return 0;
}

function checkPort(verb: string, portNum: number): void {
  if (portNum === PORTS) return;
  throw new RefusalError('EINVAL', `${verb}: there is no port ${portNum}, only ${PORTS}`);
}

/** One half of the GID laid over the other, marked as a number that nobody assigned. */
function guidOf(gid: Gid): string {
  const view = new DataView(gid.bytes.buffer, gid.bytes.byteOffset);
  const guid = (view.getBigUint64(0) ^ view.getBigUint64(8)) | LOCALLY_ADMINISTERED;
  return guid
    .toString(16)
    .padStart(16, '0')
    .replace(/(?!^)(?=(?:.{4})+$)/g, ':');
}
