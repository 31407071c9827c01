/**
 * A bound UDP socket with the options that RoCEv2 wants. They are set before `bind`, on a socket
 * of our own (`posix.ts`), which `node:dgram` then adopts. Where there is no koffi, node:dgram
 * makes the socket: enough for peers of our own kind.
 */
import { warn } from '../../base/warning.js';
import type { Socket, createSocket } from 'node:dgram';
import type { Gid } from '../endpoint.js';
import { setGroupSending, setPlainGroupSending } from './group-socket.js';
import type { SocketOption } from '../link.js';
import * as sys from '../posix.js';
import type { Posix, PosixError } from '../posix.js';

export interface UdpSocketRequest {
  readonly gid: Gid;
  /** `%eth0` where the address is link-local, else empty. */
  readonly zone: string;
  /** 0: any below FLOW_PORT_MIN. */
  readonly port: number;
  /** Wanted of the kernel, each way. */
  readonly bufferBytes: number;
  /** Of the datagrams that are sent; 0 to 63, default 0. */
  readonly dscp?: number;
  /** May others of this user bind the same port? Needs koffi. */
  readonly reusePort?: boolean;
  /** Makes the socket unbound. */
  readonly create: () => ReturnType<typeof createSocket>;
}

export interface BoundSocket {
  readonly socket: Socket;
  readonly options: readonly SocketOption[];
}

/**
 * RoCEv2 flows use source ports from here up (IBA annex A17.4.3: a requester chooses one per queue
 * pair to spread load); their answers go to port 4791. So no socket of a link is bound there.
 */
export const FLOW_PORT_MIN = 0xc000;
const FLOW_PORTS = 0x10000 - FLOW_PORT_MIN;
/** How often a free port is looked for. */
const PORT_DRAWS = 64;

/** ECN field: this transport reacts to marks (RFC 3168). */
const ECT0 = 2;

let warned = false;

/** Rejects with an error whose `code` is bind's errno. */
export async function bindUdpSocket(request: UdpSocketRequest): Promise<BoundSocket> {
  const { posix, reason } = await sys.loadPosix();
  if (posix) return adopt(posix, request);
  if (process.platform === 'linux' && !warned) {
    warned = true;
    warn(
      `packets travel one per system call, in the caller's thread, and Linux peers drop those over IPv4: ${reason}`,
    );
  }
  return bindPlainly(request, reason);
}

/** With options, then handed to node:dgram. */
async function adopt(posix: Posix, request: UdpSocketRequest): Promise<BoundSocket> {
  const { gid, zone, port, bufferBytes, dscp = 0, reusePort } = request;
  const open = (): number => posix.datagramSocket(gid.isIpv4 ? sys.AF_INET : sys.AF_INET6);
  const bindAt = (candidate: number): [fd: number, options: SocketOption[], port: number] => {
    const fd = open();
    try {
      const options = setOptions(posix, fd, gid.isIpv4, bufferBytes, dscp);
      setGroupSending(posix, fd, gid);
      if (reusePort) posix.setOption(fd, sys.SOL_SOCKET, sys.SO_REUSEPORT, 1);
      posix.bind(fd, gid, candidate, zone.slice(1));
      return [fd, options, posix.localPort(fd)];
    } catch (error) {
      posix.close(fd);
      throw error;
    }
  };
  const [fd, options] = await belowFlowPorts(
    port,
    bindAt,
    ([, , found]) => found,
    ([other]) => {
      posix.close(other);
    },
  );
  const socket = request.create();
  try {
    // Without `exclusive` a cluster worker sends the number to its primary, and the primary adopts
    // its own descriptor of that number, another file (node:dgram, Socket.bind).
    await listening(socket, () => socket.bind({ fd, exclusive: true }));
  } catch (error) {
    socket.close();
    posix.close(fd);
    throw error;
  }
  try {
    // libuv sets it on what it adopts: another program could share the port.
    posix.setOption(fd, sys.SOL_SOCKET, sys.SO_REUSEADDR, 0);
  } catch (error) {
    // The descriptor is the socket's by now.
    socket.close();
    throw error;
  }
  return { socket, options };
}

/** Binds a socket of node:dgram, without the native options. */
async function bindPlainly(request: UdpSocketRequest, reason: string): Promise<BoundSocket> {
  const { gid, zone, port, bufferBytes, dscp = 0 } = request;
  const address = gid.toString() + zone;
  const bindAt = async (candidate: number): Promise<Socket> => {
    const socket = request.create();
    try {
      const bind = (): Socket => socket.bind({ port: candidate, address, exclusive: true });
      await listening(socket, bind);
      return socket;
    } catch (error) {
      socket.close();
      throw error;
    }
  };
  const socket = await belowFlowPorts(
    port,
    bindAt,
    (made) => made.address().port,
    (made) => {
      made.close();
    },
  );
  setPlainGroupSending(socket, gid);
  try {
    growBuffer((bytes) => socket.setRecvBufferSize(bytes), bufferBytes);
    growBuffer((bytes) => socket.setSendBufferSize(bytes), bufferBytes);
  } catch (error) {
    socket.close();
    throw error;
  }
  const options = interopOptions(gid.isIpv4, dscp).map(({ name, setting, effect }) => ({
    name: `${name} = ${setting}`,
    effect,
    granted: false,
    reason,
  }));
  return {
    socket,
    options: [
      ...options,
      bufferOption('SO_RCVBUF', socket.getRecvBufferSize(), bufferBytes),
      bufferOption('SO_SNDBUF', socket.getSendBufferSize(), bufferBytes),
    ],
  };
}

