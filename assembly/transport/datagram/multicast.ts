/** Multicast groups: which UD queue pairs receive the packets of a group (IBA 10.5). */
import { Errno } from '../../memory/errno';
import { Context, MEMBERSHIP_SIZE, Membership } from '../shared/context';
import { QueuePair } from '../shared/queue-pair';
import { QpType } from '../shared/status';

/** `ibv_attach_mcast`. EINVAL: no UD queue pair, or a member already; ENOMEM: the table is full. */
export function attachMulticast(context: Context, qp: QueuePair, gid0: u64, gid1: u64): u32 {
  if (qp.type != <u32>QpType.UD) return Errno.EINVAL;
  if (findMembership(context, qp, gid0, gid1) != null) return Errno.EINVAL;
  for (let index: u32 = 0; index < context.multicastMax; index++) {
    const at = context.multicast + <usize>(index * MEMBERSHIP_SIZE);
    const member = changetype<Membership>(at);
    if (member.queuePair != 0) continue;
    member.gid0 = gid0;
    member.gid1 = gid1;
    member.queuePair = changetype<usize>(qp);
    return Errno.OK;
  }
  return Errno.ENOMEM;
}

/** `ibv_detach_mcast`. EINVAL: no member. */
export function detachMulticast(context: Context, qp: QueuePair, gid0: u64, gid1: u64): u32 {
  const member = findMembership(context, qp, gid0, gid1);
  if (member == null) return Errno.EINVAL;
  member.queuePair = 0;
  return Errno.OK;
}

function findMembership(context: Context, qp: QueuePair, gid0: u64, gid1: u64): Membership | null {
  for (let index: u32 = 0; index < context.multicastMax; index++) {
    const at = context.multicast + <usize>(index * MEMBERSHIP_SIZE);
    const member = changetype<Membership>(at);
    const same = member.gid0 == gid0 && member.gid1 == gid1;
    if (member.queuePair == changetype<usize>(qp) && same) return member;
  }
  return null;
}

/** The queue pair is reset, or gone. */
export function leaveAll(context: Context, qp: QueuePair): void {
  for (let index: u32 = 0; index < context.multicastMax; index++) {
    const at = context.multicast + <usize>(index * MEMBERSHIP_SIZE);
    const member = changetype<Membership>(at);
    if (member.queuePair == changetype<usize>(qp)) member.queuePair = 0;
  }
}
