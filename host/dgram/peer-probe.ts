/**
 * Asks a peer's system whether its port 4791 is open: a connected UDP socket gets the rejection
 * (ICMP) much sooner than a connection request times out. Silence means that a node may be there.
 *
 * Linux sends a host one ICMP message a second (icmp_ratelimit), after a few at once. During an
 * outage the node's own retransmissions use them up, and their rejections reach the socket of the
 * device, which has no use for them. So a probe of an outage is repeated: the first packet after
 * that second is then, nearly always, one of the probe.
 */
import { timerMillis } from '../base/timer.js';
import { createSocket } from '../link/plain-dgram.js';

/** How long a rejection is awaited. */
const PROBE_MILLIS = 5000;
/** The same for a probe that is repeated, and the interval of its datagrams. */
const REPEATED_MILLIS = 1100;
const REPEAT_MILLIS = 25;
/** Questions at one time: a scan of a network must not open a socket for each address. */
const PROBES_MAX = 64;
let probes = 0;
const EMPTY = new Uint8Array(0);

interface ProbedPort {
  readonly address: string;
  readonly port: number;
  /** A path to it is broken or silent: the datagram is repeated. */
  readonly isOutage?: boolean;
}

/**
 * False: too many questions are open. `rejected` is called at most once; `isRefused`: by the peer's
 * system, not by a missing route or local address.
 */
export function probePeer(
  from: string,
  { address, port, isOutage = false }: ProbedPort,
  rejected: (isRefused: boolean) => void,
): boolean {
  if (probes >= PROBES_MAX) return false;
  probes++;
  let isOpen = true;
  const socket = createSocket(from.includes(':') ? 'udp6' : 'udp4').unref();
  const end = (): void => {
    if (!isOpen) return;
    isOpen = false;
    probes--;
    clearTimeout(timer);
    clearInterval(repeats);
    socket.close();
  };
  const timer = setTimeout(end, timerMillis(isOutage ? REPEATED_MILLIS : PROBE_MILLIS)).unref();
  let repeats: NodeJS.Timeout | undefined;
  const failed = ({ code }: NodeJS.ErrnoException): void => {
    if (!isOpen) return;
    end();
    rejected(code === 'ECONNREFUSED');
  };
  socket.on('error', failed);
  // connect(2) on a socket that cluster workers share would affect all of them.
  socket.bind({ port: 0, address: from, exclusive: true }, () => {
    // Node passes an error of connect(2), as without a route, to the callback only.
    const connected = (error?: NodeJS.ErrnoException): void => {
      if (error) failed(error);
      else if (isOpen) {
        socket.send(EMPTY);
        if (isOutage) repeats = setInterval(() => socket.send(EMPTY), REPEAT_MILLIS).unref();
      }
    };
    socket.connect(port, address, connected);
  });
  return true;
}
