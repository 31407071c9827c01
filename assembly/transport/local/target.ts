/**
 * The target of the local path: the queue pair that requests address, if the engine of this context
 * can execute them without packets.
 */
import {
  LOCAL_PATH,
  LocalEndpoint,
  TAKES_MESSAGES,
  localEndpointAt,
  slotOfNumber,
} from '../../memory/local-endpoint';
import { mayTalk } from '../../wire/headers';
import { Context, findQueuePair } from '../shared/context';
import { peerIsHere, servesLocally } from '../shared/local-endpoint';
import { MessageKind, QueuePair, pathOf } from '../shared/queue-pair';
import { staysHere } from '../shared/send-buffer';
import { QpType } from '../shared/status';

/** Shall the requests of this queue pair be executed without packets where that is possible? */
export function usesLocalPath(context: Context, qp: QueuePair): bool {
  if (!LOCAL_PATH) return false;
  if (qp.type != <u32>QpType.RC) return staysHere(context, pathOf(qp), qp.targetQp);
  return context.localPath != 0 && peerIsHere(context, qp);
}

/**
 * Describes the target of a queue pair that modify connected by the local path. False: the target
 * does not serve requests of this queue pair now, or has to be reached by packets.
 */
export function findTarget(context: Context, qp: QueuePair): bool {
  if (pathOf(qp).auth != 0) return false;
  if (slotOfNumber(qp.targetQp) == context.slotIndex) return findOwn(context, qp);
  return findOther(context, qp);
}

/** A queue pair of this context. */
function findOwn(context: Context, qp: QueuePair): bool {
  const peer = findQueuePair(context, qp.targetQp);
  if (peer == null || peer.targetQp != qp.qpn || !servesLocally(context, peer)) return false;
  if (peer.message != <u32>MessageKind.NONE || !mayTalk(context.pkey, context.pkey)) return false;
  const target = context.localTarget;
  target.queuePair = changetype<usize>(peer);
  target.pd = peer.pd;
  target.binding = peer.binding;
  target.access = peer.access;
  target.destRdAtomicMax = peer.destRdAtomicMax;
  target.counterTable = peer.counterTable;
  return true;
}

/** A queue pair of another context, as its engine has published it. */
function findOther(context: Context, qp: QueuePair): bool {
  const at = localEndpointAt(context.arena, qp.targetQp);
  if (at == 0) return false;
  const target = context.localTarget;
  target.queuePair = 0;
  target.counterTable = 0;
  // Atomic loads keep their order on every processor: sequence, fields, sequence.
  const sequence = atomic.load<u32>(at);
  const qpn = atomic.load<u32>(at + offsetof<LocalEndpoint>('qpn'));
  const peerQpn = atomic.load<u32>(at + offsetof<LocalEndpoint>('peerQpn'));
  target.pd = atomic.load<u32>(at + offsetof<LocalEndpoint>('pd'));
  target.binding = atomic.load<u32>(at + offsetof<LocalEndpoint>('binding'));
  target.access = atomic.load<u32>(at + offsetof<LocalEndpoint>('access'));
  target.destRdAtomicMax = atomic.load<u32>(at + offsetof<LocalEndpoint>('destRdAtomicMax'));
  const pkey = atomic.load<u32>(at + offsetof<LocalEndpoint>('pkey'));
  if ((sequence & 1) != 0 || atomic.load<u32>(at) != sequence) return false;
  target.takesMessages = pkey & TAKES_MESSAGES;
  return qpn == qp.targetQp && peerQpn == qp.qpn && mayTalk(pkey & 0xffff, context.pkey);
}
