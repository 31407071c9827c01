import type { WcOpcode, WcStatus } from '#build/abi.js';
import type { WcFlags } from '../enums.js';

/** `ibv_wc`. On error only wrId, status, qpNum and vendorErr are valid. */
export interface WorkCompletion {
  /** That of the request, always as a bigint. */
  readonly wrId: bigint;
  readonly status: WcStatus;
  readonly opcode: WcOpcode;
  /** Receives: bytes of the message. */
  readonly byteLen: number;
  readonly qpNum: number;
  readonly srcQp: number;
  /** UD receives: the UDP port that the datagram came from. */
  readonly srcPort: number;
  /** Made of WcFlag by `|`. */
  readonly wcFlags: WcFlags;
  /** With WcFlag.WITH_IMM: the four bytes of immediate data as a big-endian number. */
  readonly immData: number;
  /** With WcFlag.WITH_INV: the key that was invalidated. */
  readonly invalidatedRkey: number;
  /** On error: the syndrome of the NAK that caused it, or 0. */
  readonly vendorErr: number;
  /** Microseconds of the device's clock. */
  readonly timestampMicros: number;
}
