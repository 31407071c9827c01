/**
 * Path MTUs that turned out to be too large for the path to a peer: for a while connections to it
 * ask for less. Nothing else limits a path behind the local interface: RoCEv2 packets are not
 * fragmented, and ICMP messages about a smaller MTU are not believed (link/udp/udp-socket.ts).
 */
import { Mtu, QpType } from '#build/abi.js';
import { RealClock } from '../device/clock.js';
import type { Endpoint, Gid } from '../link/endpoint.js';
import { mustBe } from '../errors/check-whole.js';
import type { Connection } from './connection.js';
import { RejectReason } from './enums.js';
import type { RequestFields } from './mad.js';
import type { Context } from '../verbs/context.js';
import type { QueuePair } from '../verbs/queues/queue-pair.js';

/** As long as Linux remembers path MTUs of IP (net.ipv4.route.mtu_expires). */
const KEPT_MICROS = 600_000_000;
const PEERS_MAX = 1024;

/** BTH and the largest headers, pad and ICRC. */
const PACKET_OVERHEAD = 64;

/** An id, and its queue pair if it has one of its own. */
interface Side {
  readonly context: Context;
  readonly qp: QueuePair | undefined;
}

/** Of the options of the application (`CmOptions`). */
interface Wanted {
  readonly payloadBytes?: number;
}

interface Limit {
  readonly mtu: number;
  /** The peer's link is smaller: its path may carry longer payload. False: the path is smaller. */
  readonly isOfLink: boolean;
  readonly untilMicros: number;
}

export class PathMtus {
  /** By GID, the oldest first. */
  readonly #limits = new Map<string, Limit>();

  /** The queue pair ended because packets of its path MTU do not arrive. */
  tooLarge(now: number, qp: QueuePair): void {
    const { peerGid } = qp;
    const { pathMtu } = qp.query();
    if (!peerGid || pathMtu === undefined) return;
    // 1024 fits the MTU of Ethernet. What is between is rare, and each try costs a connection.
    const isLarge = pathMtu > Mtu.MTU_1024;
    const smaller = isLarge ? Mtu.MTU_1024 : Math.max(pathMtu - 1, Mtu.MTU_256);
    // Beside a longer payload the path MTU itself was not tried.
    const isLong = qp.payloadBytes > 128 << pathMtu;
    this.limit(now, peerGid, isLong ? Math.min(pathMtu, Mtu.MTU_1024) : smaller, false);
  }

  /** Of connections to this peer. */
  limit(now: number, peer: Gid, mtu: number, isOfLink = true): void {
    const key = peer.toString();
    this.#limits.delete(key);
    this.#limits.set(key, { mtu, isOfLink, untilMicros: now + KEPT_MICROS });
    if (this.#limits.size <= PEERS_MAX) return;
    const [oldest] = this.#limits.keys();
    this.#limits.delete(oldest!);
  }

  /** A Mtu: `wanted`, or less where that is known to be too large. */
  most(now: number, peer: Gid, wanted: number): number {
    const limit = this.#limits.get(peer.toString());
    if (limit === undefined) return wanted;
    if (now < limit.untilMicros) return Math.min(wanted, limit.mtu);
    this.#limits.delete(peer.toString());
    return wanted;
  }

  /**
   * The payload that the application asks for if it fits the link, and the path as far as that is
   * known; or 0. A queue pair that is not the id's own gets attributes that do not name it.
   */
  longPayload(
    now: number,
    { gid }: Endpoint,
    { context, qp }: Side,
    { payloadBytes = 0 }: Wanted,
  ): number {
    if (payloadBytes % 8 !== 0) throw mustBe('payloadBytes', 'a multiple of 8', payloadBytes);
    if (qp?.qpType !== QpType.RC) return 0;
    const limit = this.#limits.get(gid.toString());
    const isFree = limit === undefined || limit.isOfLink || now >= limit.untilMicros;
    const fits = context.device.info.packetSizeMax >= payloadBytes + PACKET_OVERHEAD;
    return isFree && fits ? payloadBytes : 0;
  }
}

/** By local address: a process may open a device for each connection. */
const ofProcess = new Map<string, PathMtus>();
const ADDRESSES_MAX = 64;

/** Those of the device's address; new ones where no network of this time is behind its link. */
export function pathMtusOf({ device, local }: Context): PathMtus {
  if (!(device.clock instanceof RealClock) || !/udp/.test(device.info.name)) return new PathMtus();
  const key = local.gid.toString();
  const known = ofProcess.get(key);
  if (known) return known;
  const made = new PathMtus();
  ofProcess.set(key, made);
  const [oldest] = ofProcess.keys();
  if (ofProcess.size > ADDRESSES_MAX) ofProcess.delete(oldest!);
  return made;
}

interface Refusal {
  readonly reason: number;
  readonly rejectInfo?: Uint8Array;
}

/** Of the connection manager. */
interface Books {
  readonly pathMtus: PathMtus;
  destroy(now: number, connection: Connection): void;
}

/**
 * The peer rejects a REQ for its path MTU and names the largest one (additional reject
 * information): it has noticed what we cannot, that its packets do not arrive here. Sends the REQ
 * again with that one. False: it was rejected for another reason.
 */
export function asksForLess(
  { core, now }: { readonly core: Books; readonly now: number },
  connection: Connection,
  asked: RequestFields | undefined,
  { reason, rejectInfo }: Refusal,
  ask: (fields: RequestFields) => void,
): boolean {
  const pathMtu = rejectInfo?.[0] ?? 0;
  // A peer that has accepted, and rejects then, does not change its mind: it breaks the rules.
  if (reason !== RejectReason.INVALID_MTU || !asked || connection.remoteQpn !== 0) return false;
  if (pathMtu < Mtu.MTU_256 || pathMtu >= asked.pathMtu) return false;
  core.pathMtus.limit(now, connection.peer.gid, pathMtu);
  core.destroy(now, connection);
  ask({ ...asked, pathMtu });
  return true;
}
