/** Checks against what a network, or a forger of its messages, does to connections. */
import type { Row } from './mutants.js';

export const NETWORK: readonly Row[] = [
  [
    'forged ICMP messages shorten the path',
    'host/link/posix.ts',
    'PMTUDISC_PROBE = 3;',
    'PMTUDISC_PROBE = 2;',
  ],
];
