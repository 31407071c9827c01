/** Pre-shared keys of libraries and tools: each check and each place that hands a key on. */
import type { Row } from './mutants.js';

const ROWS: readonly Row[] = [
  [
    'an NVMe target listens without its key',
    'host/nvme/target.ts',
    '...(options.auth !== undefined && { auth: options.auth })',
    '...{}',
  ],
  [
    'queues of an NVMe host connect without its key',
    'host/nvme/host-association.ts',
    '          ...(auth !== undefined && { auth }),\n',
    '',
  ],
  [
    'an end point of rpma listens without its key',
    'host/rpma/peer.ts',
    '      if (auth !== undefined) id.setOption({ auth });\n',
    '',
  ],
  [
    'a configuration with a key is taken by an end point without one',
    'host/rpma/ep.ts',
    'if (cfg.getAuth() && !this.#auth) {',
    'if (cfg.getAuth() && false) {',
  ],
  [
    'an rpma connection does not say why it was rejected',
    'host/rpma/conn.ts',
    "this.#refusal = connectErrorOf('connect', cmEvent);",
    '',
  ],
];

export const PSK: readonly Row[] = ROWS.map(([name, ...rest]) => [`psk: ${name}`, ...rest]);
