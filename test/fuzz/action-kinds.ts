/** The numbers of an action: kinds, bits of packets, bases of PSNs. */

export const Kind = {
  /**
   * pair, opcode, psn base, delta, size, region, offset, length, syndrome, flags, operand, trim,
   * MSN and mark, trailer (peer-keys.ts)
   */
  PACKET: 0,
  /** pair, options, psn, level */
  CONNECT: 1,
  /** pair, opcode, length, sges, region, offset, flags, remote region, remote offset, operand */
  SEND: 2,
  /** pair, length, sges, region, offset, count */
  RECEIVE: 3,
  /** microseconds; 0: to the next timer */
  TIME: 4,
  STATE: 5, // pair, change, value
  KEY: 6, // region, change
  POLL: 7, // 0: all; else this number
  RAW: 8, // seed, length
  /** 1: the link keeps buffers from now on; 0: it gives them back */
  WIRE: 9,
  /** pair, ring, then what HostileField names: a whole entry, and the doorbell */
  ENTRY: 10,
  /** pair, ring (3: the program of a layout), word, value: now */
  SCRIBBLE: 11,
  /** the same, while the engine is between two packets of a batch */
  LATER: 12,
  DOORBELL: 13, // pair, ring
  /** 1: another engine of the domain is in a call; 0: it has left the call */
  ENGINE: 14,
} as const;
export const KINDS = Object.keys(Kind).length;
export type Action = readonly number[];
export type Scenario = readonly Action[];

/** Bits of a PACKET's flags. */
export const PacketBit = {
  SOLICITED: 1,
  ACK_REQUEST: 2,
  FECN: 4,
  BAD_ICRC: 8,
  /** Wait for the next packet and hand both over together. */
  HOLD: 16,
  OTHER_SOURCE: 32,
  BAD_PKEY: 64,
  BAD_QKEY: 128,
  MULTICAST: 256,
  BAD_PAD: 512,
  IP_ID: 1024,
  OTHER_PORT: 2048,
  BAD_VERSION: 4096,
  BAD_QPN: 8192,
  /** Waiting packets go in one range with a segment size. */
  SEGMENTED: 16384,
  UNKNOWN_OPCODE: 32768,
} as const;

/** A PACKET's psn base. REPEAT: a READ or atomic that was executed, or the tail of a READ, again. */
export const PsnBase = {
  AUTO: 0,
  EXPECTED: 1,
  UNACKED: 2,
  MAX: 3,
  NEXT: 4,
  ZERO: 5,
  REPEAT: 6,
} as const;

/** A number in 0 .. n - 1. */
export type Below = (n: number) => number;

/** How many pairs of queue pairs and regions a world has; indices wrap. */
export const PAIRS = 11;
export const REGIONS = 11;
/** Indices of windows and of regions for REG_MR begin here (bindables.ts). */
