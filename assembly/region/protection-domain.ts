/**
 * Protection domains. They belong to the arena, so that several contexts can attach to one (seed
 * 000, `ibv_alloc_shpd`, `ibv_share_pd`). Each attachment is a node on the domain's list;
 * reclamation walks that list only. A process that knows a domain's handle and share key may
 * attach; the domain exists as long as one context is attached.
 */
import {
  ATTACHMENT_SIZE,
  Arena,
  Attachment,
  PROTECTION_DOMAIN_SIZE,
  ProtectionDomain,
  allQuiesced,
  attachmentAt,
  contextSlot,
  lockArena,
  passed,
  quiesced,
  reachesAll,
  unlockArena,
} from '../memory/arena';
import { Errno } from '../memory/errno';

const INDEX_BITS: u32 = 16;
const INDEX_MASK: u32 = 0xffff;

export function domainAt(arena: Arena, index: u32): ProtectionDomain {
  return changetype<ProtectionDomain>(
    arena.protectionDomains + <usize>(index * PROTECTION_DOMAIN_SIZE),
  );
}

/** Index of a domain id in the table; too large for an invalid id. */
export function domainIndex(id: u32): u32 {
  return (id & INDEX_MASK) - 1;
}

/** The live domain of that id, or null. */
export function findProtectionDomain(arena: Arena, id: u32): ProtectionDomain | null {
  const index = domainIndex(id);
  if (index >= arena.protectionDomainsMax) return null;
  const domain = domainAt(arena, index);
  return domain.id == id && domain.attachedCount > 0 ? domain : null;
}

function takeAttachment(arena: Arena, domain: ProtectionDomain, slot: u32): bool {
  const state = arena.state;
  const node = attachmentAt(arena, state.attachmentFree);
  if (node == 0) return false;
  state.attachmentFree = changetype<Attachment>(node).next;
  changetype<Attachment>(node).slot = slot;
  changetype<Attachment>(node).useCount = 0;
  changetype<Attachment>(node).pd = domain.id;
  changetype<Attachment>(node).next = domain.attached;
  domain.attached = node;
  domain.attachedCount++;
  return true;
}

/** A new domain with this context attached. Returns its id, or 0 when none is free. */
export function allocProtectionDomain(arena: Arena, slot: u32): u32 {
  const taken = lockArena(arena);
  let id: u32 = 0;
  for (let index: u32 = 0; index < arena.protectionDomainsMax; index++) {
    const domain = domainAt(arena, index);
    if (domain.attachedCount > 0) continue;
    // A generation in the upper half keeps the id of a dead domain from naming the next one.
    id = ((((domain.id >>> INDEX_BITS) + 1) & INDEX_MASK) << INDEX_BITS) | (index + 1);
    domain.attached = 0;
    domain.shared = 0;
    domain.id = id;
    if (!takeAttachment(arena, domain, slot)) id = 0;
    break;
  }
  unlockArena(arena, taken);
  return id;
}

/**
 * One more context takes part. EINVAL: no such domain, or it takes part already; ENOMEM: no
 * attachment is free.
 */
export function attachProtectionDomain(arena: Arena, id: u32, slot: u32): u32 {
  const taken = lockArena(arena);
  const errno = attachContext(arena, id, slot);
  unlockArena(arena, taken);
  return errno;
}

/** The same, with the lock held. */
export function attachContext(arena: Arena, id: u32, slot: u32): u32 {
  const domain = findProtectionDomain(arena, id);
  if (domain == null || findAttachment(arena, id, slot) != null) return Errno.EINVAL;
  return takeAttachment(arena, domain, slot) ? Errno.OK : Errno.ENOMEM;
}

/** EBUSY while this context has regions or queue pairs in the domain. */
export function deallocProtectionDomain(arena: Arena, id: u32, slot: u32): u32 {
  const taken = lockArena(arena);
  const errno = detach(arena, id, slot);
  unlockArena(arena, taken);
  return errno;
}

/**
 * Ends a domain for all contexts: EBUSY while a context has regions or queue pairs in it. A shared
 * domain (`allocSharedDomain`) ends with its last attached context; another domain ends for all
 * contexts that imported it.
 */
