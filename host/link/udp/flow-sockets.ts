/**
 * Sockets that are only sent with: each has a source port of its own among those of flows, so that
 * what spreads by UDP ports (several paths, the queues of a card) spreads queue pairs. Every peer
 * answers at the port that the link listens at.
 */
import { randomInt } from 'node:crypto';
import { setGroupSending } from './group-socket.js';
import type { LocalAddress } from './local-address.js';
import type { Posix, PosixError } from '../posix.js';
import * as sys from '../posix.js';
import { FLOW_PORT_MIN, setOptions } from './udp-socket.js';

export interface FlowSocket {
  readonly port: number;
  readonly fd: number;
}

/** How often a free port is looked for. */
const PORT_DRAWS = 64;
/** Nothing reads these sockets; the kernel raises this to its minimum. */
const RECEIVE_BUFFER_BYTES = 1;

/** Throws PosixError: of `bind` when no port is free, or of what made the last socket. */
export function openFlowSockets(posix: Posix, local: LocalAddress): FlowSocket[] {
  const sockets: FlowSocket[] = [];
  try {
    while (sockets.length < local.sendSockets) sockets.push(openOne(posix, local));
    return sockets;
  } catch (error) {
    for (const { fd } of sockets) posix.close(fd);
    throw error;
  }
}

function openOne(posix: Posix, local: LocalAddress): FlowSocket {
  const { gid, zone, socketBufferBytes, dscp } = local;
  const fd = posix.datagramSocket(gid.isIpv4 ? sys.AF_INET : sys.AF_INET6);
  try {
    setOptions(posix, fd, gid.isIpv4, socketBufferBytes, dscp);
    setGroupSending(posix, fd, gid);
    posix.setOption(fd, sys.SOL_SOCKET, sys.SO_RCVBUF, RECEIVE_BUFFER_BYTES);
    for (let draw = 1; ; draw++) {
      const port = randomInt(FLOW_PORT_MIN, 0x10000);
      try {
        posix.bind(fd, gid, port, zone.slice(1));
        return { port, fd };
      } catch (error) {
        if ((error as PosixError).code !== 'EADDRINUSE' || draw === PORT_DRAWS) throw error;
      }
    }
  } catch (error) {
    posix.close(fd);
    throw error;
  }
}
