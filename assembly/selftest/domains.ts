/**
 * Checks of region/protection-domain.ts and of reclamation: when what a dead key stood for may be
 * used again. Other contexts are simulated: `enter` and `leave` are all that others see of them.
 */
import { Arena, Attachment, enter, leave } from '../memory/arena';
import { Errno } from '../memory/errno';
import { killRegion, regionReleased, translate } from '../region/key-table';
import {
  allocProtectionDomain,
  attachProtectionDomain,
  deallocProtectionDomain,
  destroyProtectionDomain,
  detachDead,
  domainAt,
  findProtectionDomain,
  releaseProtectionDomain,
  useProtectionDomain,
} from '../region/protection-domain';
import { CONTEXTS, DOMAINS, freshArena, register, slotOf } from './arena';
import { begin, end, same } from './tap';

const KEY: u32 = 0x77665544;
const ADDRESS: u32 = 0x4000;

export function checkDomains(): void {
  checkGenerations();
  checkRepair();
  checkCircles();
  checkAttachments();
  checkBusy();
  checkReclamation();
  checkWhoCounts();
  checkEpochs();
}

function checkGenerations(): void {
  begin('a protection domain has an id of its own, and the id of a dead one names nothing');
  const arena = freshArena(16);
  let last: u32 = 0;
  for (let round: u32 = 0; round < 70000; round++) {
    const pd = allocProtectionDomain(arena, 0);
    same(u64(pd != 0), 1, 'id', round);
    same(u64(pd != last), 1, 'other than the last', round);
    same(u64(findProtectionDomain(arena, last) == null), 1, 'the last is gone', round);
    same(attachProtectionDomain(arena, last, 1), Errno.EINVAL, 'attach to the last', round);
    same(deallocProtectionDomain(arena, last, 0), Errno.EINVAL, 'dealloc of the last', round);
    same(deallocProtectionDomain(arena, pd, 0), Errno.OK, 'dealloc', round);
    last = pd;
  }
  end();

  begin('all protection domains can be taken, then allocation fails');
  for (let index: u32 = 0; index < DOMAINS; index++) {
    same(u64(allocProtectionDomain(arena, 0) != 0), 1, 'alloc', index);
  }
  same(allocProtectionDomain(arena, 0), 0, 'one too many');
  for (let id: u32 = 0; id < 0x20000; id += 0x1111) {
    if (id & 0xffff && (id & 0xffff) <= DOMAINS) continue;
    same(u64(findProtectionDomain(arena, id) == null), 1, 'no such index', id);
  }
  end();
}

function checkRepair(): void {
  begin('after the death of a context each domain has the members that its attachments name');
  const arena = freshArena(16);
  const state = arena.state;
  const pd = allocProtectionDomain(arena, 0);
  const other = allocProtectionDomain(arena, 1);
  for (let slot: u32 = 1; slot < CONTEXTS; slot++) attachProtectionDomain(arena, pd, slot);
  same(deallocProtectionDomain(arena, pd, 2), Errno.OK, 'leaves');
  // Another process has written a domain beyond the table, though one seems to be there.
  const beyond: u32 = 0x12345;
  domainAt(arena, (beyond & 0xffff) - 1).id = beyond;
  const stray = changetype<Attachment>(state.attachmentFree);
  stray.pd = beyond;
  detachDead(arena, 3);
  same(domainAt(arena, (beyond & 0xffff) - 1).attachedCount, 0, 'beyond the table');
  same(domainAt(arena, (pd & 0xffff) - 1).attachedCount, 2, 'members');
  same(deallocProtectionDomain(arena, pd, 3), Errno.EINVAL, 'the dead one');
  same(deallocProtectionDomain(arena, pd, 2), Errno.EINVAL, 'the one that has left');
  same(deallocProtectionDomain(arena, pd, 0), Errno.OK, 'the first');
  same(deallocProtectionDomain(arena, pd, 1), Errno.OK, 'the second');
  same(deallocProtectionDomain(arena, other, 1), Errno.OK, 'of the other domain');
  end();

  begin('attachments that are free are of no domain, when generations begin anew either');
  let first = allocProtectionDomain(arena, 0);
  same(attachProtectionDomain(arena, first, 1), Errno.OK, 'attach');
  same(deallocProtectionDomain(arena, first, 1), Errno.OK, 'and leave');
  while (first != 1) {
    same(deallocProtectionDomain(arena, first, 0), Errno.OK, 'dealloc', first);
    first = allocProtectionDomain(arena, 0);
  }
  detachDead(arena, 3);
  same(domainAt(arena, 0).attachedCount, 1, 'members of domain 1');
  end();
}

