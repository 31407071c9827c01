/**
 * Regions that belong to their protection domain. A region ends with the context that registered
 * it; the region of a heap (host/verbs/heap) serves all contexts of a shared domain under one key,
 * so it ends with the last of them that
 * holds its memory.
 */
import { ATTACHMENT_SIZE, Arena, Attachment } from '../memory/arena';
import { Errno } from '../memory/errno';
import { isHeldBesides } from '../memory/heap';
import { KeyKind } from './access-flag';
import { DOMAIN_HOLDER, KeyState, entryAt, noteAt, slotIndex } from './key-table';
import { releaseProtectionDomain } from './protection-domain';

/**
 * A region of this context belongs to its domain from now on. EINVAL: the context has no such
 * region, or it is of another kind.
 */
export function keepRegion(arena: Arena, key: u32, slot: u32): u32 {
  const index = slotIndex(arena, key);
  const note = noteAt(arena, index);
  const entry = entryAt(arena, index);
  const isOwn = note.key == key && note.owner == slot && note.state == KeyState.LIVE;
  if (!isOwn || entry.key != key || entry.pd == 0 || entry.access & KeyKind.MOBILE_REGION) {
    return Errno.EINVAL;
  }
  // The owner first: if this context dies in between, its count ends with its attachment.
  note.owner = DOMAIN_HOLDER;
  releaseProtectionDomain(arena, note.pd, slot);
  return Errno.OK;
}

/**
 * Does the region belong to a domain that only `slot`, or no context, takes part in? Or to memory
 * that no other context holds?
 */
export function isForsaken(arena: Arena, index: u32, slot: u32): bool {
  const note = noteAt(arena, index);
  if (note.owner != DOMAIN_HOLDER) return false;
  if (!isHeldBesides(arena, entryAt(arena, index).address, slot)) return true;
  for (let place: u32 = 0; place < arena.attachmentsMax; place++) {
    const at = arena.attachments + <usize>(place * ATTACHMENT_SIZE);
    const node = changetype<Attachment>(at);
    if (node.pd == note.pd && node.slot != slot) return false;
  }
  return true;
}
