/** Checks against what a network, or a forger of its messages, does to connections. */
import type { Row } from './mutants.js';

const WINDOW = 'assembly/transport/window.ts';

export const NETWORK: readonly Row[] = [
  [
    'one address takes all connections of a listener',
    'host/cm/connect.ts',
    'if (this.#accepted.of(address) >= most) {',
    'if (most === 0) {',
  ],
  [
    'forged ICMP messages shorten the path',
    'host/link/posix.ts',
    'PMTUDISC_PROBE = 3;',
    'PMTUDISC_PROBE = 2;',
  ],
  [
    'congestion notifications close the window',
    WINDOW,
    'qp.congestionWindow = max<u32>(qp.congestionWindow >> 1, LEAST);',
    'qp.congestionWindow = qp.congestionWindow >> 1;',
  ],
  [
    'each congestion notification halves the window',
    WINDOW,
    'if (qp.cutPending && psnCompare(qp.psnUnacked, qp.cutPsn) < 0) return;',
    '',
  ],
];
