/**
 * What leaves: fills a send buffer from the queue pairs that have something to say, in turn. A
 * queue pair may send QUANTUM packets before the next one has its turn, so that one long message
 * delays another queue pair's short one by a few packets only.
 */
import { ICRC_SIZE } from '../wire/packet';
import { failStopped } from './completer';
import {
  Context,
  SEND_BUFFER_PACKETS,
  SEND_BUFFER_SIZE,
  SEND_DESCRIPTOR_SIZE,
  SendDescriptor,
  hasRoom,
  packetStart,
  schedule,
  takeReady,
} from './context';
import { scheduleFenced } from './invalidation-fence';
import { PACKET_AUTH, sealPacket } from './packet-auth';
import { Path } from './path';
import { sendRequests } from './requester';
import { sendResponses } from './response';
import { seal, sealRest } from './seal';
import { noteBusy } from './window';

/** Packets in a row from one queue pair. */
const QUANTUM: u32 = 16;

/** Puts the packet at `packetStart` on the list, and sees to its ICRC. BTH to ICRC: `length`. */
export function finishPacket(context: Context, path: Path, qpn: u32, length: u32): void {
  finishCopying(context, path, qpn, length, 0, 0);
}

/** The same for one whose payload is still at `source`, behind `header` bytes; 0: it is there. */
export function finishCopying(
  context: Context,
  path: Path,
  qpn: u32,
  length: u32,
  header: u32,
  source: usize,
): void {
  const packet = packetStart(context);
  if (PACKET_AUTH && path.auth != 0) {
    if (source != 0) memory.copy(packet + header, source, length - header - ICRC_SIZE);
    length = sealPacket(context, path, packet, length);
    source = 0;
  }
  seal(context, path, packet, length, header, source);
  const descriptor = changetype<SendDescriptor>(context.bufferDescriptor);
  descriptor.address = <u32>packet;
  descriptor.length = length;
  descriptor.path = <u32>changetype<usize>(path);
  descriptor.qpn = qpn;
  context.bufferDescriptor += SEND_DESCRIPTOR_SIZE;
  context.bufferUsed += length;
  context.bufferCount++;
}

/**
 * Fills send buffer `index` and returns how many packets it holds now; 0: nothing to send. The
 * buffer then belongs to the link until it says that it has sent it.
 */
export function fillBuffer(context: Context, index: u32): u32 {
  context.buffer = context.sendArea + <usize>(index * SEND_BUFFER_SIZE);
  const first = index * SEND_BUFFER_PACKETS * SEND_DESCRIPTOR_SIZE;
  context.bufferDescriptor = context.sendDescriptors + <usize>first;
  context.bufferUsed = 0;
  context.bufferCount = 0;
  if (context.fenceFirst != 0) scheduleFenced(context);
  while (hasRoom(context)) {
    const qp = takeReady(context);
    if (qp == null) break;
    // Somebody waits for a request; a response is in time as long as it is not late.
    const requestsLeft = sendRequests(context, qp, QUANTUM);
    noteBusy(qp);
    const more = sendResponses(context, qp, QUANTUM) || requestsLeft;
    failStopped(context, qp);
    if (more) schedule(context, qp);
  }
  sealRest(context);
  const counters = context.counters;
  counters.sentPkts += context.bufferCount;
  counters.sentBytes += context.bufferUsed;
  return context.bufferCount;
}
