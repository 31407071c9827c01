/**
 * The AETH syndrome (IBA 9.7.5.1.2): acknowledgement with credits, RNR NAK with a timer, or NAK
 * with a code.
 * ```
 *  7   6   5   4           0
 *  | 0 | kind  | value       |
 * ```
 */

/** Syndrome bits 6:5. */
export enum SyndromeKind {
  ACK = 0x00,
  RNR_NAK = 0x20,
  RESERVED = 0x40,
  NAK = 0x60,
}

/** Whole syndromes of kind NAK. */
export enum NakCode {
  PSN_SEQUENCE_ERROR = 0x60,
  INVALID_REQUEST = 0x61,
  REMOTE_ACCESS_ERROR = 0x62,
  REMOTE_OPERATIONAL_ERROR = 0x63,
  INVALID_RD_REQUEST = 0x64,
}

/** An acknowledgement that says nothing about credits. */
export const ACK_WITHOUT_CREDITS: u32 = 0x1f;

export function syndromeKind(syndrome: u32): u32 {
  return syndrome & 0x60;
}

export function syndromeValue(syndrome: u32): u32 {
  return syndrome & 0x1f;
}

/**
 * How long an RNR NAK asks to wait, in microseconds (IBA table 45). Code 0 is the longest wait,
 * not none.
 */
export function rnrTimerMicros(code: u32): u32 {
  if (code == 0) return 655360;
  // 1..4 count in tens; from then on the pair 60, 80 doubles with every second code.
  if (code <= 4) return code * 10;
  return (code & 1 ? 60 : 80) << ((code - 5) >> 1);
}
