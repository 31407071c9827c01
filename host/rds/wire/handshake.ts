/**
 * Private data of connect request and reply (`struct rds_ib_connect_private`), big endian; with
 * IPv6 addresses everything behind them lies 24 bytes further on:
 *
 *      0  source address, 32 bits     13  connection + 4 x generation (ours)
 *      4  destination address         14  "VR" (ours)
 *      8  major 3, minor 1            16  ack, 64 bits
 *     10  minor mask, 16 bits         24  credit, 32 bits: 0 from us
 *     12  type of service             28  incarnation, 32 bits (ours)
 *
 * From an address that the peer does not know, a node of our own kind offers its token as credits.
 */
import { Gid } from '../../link/endpoint.js';
import { CONNECTIONS_PER_PATH } from './constants.js';

export interface OwnKind {
  readonly connectionIndex: number;
  /** Another one for each start of the node. */
  readonly incarnation: number;
  /** Another one whenever the node has given up what was on its way to us. */
  readonly generation: number;
  /** Of the path, as the receiver gave it (ControlKind.TOKEN); 0 or undefined: none is shown. */
  readonly token?: number;
}

export interface Handshake {
  readonly source: Gid;
  readonly target: Gid;
  /** The last sequence number that the sender has received on this connection; 0: none. */
  readonly ack: number;
  /** Of a node of our own kind. */
  readonly own: OwnKind | undefined;
}

const [MAJOR, MINOR, MINOR_MASK] = [3, 1, 0x0003];
const OWN_KIND = 0x5652;
const BEHIND_ADDRESSES = 24;
const HALF = 2 ** 32;

export function buildHandshake({ source, target, ack, own }: Handshake): Uint8Array {
  const { isIpv4 } = source;
  const addressBytes = isIpv4 ? 4 : 16;
  const bytes = new Uint8Array(2 * addressBytes + BEHIND_ADDRESSES);
  bytes.set(source.bytes.subarray(16 - addressBytes), 0);
  bytes.set(target.bytes.subarray(16 - addressBytes), addressBytes);
  const view = new DataView(bytes.buffer, 2 * addressBytes);
  view.setUint8(0, MAJOR);
  view.setUint8(1, MINOR);
  view.setUint16(2, MINOR_MASK);
  view.setUint32(8, Math.floor(ack / HALF));
  view.setUint32(12, ack >>> 0);
  if (own) {
    view.setUint8(5, own.connectionIndex | (own.generation << 2));
    view.setUint16(6, OWN_KIND);
    view.setUint32(16, own.token ?? 0);
    view.setUint32(20, own.incarnation);
  }
  return bytes;
}

/**
 * Undefined unless the node speaks version 3.1. Offered credits are ignored: a peer whose offer is
 * answered with 0 does without.
 */
export function parseHandshake(bytes: Uint8Array, isIpv4: boolean): Handshake | undefined {
  const addressBytes = isIpv4 ? 4 : 16;
  if (bytes.length < 2 * addressBytes + BEHIND_ADDRESSES) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset + 2 * addressBytes, BEHIND_ADDRESSES);
  const isKnown = view.getUint8(0) === MAJOR && (view.getUint16(2) & 2) !== 0;
  if (!isKnown) return undefined;
  const ack = view.getUint32(8) * HALF + view.getUint32(12);
  if (!Number.isSafeInteger(ack)) return undefined;
  const connectionIndex = view.getUint8(5) & 3;
  const generation = view.getUint8(5) >> 2;
  const token = view.getUint32(16);
  const isOwn = view.getUint16(6) === OWN_KIND && connectionIndex < CONNECTIONS_PER_PATH;
  return {
    source: readAddress(bytes, 0, isIpv4),
    target: readAddress(bytes, addressBytes, isIpv4),
    ack,
    own: isOwn
      ? { connectionIndex, generation, incarnation: view.getUint32(20), ...(token && { token }) }
      : undefined,
  };
}

function readAddress(bytes: Uint8Array, at: number, isIpv4: boolean): Gid {
  if (!isIpv4) return new Gid(bytes.subarray(at, at + 16));
  const mapped = new Uint8Array(16);
  mapped.set([0xff, 0xff], 10);
  mapped.set(bytes.subarray(at, at + 4), 12);
  return new Gid(mapped);
}
