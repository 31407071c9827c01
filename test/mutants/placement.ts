/** Checks of FLUSH and ATOMIC WRITE: who may, what is held back, what is never acknowledged. */
import type { Row } from './mutants.js';

const PERSIST = 'assembly/transport/persist.ts';
const RESPONSE = 'assembly/transport/response.ts';
const RESPONDER = 'assembly/transport/responder.ts';
const FETCH = 'assembly/transport/fetch.ts';
const COMPLETER = 'assembly/transport/completer.ts';
const PLACE = 'assembly/transport/place.ts';
const PIECES = 'assembly/region/layout-pieces.ts';

export const PLACEMENTS: readonly Row[] = [
  [
    'a placement that nobody knows is taken',
    PERSIST,
    'if (placement == 0 || placement & ~known) return false;',
    'if (placement == 0) return false;',
  ],
  [
    'a FLUSH of no placement is taken',
    PERSIST,
    'if (placement == 0 || placement & ~known) return false;',
    'if (placement & ~known) return false;',
  ],
  [
    'a selectivity that nobody knows is taken',
    PERSIST,
    'if (selectivityOf(feth) > <u32>SelectivityLevel.MR) return false;',
    '',
  ],
  [
    'the queue pair grants every placement',
    PERSIST,
    'return (qp.access & rights) == rights;',
    'return true;',
  ],
  [
    'one placement of two is enough',
    PERSIST,
    'return (qp.access & rights) == rights;',
    'return (qp.access & rights) != 0;',
  ],
  [
    'a FLUSH for persistence is answered at once',
    PERSIST,
    'if (!names || !(rights & AccessFlag.FLUSH_PERSISTENT)) return;',
    'return;',
  ],
  [
    'what was before a FLUSH is acknowledged once',
    'assembly/transport/responder.ts',
    '    acknowledgeAgain(qp, psn);\n',
    '',
  ],
  [
    'ATOMIC WRITE overtakes a FLUSH',
    PERSIST,
    'const held = qp.heldJobs > 0;',
    'const held = false;',
  ],
  ['a misaligned ATOMIC WRITE is executed', PERSIST, 'if ((<u32>address) & 7) {', 'if (false) {'],
  ['where memory is misaligned, too', PERSIST, 'return linear & 7 ? 0 : linear;', 'return linear;'],
  [
    'a FLUSH is begun before what waits in front of it',
    PERSIST,
    'if (job.state == <u32>JobState.WAITING) break;',
    '',
  ],
  [
    'an answer to another FLUSH is taken',
    PERSIST,
    'return job.serial == serial && job.state == <u32>JobState.ASKED ? job : null;',
    'return job.state == <u32>JobState.ASKED ? job : null;',
  ],
  ['the first of several stores answers for all', PERSIST, 'if (job.reference != 0) return;', ''],
  ['what failed is acknowledged', PERSIST, 'if (failed) {\n', 'if (false) {\n'],
  ['an impatient peer is told nothing', PERSIST, 'qp.busyPending = 1;\n', ''],
  [
    'answers overtake a FLUSH that is under way',
    RESPONSE,
    'if (job.state != <u32>JobState.READY && !getReady(context, qp, job)) return false;',
    'if (job.state == <u32>JobState.WAITING && !getReady(context, qp, job)) return false;',
  ],
  [
    'what is behind a FLUSH is acknowledged before it',
    RESPONSE,
    'if (qp.jobHead != qp.jobTail) return sendWithheld(context, qp);',
    '',
  ],
  [
    'what is held is dropped when the peer goes back',
    RESPONSE,
    'if (qp.heldJobs > 0) {\n    return psnCompare',
    'if (false) {\n    return psnCompare',
  ],
  [
    'a receive request completes before the FLUSH in front of it',
    RESPONDER,
    'const early = qp.heldJobs > 0 && (flags & PacketFlag.RECEIVE) != 0;',
    'const early = false;',
  ],
  [
    'ATOMIC WRITE may have any length',
    RESPONDER,
    'return size == 8 && rethLength(packet + EXTENDED) == 8 && bthPadCount(packet) == 0;',
    'return true;',
  ],
  [
    'ATOMIC WRITE needs no right of the queue pair',
    RESPONDER,
    'PacketFlag.ATOMIC_WRITE) granted = (qp.access & AccessFlag.REMOTE_WRITE) != 0;',
    'PacketFlag.ATOMIC_WRITE) granted = true;',
  ],
  [
    'a WRITE overtakes an ATOMIC WRITE to its word',
    PLACE,
    'const waits = job.state == <u32>JobState.WAITING;',
    'const waits = false;',
  ],
  [
    'a FLUSH with a fence does not wait',
    FETCH,
    '(request.sendFlags & SendFlag.FENCE) != 0 &&\n    request.state',
    'false &&\n    request.state',
  ],
  [
    'ATOMIC WRITE to any address is sent',
    FETCH,
    'if (word && (<u32>request.remoteAddress) & 7) return WcStatus.LOC_QP_OP_ERR;',
    '',
  ],
  ['a peer at work uses up the retries', COMPLETER, 'if (oldestFlushes(qp)) {', 'if (false) {'],
  [
    'an ACK completes every FLUSH',
    COMPLETER,
    'return request.opcode == <u32>WrOpcode.FLUSH && pathOf(qp).doublesFlush != 0;',
    'return request.opcode == <u32>WrOpcode.FLUSH;',
  ],
  [
    'a FLUSH through a layout may go beyond it',
    PIECES,
    '} else if (!whole && (address > <u64>layout.packed || length > layout.packed - <u32>address)) {',
    '} else if (false) {',
  ],
];
