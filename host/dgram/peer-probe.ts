/**
 * Asks a peer's system whether its port 4791 is open: a connected UDP socket gets the rejection
 * (ICMP) much sooner than a connection request times out. Silence means that a node may be there.
 */
import { createSocket } from '../link/plain-dgram.js';

/** How long a rejection is awaited. */
const PROBE_MILLIS = 5000;
/** Questions at one time: a scan of a network must not open a socket for each address. */
const PROBES_MAX = 64;
let probes = 0;

/**
 * False: too many questions are open. `rejected` is called at most once; `isRefused`: by the peer's
 * system, not by a missing route or local address.
 */
export function probePeer(
  from: string,
  { address, port }: { readonly address: string; readonly port: number },
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
    socket.close();
  };
  const timer = setTimeout(end, PROBE_MILLIS).unref();
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
      else if (isOpen) socket.send(new Uint8Array(0));
    };
    socket.connect(port, address, connected);
  });
  return true;
}
