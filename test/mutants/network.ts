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
  [
    'each queue pair fills the receive buffer by itself',
    WINDOW,
    'return busy < 2 || <u64>charge * busy < <u64>share.charge;',
    'return true;',
  ],
  [
    'queue pairs to different peers share one receive buffer',
    'assembly/transport/context.ts',
    'const index = (<u32>(mixed >> 32)) & (PEER_SHARES - 1);',
    'const index = (<u32>(mixed >> 32)) & 0;',
  ],
  [
    'a queue pair that is done keeps its share',
    WINDOW,
    'const busy: u8 = qp.psnUnacked != qp.psnNext ? 1 : 0;',
    'const busy: u8 = qp.isBusy | (qp.psnUnacked != qp.psnNext ? 1 : 0);',
  ],
  [
    'a queue pair in ERR keeps its share',
    'assembly/transport/failure.ts',
    '  leavePeer(qp, pathOf(qp));\n  qp.rnrWaiting = 0;',
    '  qp.rnrWaiting = 0;',
  ],
];
