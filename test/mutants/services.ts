/** Checks of the services: responder, completer, requester, UC, UD, failure, control. */
import type { Row } from './mutants.js';

const RECEIVE = 'assembly/transport/receive.ts';
const REORDER = 'assembly/transport/reorder.ts';
const REPAIR = 'assembly/transport/repair.ts';
const RESPONDER = 'assembly/transport/responder.ts';
const RESPONSE = 'assembly/transport/response.ts';
const PLACE = 'assembly/transport/place.ts';
const COMPLETER = 'assembly/transport/completer.ts';
const REQUESTER = 'assembly/transport/requester.ts';
const UNRELIABLE = 'assembly/transport/unreliable.ts';
const DATAGRAM = 'assembly/transport/datagram.ts';
const FAILURE = 'assembly/transport/failure.ts';

const ACK_REQUEST = 'assembly/transport/ack-request.ts';
const OWED = 'assembly/transport/owed.ts';
const CONTROL = 'assembly/transport/control.ts';
const COMPLETION_QUEUE = 'assembly/transport/completion-queue.ts';

export const SERVICES: readonly Row[] = [
  // The responder.
  [
    'any request may have the ICRC of an rxe FLUSH',
    RECEIVE,
    'if (bthOpcode(packet) != <u32>Opcode.RC_FLUSH) return false;',
    '',
  ],
  ['an ACK has the PSN of an atomic', RESPONSE, 'if (resource.psnLast != psn) break;', 'break;'],
  [
    'a PSN ahead is executed',
    RESPONDER,
    'else if (order > 0) receiveAhead(context, qp, packet, length, psn);\n  else {',
    'else {',
  ],
  ['a gap is NAKed again and again', RESPONDER, 'if (qp.nakSent) return;', ''],
  [
    'a gap is never NAKed',
    RESPONDER,
    '  sendNak(context, qp, NakCode.PSN_SEQUENCE_ERROR, qp.psnExpected);\n  qp.nakSent = 1;\n}\n\n/** The request must wait',
    '  qp.nakSent = 1;\n}\n\n/** The request must wait',
  ],
  [
    'the opcode sequence is not checked',
    RESPONDER,
    'if (inSequence(qp, flags)) return true;',
    'return true;',
  ],
  [
    'WRITE needs no right of the queue pair',
    RESPONDER,
    'PacketFlag.WRITE) granted = (qp.access & AccessFlag.REMOTE_WRITE) != 0;',
    'PacketFlag.WRITE) granted = true;',
  ],
  [
    'READ needs no right of the queue pair',
    RESPONDER,
    'granted = (qp.access & AccessFlag.REMOTE_READ) != 0;',
    'granted = true;',
  ],
  [
    'atomics need no right of the queue pair',
    RESPONDER,
    'granted = (qp.access & AccessFlag.REMOTE_ATOMIC) != 0;',
    'granted = true;',
  ],
  [
    'more READs than max_dest_rd_atomic',
    RESPONDER,
    'if (counts && firstJobCount(qp) >= qp.destRdAtomicMax) {',
    'if (false) {',
  ],
  [
    'FIRST and MIDDLE may be of any length',
    RESPONDER,
    'if (size != qp.mtu || bthPadCount(packet) != 0) return false;',
    '',
  ],
  [
    'LAST may be empty',
    RESPONDER,
    ' || (size == 0 && !(flags & PacketFlag.START))) return false;',
    ') return false;',
  ],
  [
    'a RETH may announce more than 2^31 bytes',
    RESPONDER,
    'if (reth && rethLength(packet + EXTENDED) > MESSAGE_BYTES_MAX) return false;',
    '',
  ],
  [
    'a WRITE may be of another length than announced',
    RESPONDER,
    'return end ? left == size : left > size;',
    'return true;',
  ],
  [
    'a READ’s key is not checked',
    RESPONDER,
    'translateRemote(context.arena, key, qp.pd, qp.binding, address, length, need) == 0 &&',
    'false &&',
  ],
  ['a misaligned atomic is executed', RESPONDER, 'if ((<u32>address) & 7) {', 'if (false) {'],
  [
    'a WRITE may overtake a READ that it changes',
    RESPONDER,
    'if (early || taken || disturbsRead(context, qp, packet, flags, size)) {',
    'if (early || taken) {',
  ],
  [
    'an atomic may overtake a READ that it changes',
    RESPONDER,
    'if (overlapsJob(context, qp, linear, 8)) {',
    'if (false) {',
  ],
  [
    'a repeated READ may change its key',
    RESPONDER,
    'if (resource.key != rethKey(reth) || address',
    'if (address',
  ],
  [
    'a repeated READ may go anywhere',
    RESPONDER,
    ' || address - resource.address != <u64>offset) return;',
    ') return;',
  ],
  [
    'a repeated READ may be longer',
    RESPONDER,
    'if (offset > resource.length || length > resource.length - offset) return;',
    '',
  ],
  [
    'a repeated request may be of another kind',
    RESPONDER,
    'if (resource.kind != (flags & ANSWERED)) return;',
    '',
  ],
  [
    'SEND_WITH_INV of a wrong key is fine',
    'assembly/transport/invalidating-receive.ts',
    'if (!invalidateRemote(context.arena, key, qp.pd, qp.binding)) return Invalidation.REFUSED;',
    'invalidateRemote(context.arena, key, qp.pd, qp.binding);',
  ],
  [
    'an RNR NAK is followed by NAKs for what comes behind',
    RESPONDER,
    '    // Packets behind this one are ahead of what is expected: no word about them.\n    qp.nakSent = 1;',
    '',
  ],
  [
    'no acknowledgement for a duplicate',
    RESPONDER,
    '    qp.ackPending = <u8>times;\n    acknowledgeAgain(qp, psn);\n    schedule(context, qp);\n    return;\n  }\n  let counted',
    '    return;\n  }\n  let counted',
  ],
  [
    'the first packet in RTR is no event',
    RESPONDER,
    'qp.communicationEstablished = 1;\n',
    'qp.communicationEstablished = 1;\n  return;\n',
  ],

  // Placing and answering.
  [
    'a SEND may be longer than its receive',
    PLACE,
    'if (<u64>offset + size > receiveCapacity(qp)) return WcStatus.LOC_LEN_ERR;',
    '',
  ],
  [
    'a receive needs no LOCAL_WRITE',
    PLACE,
    'const need: u32 = AccessFlag.LOCAL_WRITE;',
    'const need: u32 = 0;',
  ],
  [
    'a WRITE’s key is not looked up again',
    PLACE,
    'else if (!writeLayout(context, qp, checked, payload, size)) {',
    'else if ((flags & PacketFlag.START) != 0) {',
  ],
  ['a WRITE is checked packet by packet only', PLACE, '    checked = qp.messageLeft;\n', ''],
  [
    'a READ’s key is not looked up again',
    RESPONSE,
    'const need: u32 = AccessFlag.REMOTE_READ;',
    'const need: u32 = 0;',
  ],
  [
    'an ACK overtakes READ responses',
    RESPONSE,
    'if (!sendJob(context, qp)) break;',
    'if (qp.ackPending) break;\n    if (!sendJob(context, qp)) break;',
  ],
  [
    'a fatal NAK may be displaced',
    RESPONSE,
    'if (qp.nakPending >= <u32>NakCode.INVALID_REQUEST) return;',
    '',
  ],
  [
    'a refused request leaves the queue pair alive',
    RESPONSE,
    '  enterError(context, qp);\n  // What was executed',
    '  // What was executed',
  ],
  [
    'a refused request tells nobody',
    RESPONSE,
    'pushEvent(context, EventKind.ASYNC, event, changetype<usize>(qp));',
    '',
  ],

  // The completer.
  [
    'answers to what was never sent are believed',
    'assembly/transport/answer-checks.ts',
    'return psnDistance(qp.psnUnacked, psn) < psnDistance(qp.psnUnacked, qp.psnMax);',
    'return true;',
  ],
  ['an ACK completes a READ', COMPLETER, 'if (!isAnswered(qp, request)) return false;', ''],
  [
    'READ data is written past a gap',
    COMPLETER,
    'if (psn != qp.psnUnacked) {\n    // Never write',
    'if (false) {\n    // Never write',
  ],
  [
    'a READ response of any length is taken',
    COMPLETER,
    'if (length != (reads ?',
    'if (length > (reads ?',
  ],
  ['retries never end', COMPLETER, 'if (qp.retryLeft == 0) {', 'if (false) {'],
  ['RNR retries never end', COMPLETER, 'if (qp.rnrRetryLeft == 0) {', 'if (false) {'],
  [
    'rnr_retry 7 is seven',
    COMPLETER,
    'if (qp.rnrRetryLimit != RNR_RETRY_INFINITE) {',
    'if (true) {',
  ],
  [
    'progress does not renew the retries',
    COMPLETER,
    '  qp.retryLeft = qp.retryLimit;\n  qp.rnrRetryLeft',
    '  qp.rnrRetryLeft',
  ],
  [
    'the wait after an RNR NAK is skipped',
    COMPLETER,
    '  qp.rnrWaiting = 1;\n',
    '  qp.rnrWaiting = 0;\n',
  ],
  [
    'every NAK of one gap goes back',
    COMPLETER,
    'if (qp.rnrWaiting || qp.nakHandled == qp.psnUnacked + 1) return;',
    'if (qp.rnrWaiting) return;',
  ],

  // The requester.
  ['a FENCE does not wait', REQUESTER, ' || fenced(qp, request)) return null;', ') return null;'],
  [
    'more READs than max_rd_atomic',
    REQUESTER,
    'if (awaitsData(request) && (readsInFlight(qp) >= qp.rdAtomicMax || beyondKept(qp))) return null;',
    '',
  ],
  [
    'LOCAL_INV does not wait',
    REQUESTER,
    'if (waitsForAll(request) && qp.sendTail != qp.sendNext) return null;',
    '',
  ],
  [
    'SQD begins new messages',
    REQUESTER,
    'if (qp.state == <u32>QpState.SQD && request.state == <u32>SendState.FETCHED) return null;',
    '',
  ],
  [
    'memory is sent without a key',
    'assembly/transport/gather.ts',
    'if (!gatherLayout(context, qp, sge, cursor.offset, to, piece)) return false;',
    'gatherLayout(context, qp, sge, cursor.offset, to, piece);',
  ],
  [
    'no acknowledgement is asked for in the middle',
    ACK_REQUEST,
    'packets * 1024 < qp.congestionWindow &&\n    fitsShare(qp, 4 * packets * qp.chargeFull)',
    'true',
  ],
  [
    'the retransmit timer is not armed',
    REQUESTER,
    'if (timerOf(qp).deadline == 0) armRetransmit(context, qp);',
    '',
  ],

  // Selective repeat.
  [
    'a map about withdrawn packets moves the next PSN forwards',
    'assembly/transport/requester.ts',
    'if (readsInFlight(qp) > 0 || beyond >= 0) return false;',
    'if (readsInFlight(qp) > 0 || beyond == 0) return false;',
  ],
  ['packets beyond the room are kept', REORDER, 'if (ahead > qp.reorderMax) return true;', ''],
  [
    'what is kept is forgotten',
    REORDER,
    'return kept ? slotAt(qp, qp.psnExpected) + 8 : 0;',
    'return 0;',
  ],
  ['kept packets shift by one too few', REORDER, 'shift(qp, moved);', 'shift(qp, moved - 1);'],
  [
    'a map beyond what was sent is believed',
    REPAIR,
    'if (psnDistance(psn, top) >= psnDistance(psn, qp.psnMax)) return false;',
    '',
  ],
  [
    'what is missing is sent again and again',
    REPAIR,
    'if (psnCompare(top, qp.repairMax) < 0) return false;',
    '',
  ],
  ['selective acknowledgements are believed from anybody', RECEIVE, ' && speaksOurs(qp);', ';'],

  // Unreliable services.
  [
    'UC goes on after a gap',
    UNRELIABLE,
    '    dropMessage(context, qp, WcStatus.SUCCESS);\n  }\n  // Whatever',
    '  }\n  // Whatever',
  ],
  [
    'UC writes without a right',
    UNRELIABLE,
    'if (flags & PacketFlag.WRITE && !(qp.access & AccessFlag.REMOTE_WRITE)) {',
    'if (false) {',
  ],
  [
    'UC does not check lengths',
    UNRELIABLE,
    'if (!lengthFits(context, qp, packet, flags, size)) return WcStatus.LOC_LEN_ERR;',
    '',
  ],
  ['UD takes any Q_Key', DATAGRAM, 'if (dethQkey(packet + 12) != qp.qkey) {', 'if (false) {'],
  [
    'UD overruns a short receive',
    DATAGRAM,
    'if (<u64>GRH_SIZE + size > receiveCapacity(qp)) {',
    'if (false) {',
  ],
  [
    'UD sends by a handle of another domain',
    DATAGRAM,
    'return handle.pd == qp.pd ? handle : null;',
    'return handle;',
  ],
  [
    'UD sends by an address that is no handle',
    DATAGRAM,
    'if (offset % ADDRESS_HANDLE_SIZE != 0) return null;',
    '',
  ],
  [
    'UD sends beyond the path MTU',
    DATAGRAM,
    'if (request.length > qp.mtu) return WcStatus.SUCCESS;',
    '',
  ],

  // Failure and control.
  [
    'unsignalled errors do not complete',
    FAILURE,
    'if (!signalled && !failed) {',
    'if (!signalled) {',
  ],
  [
    'receives are not flushed',
    FAILURE,
    '    while (takeReceive(context, qp)) flushReceive(context, qp);\n',
    '',
  ],
  [
    'a full completion queue is overwritten',
    COMPLETION_QUEUE,
    'if (head - ringTail(cq.ring) >= cq.entries && !cq.ignoreOverrun) {',
    'if (false) {',
  ],
  [
    'any transition is allowed',
    CONTROL,
    'if (!transitionAllowed(qp.type, from, to, mask)) return Errno.EINVAL;',
    '',
  ],
  [
    'any attribute value is allowed',
    CONTROL,
    'if (!valuesAllowed(context, attributes)) return Errno.EINVAL;',
    '',
  ],
  [
    'modify while draining',
    CONTROL,
    'if (draining && to != <u32>QpState.ERR && to != <u32>QpState.RESET) return Errno.EINVAL;',
    '',
  ],
  [
    'completions outlive their queue pair',
    CONTROL,
    'if (completion.qpn == qpn) completion.qpn = 0;',
    '',
  ],
  [
    'paths migrate',
    CONTROL,
    'if (mask & (QpAttribute.ALT_PATH | QpAttribute.PATH_MIG_STATE)) return Errno.EOPNOTSUPP;',
    '',
  ],
  [
    'a full completion queue is dead although it may overrun',
    COMPLETION_QUEUE,
    '>= cq.entries && !cq.ignoreOverrun',
    '>= cq.entries',
  ],
  [
    'a resized completion queue keeps what was overwritten',
    CONTROL,
    'const count = min<u32>(head - ringTail(cq.ring), cq.entries);\n  const tail',
    'const count = head - ringTail(cq.ring);\n  const tail',
  ],
  [
    'a shared receive queue shrinks below what is posted',
    CONTROL,
    'if (count > entries) return Errno.EINVAL;\n  const head',
    'const head',
  ],
  [
    'a remote WRITE is counted with each of its packets',
    PLACE,
    'if (qp.messageLeft == 0) {\n    const operation',
    '{\n    const operation',
  ],
  [
    'failed operations are counted as completed',
    'assembly/transport/completion-counter.ts',
    'if (status != <u32>WcStatus.SUCCESS) counter.errors++;\n  else',
    '',
  ],
  // Acknowledgements that nobody asked for.
  [
    'nobody asks for what a completion depends on',
    ACK_REQUEST,
    'if (qp.signalAll || request.sendFlags & SendFlag.SIGNALED) qp.awaited = 1;',
    '',
  ],
  ['a peer of another kind is not asked', ACK_REQUEST, '    qp.reorderPeer == 0 ||\n', ''],
  ['a peer of unknown distance is not asked', ACK_REQUEST, '    qp.roundTripMicros == 0 ||\n', ''],
  [
    'a full send queue is not asked for',
    ACK_REQUEST,
    'qp.sendNext - qp.sendTail > qp.sendEntries / 2',
    'false',
  ],
  [
    'where packets get lost nobody asks',
    ACK_REQUEST,
    '(qp.awaited | qp.lossy) != 0',
    'qp.awaited != 0',
  ],
  ['what is owed is never paid', OWED, 'if (qp.ackOwed && serves(qp.state))', 'if (false)'],
  ['over data channels what is owed is paid as soon', OWED, 'context.paced ? ', 'false ? '],
  ['what is owed is owed to everybody', OWED, 'if (qp.reorderPeer == 0) return;', ''],
  ['what was acknowledged is still owed', RESPONSE, '  qp.ackOwed = 0;\n', ''],
  [
    'a queue pair that ends takes what others owe with it',
    OWED,
    'if (before == 0) context.owesFirst = qp.owesNext;',
    'if (before == 0) context.owesFirst = 0;',
  ],
];
