/** Datagrams of this process by their way; `NODE_DEBUG=verbena` says at its end how many. */
import { debuglog } from 'node:util';

/** Datagrams of a socket or process. */
export interface Counters {
  rdpSent: number;
  rdpReceived: number;
  udpSent: number;
  udpReceived: number;
  /** Dropped by the outbox: it was full, or they waited too long. */
  dropped: number;
  /** Times that no datagram to a destination left the outbox for 250 ms. */
  stalls: number;
}

export function noCounters(): Counters {
  return { rdpSent: 0, rdpReceived: 0, udpSent: 0, udpReceived: 0, dropped: 0, stalls: 0 };
}

export const totals: Counters = noCounters();

const log = debuglog('verbena');

if (log.enabled) {
  process.on('exit', () => {
    const { rdpSent, rdpReceived, udpSent, udpReceived, dropped } = totals;
    const [rdp, udp] = [`${rdpSent} sent, ${rdpReceived} received`, `${udpSent}, ${udpReceived}`];
    log(`datagrams by RDP: ${rdp}; by UDP: ${udp}; dropped: ${dropped}`);
  });
}
