/**
 * What nodes of our own kind tell each other, in messages with HeaderFlag.CONTROL: a byte of kind,
 * one of flags, and ports of 16 bits each, big endian.
 */

/** Kind of a control message. */
export const ControlKind = Object.freeze({
  /** Ports that are bound, or no longer. */
  PORTS: 1,
  /** Ports whose reader is slow (stall), or no longer (unstall). */
  STALLS: 2,
  HEARTBEAT: 3,
});

export interface Control {
  readonly kind: number;
  /** The ports are set, not cleared. */
  readonly isSet: boolean;
  /** Whatever was told of this kind before is no longer so. */
  readonly isReset: boolean;
  readonly ports: readonly number[];
}

const [SET, RESET] = [1, 2];
/** So that a control message fits into the smallest receive, and into inline data. */
export const CONTROL_PORTS_MAX = 200;
const FIRST_PORT_AT = 2;

export function buildControl({ kind, isSet, isReset, ports }: Control): Uint8Array {
  const bytes = new Uint8Array(FIRST_PORT_AT + 2 * ports.length);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, kind);
  view.setUint8(1, (isSet ? SET : 0) | (isReset ? RESET : 0));
  ports.forEach((port, index) => view.setUint16(FIRST_PORT_AT + 2 * index, port));
  return bytes;
}

/** Undefined: not one of these. */
export function parseControl(bytes: Uint8Array): Control | undefined {
  if (bytes.length < FIRST_PORT_AT || (bytes.length & 1) === 1) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const kind = view.getUint8(0);
  const flags = view.getUint8(1);
  if (!Object.values<number>(ControlKind).includes(kind) || flags > (SET | RESET)) return undefined;
  const ports: number[] = [];
  for (let at = FIRST_PORT_AT; at < bytes.length; at += 2) ports.push(view.getUint16(at));
  return { kind, isSet: (flags & SET) !== 0, isReset: (flags & RESET) !== 0, ports };
}
