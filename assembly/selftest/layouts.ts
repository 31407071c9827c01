/** Layouts: the strided loops against single bytes; a walk from every offset of several layouts. */
import { Arena } from '../memory/arena';
import { Errno } from '../memory/errno';
import { copyStrided, gatherStrided, scatterStrided } from '../memory/strided';
import { moveLocal } from '../region/access';
import { AccessFlag, KeyKind } from '../region/access-flag';
import { registerRegion } from '../region/key-table';
import { setLayout } from '../region/layout-compile';
import {
  COMPOSITE_ENTRY_SIZE,
  CompositeEntry,
  INTERLEAVED_ENTRY_SIZE,
  INTERLEAVED_WHOLE_SIZE,
  InterleavedEntry,
  LayoutParameters,
  layoutSize,
} from '../region/layout-parameters';
import { allocProtectionDomain } from '../region/protection-domain';
import { freshArena, parameters, register, setCandidates } from './arena';
import { BUFFER, OTHER, fillPattern } from './memory';
import { begin, end, same } from './tap';

const REGION_KEY: u32 = 0x1100;
const LAYOUT_KEY: u32 = 0x2200;
/** Arguments, entries and the program lie behind the region, in the same 64 KiB. */
const REGION_BYTES: u32 = 16384;
const ARGUMENTS: usize = BUFFER + 16384;
const ENTRIES: usize = ARGUMENTS + 256;
const PROGRAM: usize = BUFFER + 32768;
const PROGRAM_BYTES: u32 = 32768;

function wanted(): LayoutParameters {
  return changetype<LayoutParameters>(ARGUMENTS);
}

/** A region of REGION_BYTES at BUFFER, and a region for layouts. Returns the domain. */
export function layOut(arena: Arena): u32 {
  const pd = allocProtectionDomain(arena, 0);
  const access: u32 = AccessFlag.LOCAL_WRITE;
  register(arena, REGION_KEY, pd, access, BUFFER, <u32>BUFFER, REGION_BYTES);
  const region = parameters();
  region.pd = pd;
  region.access = access | AccessFlag.ZERO_BASED;
  region.kind = KeyKind.LAYOUT;
  setCandidates(LAYOUT_KEY);
  registerRegion(arena, 0, region);
  region.kind = KeyKind.REGION;
  return pd;
}

function set(arena: Arena, interleaved: u32, count: u32): void {
  const given = wanted();
  memory.fill(ARGUMENTS, 0, ENTRIES - ARGUMENTS);
  given.key = LAYOUT_KEY;
  given.flags = 2;
  given.interleaved = interleaved;
  given.count = count;
  given.entries = ENTRIES;
  given.program = PROGRAM;
  memory.fill(PROGRAM, 0, PROGRAM_BYTES);
  const size = layoutSize(given);
  same(u64(size > 0 && size <= PROGRAM_BYTES), 1, 'size', size);
  same(setLayout(arena, 0, given), Errno.OK, 'set', given.fault);
}

function piece(index: u32, offset: u32, length: u32): void {
  const at = ENTRIES + <usize>(index * COMPOSITE_ENTRY_SIZE);
  const entry = changetype<CompositeEntry>(at);
  entry.address = BUFFER + offset;
  entry.length = length;
  entry.key = REGION_KEY;
}

function source(index: u32, offset: u32, length: u32, repeated: u32, stride: u32, n: u32): void {
  const at = ENTRIES + <usize>(index * INTERLEAVED_WHOLE_SIZE);
  const entry = changetype<InterleavedEntry>(at);
  entry.address = BUFFER + offset;
  entry.length = length;
  entry.key = REGION_KEY;
  entry.repeated = repeated;
  entry.dimensions = 1;
  store<u64>(at + INTERLEAVED_ENTRY_SIZE, stride);
  store<u64>(at + INTERLEAVED_ENTRY_SIZE, n, 8);
}

