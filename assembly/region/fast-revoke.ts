/** The end of a registration by a control verb: what LOCAL_INV does, without a queue pair. */
import { Arena } from '../memory/arena';
import { Errno } from '../memory/errno';
import { KeyKind } from './access-flag';
import {
  KeyState,
  abandonChange,
  endChange,
  entryAt,
  markKilled,
  noteAt,
  slotIndex,
  takeEntry,
  unbind,
} from './key-table';
import { domainQuiesced } from './protection-domain';

/**
 * Invalidates a region without a queue pair: for a dead connection, which will execute no work
 * request any more. EINVAL: not a region for REG_MR of this context; EAGAIN: another engine is
 * changing the entry. No effect on a region that is not registered.
 */
export function revokeFast(arena: Arena, slot: u32, key: u32): u32 {
  const index = slotIndex(arena, key);
  const entry = entryAt(arena, index);
  const note = noteAt(arena, index);
  if (key == 0) return Errno.EINVAL;
  const sequence = takeEntry(entry);
  if (sequence & 1) return Errno.EAGAIN;
  const known = (note.key ^ key) >>> 8 == 0 && note.owner == slot;
  const fast = (entry.access & (KeyKind.FAST_REGION | KeyKind.MOBILE_REGION)) != 0;
  const live = note.state == <u32>KeyState.LIVE;
  if (!known || !fast || !live) {
    const idle = known && fast && note.state == <u32>KeyState.INVALID;
    abandonChange(entry, sequence);
    return idle ? Errno.OK : Errno.EINVAL;
  }
  entry.key = 0;
  markKilled(arena, note);
  note.state = KeyState.INVALID;
  unbind(arena, note);
  if (entry.access & KeyKind.MOBILE_REGION) note.pd = 0;
  endChange(entry, sequence);
  return Errno.OK;
}

/** True: no engine can still access the memory of an invalidated region. */
export function fastRevoked(arena: Arena, key: u32): bool {
  const note = noteAt(arena, slotIndex(arena, key));
  return note.state == <u32>KeyState.INVALID && domainQuiesced(arena, note.pd, note.killedAt);
}
