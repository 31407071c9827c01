/**
 * Messages between contexts of one arena (transport/LOCAL-PATH.md). For each pair of contexts, and
 * each direction, there is a channel: a ring of entries that only the source fills and only the
 * target takes. So a context that died or stopped stops no third one.
 * ```
 *  | per target:  bits of sources | channel of source 0 | channel of source 1 | ...
 *  | per channel: head, done | tail | entries: a LocalMessage, then LOCAL_VALUE_SIZE bytes |
 * ```
 * The state of an entry says to which side it belongs, and changes by compare-and-exchange: a
 * message is executed if the target changes TAKEN to DONE, and only then.
 *
 * Nothing that stands here is believed: indices are masked, walks are bounded by the ring.
 */
import { Arena, ContextSlot, contextSlot } from './arena';
import {
  BITS_SIZE,
  CHANNEL_HEADER_SIZE,
  ENTRY_SIZE,
  channelBytes,
  targetBytes,
} from './local-sizes';

/** State of a message. */
export enum LocalMessageState {
  FREE = 0,
  /** The target may take it, and the source may withdraw it. */
  POSTED = 1,
  /** The target is executing it. */
  TAKEN = 2,
  /** Executed. */
  DONE = 3,
  /** Not executed: it goes by packets. */
  REFUSED = 4,
  /** The source withdrew it: not executed. */
  WITHDRAWN = 5,
}

/** A request that takes a receive request of its target. 64 bytes. */
@unmanaged
export class LocalMessage {
  /** A LocalMessageState. */
  state: u32;
  targetQpn: u32;
  sourceQpn: u32;
  /** Incarnation of the target (arena.ts `nextBinding`). */
  binding: u32;
  /** After a refusal the target refuses all messages of the same run. */
  run: u32;
  /** A WrOpcode. */
  opcode: u32;
  /** Bits of SendFlag. */
  sendFlags: u32;
  immediate: u32;
  length: u32;
  /** SGEs that follow the entry, and the domain of their keys; 0: the bytes follow it. */
  sgeCount: u32;
  pd: u32;
  /** WRITE: the key at the target, and the address there. */
  key: u32;
  remoteAddress: u64;
  reserved: u64;
}

const DONE_OFFSET: usize = 4;
const TAIL_OFFSET: usize = 64;

/** Words of bits of sources. */
export function sourceWords(arena: Arena): u32 {
  return (arena.contextsMax + 31) >>> 5;
}

function inboxOf(arena: Arena, target: u32): usize {
  const bytes = targetBytes(arena.contextsMax, arena.localMessagesMax);
  return arena.localChannels + <usize>(target * bytes);
}

/** The channel from a context to another one; both are slots of the arena. */
export function channelOf(arena: Arena, target: u32, source: u32): usize {
  const at = BITS_SIZE + source * channelBytes(arena.localMessagesMax);
  return inboxOf(arena, target) + <usize>at;
}

export function messageAt(arena: Arena, channel: usize, index: u32): usize {
  const at = CHANNEL_HEADER_SIZE + (index & (arena.localMessagesMax - 1)) * ENTRY_SIZE;
  return channel + <usize>at;
}

/** Where the source writes the next message. */
export function channelHead(channel: usize): u32 {
  return atomic.load<u32>(channel);
}

export function setChannelHead(channel: usize, head: u32): void {
  atomic.store<u32>(channel, head);
}

/** The oldest message whose answer the source has not taken. */
export function channelDone(channel: usize): u32 {
  return atomic.load<u32>(channel + DONE_OFFSET);
}

export function setChannelDone(channel: usize, done: u32): void {
  atomic.store<u32>(channel + DONE_OFFSET, done);
}

/** No answer comes to the oldest messages that the source has withdrawn. */
export function passWithdrawn(arena: Arena, channel: usize): void {
  let done = channelDone(channel);
  for (let left = arena.localMessagesMax; left != 0; left--) {
    const state = messageState(messageAt(arena, channel, done));
    if (state != <u32>LocalMessageState.WITHDRAWN) break;
    done++;
  }
  setChannelDone(channel, done);
}

/** The next message that the target takes. */
export function channelTail(channel: usize): u32 {
  return atomic.load<u32>(channel + TAIL_OFFSET);
}

export function setChannelTail(channel: usize, tail: u32): void {
  atomic.store<u32>(channel + TAIL_OFFSET, tail);
}

export function messageState(message: usize): u32 {
  return atomic.load<u32>(message);
}

/** True: the state was `from`, and is `to` now. */
export function changeState(message: usize, from: u32, to: u32): bool {
  return atomic.cmpxchg<u32>(message, from, to) == from;
}

/** Tells `target` of messages or answers of `source`. True: its thread sleeps: wake it. */
export function announce(arena: Arena, target: u32, source: u32): bool {
  const slot = noteAnnouncement(arena, target, source);
  return atomic.xchg<u32>(slot + offsetof<ContextSlot>('sleeping'), 0) == 1;
}

/** The same, and a thread that sleeps goes on sleeping. Returns the address of its slot. */
function noteAnnouncement(arena: Arena, target: u32, source: u32): usize {
  const one: u32 = 1;
  const word = inboxOf(arena, target) + <usize>((source >>> 5) << 2);
  atomic.or<u32>(word, one << (source & 31));
  const slot = changetype<usize>(contextSlot(arena, target));
  atomic.add<u32>(slot + offsetof<ContextSlot>('announced'), 1);
  return slot;
}

/** Sources that have announced something since the last call, 32 of them. */
export function takeSources(arena: Arena, target: u32, word: u32): u32 {
  const at = inboxOf(arena, target) + <usize>(word << 2);
  return atomic.load<u32>(at) == 0 ? 0 : atomic.xchg<u32>(at, 0);
}

/** A context begins in this slot: what the one before it had posted is withdrawn. */
export function withdrawAllFrom(arena: Arena, source: u32): void {
  if (arena.localMessagesMax == 0) return;
  for (let target: u32 = 0; target < arena.contextsMax; target++) {
    const channel = channelOf(arena, target, source);
    settleEntries(arena, channel, LocalMessageState.WITHDRAWN, false);
    setChannelDone(channel, channelHead(channel));
  }
}

/** The context of a slot is gone: it executes nothing, and its own messages are withdrawn. */
export function closeChannels(arena: Arena, slot: u32): void {
  if (arena.localMessagesMax == 0) return;
  withdrawAllFrom(arena, slot);
  for (let source: u32 = 0; source < arena.contextsMax; source++) {
    const channel = channelOf(arena, slot, source);
    settleEntries(arena, channel, LocalMessageState.REFUSED, true);
    // It still sleeps for those that wake it: this call wakes no thread.
    if (channelHead(channel) != channelDone(channel)) noteAnnouncement(arena, source, slot);
  }
}

/**
 * The newest message first, so that a living target executes none behind one that is withdrawn.
 * `taken`: those that the target is executing as well: it is dead.
 */
function settleEntries(arena: Arena, channel: usize, to: u32, taken: bool): void {
  const head = channelHead(channel);
  for (let back: u32 = 1; back <= arena.localMessagesMax; back++) {
    const message = messageAt(arena, channel, head - back);
    changeState(message, LocalMessageState.POSTED, to);
    if (taken) changeState(message, LocalMessageState.TAKEN, to);
  }
}