export function destroyProtectionDomain(arena: Arena, id: u32, slot: u32): u32 {
  const taken = lockArena(arena);
  const domain = findProtectionDomain(arena, id);
  let errno: u32 = Errno.EINVAL;
  if (domain != null && findAttachment(arena, id, slot) != null) {
    errno = domain.shared ? detach(arena, id, slot) : detachAll(arena, domain);
  }
  unlockArena(arena, taken);
  return errno;
}

function detachAll(arena: Arena, domain: ProtectionDomain): u32 {
  let node = attachmentAt(arena, domain.attached);
  for (let steps: u32 = 0; node != 0 && steps < arena.attachmentsMax; steps++) {
    if (changetype<Attachment>(node).useCount > 0) return Errno.EBUSY;
    node = attachmentAt(arena, changetype<Attachment>(node).next);
  }
  node = attachmentAt(arena, domain.attached);
  for (let steps: u32 = 0; node != 0 && steps < arena.attachmentsMax; steps++) {
    const errno = detach(arena, domain.id, changetype<Attachment>(node).slot);
    if (errno != Errno.OK) return errno;
    node = attachmentAt(arena, domain.attached);
  }
  return Errno.OK;
}

function detach(arena: Arena, id: u32, slot: u32): u32 {
  const domain = findProtectionDomain(arena, id);
  if (domain == null) return Errno.EINVAL;
  let before: usize = 0;
  let node = attachmentAt(arena, domain.attached);
  for (let steps: u32 = 0; node != 0 && steps < arena.attachmentsMax; steps++) {
    if (changetype<Attachment>(node).slot == slot) {
      if (changetype<Attachment>(node).useCount > 0) return Errno.EBUSY;
      const next = changetype<Attachment>(node).next;
      if (before == 0) domain.attached = next;
      else changetype<Attachment>(before).next = next;
      changetype<Attachment>(node).pd = 0;
      changetype<Attachment>(node).next = arena.state.attachmentFree;
      arena.state.attachmentFree = node;
      domain.attachedCount--;
      return Errno.OK;
    }
    before = node;
    node = attachmentAt(arena, changetype<Attachment>(node).next);
  }
  return Errno.EINVAL;
}

/**
 * Attachment of that context to the domain; null: it is not attached, or there is no such domain.
 */
export function findAttachment(arena: Arena, id: u32, slot: u32): Attachment | null {
  const domain = findProtectionDomain(arena, id);
  if (domain == null) return null;
  let node = attachmentAt(arena, domain.attached);
  for (let steps: u32 = 0; node != 0 && steps < arena.attachmentsMax; steps++) {
    if (changetype<Attachment>(node).slot == slot) return changetype<Attachment>(node);
    node = attachmentAt(arena, changetype<Attachment>(node).next);
  }
  return null;
}

/**
 * Counts one more region, window or queue pair that this context makes in the domain. False when
 * it is not attached: reclamation waits for attached contexts only.
 */
export function useProtectionDomain(arena: Arena, id: u32, slot: u32): bool {
  const taken = lockArena(arena);
  const attachment = findAttachment(arena, id, slot);
  if (attachment != null) attachment.useCount++;
  unlockArena(arena, taken);
  return attachment != null;
}

export function releaseProtectionDomain(arena: Arena, id: u32, slot: u32): void {
  const taken = lockArena(arena);
  const attachment = findAttachment(arena, id, slot);
  if (attachment != null) attachment.useCount--;
  unlockArena(arena, taken);
}

/**
 * Has every context of the domain left the calls that it began before `epoch`? 0: every one; and of
 * a domain that has ended, since nothing says any more which were in it.
 */
export function domainQuiesced(arena: Arena, id: u32, epoch: u32): bool {
  if (id == 0) return allQuiesced(arena, epoch);
  const taken = lockArena(arena);
  const domain = findProtectionDomain(arena, id);
  const passed = domain != null && quiesced(arena, domain.attached, epoch);
  unlockArena(arena, taken);
  return domain == null ? allQuiesced(arena, epoch) : passed;
}

/**
 * Slot + 1 of another context of the domain that is still in a call that it began before `epoch`;
 * 0: no such context. The function runs on the data path and takes no lock, since the owner of the
 * lock may be stopped. It reads the slots directly, and membership in the domain from the table of
 * attachments, since another process may be changing the lists.
 */