/**
 * Binds to `port`, or for 0 to one that the system chooses. Is that one among those of flows, the
 * one as far below them takes its place.
 */
async function belowFlowPorts<Bound>(
  port: number,
  bindAt: (candidate: number) => Bound | Promise<Bound>,
  portOf: (bound: Bound) => number,
  close: (bound: Bound) => void,
): Promise<Bound> {
  if (port !== 0) return bindAt(port);
  let failure: unknown;
  for (let draw = 0; draw < PORT_DRAWS; draw++) {
    const chosen = await bindAt(0);
    const found = portOf(chosen);
    if (found < FLOW_PORT_MIN) return chosen;
    close(chosen);
    try {
      return await bindAt(found - FLOW_PORTS);
    } catch (error) {
      failure = error;
    }
  }
  throw failure;
}

interface InteropOption {
  readonly name: string;
  readonly setting: string;
  readonly level: number;
  readonly option: number;
  readonly value: number;
  readonly effect: string;
}

/**
 * Socket options for Linux peers, which check more than a datagram socket controls. PROBE, not DO:
 * both set DF, and with DO one forged ICMP message ("fragmentation needed", to a port that is
 * known) keeps packets above 552 bytes from a peer for ten minutes. The path MTU is agreed upon by
 * peers.
 */
function interopOptions(isIpv4: boolean, dscp: number): readonly InteropOption[] {
  const trafficClass = {
    setting: `DSCP ${dscp}, ECT(0)`,
    value: (dscp << 2) | ECT0,
    effect: 'switches with ECN mark packets, instead of dropping them, and class them by the DSCP',
  };
  if (isIpv4) {
    return [
      {
        name: 'IP_MTU_DISCOVER',
        setting: 'PROBE',
        level: sys.SOL_IP,
        option: sys.IP_MTU_DISCOVER,
        value: sys.PMTUDISC_PROBE,
        effect: 'packets leave with IP id 0 and DF, as the ICRC says: Linux accepts them',
      },
      { name: 'IP_TOS', level: sys.SOL_IP, option: sys.IP_TOS, ...trafficClass },
    ];
  }
  return [
    {
      name: 'IPV6_MTU_DISCOVER',
      setting: 'PROBE',
      level: sys.SOL_IPV6,
      option: sys.IPV6_MTU_DISCOVER,
      value: sys.PMTUDISC_PROBE,
      effect: 'packets are never fragmented',
    },
    {
      name: 'UDP_NO_CHECK6_RX',
      setting: '1',
      level: sys.SOL_UDP,
      option: sys.UDP_NO_CHECK6_RX,
      value: 1,
      effect: 'packets without a UDP checksum, as Linux sends them, are received',
    },
    { name: 'IPV6_TCLASS', level: sys.SOL_IPV6, option: sys.IPV6_TCLASS, ...trafficClass },
  ];
}

/** Of an unbound socket: what RoCEv2 wants, and buffers. Says what was granted. */
export function setOptions(
  posix: Posix,
  fd: number,
  isIpv4: boolean,
  bufferBytes: number,
  dscp: number,
): SocketOption[] {
  const options = interopOptions(isIpv4, dscp).map((wanted): SocketOption => {
    const { level, option, value, effect } = wanted;
    const name = `${wanted.name} = ${wanted.setting}`;
    try {
      posix.setOption(fd, level, option, value);
      return { name, effect, granted: true };
    } catch (error) {
      return { name, effect, granted: false, reason: (error as PosixError).message };
    }
  });
  const buffer = (name: 'SO_RCVBUF' | 'SO_SNDBUF', option: number, force: number): SocketOption => {
    try {
      // Past rmem_max and wmem_max, with CAP_NET_ADMIN.
      posix.setOption(fd, sys.SOL_SOCKET, force, bufferBytes);
    } catch {
      posix.setOption(fd, sys.SOL_SOCKET, option, bufferBytes);
    }
    return bufferOption(name, posix.getOption(fd, sys.SOL_SOCKET, option), bufferBytes);
  };
  options.push(buffer('SO_RCVBUF', sys.SO_RCVBUF, sys.SO_RCVBUFFORCE));
  options.push(buffer('SO_SNDBUF', sys.SO_SNDBUF, sys.SO_SNDBUFFORCE));
  return options;
}

/** Linux reports twice the requested size, because it includes its own accounting. */
function bufferOption(name: string, bytes: number, wanted: number): SocketOption {
  const granted = bytes >= wanted;
  const effect = `${bytes} bytes by the kernel's count, ${wanted} were requested`;
  if (granted) return { name, effect, granted };
  return {
    name,
    effect,
    granted,
    reason: 'the system allows no more (net.core.rmem_max, wmem_max)',
  };
}

function listening(socket: Socket, bind: () => void): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.once('error', reject);
    socket.once('listening', () => {
      socket.removeListener('error', reject);
      resolve();
    });
    bind();
  });
}

/**
 * Linux caps the requested size. Other systems refuse it, so the size is halved and requested
 * again.
 */
function growBuffer(set: (bytes: number) => void, wanted: number): void {
  for (let bytes = wanted; bytes >= 65536; bytes = Math.floor(bytes / 2)) {
    try {
      set(bytes);
      return;
    } catch (error) {
      // SystemError carries the errno in info.code.
      const code = (error as { info?: { code?: string } }).info?.code;
      if (code !== 'ENOBUFS' && code !== 'EINVAL') throw error;
    }
  }
}
