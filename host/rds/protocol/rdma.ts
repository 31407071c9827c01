/** RDMA beside a message (rds-rdma(7)): into or out of memory that a peer has named by a cookie. */
import { WcStatus } from '#build/abi.js';
import type { LocalRegion } from '../transport/local-regions.js';

/** `RDS_RDMA_…`: flags of getMr, and of an operation. */
export const RdmaFlag = Object.freeze({
  READWRITE: 0x01,
  FENCE: 0x02,
  INVALIDATE: 0x04,
  USE_ONCE: 0x08,
  DONTWAIT: 0x10,
  NOTIFY_ME: 0x20,
  SILENT: 0x40,
});

/** Status of an RDMA operation. */
export const RdmaStatus = Object.freeze({
  SUCCESS: 0,
  REMOTE_ERROR: 1,
  CANCELED: 2,
  /** Its connection broke: it may be done in part, and is not repeated. */
  DROPPED: 3,
  OTHER_ERROR: 4,
});

const REMOTE_ERRORS: ReadonlySet<number> = new Set([
  WcStatus.REM_ACCESS_ERR,
  WcStatus.REM_INV_REQ_ERR,
  WcStatus.REM_OP_ERR,
]);

/** Of an operation whose work request ended with this status. */
export function rdmaStatusOf(status: number): number {
  return REMOTE_ERRORS.has(status) ? RdmaStatus.REMOTE_ERROR : RdmaStatus.OTHER_ERROR;
}

/** `rds_rdma_cookie_t`: the key, and the offset of the memory in its region. */
export function makeCookie(rkey: number, offset: number): bigint {
  return BigInt(rkey >>> 0) | (BigInt(offset) << 32n);
}

export function rkeyOf(cookie: bigint): number {
  return Number(cookie & 0xffffffffn);
}

export function offsetOf(cookie: bigint): number {
  return Number(cookie >> 32n);
}

/** One WRITE or READ, in front of its message. */
export class RdmaOperation {
  readonly isWrite: boolean;
  readonly rkey: number;
  readonly remoteAddr: number;
  /** The message waits for what is READ. */
  readonly isFenced: boolean;
  /** Local memory, and of which of the node's devices. */
  readonly local: Uint8Array;
  readonly region: LocalRegion;
  readonly from: number;
  isPosted = false;
  readonly #ended: (status: number) => void;
  #isOver = false;

  /** `ended` is called once, with one of RdmaStatus. The region is held for the operation. */
  constructor(
    { cookie, remoteOffset, flags }: { cookie: bigint; remoteOffset: number; flags: number },
    memory: { readonly local: Uint8Array; readonly region: LocalRegion; readonly from: number },
    ended: (status: number) => void,
  ) {
    this.isWrite = (flags & RdmaFlag.READWRITE) !== 0;
    this.isFenced = (flags & RdmaFlag.FENCE) !== 0;
    this.rkey = rkeyOf(cookie);
    this.remoteAddr = offsetOf(cookie) + remoteOffset;
    this.local = memory.local;
    this.region = memory.region;
    this.from = memory.from;
    this.#ended = ended;
  }

  /** A connection needs it no more. */
  letGo(isSent: boolean): void {
    this.end(isSent ? RdmaStatus.SUCCESS : RdmaStatus.DROPPED);
  }

  /** The message of the operation was refused: no completion is reported. */
  discard(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.region.letGo();
  }

  end(status: number): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.region.letGo();
    this.#ended(status);
  }
}
