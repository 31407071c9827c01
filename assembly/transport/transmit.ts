/**
 * Fills a send buffer from the queue pairs with packets to send, round robin. A queue pair sends up
 * to QUANTUM packets per turn, so a long message delays a short one of another queue pair by a few
 * packets only.
 */
import { LOCAL_PATH } from '../memory/local-endpoint';
import { bthTargetQp } from '../wire/headers';
import { serveChannels } from './local/inbox';
import { LocalTurn, beginLocalCall, pausesLocally, takeLocalTurn } from './local/local-path';
import { receiveOwn } from './receive';
import { failStopped } from './requester/completer';
import { sendRequests } from './requester/requester';
import { sendResponses } from './responder/response';
import {
  Context,
  SEND_BUFFER_PACKETS,
  SEND_BUFFER_SIZE,
  SEND_DESCRIPTOR_SIZE,
  SendDescriptor,
  beginBuffer,
  hasRoom,
  scheduleAgain,
  takeReady,
} from './shared/context';
import { scheduleFenced } from './shared/invalidation-fence';
import {
  endTurn,
  holdForPace,
  holdForCongestionWindow,
  mayBegin,
  noteFlight,
  notePaced,
  paceAllows,
} from './shared/path-control';
import { Path } from './shared/path';
import { QueuePair, outstanding } from './shared/queue-pair';
import { sealRest, staysHere } from './shared/send-buffer';
import { QpType } from './shared/status';

/** Packets in a row from one queue pair. */
const QUANTUM: u32 = 16;

/**
 * Fills send buffer `index` and returns how many packets it holds now; 0: nothing to send. The
 * buffer then belongs to the link until it says that it has sent it.
 */
export function fillBuffer(context: Context, index: u32): u32 {
  const first = index * SEND_BUFFER_PACKETS * SEND_DESCRIPTOR_SIZE;
  beginBuffer(
    context,
    context.sendArea + <usize>(index * SEND_BUFFER_SIZE),
    context.sendDescriptors + <usize>first,
  );
  if (context.fenceFirst != 0) scheduleFenced(context);
  beginLocalCall(context);
  if (LOCAL_PATH) serveChannels(context);
  for (let turns: u32 = 0; hasRoom(context) && !pausesLocally(context, turns); turns++) {
    const qp = takeReady(context);
    if (qp == null) break;
    const before = context.bufferCount;
    // Requests first: a peer waits for them; a response only has to arrive before a timeout.
    const requestsLeft = sendPaced(context, qp);
    noteFlight(context, qp);
    const more = sendResponses(context, qp, QUANTUM) || requestsLeft;
    failStopped(context, qp);
    if (more) scheduleAgain(context, qp, before);
  }
  sealRest(context);
  const counters = context.counters;
  counters.sentPkts += context.bufferCount;
  counters.sentBytes += context.bufferUsed;
  return context.bufferCount;
}

/**
 * The same for UC and UD. A packet for a queue pair of this context does not leave it: that queue
 * pair receives it before the next one is written, and its place in the buffer is free again.
 */
function sendUnreliable(context: Context, qp: QueuePair, quantum: u32): bool {
  for (let sent: u32 = 0; sent < quantum; sent++) {
    if (!hasRoom(context) || context.localLeft == 0) return true;
    const count = context.bufferCount;
    const more = sendRequests(context, qp, 1);
    if (context.bufferCount != count) keepOwn(context);
    if (!more) return false;
  }
  return true;
}

/** Receives the packet that was written last, if it is for this context. */
function keepOwn(context: Context): void {
  const last = context.bufferDescriptor - SEND_DESCRIPTOR_SIZE;
  const descriptor = changetype<SendDescriptor>(last);
  const packet = <usize>descriptor.address;
  const length = descriptor.length;
  const path = changetype<Path>(<usize>descriptor.path);
  if (!staysHere(context, path, bthTargetQp(packet))) return;
  context.bufferDescriptor = last;
  context.bufferUsed -= length;
  context.bufferCount--;
  receiveOwn(context, packet, length);
  context.localLeft -= min<u32>(length, context.localLeft);
  context.counters.localPackets++;
}

/** Requests, as many as pacing allows. True when more may be sent now. */
function sendPaced(context: Context, qp: QueuePair): bool {
  const isReliable = qp.type == <u32>QpType.RC;
  if (LOCAL_PATH && qp.localPath && isReliable) {
    const turn = takeLocalTurn(context, qp);
    if (turn != <u32>LocalTurn.PACKETS) {
      endTurn(qp);
      return turn == <u32>LocalTurn.MORE;
    }
  }
  const quantum = paceAllows(context, qp, QUANTUM);
  if (quantum == 0) {
    holdForPace(context, qp);
    return false;
  }
  if (isReliable && !outstanding(qp) && !mayBegin(qp)) {
    holdForCongestionWindow(context, qp);
    return false;
  }
  const before = context.bufferCount;
  const more = isReliable
    ? sendRequests(context, qp, quantum)
    : sendUnreliable(context, qp, quantum);
  notePaced(qp, context.bufferCount - before);
  endTurn(qp);
  return more;
}
