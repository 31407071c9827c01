/**
 * Waits until every datagram that the kernel has queued for a UDP socket is read. Node has no call
 * for that. Two facts of libuv replace it: in each turn of the event loop it reads from every
 * readable socket, so a turn without a datagram means an empty queue; and the queue is in order and
 * its memory is bounded, so no datagram can be behind more than a bounded number of others.
 */

/** The least that Linux charges a receive buffer for a datagram (`receiveBufferCharge`: 832). */
const LEAST_CHARGE_BYTES = 512;

export interface DrainedSocket {
  /** Datagrams that the socket has emitted so far. */
  readonly udpRead: number;
  /** SO_RCVBUF as the kernel has it; undefined: the socket is closed. */
  readonly receiveBufferBytes: number | undefined;
}

/** Calls `done` once all datagrams that are queued now are read. */
export function drainUdp(socket: DrainedSocket, done: () => void): void {
  const bytes = socket.receiveBufferBytes;
  const most = socket.udpRead + Math.ceil((bytes ?? 0) / LEAST_CHARGE_BYTES);
  let before = -1;
  const look = (): void => {
    const { udpRead } = socket;
    if (udpRead === before || udpRead >= most) return done();
    before = udpRead;
    setImmediate(look);
  };
  // The first call may run before this turn has read the socket: the turn after it counts.
  setImmediate(look);
}
