/**
 * `ibv_rereg_mr`: a region gets other memory, another domain or other rights, and keeps its keys.
 * As with deregistration, its former memory is released when no engine can still access it.
 */
import { Arena, nextEpoch } from '../memory/arena';
import { Errno } from '../memory/errno';
import { AccessFlag, INVALIDATABLE, KIND_BITS, KeyKind, LOCAL_USE } from './access-flag';
import {
  KeyState,
  abandonChange,
  checkAccess,
  endChange,
  entryAt,
  noteAt,
  slotIndex,
  takeEntry,
} from './key-table';
import { domainQuiesced, releaseProtectionDomain, useProtectionDomain } from './protection-domain';

/** `ibv_rereg_mr_flags`. */
export enum ReregMrFlag {
  CHANGE_TRANSLATION = 1,
  CHANGE_PD = 2,
  CHANGE_ACCESS = 4,
}

/** Arguments, written by the host. Only what the flags name counts. */
@unmanaged
export class ReregisterParameters {
  iova: u64;
  address: u32;
  length: u32;
  pd: u32;
  access: u32;
  key: u32;
  /** Bits of ReregMrFlag. */
  flags: u32;
  /** Out: the domain it was in, and the epoch that has to pass. */
  previousPd: u32;
  killedAt: u32;
}

/**
 * Changes a live region. EINVAL: no such region, or a rule of `ibv_reg_mr` is broken; EOPNOTSUPP:
 * unknown access flags; EAGAIN: another engine is changing the entry. The old registration stands
 * then.
 */
export function reregisterRegion(arena: Arena, slot: u32, parameters: ReregisterParameters): u32 {
  const flags = parameters.flags;
  const changesPd = (flags & ReregMrFlag.CHANGE_PD) != 0;
  if (changesPd && !useProtectionDomain(arena, parameters.pd, slot)) return Errno.EINVAL;
  const errno = change(arena, slot, parameters);
  if (errno != Errno.OK && changesPd) releaseProtectionDomain(arena, parameters.pd, slot);
  return errno;
}

function change(arena: Arena, slot: u32, parameters: ReregisterParameters): u32 {
  const index = slotIndex(arena, parameters.key);
  const entry = entryAt(arena, index);
  const note = noteAt(arena, index);
  const sequence = takeEntry(entry);
  if (sequence & 1) return Errno.EAGAIN;
  const known = note.state == KeyState.LIVE && note.key == parameters.key && note.owner == slot;
  if (!known || (entry.access & KIND_BITS) != <u32>KeyKind.REGION) {
    abandonChange(entry, sequence);
    return Errno.EINVAL;
  }
  const moves = (parameters.flags & ReregMrFlag.CHANGE_TRANSLATION) != 0;
  const beside = entry.access & (LOCAL_USE | INVALIDATABLE);
  const access =
    parameters.flags & ReregMrFlag.CHANGE_ACCESS ? parameters.access : entry.access ^ beside;
  const address = moves ? parameters.address : entry.address;
  const length = moves ? parameters.length : entry.length;
  let iova = moves ? parameters.iova : entry.iova;
  if (access & AccessFlag.ZERO_BASED) iova = 0;
  const errno = checkAccess(access, iova, address, length);
  if (errno != Errno.OK) {
    abandonChange(entry, sequence);
    return errno;
  }
  parameters.previousPd = note.pd;
  if (parameters.flags & ReregMrFlag.CHANGE_PD) note.pd = parameters.pd;
  entry.pd = note.pd;
  entry.access = access | beside;
  entry.iova = iova;
  entry.address = address;
  entry.length = length;
  endChange(entry, sequence);
  parameters.iova = iova;
  parameters.killedAt = nextEpoch(arena);
  return Errno.OK;
}

/**
 * True once: no engine can still access the former memory. The engine that changed it calls this,
 * with the same parameters.
 */
export function reregistered(arena: Arena, slot: u32, parameters: ReregisterParameters): bool {
  if (!domainQuiesced(arena, parameters.previousPd, parameters.killedAt)) return false;
  if (parameters.flags & ReregMrFlag.CHANGE_PD) {
    releaseProtectionDomain(arena, parameters.previousPd, slot);
  }
  return true;
}
