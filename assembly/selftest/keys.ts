/** Checks of region/key-table.ts: access rights, and the states of a key. */
import { Arena } from '../memory/arena';
import { Errno } from '../memory/errno';
import { AccessFlag } from '../region/access-flag';
import {
  RANDOM_KEYS,
  RegionParameters,
  killRegion,
  regionReleased,
  registerRegion,
  translate,
} from '../region/key-table';
import { allocProtectionDomain, deallocProtectionDomain } from '../region/protection-domain';
import { freshArena, parameters, register } from './arena';
import { begin, end, same } from './tap';

const KEY: u32 = 0xabcdef42;
const ADDRESS: u32 = 0x12340;
const LENGTH: u32 = 4096;
const ALL: u32 =
  AccessFlag.LOCAL_WRITE |
  AccessFlag.REMOTE_WRITE |
  AccessFlag.REMOTE_READ |
  AccessFlag.REMOTE_ATOMIC;

export function checkKeys(): void {
  checkStates();
  checkFlags();
  checkAddressing();
  checkBounds();
  checkIdentity();
  checkFull();
}

function checkStates(): void {
  begin('a key is found from its registration to its kill, and its slot is free when released');
  const arena = freshArena(16);
  const pd = allocProtectionDomain(arena, 0);
  for (let round: u32 = 0; round < 100; round++) {
    const key = KEY + round * 0x10101;
    same(translate(arena, key, pd, 0x5000, 1, 0), 0, 'before', round);
    same(killRegion(arena, key, 0), Errno.EINVAL, 'kill before', round);
    same(u64(regionReleased(arena, key)), 0, 'released before', round);
    same(register(arena, key, pd, ALL, 0x5000, ADDRESS, LENGTH), Errno.OK, 'register', round);
    same(parameters().key, key, 'key', round);
    same(arena.regionCount, 1, 'count', round);
    same(translate(arena, key, pd, 0x5000, LENGTH, ALL), ADDRESS, 'live', round);
    same(u64(regionReleased(arena, key)), 0, 'released while it lives', round);
    same(killRegion(arena, key, 0), Errno.OK, 'kill', round);
    same(translate(arena, key, pd, 0x5000, 1, 0), 0, 'dying', round);
    same(killRegion(arena, key, 0), Errno.EINVAL, 'second kill', round);
    same(arena.regionCount, 1, 'count while dying', round);
    same(u64(regionReleased(arena, key ^ 1)), 0, 'released by another low byte', round);
    same(u64(regionReleased(arena, key)), 1, 'released', round);
    same(u64(regionReleased(arena, key)), 0, 'released twice', round);
    same(arena.regionCount, 0, 'count at the end', round);
  }
  same(deallocProtectionDomain(arena, pd, 0), Errno.OK, 'nothing names the domain');
  end();
}

/** The named flags, one by one. */
const FLAGS: StaticArray<u32> = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 0x100000];

/** Bits of FLAGS by their place in it, gathered. */
function gatherFlags(combination: u32): u32 {
  let access: u32 = 0;
  for (let bit = 0; bit < FLAGS.length; bit++) {
    if (combination & (1 << bit)) access |= FLAGS[bit];
  }
  return access;
}

/**
 * Result of `ibv_reg_mr` for these flags: there are no huge pages. The kind of memory is the host's
 * matter.
 */
function grantable(access: u32): u32 {
  if (access & AccessFlag.HUGETLB) return Errno.EOPNOTSUPP;
  if (access & AccessFlag.LOCAL_WRITE) return Errno.OK;
  if (access & AccessFlag.REMOTE_WRITE) return Errno.EINVAL;
  return access & AccessFlag.REMOTE_ATOMIC ? Errno.EINVAL : Errno.OK;
}

