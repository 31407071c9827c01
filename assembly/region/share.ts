/**
 * Protection domains that several contexts share (seed 000, `ibv_alloc_shpd` and `ibv_share_pd`).
 * Whoever knows a domain's handle and its share key takes part in it; it lives as long as somebody
 * does.
 */
import { Arena, ProtectionDomain, lockArena, unlockArena } from '../memory/arena';
import { Errno } from '../memory/errno';
import {
  attachContext,
  domainAt,
  domainIndex,
  findAttachment,
  findProtectionDomain,
} from './protection-domain';

/** What a handle says, and the key beside it. */
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