export function blockingSlot(arena: Arena, own: u32, pd: u32, epoch: u32): u32 {
  for (let slot: u32 = 0; slot < arena.contextsMax; slot++) {
    if (slot == own || passed(contextSlot(arena, slot), epoch)) continue;
    if (reachesAll(contextSlot(arena, slot)) || isAttached(arena, pd, slot)) return slot + 1;
  }
  return 0;
}

function isAttached(arena: Arena, pd: u32, slot: u32): bool {
  for (let index: u32 = 0; index < arena.attachmentsMax; index++) {
    const at = arena.attachments + <usize>(index * ATTACHMENT_SIZE);
    const node = changetype<Attachment>(at);
    if (node.pd == pd && node.slot == slot) return true;
  }
  return false;
}

/**
 * A dead context takes part in nothing. All lists are made anew, from what the nodes say: their
 * makers may have died while they changed them. The caller holds the lock.
 */
export function detachDead(arena: Arena, slot: u32): void {
  for (let index: u32 = 0; index < arena.protectionDomainsMax; index++) {
    const domain = domainAt(arena, index);
    domain.attached = 0;
    domain.attachedCount = 0;
  }
  const state = arena.state;
  state.attachmentFree = 0;
  for (let index: u32 = 0; index < arena.attachmentsMax; index++) {
    const at = arena.attachments + <usize>(index * ATTACHMENT_SIZE);
    const node = changetype<Attachment>(at);
    const place = domainIndex(node.pd);
    const known = node.pd != 0 && node.slot != slot && place < arena.protectionDomainsMax;
    const domain = domainAt(arena, known ? place : 0);
    if (known && domain.id == node.pd) {
      node.next = domain.attached;
      domain.attached = at;
      domain.attachedCount++;
    } else {
      node.pd = 0;
      node.next = state.attachmentFree;
      state.attachmentFree = at;
    }
  }
}

/** Contents of a handle, and the key beside it. */
@unmanaged
export class ShareParameters {
  shareKey: u64;
  /** Drawn when the handle was made. */
  nonce: u64;
  pd: u32;
  reserved: u32;
}

/**
 * Makes a domain one that can be shared. EINVAL: this context does not take part in it; EBUSY: it
 * was done before, which is possible once.
 */
export function allocSharedDomain(arena: Arena, slot: u32, parameters: ShareParameters): u32 {
  const taken = lockArena(arena);
  const domain = findProtectionDomain(arena, parameters.pd);
  let errno: u32 = Errno.EINVAL;
  if (domain != null && findAttachment(arena, parameters.pd, slot) != null) {
    errno = domain.shared ? Errno.EBUSY : Errno.OK;
    if (errno == Errno.OK) {
      domain.shareKey = parameters.shareKey;
      domain.nonce = parameters.nonce;
      domain.shared = 1;
    }
  }
  unlockArena(arena, taken);
  return errno;
}

/**
 * This context takes part in the domain of that handle, if it does not yet. EINVAL: a wrong key, a
 * wrong handle, a domain that is gone: nothing tells them apart, not the time that it takes either.
 * ENOMEM: no attachment is free.
 */
export function shareDomain(arena: Arena, slot: u32, parameters: ShareParameters): u32 {
  const taken = lockArena(arena);
  const index = domainIndex(parameters.pd);
  const known = index < arena.protectionDomainsMax;
  const domain = domainAt(arena, known ? index : 0);
  const errno: u32 =
    differences(domain, parameters) | u32(!known) ? Errno.EINVAL : join(arena, domain.id, slot);
  unlockArena(arena, taken);
  return errno;
}

/** Not 0 when anything is wrong. Looks at everything, whatever it finds. */
function differences(domain: ProtectionDomain, parameters: ShareParameters): u32 {
  const words = (domain.shareKey ^ parameters.shareKey) | (domain.nonce ^ parameters.nonce);
  const dead = u32(domain.attachedCount == 0) | (domain.shared ^ 1);
  return (<u32>words) | (<u32>(words >> 32)) | (domain.id ^ parameters.pd) | dead;
}

function join(arena: Arena, id: u32, slot: u32): u32 {
  return findAttachment(arena, id, slot) != null ? Errno.OK : attachContext(arena, id, slot);
}
