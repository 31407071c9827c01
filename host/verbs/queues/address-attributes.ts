/** `ibv_ah_attr`: the address of a peer, how it reaches the engine, and that of a sender. */
import { checkWhole, mustBe } from '../../errors/check-whole.js';
import { WcFlag, type QueuePairAttributesLayout } from '#build/abi.js';
import { checkKeys, checkObject } from '../../base/options.js';
import type { Struct } from '../../engine/struct.js';
import { checkBytes } from '../../errors/check-bytes.js';
import { MisuseError } from '../../errors/errors.js';
import { Endpoint, Gid } from '../../link/endpoint.js';
import { ROCE_PORT } from '../../link/link.js';
import type { WorkCompletion } from './work-completion.js';

/** `ibv_ah_attr`, for links that route by GID. */
export interface AddressAttributes {
  /** The peer's GID, or its IPv4 or IPv6 address. */
  readonly dgid: Gid | string;
  /** The peer's UDP port. Default 4791. */
  readonly port?: number;
  /** The peer's receive buffer in bytes, where known; it bounds what is under way. */
  readonly receiveBufferBytes?: number;
  /**
   * The peer is of our own kind: packets to it may leave in runs that the kernel cuts, whose IP ids
   * count up (Linux would drop them). Default false.
   */
  readonly ownKind?: boolean;
  /**
   * Packets to and from the peer have 0 in place of the ICRC: both ends agreed, since the link
   * between them keeps bytes whole (`LinkInfo.integrity`). RC and UC alone. Default false.
   */
  readonly skipIcrc?: boolean;
  /** Packets that the peer keeps when they come ahead (`cap.reorderPackets`), where known. */
  readonly reorderPackets?: number;
  /**
   * Payload of a full packet to and from the peer, where both ends agreed on more than `pathMtu`: a
   * multiple of 8, less than twice that. Counts beside `pathMtu`. Default: that of `pathMtu`.
   */
  readonly payloadBytes?: number;
  /**
   * FLUSH requests get the ICRC that Linux rxe computes, which covers their headers twice; it drops
   * those with the standard one. Known by itself once the peer has sent a FLUSH. Default false.
   */
  readonly doubledFlushIcrc?: boolean;
  /**
   * `grh.flow_label`, 20 bits: which source port packets leave from, where the device has several
   * (`sendSockets`). Default: of a connected queue pair, made of both numbers; of an address
   * handle, none: the device's own port.
   */
  readonly flowLabel?: number;
  /**
   * `wire`: requests to a queue pair of the same device travel as packets, too. Default: they are
   * executed without packets where that is possible (RC), or their packets stay in the process
   * (UC and UD, to the same context). Links that capture packets or inject faults carry all
   * requests.
   */
  readonly path?: 'wire';
}

/** Writes the AV into the engine's struct; returns where packets will go. */
export function fillAddress(
  struct: Struct<typeof QueuePairAttributesLayout>,
  address: AddressAttributes,
): Endpoint {
  const known =
    'dgid port receiveBufferBytes ownKind skipIcrc reorderPackets payloadBytes doubledFlushIcrc ' +
    'flowLabel path';
  checkKeys('ahAttr', address, known);
  if (address.path !== undefined && address.path !== 'wire') {
    throw mustBe('ahAttr.path', "'wire' or absent", address.path);
  }
  const gid = parseGid('ahAttr.dgid', address.dgid);
  const port = address.port ?? ROCE_PORT;
  checkWhole('ahAttr.port', port, 1, 65535);
  const view = new DataView(gid.bytes.buffer);
  struct.remoteGid0 = view.getBigUint64(0, true);
  struct.remoteGid1 = view.getBigUint64(8, true);
  struct.remotePort = port;
  for (const name of ['receiveBufferBytes', 'reorderPackets', 'payloadBytes'] as const) {
    const value = address[name] ?? 0;
    checkWhole(`ahAttr.${name}`, value);
    struct[name] = value;
  }
  struct.ownKind = address.ownKind ? 1 : 0;
  struct.skipsIcrc = address.skipIcrc ? 1 : 0;
  struct.doublesFlush = address.doubledFlushIcrc ? 1 : 0;
  struct.sourcePort = 0;
  struct.wireOnly = address.path === 'wire' ? 1 : 0;
  return new Endpoint(gid, port);
}

/** Throws MisuseError that names `argument`. */
export function parseGid(argument: string, gid: Gid | string): Gid {
  if (gid instanceof Gid) return gid;
  try {
    return Gid.parse(gid);
  } catch {
    throw mustBe(argument, 'an IPv4 or IPv6 address', gid);
  }
}

/** Bytes of headers before the payload of a received datagram (GRH). */
export const GRH_BYTES = 40;
/** RoCEv2 spreads flows over source ports from here up (IBA Annex A17.4.5.2). */
const FLOW_PORT_LEAST = 0xc000;

/** The port to which answers to this UDP source port go: source ports of flows receive nothing. */
export function answerPort(sourcePort: number): number {
  return sourcePort === 0 || sourcePort >= FLOW_PORT_LEAST ? ROCE_PORT : sourcePort;
}

/**
 * `ibv_init_ah_from_wc`: the sender of the datagram that `wc` completes. `grh`: the first 40 bytes
 * of the buffer that it was received into. Throws MisuseError.
 */
export function addressOfSender(wc: WorkCompletion, grh: Uint8Array): AddressAttributes {
  checkObject('an address of a completion', wc, 'wc');
  checkBytes('grh', grh);
  if (!(wc.wcFlags & WcFlag.GRH)) throw new MisuseError('wc', 'must be a completion of a datagram');
  if (grh.length < GRH_BYTES) {
    throw new MisuseError('grh', `must have ${GRH_BYTES} bytes, got ${grh.length}`);
  }
  // An IPv4 header stands in the last 20 bytes, behind zeros (IBA A17.4.5.1).
  const isIpv4 = grh[0]! >> 4 === 0;
  const dgid = isIpv4 ? Gid.parse(grh.subarray(32, 36).join('.')) : new Gid(grh.subarray(8, 24));
  return { dgid, port: answerPort(wc.srcPort) };
}
