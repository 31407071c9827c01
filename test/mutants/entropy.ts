/** Where the numbers come from that an attacker has to guess. */
import type { Row } from './mutants.js';

const REFUSE = 'host/verbs/refuse.ts';

export const ENTROPY: readonly Row[] = [
  [
    'keys and queue pair numbers are drawn from zeros',
    REFUSE,
    '    crypto.getRandomValues(drawn);\n',
    '',
  ],
  [
    'keys and queue pair numbers count',
    REFUSE,
    'bytes.set(bits, address);',
    'for (let at = 0; at < length; at += 4) bytes.set([used + at, 0, 0, 0], address + at);',
  ],
  [
    'ids of devices have 32 random bits',
    REFUSE,
    'return crypto.getRandomValues(new BigUint64Array(1))[0]!;',
    'return BigInt(crypto.getRandomValues(new Uint32Array(1))[0]!);',
  ],
  [
    'every connection begins with the same PSN',
    'host/cm/cm-id.ts',
    'this.#startingPsn = manager.random() & PSN_MASK;',
    'this.#startingPsn = manager.random() & 0;',
  ],
  [
    'ids of connections count',
    'host/cm/core.ts',
    '(this.#options.random() & 0xffffff)',
    '(this.connections.size + 1 + draw)',
  ],
];
