/** Checks of region/fast-region.ts: areas, and the lives of a region that REG_MR registers. */
import { Arena, enter, leave } from '../memory/arena';
import { Errno } from '../memory/errno';
import { AccessFlag, KeyKind } from '../region/access-flag';
import { fastRevoked, registerFast, revokeFast } from '../region/fast-region';
import { invalidateKey, killRegion, noteAt, registerRegion, slotIndex } from '../region/key-table';
import { allocProtectionDomain, attachProtectionDomain } from '../region/protection-domain';
import { freshArena, parameters, setCandidates, slotOf } from './arena';
import { begin, end, same } from './tap';

const FAST_KEY: u32 = 0x1100;
const MOBILE_KEY: u32 = 0x2200;
/** Its slot is the first of the table, which key 0 leads to as well. */
const AREA_KEY: u32 = 0x40000000;
const ADDRESS: u32 = 0x4000;
const LENGTH: u32 = 4096;
const ACCESS: u32 = AccessFlag.REMOTE_READ;

export function checkFastRegions(): void {
  checkAreas();
  checkRevocation();
  checkMobile();
  checkCallsInside();
}

function add(arena: Arena, key: u32, pd: u32, kind: u32): void {
  const region = parameters();
  const isArea = kind == <u32>KeyKind.AREA;
  region.pd = pd;
  region.kind = kind;
  region.access = 0;
  region.iova = isArea ? ADDRESS : 0;
  region.address = isArea ? ADDRESS : 0;
  region.length = isArea ? LENGTH : 0;
  setCandidates(key);
  same(registerRegion(arena, 0, region), Errno.OK, 'register', key);
  region.kind = KeyKind.REGION;
}

/** An arena with an area, a region of one domain and a mobile one. Returns the domain. */
function made(arena: Arena): u32 {
  const pd = allocProtectionDomain(arena, 0);
  add(arena, AREA_KEY, pd, KeyKind.AREA);
  add(arena, FAST_KEY, pd, KeyKind.FAST_REGION);
  add(arena, MOBILE_KEY, pd, KeyKind.MOBILE_REGION);
  return pd;
}

function take(arena: Arena, key: u32, area: u32, pd: u32, address: u64, length: u64): u64 {
  return u64(registerFast(arena, 0, key, key, area, pd, address, address, length, ACCESS));
}

function checkAreas(): void {
  begin('REG_MR takes memory of a live area of its context, and of nothing else');
  const arena = freshArena(64);
  const pd = made(arena);
  same(take(arena, FAST_KEY, AREA_KEY, pd, ADDRESS - 1, 64), 0, 'before it');
  same(take(arena, FAST_KEY, AREA_KEY, pd, ADDRESS + LENGTH - 63, 64), 0, 'beyond it');
  same(take(arena, FAST_KEY, MOBILE_KEY, pd, ADDRESS, 64), 0, 'another kind');
  same(take(arena, FAST_KEY, AREA_KEY, pd, ADDRESS + LENGTH - 64, 64), 1, 'its last bytes');
  same(killRegion(arena, AREA_KEY, 0), Errno.EBUSY, 'an area in use');
  same(revokeFast(arena, 0, FAST_KEY), Errno.OK, 'revoked');
  same(killRegion(arena, AREA_KEY, 0), Errno.OK, 'an area that is not in use');
  same(take(arena, FAST_KEY, AREA_KEY, pd, ADDRESS, 64), 0, 'a dead area');
  same(take(arena, FAST_KEY, 0, pd, ADDRESS, 64), 0, 'key 0, whose slot it had');
  end();
}

function checkRevocation(): void {
  begin('a region that was revoked can be registered again, in its domain');
  const arena = freshArena(64);
  const pd = made(arena);
  for (let round: u32 = 0; round < 3; round++) {
    same(take(arena, FAST_KEY, AREA_KEY, pd + 1, ADDRESS, 64), 0, 'another domain', round);
    same(take(arena, FAST_KEY, AREA_KEY, pd, ADDRESS, 64), 1, 'register', round);
    same(take(arena, FAST_KEY, AREA_KEY, pd, ADDRESS, 64), 0, 'twice', round);
    same(revokeFast(arena, 1, FAST_KEY), Errno.EINVAL, 'another context', round);
    same(revokeFast(arena, 0, FAST_KEY), Errno.OK, 'revoke', round);
    same(revokeFast(arena, 0, FAST_KEY), Errno.OK, 'revoke again', round);
    same(u64(fastRevoked(arena, FAST_KEY)), 1, 'no engine is in a call', round);
  }
  end();
}

function checkMobile(): void {
  begin('a mobile region is of the domain that registers it, and of none when it is invalid');
  const arena = freshArena(64);
  const pd = made(arena);
  const other = allocProtectionDomain(arena, 0);
  const note = noteAt(arena, slotIndex(arena, MOBILE_KEY));
  for (let round: u32 = 0; round < 4; round++) {
    const domain = round & 1 ? other : pd;
    same(take(arena, MOBILE_KEY, AREA_KEY, domain, ADDRESS, 64), 1, 'register', round);
    same(note.pd, domain, 'domain', round);
    if (round < 2) same(revokeFast(arena, 0, MOBILE_KEY), Errno.OK, 'revoke', round);
    else same(u64(invalidateKey(arena, MOBILE_KEY, domain)), 1, 'invalidate', round);
    same(note.pd, 0, 'no domain', round);
  }
  end();
}

function checkCallsInside(): void {
  begin('memory of an invalid region is used while an engine is in a call that began before');
  const arena = freshArena(64);
  const pd = made(arena);
  attachProtectionDomain(arena, pd, 1);
  for (let round: u32 = 0; round < 4; round++) {
    same(take(arena, FAST_KEY, AREA_KEY, pd, ADDRESS, 64), 1, 'register', round);
    enter(arena, slotOf(arena, 1));
    if (round & 1) same(revokeFast(arena, 0, FAST_KEY), Errno.OK, 'revoke', round);
    else same(u64(invalidateKey(arena, FAST_KEY, pd)), 1, 'invalidate', round);
    same(u64(fastRevoked(arena, FAST_KEY)), 0, 'inside', round);
    leave(slotOf(arena, 1));
    enter(arena, slotOf(arena, 1));
    same(u64(fastRevoked(arena, FAST_KEY)), 1, 'in its next call', round);
    leave(slotOf(arena, 1));
  }
  end();
}