function checkCircles(): void {
  begin('lists that another process has made circular end all the same');
  const arena = freshArena(16);
  const pd = allocProtectionDomain(arena, 0);
  attachProtectionDomain(arena, pd, 1);
  const domain = domainAt(arena, (pd & 0xffff) - 1);
  const first = changetype<Attachment>(domain.attached);
  changetype<Attachment>(first.next).next = domain.attached;
  const free = arena.state.attachmentFree;
  changetype<Attachment>(free).next = free;
  domain.attachedCount = 0x7fffffff;
  same(deallocProtectionDomain(arena, pd, 3), Errno.EINVAL, 'not attached');
  same(destroyProtectionDomain(arena, pd, 0), Errno.OK, 'destroyed');
  end();
}

function checkAttachments(): void {
  begin('contexts attach to a domain and leave it in any order, and the last one ends it');
  const arena = freshArena(16);
  for (let order: u32 = 0; order < 24; order++) {
    const pd = allocProtectionDomain(arena, 0);
    for (let slot: u32 = 1; slot < CONTEXTS; slot++) {
      same(deallocProtectionDomain(arena, pd, slot), Errno.EINVAL, 'not attached', slot);
      same(attachProtectionDomain(arena, pd, slot), Errno.OK, 'attach', slot);
      same(attachProtectionDomain(arena, pd, slot), Errno.EINVAL, 'attach twice', slot);
    }
    const first = order & 3;
    const second = (first + 1 + ((order >> 2) % 3)) & 3;
    same(deallocProtectionDomain(arena, pd, first), Errno.OK, 'first', order);
    same(deallocProtectionDomain(arena, pd, first), Errno.EINVAL, 'first again', order);
    same(deallocProtectionDomain(arena, pd, second), Errno.OK, 'second', order);
    for (let slot: u32 = 0; slot < CONTEXTS; slot++) {
      if (slot == first || slot == second) continue;
      same(u64(findProtectionDomain(arena, pd) != null), 1, 'alive', slot);
      same(deallocProtectionDomain(arena, pd, slot), Errno.OK, 'others', slot);
    }
    same(u64(findProtectionDomain(arena, pd) == null), 1, 'gone', order);
  }
  end();

  begin('when no attachment is free, attaching is refused with ENOMEM and nothing is lost');
  let taken: u32 = 0;
  let refused: u32 = 0;
  for (let index: u32 = 0; index < DOMAINS; index++) {
    const pd = allocProtectionDomain(arena, 0);
    if (pd == 0) break;
    taken++;
    // One node less in the first, so that they do not run out between two domains.
    for (let slot: u32 = index == 0 ? 2 : 1; slot < CONTEXTS; slot++) {
      const errno = attachProtectionDomain(arena, pd, slot);
      if (errno == Errno.OK) taken++;
      else same(errno, Errno.ENOMEM, 'attach', refused++);
    }
  }
  same(taken, arena.attachmentsMax, 'attachments');
  same(u64(refused > 0), 1, 'refused');
  same(allocProtectionDomain(arena, 2), 0, 'alloc');
  end();
}

function checkBusy(): void {
  begin('a context cannot leave a domain while it has something in it: dying regions count');
  const arena = freshArena(16);
  const pd = allocProtectionDomain(arena, 0);
  same(attachProtectionDomain(arena, pd, 1), Errno.OK, 'attach');
  same(register(arena, KEY, pd, 0, 0, ADDRESS, 64), Errno.OK, 'register');
  same(deallocProtectionDomain(arena, pd, 0), Errno.EBUSY, 'a region');
  same(deallocProtectionDomain(arena, pd, 1), Errno.OK, 'a context without objects may leave');
  same(attachProtectionDomain(arena, pd, 1), Errno.OK, 'and come back');
  killRegion(arena, KEY, 0);
  same(deallocProtectionDomain(arena, pd, 0), Errno.EBUSY, 'a dying region');
  same(u64(regionReleased(arena, KEY)), 1, 'released');
  same(deallocProtectionDomain(arena, pd, 0), Errno.OK, 'nothing');
  same(u64(useProtectionDomain(arena, pd, 1)), 1, 'use');
  same(deallocProtectionDomain(arena, pd, 1), Errno.EBUSY, 'a queue pair');
  releaseProtectionDomain(arena, pd, 1);
  same(deallocProtectionDomain(arena, pd, 1), Errno.OK, 'the last one');
  same(u64(useProtectionDomain(arena, pd, 1)), 0, 'use of a dead domain');
  end();

  begin('a context that is not attached uses no domain: reclamation would not wait for it');
  const other = allocProtectionDomain(arena, 1);
  same(register(arena, KEY, other, 0, 0, ADDRESS, 64), Errno.EINVAL, 'register');
  same(u64(useProtectionDomain(arena, other, 0)), 0, 'use');
  same(arena.regionCount, 0, 'count');
  same(attachProtectionDomain(arena, other, 0), Errno.OK, 'attach');
  same(register(arena, KEY, other, 0, 0, ADDRESS, 64), Errno.OK, 'register, attached');
  killRegion(arena, KEY, 0);
  regionReleased(arena, KEY);
  end();
}

