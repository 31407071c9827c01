/**
 * Control messages between Verbena nodes (HeaderFlag.CONTROL): a byte of kind, one of flags, and
 * ports of 16 bits each, big endian; of addresses 16 bytes each, and 16 bits of UDP port.
 */
import { Endpoint, Gid } from '../../link/endpoint.js';
import { GROUPS_MAX, type Identity } from '../protocol/identity.js';
import { ADDRESSES_MAX } from '../protocol/routes.js';

/** Kind of a control message. */
export const ControlKind = Object.freeze({
  /** Ports that are bound, or no longer. */
  PORTS: 1,
  /** Ports whose reader is slow (stall), or no longer (unstall). */
  STALLS: 2,
  HEARTBEAT: 3,
  /** Where else the node can be reached. */
  ADDRESSES: 4,
  /** The user and the groups that the node runs as: numbers of 32 bits. */
  IDENTITY: 5,
  /** 32 secret bits: the receiver shows them when it connects from an address that is not known. */
  TOKEN: 6,
});

export interface Control {
  readonly kind: number;
  /** The ports are set, not cleared. */
  readonly isSet: boolean;
  /** The message replaces the whole state of this kind. */
  readonly isReset: boolean;
  readonly ports: readonly number[];
  readonly addresses?: readonly Endpoint[];
  readonly identity?: Identity;
  readonly token?: number;
}

const [SET, RESET] = [1, 2];
/** So that a control message fits into the smallest receive, and into inline data. */
export const CONTROL_PORTS_MAX = 200;
const FIRST_PORT_AT = 2;
const ADDRESS_BYTES = 18;

export function buildControl(control: Control): Uint8Array {
  const { kind, isSet, isReset, ports, addresses = [], identity, token } = control;
  const ids = identity ? [identity.uid, ...identity.gids] : [];
  if (token !== undefined) ids.push(token);
  const bytes = new Uint8Array(
    FIRST_PORT_AT + 2 * ports.length + ADDRESS_BYTES * addresses.length + 4 * ids.length,
  );
  const view = new DataView(bytes.buffer);
  view.setUint8(0, kind);
  view.setUint8(1, (isSet ? SET : 0) | (isReset ? RESET : 0));
  ports.forEach((port, index) => view.setUint16(FIRST_PORT_AT + 2 * index, port));
  ids.forEach((id, index) => view.setUint32(FIRST_PORT_AT + 4 * index, id));
  addresses.forEach(({ gid, port }, index) => {
    const at = FIRST_PORT_AT + ADDRESS_BYTES * index;
    bytes.set(gid.bytes, at);
    view.setUint16(at + 16, port);
  });
  return bytes;
}

/** Undefined: not one of these. */
export function parseControl(bytes: Uint8Array): Control | undefined {
  if (bytes.length < FIRST_PORT_AT || (bytes.length & 1) === 1) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const kind = view.getUint8(0);
  const flags = view.getUint8(1);
  if (!Object.values<number>(ControlKind).includes(kind) || flags > (SET | RESET)) return undefined;
  const said = { kind, isSet: (flags & SET) !== 0, isReset: (flags & RESET) !== 0 };
  if (kind === ControlKind.ADDRESSES) {
    const addresses = readAddresses(bytes, view);
    return addresses && { ...said, ports: [], addresses };
  }
  if (kind === ControlKind.IDENTITY) {
    const identity = readIdentity(view);
    return identity && { ...said, ports: [], identity };
  }
  if (kind === ControlKind.TOKEN) {
    const isWhole = bytes.length === FIRST_PORT_AT + 4;
    return isWhole ? { ...said, ports: [], token: view.getUint32(FIRST_PORT_AT) } : undefined;
  }
  const ports: number[] = [];
  for (let at = FIRST_PORT_AT; at < bytes.length; at += 2) ports.push(view.getUint16(at));
  return { ...said, ports };
}

function readIdentity(view: DataView): Identity | undefined {
  const count = (view.byteLength - FIRST_PORT_AT) / 4;
  if (!Number.isInteger(count) || count < 1 || count > 1 + GROUPS_MAX) return undefined;
  const ids = Array.from({ length: count }, (_, index) =>
    view.getUint32(FIRST_PORT_AT + 4 * index),
  );
  return { uid: ids[0]!, gids: ids.slice(1) };
}

function readAddresses(bytes: Uint8Array, view: DataView): Endpoint[] | undefined {
  const count = (bytes.length - FIRST_PORT_AT) / ADDRESS_BYTES;
  if (!Number.isInteger(count) || count >= ADDRESSES_MAX) return undefined;
  return Array.from({ length: count }, (_, index) => {
    const at = FIRST_PORT_AT + ADDRESS_BYTES * index;
    return new Endpoint(new Gid(bytes.subarray(at, at + 16)), view.getUint16(at + 16));
  });
}
