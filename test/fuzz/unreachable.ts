/**
 * Branches that no single engine's input can reach, by file, line of source and kind, each with the
 * reason. They count as not reached all the same: this only explains the report.
 */
import { readFileSync } from 'node:fs';
import { root } from '../support/paths.js';
import type { Branch } from './coverage.js';

interface Reason {
  readonly file: string;
  /** The line; without what stands around it, unless that distinguishes it from another. */
  readonly source: string;
  readonly kind: string;
  readonly why: string;
}

const REASONS: readonly Reason[] = [
  {
    file: 'assembly/region/key-table.ts',
    source: 'if (atomic.load<u32>(sequenceOf(entry)) == before) return granted ? address : 0;',
    kind: 'else',
    why: 'only another thread can change the entry between two loads',
  },
  {
    file: 'assembly/transport/requester/completer.ts',
    source: 'if (qp.state != QpState.ERR) repairResponses(context, qp);',
    kind: 'else',
    why: 'the oldest request is a READ in flight there, which settle cannot fail',
  },
  {
    file: 'assembly/transport/requester/completer.ts',
    source: 'if (outstanding(qp)) armRetransmit(context, qp);',
    kind: 'then',
    why: 'an RNR NAK goes back to the oldest PSN and nothing is sent while it lasts',
  },
  {
    file: 'assembly/transport/shared/packet-auth.ts',
    source: 'if (!PACKET_AUTH) return Errno.EOPNOTSUPP;',
    kind: 'then',
    why: 'this engine has authenticated packets',
  },
  {
    file: 'assembly/wire/packet.ts',
    source: 'switch (header) {',
    kind: 'default',
    why: 'every header has a case',
  },
  {
    file: 'assembly/transport/responder/response-queue.ts',
    source: 'if (qp.nakPending >= <u32>NakCode.INVALID_REQUEST) return;',
    kind: 'then',
    why: 'a fatal NAK goes with ERR, in which nothing is served',
  },
  {
    file: 'assembly/transport/responder/response.ts',
    source: '    if (!hasRoom(context)) return true;',
    kind: 'then',
    why: 'before the CNP: fillBuffer has just asked the same',
  },
  {
    file: 'assembly/transport/queue/completion.ts',
    source: 'if (qp.sendTail != qp.sendFetched) completeSend(context, qp, status, vendor);',
    kind: 'else',
    why: 'every caller has seen an oldest request',
  },
  {
    file: 'assembly/transport/responder/reorder-buffer.ts',
    source: '} else if (count > 0) {',
    kind: 'else',
    why: 'it is called only when the expected PSN has moved',
  },
  {
    file: 'assembly/transport/requester/retransmit.ts',
    source: 'if (index == qp.sendFetched) return;',
    kind: 'then',
    why: 'every PSN between the oldest in flight and the next lies in a request that was started',
  },
];

/** The reason, where there is one. */
export function whyUnreachable({ file, line, kind }: Branch): string | undefined {
  const reasons = REASONS.filter((reason) => reason.file === file && reason.kind === kind);
  if (reasons.length === 0) return undefined;
  const source = readFileSync(new URL(file, root), 'utf8').split('\n')[line - 1] ?? '';
  const known = reasons.find((reason) => [source, source.trim()].includes(reason.source));
  return known?.why;
}
