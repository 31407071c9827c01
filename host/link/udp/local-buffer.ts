/**
 * The receive buffer of another process's socket on this machine, as its kernel reports it
 * (sock_diag(7)): a peer there does not have to announce it.
 */
import { endianness } from 'node:os';
import type { Gid } from '../endpoint.js';
import type { Posix } from '../posix.js';

const AF_INET = 2;
const AF_INET6 = 10;
const AF_NETLINK = 16;
const NETLINK_SOCK_DIAG = 4;
const SOCK_DIAG_BY_FAMILY = 20;
const NLM_F_REQUEST = 1;
const IPPROTO_UDP = 17;
/** `struct sockaddr_nl`: the kernel is port 0. */
const SOCKADDR_NL_BYTES = 12;

/** `struct nlmsghdr`: length, type, flags, number, port. */
const HEADER_BYTES = 16;
/** `struct inet_diag_req_v2` behind it. */
const REQUEST = { family: 16, protocol: 17, extensions: 18, states: 20, id: 24, bytes: 72 };
/** `struct inet_diag_sockid`: ports, source, destination, interface, cookie. */
const ID = { sourcePort: 0, targetPort: 2, source: 4, target: 20, cookie: 40 };
/** `struct inet_diag_msg` behind the header of the answer, then attributes. */
const ANSWER = { id: HEADER_BYTES + 4, attributes: HEADER_BYTES + 72 };
const ATTRIBUTE_BYTES = 4;
const SKMEMINFO = 7;
/** `SK_MEMINFO_RCVBUF` of its words. */
const RECEIVE_BUFFER_WORD = 1;
const ALL = 0xffffffff;
const ANSWER_BYTES = 4096;

function requestFor(gid: Gid, port: number): Uint8Array {
  const bytes = new Uint8Array(REQUEST.bytes);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, bytes.length, true);
  view.setUint16(4, SOCK_DIAG_BY_FAMILY, true);
  view.setUint16(6, NLM_F_REQUEST, true);
  bytes[REQUEST.family] = gid.isIpv4 ? AF_INET : AF_INET6;
  bytes[REQUEST.protocol] = IPPROTO_UDP;
  bytes[REQUEST.extensions] = 1 << (SKMEMINFO - 1);
  view.setUint32(REQUEST.states, ALL, true);
  // The socket's own address is the destination of a packet to it.
  view.setUint16(REQUEST.id + ID.targetPort, port);
  bytes.set(addressBytes(gid), REQUEST.id + ID.target);
  bytes.fill(0xff, REQUEST.id + ID.cookie, REQUEST.bytes);
  return bytes;
}

function addressBytes(gid: Gid): Uint8Array {
  return gid.isIpv4 ? gid.bytes.subarray(12) : gid.bytes;
}

/** Is the answer about a socket of this very address? One of all addresses answers for any. */
function isOf(answer: Uint8Array, gid: Gid, port: number): boolean {
  const view = new DataView(answer.buffer, answer.byteOffset, answer.length);
  if (answer.length < ANSWER.attributes) return false;
  if (view.getUint16(4, true) !== SOCK_DIAG_BY_FAMILY) return false;
  if (view.getUint16(ANSWER.id + ID.sourcePort) !== port) return false;
  return addressBytes(gid).every((byte, at) => answer[ANSWER.id + ID.source + at] === byte);
}

function bufferOf(answer: Uint8Array): number | undefined {
  const view = new DataView(answer.buffer, answer.byteOffset, answer.length);
  for (let at = ANSWER.attributes; at + ATTRIBUTE_BYTES <= answer.length;) {
    const length = view.getUint16(at, true);
    const word = at + ATTRIBUTE_BYTES + 4 * RECEIVE_BUFFER_WORD;
    if (length < ATTRIBUTE_BYTES) return undefined;
    if (
      view.getUint16(at + 2, true) === SKMEMINFO &&
      word + 4 <= Math.min(at + length, view.byteLength)
    ) {
      return view.getUint32(word, true);
    }
    at += (length + 3) & ~3;
  }
  return undefined;
}

/**
 * Bytes of the receive buffer of the socket on this machine that is bound to this address and port,
 * as reading SO_RCVBUF gives them there. Undefined: there is no such socket, or the kernel does not
 * say. Does not throw.
 */
export function localReceiveBuffer(posix: Posix, gid: Gid, port: number): number | undefined {
  if (endianness() !== 'LE') return undefined;
  let fd = -1;
  try {
    fd = posix.datagramSocket(AF_NETLINK, NETLINK_SOCK_DIAG);
    const kernel = new Uint8Array(SOCKADDR_NL_BYTES);
    kernel[0] = AF_NETLINK;
    if (!posix.sendDatagram(fd, requestFor(gid, port), kernel)) return undefined;
    // The kernel has answered within the call.
    const answer = new Uint8Array(ANSWER_BYTES);
    const length = posix.receiveFrom(fd, answer, kernel);
    const found = answer.subarray(0, Math.max(0, length));
    return isOf(found, gid, port) ? bufferOf(found) : undefined;
  } catch {
    // A kernel or a sandbox without such sockets.
    return undefined;
  } finally {
    if (fd >= 0) posix.close(fd);
  }
}
