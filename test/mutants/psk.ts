/** Pre-shared keys of libraries and tools: each check and each place that hands a key on. */
import type { Row } from './mutants.js';

const CARRIER = 'host/rds/verbs-carrier.ts';

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
  [
    'a node of reliable datagrams listens without its key',
    CARRIER,
    '      if (this.#auth) id.setOption({ auth: this.#auth });\n',
    '',
  ],
  [
    'a node of reliable datagrams connects without its key',
    CARRIER,
    'this.#auth ? { ...PATIENCE, auth: this.#auth } : PATIENCE',
    'PATIENCE',
  ],
  [
    'another device of a node has no key',
    'host/rds/node.ts',
    'new VerbsCarrier(context, index, this.#receiveBytesMax, this.#auth)',
    'new VerbsCarrier(context, index, this.#receiveBytesMax)',
  ],
  [
    'a caller that asks for keys gets a node without them',
    'host/rds/node.ts',
    '      known.#checkAuth(options.auth);\n',
    '',
  ],
  [
    'a denied path looks like one that failed',
    'host/rds/denials.ts',
    'if (sentence === undefined) return;',
    'return;',
  ],
  [
    'listeners keep the keys that were replaced',
    CARRIER,
    'for (const id of this.#listeners) id.setOption({ auth });',
    '',
  ],
  [
    'a ping-pong with a key has packets without tags',
    'host/cli/pingpong-side.ts',
    'if (keys) qp.setPacketKeys(keys);',
    '',
  ],
  [
    'a message of the exchange over TCP needs no right tag',
    'host/cli/keyed-exchange.ts',
    'if (this.session.verify(this.#received++, message, bytes.subarray(0, TAG_BYTES))) {',
    'if (this.#received++ >= 0) {',
  ],
];

export const PSK: readonly Row[] = ROWS.map(([name, ...rest]) => [`psk: ${name}`, ...rest]);