function checkFlags(): void {
  begin('every combination of access flags is granted or refused as ibv_reg_mr does');
  const arena = freshArena(16);
  const pd = allocProtectionDomain(arena, 0);
  for (let combination: u32 = 0; combination < 1 << FLAGS.length; combination++) {
    const access = gatherFlags(combination);
    const errno = register(arena, KEY, pd, access, 0, ADDRESS, LENGTH);
    same(errno, grantable(access), 'register', access);
    same(arena.regionCount, u64(errno == Errno.OK), 'count', access);
    if (errno != Errno.OK) continue;
    for (let need: u32 = 0; need < 16; need++) {
      const allowed = (need & ~access) == 0;
      same(
        translate(arena, KEY, pd, 0, 1, need),
        allowed ? ADDRESS : 0,
        'need',
        (access << 4) | need,
      );
    }
    killRegion(arena, KEY, 0);
    regionReleased(arena, KEY);
  }
  same(register(arena, KEY, pd, 0x80000000, 0, ADDRESS, LENGTH), Errno.EOPNOTSUPP, 'no flag');
  end();
}

function checkAddressing(): void {
  begin('ZERO_BASED begins at 0, and remote atomics want iova and address to agree modulo 8');
  const arena = freshArena(16);
  const pd = allocProtectionDomain(arena, 0);
  const zero: u32 = ALL | AccessFlag.ZERO_BASED;
  same(register(arena, KEY, pd, zero, 0x777, ADDRESS, LENGTH), Errno.OK, 'zero based');
  same(translate(arena, KEY, pd, 0, LENGTH, ALL), ADDRESS, 'first byte');
  same(translate(arena, KEY, pd, 0x777, 1, ALL), ADDRESS + 0x777, 'iova is an offset now');
  same(translate(arena, KEY, pd, ADDRESS, 1, 0), 0, 'its address is no address');
  killRegion(arena, KEY, 0);
  regionReleased(arena, KEY);
  for (let step: u32 = 0; step < 64; step++) {
    const key = KEY + ((step + 1) << 8);
    const iova: u64 = 0x8000 + (step & 7);
    const address = ADDRESS + (step >> 3);
    const agrees = ((step ^ (step >> 3)) & 7) == 0;
    const expected: u32 = agrees ? Errno.OK : Errno.EINVAL;
    same(register(arena, key, pd, ALL, iova, address, LENGTH), expected, 'atomic', step);
    if (agrees) killRegion(arena, key, 0);
    if (agrees) regionReleased(arena, key);
    const plain: u32 = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE;
    same(register(arena, key, pd, plain, iova, address, LENGTH), Errno.OK, 'plain', step);
    same(translate(arena, key, pd, iova + 5, 1, plain), address + 5, 'shift', step);
    killRegion(arena, key, 0);
    regionReleased(arena, key);
  }
  same(register(arena, KEY, pd, 0, 0, ADDRESS, 0), Errno.EINVAL, 'no bytes');
  end();
}

/** Inside, by numbers that cannot wrap. */
function inside(iova: u64, size: u32, address: u64, length: u32): bool {
  if (address < iova) return false;
  const offset = address - iova;
  return offset <= <u64>size && offset + length <= <u64>size;
}

/** Looks up every range around both ends of a region. */
function lookAround(arena: Arena, pd: u32, iova: u64, size: u32): void {
  for (let edge: u32 = 0; edge < 2; edge++) {
    for (let shift: i64 = -9; shift <= 9; shift++) {
      // Wraps below 0 and above 2^64, as an attacker's address would.
      const address = iova + (edge ? size : 0) + shift;
      for (let length: u32 = 0; length <= 20; length++) {
        sameRange(arena, pd, iova, size, address, length);
        sameRange(arena, pd, iova, size, address, size - 10 + length);
        sameRange(arena, pd, iova, size, address, 0 - length);
        sameRange(arena, pd, iova, size, address, 0x80000000 - 10 + length);
        // The same low half: a comparison of 32 bits only would fail here.
        sameRange(arena, pd, iova, size, address + 0x100000000, length);
        sameRange(arena, pd, iova, size, address ^ 0x8000000000000000, length);
      }
    }
  }
}

