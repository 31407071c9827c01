/**
 * The socket of a multicast group. A socket that is bound to one address receives no datagram to
 * another, so each group has its own: bound to the address of the group and the link's port, which
 * several processes may be. Datagrams to a group leave by the sockets of the link.
 */
import { LinkError } from '../../errors/errors.js';
import { systemSentence } from '../../errors/system-refusal.js';
import type { Gid } from '../endpoint.js';
import { interfaceName, isLoopback } from '../interface.js';
import * as sys from '../posix.js';
import type { Posix, PosixError } from '../posix.js';

/** As Linux sends to the groups of RoCEv2: datagrams pass routers. */
export const GROUP_HOPS = 64;

/** Of a link: its address and its port. */
export interface GroupPlace {
  readonly gid: Gid;
  readonly port: number;
}

/** Of a socket of node:dgram: the types of a page name no module of Node. */
interface PlainSender {
  setMulticastTTL(hops: number): unknown;
  setMulticastInterface(name: string): void;
}

interface PlainSocket {
  on(event: 'error', listener: (error: Error) => void): unknown;
  removeListener(event: 'error', listener: (error: Error) => void): unknown;
  bind(options: { fd?: number; port?: number; address?: string; exclusive: true }): unknown;
  addMembership(group: string, own: string): void;
  close(): unknown;
}

/** Throws LinkError for a group that no link at this address can join. */
export function checkGroup(group: Gid, { gid }: GroupPlace): void {
  if (group.isIpv4 !== gid.isIpv4) {
    const wanted = gid.isIpv4 ? 'an IPv4 group such as 239.1.1.1' : 'an IPv6 group such as ff0e::1';
    throw new LinkError(
      'EAFNOSUPPORT',
      `join: the group ${group} is of another family than the device's address ${gid}: ` +
        `use ${wanted}`,
    );
  }
  if (!group.isIpv4 && isLoopback(gid)) {
    throw new LinkError(
      'EOPNOTSUPP',
      `join: the loopback interface routes no IPv6 groups: open the device at 127.0.0.1, or at ` +
        `an address of another interface`,
    );
  }
}

/** Unbound sockets that send: how far, and by which interface. */
export function setGroupSending(posix: Posix, fd: number, gid: Gid): void {
  const set = (level: number, option: number, value: number): void => {
    try {
      posix.setOption(fd, level, option, value);
    } catch {
      // A sandbox may forbid it: then datagrams to groups stay on the local network.
    }
  };
  // IPv4 takes the interface that has the source address.
  if (gid.isIpv4) return set(sys.SOL_IP, sys.IP_MULTICAST_TTL, GROUP_HOPS);
  set(sys.SOL_IPV6, sys.IPV6_MULTICAST_HOPS, GROUP_HOPS);
  const index = posix.interfaceIndex(interfaceName(gid));
  if (index !== 0) set(sys.SOL_IPV6, sys.IPV6_MULTICAST_IF, index);
}

/** The same for a bound socket of node:dgram. */
export function setPlainGroupSending(socket: PlainSender, gid: Gid): void {
  try {
    socket.setMulticastTTL(GROUP_HOPS);
    const name = interfaceName(gid);
    if (!gid.isIpv4 && name !== '') socket.setMulticastInterface(`::%${name}`);
  } catch {
    // As above.
  }
}

/** A bound socket that has joined. Throws LinkError. */
export function openGroupSocket(
  posix: Posix,
  group: Gid,
  place: GroupPlace,
  bufferBytes: number,
): number {
  checkGroup(group, place);
  const { gid, port } = place;
  let fd = -1;
  try {
    fd = posix.datagramSocket(gid.isIpv4 ? sys.AF_INET : sys.AF_INET6);
    const name = gid.isIpv4 ? '' : interfaceName(gid);
    setReceiveOptions(posix, fd, gid.isIpv4 ? 0 : posix.interfaceIndex(name), gid, bufferBytes);
    posix.bind(fd, group, port, name);
    posix.joinGroup(fd, group, gid, name);
    return fd;
  } catch (error) {
    if (fd >= 0) posix.close(fd);
    throw groupRefusal(group, place, error);
  }
}

/**
 * The same as a socket of node:dgram, which without koffi is Node's own. `create`: makes it unbound.
 * Throws LinkError.
 */
