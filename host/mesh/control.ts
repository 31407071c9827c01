/**
 * Messages between two members, for collective operations and as a sign of life: 32 bytes,
 * little-endian. SCRATCH has the region's key in place of the sequence, and its address in place of
 * the group.
 * ```
 *  | version | kind | op | type | sequence | group | segment | count | zero |
 *       1       1      1     1       4         8        4        4      8      bytes
 * ```
 */

export const ControlKind = {
  /** The sender has entered the barrier. */
  BARRIER: 1,
  /** The sender's part of this member's chunk is in the scratch region. */
  SCATTER: 2,
  /** The sender's reduced chunk is in the scratch region. */
  GATHER: 3,
  /** The sender is there; `count`: its `keepAliveMillis`. */
  HEARTBEAT: 4,
  /**
   * The sender has given up this call. `segment` is LOSS: all calls of the group up to this one,
   * since it has lost the member with the index `count`.
   */
  GIVE_UP: 5,
  /** Where this member may write: the first message of a connection. `op`: 1 with frames. */
  SCRATCH: 6,
} as const;

/** Of GIVE_UP. */
export const LOSS = 1;

export interface Control {
  /** A ControlKind. */
  readonly kind: number;
  /** Of an all-reduce: index of the operation and of the element type. */
  readonly op: number;
  readonly type: number;
  /** The call's number among those of this group, from 0 on. */
  readonly sequence: number;
  /** Hash of the members. */
  readonly group: bigint;
  readonly segment: number;
  /** Elements of the whole array; of a heartbeat: milliseconds; of SCRATCH: bytes. */
  readonly count: number;
}

/** Of a message that reports no data. */
export const NO_DATA = { kind: 0, op: 0, type: 0, segment: 0, count: 0 };

/** Of each message; members accept none that is longer. */
export const CONTROL_BYTES = 32;
const VERSION = 2;
const FNV_OFFSET = 0xcbf29ce484222325n;
const FNV_PRIME = 0x100000001b3n;

export function buildControl(control: Control): Uint8Array {
  const bytes = new Uint8Array(CONTROL_BYTES);
  const view = new DataView(bytes.buffer);
  bytes.set([VERSION, control.kind, control.op, control.type]);
  view.setUint32(4, control.sequence, true);
  view.setBigUint64(8, control.group, true);
  view.setUint32(16, control.segment, true);
  view.setUint32(20, control.count, true);
  return bytes;
}

/** Undefined: the message has another format. */
export function parseControl(bytes: Uint8Array): Control | undefined {
  const [version, kind = 0, op = 0, type = 0] = bytes;
  const isKnown = kind >= ControlKind.BARRIER && kind <= ControlKind.SCRATCH;
  if (bytes.length !== CONTROL_BYTES || version !== VERSION || !isKnown) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  return {
    kind,
    op,
    type,
    sequence: view.getUint32(4, true),
    group: view.getBigUint64(8, true),
    segment: view.getUint32(16, true),
    count: view.getUint32(20, true),
  };
}

/** Identifies what a member waits for. */
export function keyOf({ group, sequence, kind, segment }: Control): string {
  return `${group} ${sequence} ${kind} ${segment}`;
}

/** FNV-1a, 64 bits, of the sorted identifiers. */
export function groupOf(members: readonly string[]): bigint {
  let hash = FNV_OFFSET;
  for (const character of members.join(' ')) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(character.charCodeAt(0))) * FNV_PRIME);
  }
  return hash;
}
