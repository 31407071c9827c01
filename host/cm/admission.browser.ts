/** Stands in for admission.ts in a page, where each address is proven (cookies.browser.ts). */
import type { Verdict } from './admission.js';
import type { Listener } from './connection.js';
import type { Sender } from './half-open.js';
import type { CmProtocol } from './protocol.js';

export function judge(
  { connections, halfOpen, limits }: CmProtocol,
  _now: number,
  { backlog, waiting, waitingOf }: Listener,
  { source }: Sender,
): Verdict {
  const isFull = waiting >= backlog + Math.ceil(backlog / 4);
  if (isFull || waitingOf.of(source) >= Math.ceil(backlog / 2)) return 'refuse';
  const isBeyond =
    halfOpen.size >= limits.halfOpenMax ||
    halfOpen.sources.of(source) >= limits.halfOpenPerSourceMax ||
    connections.size >= limits.connectionsMax;
  return isBeyond ? 'drop' : 'admit';
}