/** Kills KEY, and sees that its slot stays taken while `hold` is in its call. */
function held(arena: Arena, pd: u32, hold: u32): void {
  same(u64(regionReleased(arena, KEY)), 0, 'released too early', hold);
  same(translate(arena, KEY, pd, 0, 1, 0), 0, 'found again', hold);
  same(register(arena, KEY, pd, 0, 0, ADDRESS, 64), Errno.EAGAIN, 'slot', hold);
  same(register(arena, KEY + 1, pd, 0, 0, ADDRESS, 64), Errno.EAGAIN, 'slot', hold);
}

function checkReclamation(): void {
  begin('a dying key keeps its slot until every call that began before its death has ended');
  const arena = freshArena(16);
  const pd = allocProtectionDomain(arena, 0);
  for (let slot: u32 = 1; slot < CONTEXTS; slot++) attachProtectionDomain(arena, pd, slot);
  // Bit n: context n is in a call when the key dies. They leave in the order of their numbers.
  for (let inside: u32 = 0; inside < 1 << CONTEXTS; inside++) {
    same(register(arena, KEY, pd, 0, 0, ADDRESS, 64), Errno.OK, 'register', inside);
    for (let slot: u32 = 0; slot < CONTEXTS; slot++) {
      if (inside & (1 << slot)) enter(arena, slotOf(arena, slot));
    }
    same(killRegion(arena, KEY, 0), Errno.OK, 'kill', inside);
    for (let slot: u32 = 0; slot < CONTEXTS; slot++) {
      if (!(inside & (1 << slot))) continue;
      held(arena, pd, inside);
      leave(slotOf(arena, slot));
      // The next call cannot find the key, so reclamation does not wait for it.
      enter(arena, slotOf(arena, slot));
    }
    same(u64(regionReleased(arena, KEY)), 1, 'released', inside);
    for (let slot: u32 = 0; slot < CONTEXTS; slot++) leave(slotOf(arena, slot));
    same(register(arena, KEY, pd, 0, 0, ADDRESS + 1, 64), Errno.OK, 'again', inside);
    same(translate(arena, KEY, pd, 0, 1, 0), ADDRESS + 1, 'found', inside);
    killRegion(arena, KEY, 0);
    same(u64(regionReleased(arena, KEY)), 1, 'released', inside);
  }
  end();
}

function checkWhoCounts(): void {
  begin('only contexts of its protection domain keep a dead key waiting');
  const arena = freshArena(16);
  const pd = allocProtectionDomain(arena, 0);
  attachProtectionDomain(arena, pd, 1);
  // Context 2 is a stranger, context 3 was attached once.
  attachProtectionDomain(arena, pd, 3);
  deallocProtectionDomain(arena, pd, 3);
  enter(arena, slotOf(arena, 2));
  enter(arena, slotOf(arena, 3));
  register(arena, KEY, pd, 0, 0, ADDRESS, 64);
  killRegion(arena, KEY, 0);
  same(u64(regionReleased(arena, KEY)), 1, 'strangers');
  enter(arena, slotOf(arena, 1));
  register(arena, KEY, pd, 0, 0, ADDRESS, 64);
  killRegion(arena, KEY, 0);
  held(arena, pd, 1);
  leave(slotOf(arena, 1));
  same(u64(regionReleased(arena, KEY)), 1, 'left');
  end();
}

function checkEpochs(): void {
  begin('epochs are compared across the wraps of 31 and 32 bits');
  const starts: StaticArray<u32> = [1, 0x3fffffff, 0x7fffffff, 0xbfffffff, 0xfffffffe, 0xffffffff];
  for (let i = 0; i < starts.length; i++) {
    const arena = freshArena(16);
    const pd = allocProtectionDomain(arena, 0);
    arena.epoch = starts[i];
    for (let round: u32 = 0; round < 5; round++) {
      register(arena, KEY, pd, 0, 0, ADDRESS, 64);
      enter(arena, slotOf(arena, 0));
      killRegion(arena, KEY, 0);
      // Others go on killing while this one waits.
      for (let more: u32 = 0; more < 3; more++) {
        register(arena, 0x11223344, pd, 0, 0, ADDRESS, 64);
        killRegion(arena, 0x11223344, 0);
        same(u64(regionReleased(arena, 0x11223344)), 0, 'the others wait as well', arena.epoch);
        held(arena, pd, arena.epoch);
        leave(slotOf(arena, 0));
        enter(arena, slotOf(arena, 0));
        same(u64(regionReleased(arena, 0x11223344)), 1, 'the others', arena.epoch);
        same(u64(regionReleased(arena, KEY)), 1, 'the first', arena.epoch);
        register(arena, KEY, pd, 0, 0, ADDRESS, 64);
        killRegion(arena, KEY, 0);
      }
      leave(slotOf(arena, 0));
      same(u64(regionReleased(arena, KEY)), 1, 'at last', arena.epoch);
    }
  }
  end();
}
