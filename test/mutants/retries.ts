/** Retries on a link with periodic losses, and warnings about a second UDP port. */
import type { Row } from './mutants.js';

const COMPLETER = 'assembly/transport/completer.ts';
const REQUESTER = 'assembly/transport/requester.ts';
const RESPONDER = 'assembly/transport/responder.ts';
const RESPONSE = 'assembly/transport/response.ts';
const OTHER_PORT = 'host/link/other-port.ts';
const HOLDER = 'host/link/port-holder.ts';

export const RETRIES: readonly Row[] = [
  ['every retry retransmits the whole window', COMPLETER, 'if (alone) sendAlone(qp);', ''],
  [
    'the oldest packet alone is sent once, not twice',
    REQUESTER,
    'if (sent > 0 && isAlone(qp)) repeatAlone(context, qp);',
    '',
  ],
  [
    'a READ that is retransmitted alone requests all its packets',
    REQUESTER,
    'if (isAlone(qp)) return 1;',
    '',
  ],
  [
    'a response to a later packet restarts the timer of the oldest',
    COMPLETER,
    'else if (isNews) armRetransmit(context, qp);',
    'else armRetransmit(context, qp);',
  ],
  [
    'a packet that arrives for the third time is answered once',
    RESPONDER,
    'isRepeatedAgain(qp, psn) ? 2 : 1',
    'isRepeatedAgain(qp, psn) ? 1 : 1',
  ],
  [
    'a response of one packet is never sent twice',
    RESPONSE,
    'if (job.repeated < 2) {',
    'if (true) {',
  ],
  ['a response of one packet is sent without end', RESPONSE, '  job.repeated = 1;\n', ''],
  [
    'no warning is printed about another UDP port',
    OTHER_PORT,
    "process.emitWarning(await otherPortSentence(gid, port), { type: 'VerbenaWarning' });",
    '',
  ],
  [
    'the warning about another UDP port is printed at every connection',
    OTHER_PORT,
    '  told.add(`${gid}`);\n',
    '',
  ],
  [
    'the warning about another UDP port is printed for peers on this machine',
    OTHER_PORT,
    'if (isLoopback(gid)) return true;',
    '',
  ],
  ['a taken port is never detected', HOLDER, 'socketInodes(table, gid, port).length > 0', 'false'],
];
