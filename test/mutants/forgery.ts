/** Checks against packets that are forged blindly: with the peer's address, and PSNs that are tried. */
import type { Row } from './mutants.js';

const ANSWERS = 'assembly/transport/answer-checks.ts';
const COMPLETER = 'assembly/transport/completer.ts';
const RESPONDER = 'assembly/transport/responder.ts';
const REORDER = 'assembly/transport/reorder.ts';
const UNRELIABLE = 'assembly/transport/unreliable.ts';
const RESPONSE = 'assembly/transport/response.ts';
const WINDOW = 'assembly/transport/response-window.ts';
const KEEP_ALIVE = 'assembly/transport/keep-alive.ts';

export const FORGERIES: readonly Row[] = [
  [
    'a NAK of a sweep ends a queue pair',
    ANSWERS,
    'if (checks.failed < SUSPICIOUS || qp.timeoutMicros == 0) return false;',
    'return false;',
  ],
  [
    'any MSN is believed',
    ANSWERS,
    'if (isSent ? isPlausible(qp, msn) : isLate(qp, psn)) {',
    'if (isSent || isLate(qp, psn)) {',
  ],
  [
    'an old answer may be of any age',
    ANSWERS,
    'if (psnDistance(psn, qp.psnUnacked) <= LATE_PACKETS) return true;',
    'return true;',
  ],
  [
    'a READ in several requests counts as one message',
    ANSWERS,
    'executed += packetCount(qp, request.length) - 1;',
    '',
  ],
  [
    'a doubted NAK is confirmed whatever the peer answers',
    ANSWERS,
    '  checks.doubtedNak = 0;\n  qp.retryLeft = qp.retryLimit;',
    '',
  ],
  [
    'a doubted NAK is forgotten where the peer is silent',
    COMPLETER,
    'if (syndrome == 0 || !inFlight(qp, doubted.doubtedPsn)) {',
    'if (true) {',
  ],
  [
    'an acknowledgement with any MSN is a sign of life',
    COMPLETER,
    'if (isPlausible(qp, msn)) qp.heardOldNews = 1;',
    'qp.heardOldNews = 1;',
  ],
  ['a request with any PSN is answered', RESPONDER, 'if (away > NEAR_PACKETS) {', 'if (false) {'],
  [
    'a packet ahead of its turn is kept without the mark',
    RESPONDER,
    'if (!isMarked(qp, packet)) return;',
    '',
  ],
  [
    'a packet that is kept stays when another one comes with its PSN',
    REORDER,
    'dropAhead(qp, bit);',
    '',
  ],
  [
    'a packet that is kept goes when it comes once more',
    REORDER,
    'memory.compare(kept + tail, packet + tail, length - 16) == 0',
    'memory.compare(kept, packet, length) == 0',
  ],
  [
    'UC: wrong keys may be tried for ever',
    UNRELIABLE,
    'if (++checks.wrongKeys < WRONG_KEYS_MAX) return;',
    'return;',
  ],
  [
    'an RNR NAK pins a WRITE for ever',
    COMPLETER,
    'if (!takesReceive(qp) && !oldestFlushes(qp)) {',
    'if (false) {',
  ],
  [
    'a peer that is never ready is alive',
    KEEP_ALIVE,
    'if (isStuck && checksOf(qp).notReady) return Life.NOT_READY;',
    '',
  ],
  [
    'a peer that is never ready stays connected',
    'host/cm/keep-alive.ts',
    'if (life === Life.NOT_READY && watch.notReady++ === NOT_READY_CHECKS) {',
    'if (watch.notReady === Infinity) {',
  ],
  [
    'READ responses leave whether the peer is there or not',
    RESPONSE,
    'if (job.kind == <u32>PacketFlag.READ && awaitsSign(context, qp)) return false;',
    '',
  ],
  [
    'a peer that no longer sends packets is not probed',
    WINDOW,
    'qp.asidePending |= <u8>Aside.PROBE;',
    '',
  ],
  [
    'READ responses wait for ever once the window was closed',
    WINDOW,
    'if (checks.responses >= RESPONSE_WINDOW) schedule(context, qp);',
    '',
  ],
];