function sameRange(arena: Arena, pd: u32, iova: u64, size: u32, at: u64, length: u32): void {
  const expected = inside(iova, size, at, length) ? ADDRESS + <u32>(at - iova) : 0;
  same(translate(arena, KEY, pd, at, length, 0), expected, 'translate', at);
}

function checkBounds(): void {
  const sizes: StaticArray<u32> = [1, 7, 8, 4096, 0x7fffffff, 0x80000000, 0xffffffff - ADDRESS];
  const starts: StaticArray<u64> = [
    0, 1, 4096, 0xffffffff, 0x100000000, 0x7fffffffffffffff, 0x8000000000000000,
  ];
  begin('bytes before, behind and across the ends of a region are refused, sums may wrap');
  const arena = freshArena(16);
  const pd = allocProtectionDomain(arena, 0);
  for (let i = 0; i < sizes.length; i++) {
    for (let j = 0; j <= starts.length; j++) {
      // The last start is the highest at which the region still ends below 2^64.
      const iova = j < starts.length ? starts[j] : <u64>0 - sizes[i] - 1;
      same(register(arena, KEY, pd, 0, iova, ADDRESS, sizes[i]), Errno.OK, 'register', iova);
      lookAround(arena, pd, iova, sizes[i]);
      killRegion(arena, KEY, 0);
      regionReleased(arena, KEY);
    }
  }
  end();

  begin('a region whose iova and length pass 2^64 is refused');
  for (let i = 0; i < sizes.length; i++) {
    for (let beyond: u64 = 0; beyond < 3; beyond++) {
      if (beyond >= sizes[i]) continue;
      // The very last byte of the 64 bits is left out, as Linux does.
      const iova = <u64>0 - sizes[i] + beyond;
      same(register(arena, KEY, pd, 0, iova, ADDRESS, sizes[i]), Errno.EINVAL, 'register', iova);
    }
  }
  same(arena.regionCount, 0, 'count');
  end();
}

function checkIdentity(): void {
  begin('a key is compared whole, and serves its own protection domain only');
  const arena = freshArena(16);
  const pd = allocProtectionDomain(arena, 0);
  const other = allocProtectionDomain(arena, 0);
  same(register(arena, KEY, pd, ALL, 0, ADDRESS, LENGTH), Errno.OK, 'register');
  for (let low: u32 = 1; low < 256; low++) {
    same(translate(arena, KEY ^ low, pd, 0, 1, 0), 0, 'other low byte', low);
    same(killRegion(arena, KEY ^ low, 0), Errno.EINVAL, 'kill by other low byte', low);
  }
  for (let bit: u32 = 8; bit < 32; bit++) {
    same(translate(arena, KEY ^ (1 << bit), pd, 0, 1, 0), 0, 'other upper bits', bit);
  }
  same(translate(arena, KEY, other, 0, 1, 0), 0, 'other domain');
  same(translate(arena, KEY, 0, 0, 1, 0), 0, 'no domain');
  same(translate(arena, KEY, pd ^ 0x10000, 0, 1, 0), 0, 'other generation');
  same(translate(arena, KEY, pd, 0, 1, 0), ADDRESS, 'itself');
  end();

  begin('a key grants no access below the floor of its arena or beyond its limit');
  arena.floor = ADDRESS + 64;
  same(translate(arena, KEY, pd, 63, 1, 0), 0, 'below the floor');
  same(translate(arena, KEY, pd, 63, 2, 0), 0, 'across the floor');
  same(translate(arena, KEY, pd, 64, 1, 0), ADDRESS + 64, 'at the floor');
  arena.floor = 0;
  arena.limit = ADDRESS + LENGTH - 64;
  same(translate(arena, KEY, pd, LENGTH - 64, 1, 0), 0, 'at the limit');
  same(translate(arena, KEY, pd, LENGTH - 65, 2, 0), 0, 'across the limit');
  same(translate(arena, KEY, pd, LENGTH - 65, 1, 0), ADDRESS + LENGTH - 65, 'before the limit');
  arena.limit = 1 << 32;
  end();

  begin('key 0 names nothing, and no key has upper bits 0');
  for (let low: u32 = 0; low < 256; low++) {
    same(register(arena, low, pd, ALL, 0, ADDRESS, LENGTH), Errno.EAGAIN, 'candidate', low);
    same(translate(arena, low, pd, 0, 1, 0), 0, 'translate', low);
    same(translate(arena, low, 0, 0, 0, 0), 0, 'translate, all 0', low);
    same(killRegion(arena, low, 0), Errno.EINVAL, 'kill', low);
    same(u64(regionReleased(arena, low)), 0, 'released', low);
  }
  same(arena.regionCount, 1, 'count');
  end();
}

