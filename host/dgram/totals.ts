/** Datagrams of this process by their way; `NODE_DEBUG=verbena` says at its end how many. */
import { debuglog } from 'node:util';

/** How many datagrams went which way. */
export interface Counters {
  rdpSent: number;
  rdpReceived: number;
  udpSent: number;
  udpReceived: number;
  /** Not sent: a slow reader, no buffer. */
  failed: number;
}

export const totals: Counters = {
  rdpSent: 0,
  rdpReceived: 0,
  udpSent: 0,
  udpReceived: 0,
  failed: 0,
};

const log = debuglog('verbena');

if (log.enabled) {
  process.on('exit', () => {
    const { rdpSent, rdpReceived, udpSent, udpReceived, failed } = totals;
    const [rdp, udp] = [`${rdpSent} sent, ${rdpReceived} received`, `${udpSent}, ${udpReceived}`];
    log(`datagrams by RDP: ${rdp}; by UDP: ${udp}; failed: ${failed}`);
  });
}
