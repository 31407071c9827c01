/** Keep-alive probes of idle connections, and detection of dead peers. */
import type { Row } from './mutants.js';

const ENGINE = 'assembly/transport/keep-alive.ts';
const HOST = 'host/cm/keep-alive.ts';

export const KEEP_ALIVES: readonly Row[] = [
  [
    'a probe uses a PSN that is not acknowledged',
    ENGINE,
    'const psn = psnAdd(qp.psnUnacked, <u32>-1);',
    'const psn = qp.psnUnacked;',
  ],
  ['a probe is sent without AckReq', ENGINE, 'qp.targetQp, 1, psn);', 'qp.targetQp, 0, psn);'],
  [
    'a probe is sent while requests are outstanding',
    ENGINE,
    'if (moved || heard || outstanding(qp) ||',
    'if (moved || heard ||',
  ],
  ['a sign of life counts for ever', ENGINE, '  qp.heardOldNews = 0;\n', ''],
  [
    'the ACK of a probe is no sign of life',
    'assembly/transport/completer.ts',
    'if (isPlausible(qp, msn)) qp.heardOldNews = 1;',
    '',
  ],
  [
    "the peer's probe is no sign of life",
    'assembly/transport/responder.ts',
    '  qp.heardOldNews = 1;\n',
    '',
  ],
  ["the peer's requests are no sign of life", ENGINE, 'last.psnExpected != qp.psnExpected ||', ''],
  [
    'the ACK of a probe by Linux may acknowledge the next packets',
    ENGINE,
    'return pathOf(qp).ownKind == 0 && left < context.windowPackets;',
    'return false;',
  ],
  ['an unreliable connection is probed', ENGINE, 'qp.type != <u32>QpType.RC ||', ''],
  [
    'a destroyed queue pair keeps a connection alive',
    HOST,
    'if (!qp || qp.life === 0) return Life.SILENT;',
    'if (!qp || qp.life === 0) return Life.HEARD;',
  ],
  ['a dead peer stays connected', HOST, '    endLost(core, now, connection);\n', ''],
  [
    'no DREQ is sent to a peer that counts as dead',
    HOST,
    "  core.transmit(connection, 'DREQ', { ...idsOf(connection), remoteQpn: connection.remoteQpn });\n",
    '',
  ],
  [
    'a process that was stopped ends its connections',
    HOST,
    'if (life !== Life.SILENT || isLate) {',
    'if (life !== Life.SILENT) {',
  ],
  [
    'each REQ restarts the probes of a doubted connection',
    HOST,
    'if (!watch || watch.isDoubted) return;',
    'if (!watch) return;',
  ],
  [
    'an earlier sign of life saves a doubted connection',
    HOST,
    'watch.look() === Life.SILENT || watch.look() === Life.SILENT;',
    'watch.look() === Life.SILENT;',
  ],
  [
    'all connections are checked at the same time',
    HOST,
    'const share = (connection.localId % 256) / 256;',
    'const share = 0.5;',
  ],
  [
    'an ended connection is still checked',
    'host/cm/core.ts',
    "if (state !== 'ESTABLISHED') stopWatch(this, connection);",
    '',
  ],
  [
    'a check without a sign of life is never reset',
    HOST,
    '    watch.silent = 0;\n    watch.isDoubted = false;',
    '    watch.isDoubted = false;',
  ],
];