export function openPlainGroupSocket<Socket extends PlainSocket>(
  posix: Posix | undefined,
  group: Gid,
  place: GroupPlace,
  bufferBytes: number,
  create: () => Socket,
): Socket {
  const fd = posix && openGroupSocket(posix, group, place, bufferBytes);
  if (fd === undefined) checkGroup(group, place);
  const socket = create();
  let failure: unknown;
  const fail = (error: unknown): void => void (failure ??= error);
  socket.on('error', fail);
  try {
    if (fd !== undefined) socket.bind({ fd, exclusive: true });
    else bindPlainly(socket, group, place);
  } catch (error) {
    fail(error);
  }
  // Node binds at once, and reports a failure before `bind` returns.
  if (failure === undefined) {
    socket.removeListener('error', fail);
    return socket;
  }
  socket.close();
  throw groupRefusal(group, place, failure);
}

function bindPlainly(socket: PlainSocket, group: Gid, { gid, port }: GroupPlace): void {
  const name = gid.isIpv4 ? '' : `%${interfaceName(gid)}`;
  socket.bind({ port, address: `${group}${name}`, exclusive: true });
  socket.addMembership(`${group}`, gid.isIpv4 ? `${gid}` : `::${name}`);
}

/** `index`: of the interface of an IPv6 address. */
function setReceiveOptions(
  posix: Posix,
  fd: number,
  index: number,
  { isIpv4 }: Gid,
  bufferBytes: number,
): void {
  const quietly = (level: number, option: number, value: number): boolean => {
    try {
      posix.setOption(fd, level, option, value);
      return true;
    } catch {
      return false;
    }
  };
  posix.setOption(fd, sys.SOL_SOCKET, sys.SO_REUSEADDR, 1);
  if (!quietly(sys.SOL_SOCKET, sys.SO_RCVBUFFORCE, bufferBytes)) {
    quietly(sys.SOL_SOCKET, sys.SO_RCVBUF, bufferBytes);
  }
  // Not what arrives at another interface, where another socket has joined.
  if (isIpv4) return void quietly(sys.SOL_IP, sys.IP_MULTICAST_ALL, 0);
  quietly(sys.SOL_IPV6, sys.IPV6_MULTICAST_ALL, 0);
  // Linux compares the group of a membership, and not its interface, for IPv6.
  if (index !== 0) quietly(sys.SOL_SOCKET, sys.SO_BINDTOIFINDEX, index);
  quietly(sys.SOL_UDP, sys.UDP_NO_CHECK6_RX, 1);
}

/** The membership ends now; the socket is closed later. */
export function leaveGroup(posix: Posix, fd: number, group: Gid, { gid }: GroupPlace): void {
  try {
    posix.leaveGroup(fd, group, gid, gid.isIpv4 ? '' : interfaceName(gid));
  } catch {
    // The interface is gone, and the membership with it.
  }
}

/** The refusal that says what to do about a group that cannot be joined. */
export function groupRefusal(group: Gid, { gid, port }: GroupPlace, error: unknown): LinkError {
  const what = `join: the group ${group} at ${gid}`;
  const { code, syscall } = error as Partial<PosixError>;
  const options = { cause: error };
  switch (code) {
    case 'ENOBUFS': {
      const limit = group.isIpv4 ? 'net.ipv4.igmp_max_memberships' : 'net.core.optmem_max';
      const sentence = `the system has a limit of memberships: detach from groups, or raise ${limit}`;
      return new LinkError('ENOBUFS', `${what}: ${sentence}`, options);
    }
    case 'EADDRINUSE': {
      const sentence = `another program has UDP port ${port} of the group for itself: end it`;
      return new LinkError('EADDRINUSE', `${what}: ${sentence} (ss -ulnp)`, options);
    }
    case 'ENODEV':
    case 'EADDRNOTAVAIL': {
      const sentence = `this machine no longer has the address ${gid}, or its interface is down`;
      return new LinkError('EADDRNOTAVAIL', `${what}: ${sentence}: bring it up`, options);
    }
    default: {
      const found = systemSentence(what, error);
      const said = `${what}: ${syscall ?? 'the system'} refuses: ${(error as Error).message}`;
      return new LinkError(found?.code ?? 'EIO', found?.sentence ?? said, options);
    }
  }
}
