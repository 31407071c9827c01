/**
 * The path of a queue pair or an address handle: the addresses that the host sends packets to, and
 * those that the ICRC covers.
 */
import { icrcFlow4, icrcFlow6 } from '../../wire/icrc';

/** Which pseudo header the ICRC covers. */
export enum PseudoHeader {
  /** IPv4 and UDP. */
  IPV4 = 4,
  /** IPv6 and UDP. */
  IPV6 = 6,
  /** No IP on this link: the IPv6 form between the two GIDs, both ports 4791. */
  NONE = 0,
}

export const ROCE_PORT: u32 = 4791;

/** 88 bytes. GIDs are 16 bytes in network order; IPv4 addresses are their last four. */
@unmanaged
export class Path {
  localGid0: u64;
  localGid1: u64;
  remoteGid0: u64;
  remoteGid1: u64;
  localPort: u32;
  remotePort: u32;
  /** A PseudoHeader. */
  pseudoHeader: u32;
  /** ICRC register of what we send, lengths left out. */
  sendFlow: u32;
  /** The same of what we receive, from `receivePort`. */
  receiveFlow: u32;
  /** The source port that `receiveFlow` was made for; 0: none yet. */
  receivePort: u32;
  /** 1 once a packet was accepted by solving for the IP identification. */
  usesIpIds: u8;
  /** 1: both ends agreed that the link keeps bytes whole: the ICRC is 0 and is not computed. */
  skipsIcrc: u8;
  /**
   * 1: the ICRC of FLUSH requests covers them twice: a Linux rxe, by its attributes or its packets.
   */
  doublesFlush: u8;
  /** 1: packets of UC and UD for queue pairs of this context stay in it (LOCAL-PATH.md). */
  isOwn: u8;
  /** 1: the peer is of our own kind, and does not mind IP ids that count. */
  ownKind: u16;
  /** UDP port that our packets leave from: `localPort`, or one of a flow. */
  sourcePort: u16;
  /** Of the path for strangers' packets: the group that they were sent to. */
  multicastGid0: u64;
  multicastGid1: u64;
  /** Of a queue pair with keys: its PacketAuth (packet-auth.ts); else 0. */
  auth: usize;
  /** Of a queue pair: address of its PathState (path-control.ts); 0 before the path is set. */
  state: usize;
}
export const PATH_SIZE: u32 = 88;

function flowOf(
  tables: usize,
  path: Path,
  source: usize,
  target: usize,
  sourcePort: u32,
  targetPort: u32,
): u32 {
  if (path.pseudoHeader == PseudoHeader.IPV4) {
    return icrcFlow4(tables, source + 12, target + 12, sourcePort, targetPort);
  }
  if (path.pseudoHeader == PseudoHeader.IPV6) {
    return icrcFlow6(tables, source, target, sourcePort, targetPort);
  }
  return icrcFlow6(tables, source, target, ROCE_PORT, ROCE_PORT);
}

function localGid(path: Path): usize {
  return changetype<usize>(path) + offsetof<Path>('localGid0');
}

function remoteGid(path: Path): usize {
  return changetype<usize>(path) + offsetof<Path>('remoteGid0');
}

/** To be called when GIDs, ports or pseudo header changed. */
export function preparePath(tables: usize, path: Path): void {
  path.sendFlow = flowOf(
    tables,
    path,
    localGid(path),
    remoteGid(path),
    path.sourcePort,
    path.remotePort,
  );
  path.receivePort = 0;
  path.usesIpIds = 0;
  path.doublesFlush = 0;
}

/** The flow register for packets that come from `port`. Ports differ, addresses do not. */
export function receiveFlow(tables: usize, path: Path, port: u32): u32 {
  if (path.receivePort != port || port == 0) {
    path.receiveFlow = flowOf(tables, path, remoteGid(path), localGid(path), port, path.localPort);
    path.receivePort = port;
  }
  return path.receiveFlow;
}
