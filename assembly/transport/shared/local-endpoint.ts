/**
 * When the endpoint of a queue pair is published to the other contexts of the device, and when it
 * is withdrawn (memory/local-endpoint.ts).
 */
import { NO_SLOT, contextSlot, nextEpoch, nextReaching, passed } from '../../memory/arena';
import {
  TAKES_MESSAGES,
  localEndpointAt,
  publishLocalEndpoint,
  slotOfNumber,
  withdrawLocalEndpoint,
} from '../../memory/local-endpoint';
import { Context } from './context';
import { QueuePair, pathOf } from './queue-pair';
import { serves } from './state-machine';
import { QpState, QpType } from './status';

/**
 * Looks at another context before the withdrawal returns, some 0.2 s: a thread that copies may be
 * off its processor for as long. It may also have been stopped in its call, or be dead: behind a
 * wait in vain the next ones take some milliseconds.
 */
const LOOKS_MAX: u32 = 100000000;
const LOOKS_IMPATIENT: u32 = 1000000;

/** Is the peer of this queue pair at this device? Its number names the context. */
export function peerIsHere(context: Context, qp: QueuePair): bool {
  const path = pathOf(qp);
  const slot = slotOfNumber(qp.targetQp);
  return (
    path.remoteGid0 == context.localGid0 &&
    path.remoteGid1 == context.localGid1 &&
    slot < context.arena.contextsMax &&
    path.remotePort == contextSlot(context.arena, slot).port
  );
}

/** May requests be executed on the memory of the queue pair as it is now? */
export function servesLocally(context: Context, qp: QueuePair): bool {
  // A link that captures packets carries all of them.
  if (context.localPath == 0) return false;
  // The first packet in RTR raises COMM_EST (responder.ts).
  if (qp.state == <u32>QpState.RTR && !qp.communicationEstablished) return false;
  if (qp.type != <u32>QpType.RC || !serves(qp.state) || pathOf(qp).auth != 0) return false;
  return peerIsHere(context, qp);
}

/** The queue pair has changed: publishes it as it is, or withdraws it. */
export function updateLocalEndpoint(context: Context, qp: QueuePair): void {
  const at = localEndpointAt(context.arena, qp.qpn);
  if (at == 0) return;
  // Its counters are in memory of its own process.
  if (!servesLocally(context, qp) || qp.counterTable != 0) {
    withdrawLocalEndpoint(at, qp.qpn);
    return;
  }
  publishLocalEndpoint(
    at,
    qp.qpn,
    qp.targetQp,
    qp.pd,
    qp.binding,
    qp.access,
    qp.destRdAtomicMax,
    context.pkey | (qp.localPath ? TAKES_MESSAGES : 0),
  );
}

/** The queue pair serves no requests from here on. */
export function withdrawEndpoint(context: Context, qp: QueuePair): void {
  const at = localEndpointAt(context.arena, qp.qpn);
  if (at != 0) withdrawLocalEndpoint(at, qp.qpn);
}

/**
 * The same for a control verb: when it returns, no engine is executing a request for the queue
 * pair, except for a context that does not leave its call; memory that this may write is in any
 * case not free before it has left.
 */
export function withdrawAndWait(context: Context, qp: QueuePair): void {
  const arena = context.arena;
  const at = localEndpointAt(arena, qp.qpn);
  if (at == 0 || !withdrawLocalEndpoint(at, qp.qpn)) return;
  const epoch = nextEpoch(arena);
  let looks = context.impatient ? LOOKS_IMPATIENT : LOOKS_MAX;
  context.impatient = 0;
  let slot = nextReaching(arena, 0, epoch);
  for (; slot != NO_SLOT; slot = nextReaching(arena, slot + 1, epoch)) {
    if (slot == context.slotIndex) continue;
    const one = contextSlot(arena, slot);
    while (looks != 0 && !passed(one, epoch)) looks--;
    if (looks != 0) continue;
    context.impatient = 1;
    looks = LOOKS_IMPATIENT;
  }
}
