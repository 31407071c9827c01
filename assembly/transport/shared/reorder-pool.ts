/**
 * Slots for packets that arrive ahead, of all queue pairs of a context
 * (responder/reorder-buffer.ts). The host adds memory for them when the pool asks for it, up to a
 * limit. If the queue pairs may keep more packets than there are slots, none of them takes more
 * than `SHARE` times what is free: a gap that a peer never fills leaves slots to the others.
 * ```
 *  slot: | next free slot, u32 | length, u32 | packet |
 * ```
 */
import { bitRingBytes } from '../../memory/bit-ring';
import { roundUp } from '../../memory/bytes';
import { PACKET_SIZE_MAX } from '../../wire/packet';
import { Context, EventKind, pushEvent } from './context';
import { QueuePair } from './queue-pair';

const SLOT_HEADER: u32 = 8;
const SHARE: u32 = 4;

export function slotBytes(context: Context): u32 {
  return roundUp(SLOT_HEADER + min<u32>(context.packetSizeMax, PACKET_SIZE_MAX), 8);
}

/** Adds memory at a multiple of 8. */
export function addSlots(context: Context, memory: usize, bytes: u32): void {
  const size = slotBytes(context);
  for (let at: u32 = 0; at + size <= bytes; at += size) {
    context.reorderSlots++;
    giveSlot(context, memory + at);
  }
  context.reorderAsked = 0;
}

/** A queue pair that keeps `packets` is new. */
export function noteDemand(context: Context, packets: u32): void {
  context.reorderDemand += packets;
}

/** One is destroyed. Without any, the pool is empty and the host takes its memory back. */
export function dropDemand(context: Context, packets: u32): void {
  context.reorderDemand -= packets;
  if (context.reorderDemand != 0) return;
  context.reorderSlots = 0;
  context.reorderFree = 0;
  context.reorderFreeCount = 0;
  context.reorderAsked = 0;
}

/** Keeps a packet of a queue pair that keeps `count` others; 0: there is no slot for it. */
export function keepPacket(context: Context, count: u32, packet: usize, length: u32): usize {
  const slot = context.reorderFree;
  if (context.reorderFreeCount <= context.reorderSlots >> 1) askForSlots(context);
  const isShort = context.reorderDemand > context.reorderSlots;
  if (slot == 0 || (isShort && count >= SHARE * context.reorderFreeCount)) return 0;
  if (length > slotBytes(context) - SLOT_HEADER) return 0;
  context.reorderFree = load<u32>(slot);
  context.reorderFreeCount--;
  store<u32>(slot, length, 4);
  memory.copy(slot + SLOT_HEADER, packet, length);
  return slot;
}

/** Called while slots are free: the host needs time. */
function askForSlots(context: Context): void {
  if (context.reorderAsked || context.reorderSlots >= context.reorderDemand) return;
  context.reorderAsked = 1;
  pushEvent(context, EventKind.REORDER_SHORT, 0, 0);
}

/** Its packet can be read until the next `keepPacket`. */
export function giveSlot(context: Context, slot: usize): void {
  store<u32>(slot, <u32>context.reorderFree);
  context.reorderFree = slot;
  context.reorderFreeCount++;
}

export function packetOf(slot: usize): usize {
  return slot + SLOT_HEADER;
}

export function lengthOf(slot: usize): u32 {
  return load<u32>(slot, 4);
}

/** The queue pair keeps nothing any more. */
export function forgetAhead(context: Context, qp: QueuePair): void {
  if (qp.aheadCount == 0) return;
  qp.aheadCount = 0;
  for (let index: u32 = 0; index < qp.reorderMax; index++) {
    const at = qp.aheadSlots + ((<usize>index) << 2);
    const slot = <usize>load<u32>(at);
    if (slot == 0) continue;
    giveSlot(context, slot);
    store<u32>(at, 0);
  }
  memory.fill(qp.aheadMap, 0, bitRingBytes(qp.reorderMax));
}