function checkFull(): void {
  const limit: u32 = 100;
  begin('a full table refuses with ENOMEM, a taken slot with EAGAIN, and neither costs anything');
  const arena = freshArena(limit);
  const pd = allocProtectionDomain(arena, 0);
  for (let index: u32 = 1; index <= limit; index++) {
    const key = (index << 8) | 0x5a;
    // The same slot under another key: the table has 256 slots.
    same(register(arena, key, pd, 0, 0, ADDRESS + index, 64), Errno.OK, 'register', index);
    if (index == limit) break;
    same(register(arena, key + 1, pd, 0, 0, 1, 64), Errno.EAGAIN, 'other low byte', index);
    same(register(arena, key + 0x10000, pd, 0, 0, 1, 64), Errno.EAGAIN, 'same slot', index);
    same(arena.regionCount, index, 'count', index);
  }
  for (let index: u32 = 1; index <= limit; index++) {
    same(register(arena, 0xfafa00 + index, pd, 0, 0, 1, 64), Errno.ENOMEM, 'full', index);
    same(translate(arena, (index << 8) | 0x5a, pd, 0, 64, 0), ADDRESS + index, 'others', index);
  }
  same(arena.regionCount, limit, 'count when full');
  const first: u32 = 0x15a;
  same(killRegion(arena, first, 0), Errno.OK, 'kill');
  same(register(arena, 0xfafafa00, pd, 0, 0, 1, 64), Errno.ENOMEM, 'a dying key counts');
  same(u64(regionReleased(arena, first)), 1, 'released');
  same(register(arena, 0xfafafa00, pd, 0, 0, 1, 64), Errno.OK, 'room again');
  end();

  begin('a registration takes the first candidate whose slot is free');
  const random = changetype<usize>(parameters()) + offsetof<RegionParameters>('random');
  killRegion(arena, 0xfafafa00, 0);
  regionReleased(arena, 0xfafafa00);
  for (let draw: u32 = 0; draw < RANDOM_KEYS; draw++) store<u32>(random + (draw << 2), 0x25a);
  store<u32>(random + ((RANDOM_KEYS - 1) << 2), 0xfbfbfb07);
  same(registerRegion(arena, 0, parameters()), Errno.OK, 'last candidate');
  same(parameters().key, 0xfbfbfb07, 'key');
  same(arena.regionCount, limit, 'count');
  end();

  begin('a registration in no domain costs nothing either');
  killRegion(arena, 0xfbfbfb07, 0);
  regionReleased(arena, 0xfbfbfb07);
  same(register(arena, 0xfbfbfb07, pd + 0x10000, 0, 0, 1, 64), Errno.EINVAL, 'no such domain');
  same(register(arena, 0xfbfbfb07, 0, 0, 0, 1, 64), Errno.EINVAL, 'domain 0');
  same(arena.regionCount, limit - 1, 'count');
  end();
}