/** Gathers the whole stream byte by byte, then from every offset in one go, and compares. */
function everyOffset(arena: Arena, pd: u32): void {
  const packed = wanted().packed;
  const whole = OTHER;
  const part = OTHER + 32768;
  for (let at: u32 = 0; at < packed; at++) {
    const moved = moveLocal(arena, LAYOUT_KEY, pd, at, 0, whole + at, 1, 0);
    same(u64(moved), 1, 'one byte', at);
  }
  let different: u32 = 0;
  for (let at: u32 = 0; at < packed; at++) {
    moveLocal(arena, LAYOUT_KEY, pd, at, 0, part, packed - at, 0);
    different |= <u32>memory.compare(part, whole + at, packed - at);
  }
  same(different, 0, 'from every offset');
  same(u64(moveLocal(arena, LAYOUT_KEY, pd, 1, 0, part, packed, 0)), 0, 'beyond');
  // Back again: memory is as it was.
  memory.copy(part, BUFFER, REGION_BYTES);
  const need: u32 = AccessFlag.LOCAL_WRITE;
  same(u64(moveLocal(arena, LAYOUT_KEY, pd, 0, 0, whole, packed, need)), 1, 'written');
  same(memory.compare(part, BUFFER, REGION_BYTES), 0, 'the same');
}

/** Where each of the three copies goes, and the same byte by byte. */
const WINDOW: usize = 4096;
const MODEL: usize = OTHER + 16384;

function copyOneByOne(
  target: usize,
  targetStride: usize,
  source: usize,
  sourceStride: usize,
  datum: u32,
  count: u32,
): void {
  for (let index: u32 = 0; index < count; index++) {
    for (let at: u32 = 0; at < datum; at++) {
      const from = source + <usize>index * sourceStride + <usize>at;
      store<u8>(target + <usize>index * targetStride + <usize>at, load<u8>(from));
    }
  }
}

/** Compares all bytes of the windows: none beside the data is written. */
function compareStrided(datum: u32, count: u32): void {
  const stride = datum + 13;
  memory.fill(OTHER, 0x5a, 3 * WINDOW);
  memory.fill(MODEL, 0x5a, 3 * WINDOW);
  gatherStrided(OTHER, BUFFER, stride, datum, count);
  copyOneByOne(MODEL, datum, BUFFER, stride, datum, count);
  scatterStrided(OTHER + WINDOW, stride, BUFFER, datum, count);
  copyOneByOne(MODEL + WINDOW, stride, BUFFER, datum, datum, count);
  copyStrided(OTHER + 2 * WINDOW, stride + 2, BUFFER, stride, datum, count);
  copyOneByOne(MODEL + 2 * WINDOW, stride + 2, BUFFER, stride, datum, count);
  same(memory.compare(OTHER, MODEL, 3 * WINDOW), 0, 'bytes', datum * 100 + count);
}

function checkStrided(): void {
  begin('strided copies are those of single bytes');
  fillPattern(BUFFER, 32768, 5);
  for (let datum: u32 = 1; datum <= 40; datum++) {
    for (let count: u32 = 0; count <= 9; count++) compareStrided(datum, count);
  }
  // Those of more than 256 bytes go by memory.copy, or 64 bytes at a time.
  const long: StaticArray<u32> = [64, 255, 256, 257, 320, 576, 577, 960, 1024, 1088];
  for (let place = 0; place < long.length; place++) {
    for (let count: u32 = 0; count <= 3; count++) compareStrided(long[place], count);
  }
  end();
}

export function checkLayouts(): void {
  checkStrided();
  begin('a layout gives the same bytes from every offset');
  const arena = freshArena(64);
  const pd = layOut(arena);
  fillPattern(BUFFER, REGION_BYTES, 9);
  source(0, 8, 8, 1, 64, 50);
  set(arena, 1, 1);
  everyOffset(arena, pd);
  // Three sources, 20 cycles.
  source(0, 0, 4, 3, 8, 60);
  source(1, 2000, 5, 2, 9, 40);
  source(2, 4000, 16, 1, 16, 20);
  set(arena, 1, 3);
  everyOffset(arena, pd);
  // Forty that end at different cycles: a tree of three levels.
  for (let index: u32 = 0; index < 40; index++) {
    source(index, index * 400, 1 + (index % 7), 1 + (index % 3), 9, 1 + ((index * 5) % 11));
  }
  set(arena, 1, 40);
  everyOffset(arena, pd);
  // Pieces: a column, two that continue each other, and one by itself.
  for (let index: u32 = 0; index < 10; index++) piece(index, index * 48, 8);
  piece(10, 1000, 100);
  piece(11, 1100, 50);
  piece(12, 600, 3);
  set(arena, 0, 13);
  everyOffset(arena, pd);
  end();
}
