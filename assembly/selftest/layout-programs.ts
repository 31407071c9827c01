/**
 * Checks of what the engine makes of a layout: the ranges and the hull of its bytes, its life from
 * recording to binding, and programs that another process has written over.
 */
import { Arena } from '../memory/arena';
import { Errno } from '../memory/errno';
import { hullBytes, hullStart, locateRemote, moveRemote } from '../region/access';
import { AccessFlag, KeyKind } from '../region/access-flag';
import { killRegion, registerRegion } from '../region/key-table';
import {
  LAYOUT_DIMENSIONS_MAX,
  LAYOUT_DIMENSION_SIZE,
  LAYOUT_SIZE,
  Layout,
  LayoutDimension,
  LayoutSource,
  LayoutState,
  bindRecorded,
  layoutReleased,
  mayLieAt,
  sourceAt,
} from '../region/layout';
import { searchBytes, setLayout } from '../region/layout-compile';
import { findLayout } from '../region/layout-find';
import {
  COMPOSITE_ENTRY_SIZE,
  CompositeEntry,
  INTERLEAVED_ENTRY_SIZE,
  INTERLEAVED_WHOLE_SIZE,
  InterleavedEntry,
  LayoutFault,
  LayoutParameters,
  MrSetLayoutFlag,
  checkForm,
} from '../region/layout-parameters';
import { layoutPieces } from '../region/layout-pieces';
import { allocProtectionDomain } from '../region/protection-domain';
import { freshArena, parameters, register, setCandidates } from './arena';
import { BUFFER, OTHER } from './memory';
import { begin, end, same } from './tap';

const REGION_KEY: u32 = 0x1100;
/** Its slot is the first of the table, which key 0 leads to as well. */
const LAYOUT_KEY: u32 = 0x40000000;
const UPPER_KEY: u32 = 0x2200;
const TOP_KEY: u32 = 0x3300;
const REGION_BYTES: u32 = 16384;
const READ: u32 = AccessFlag.REMOTE_READ;
/** Programs and entries lie behind the region, in the same 64 KiB; what is copied in the other. */
const ENTRIES: usize = BUFFER + 20480;
const PROGRAMS: usize = BUFFER + 32768;
const PROGRAM_BYTES: u32 = 4096;
const ARGUMENTS: usize = OTHER;
const PIECES: usize = OTHER + 512;
const SCRATCH: usize = OTHER + 1024;
const PLACES: usize = OTHER + 8192;
const TARGET: usize = OTHER + 16384;

export function checkLayoutPrograms(): void {
  checkPieces();
  checkHull();
  checkNothing();
  checkBinding();
  checkFaults();
  checkOverwritten();
  checkSpans();
}

function wanted(): LayoutParameters {
  return changetype<LayoutParameters>(ARGUMENTS);
}

function programOf(key: u32): Layout {
  const index: u32 = key == LAYOUT_KEY ? 0 : key >>> 12;
  return changetype<Layout>(PROGRAMS + <usize>(index * PROGRAM_BYTES));
}

function addLayoutRegion(arena: Arena, pd: u32, key: u32, access: u32): void {
  const region = parameters();
  region.pd = pd;
  region.access = access;
  region.iova = 0;
  region.address = 0;
  region.length = 0;
  region.kind = KeyKind.LAYOUT;
  setCandidates(key);
  same(registerRegion(arena, 0, region), Errno.OK, 'layout region', key);
  region.kind = KeyKind.REGION;
}

/** A region at BUFFER that peers may read, and one for a layout over it. Returns the domain. */
function begun(arena: Arena, access: u32): u32 {
  const pd = allocProtectionDomain(arena, 0);
  same(register(arena, REGION_KEY, pd, READ, BUFFER, <u32>BUFFER, REGION_BYTES), 0, 'region');
  addLayoutRegion(arena, pd, LAYOUT_KEY, access);
  return pd;
}

/** Of the next stencil: bytes from one instance to the next; 0: its span. */
let extent: i64 = 0;

/** Sets a layout of `count` entries, of the kind that `source` or `piece` has written. */
function set(arena: Arena, key: u32, interleaved: u32, count: u32, flags: u32): void {
  const given = wanted();
  memory.fill(ARGUMENTS, 0, offsetof<LayoutParameters>());
  given.extent = extent;
  given.key = key;
  given.flags = flags;
  given.interleaved = interleaved;
  given.count = count;
  given.entries = ENTRIES;
  given.program = changetype<usize>(programOf(key));
  given.scratch = SCRATCH;
  memory.fill(given.program, 0, PROGRAM_BYTES);
  same(setLayout(arena, 0, given), Errno.OK, 'set', given.fault);
}

const AT_ONCE: u32 = MrSetLayoutFlag.AVOID_INVALIDATION;

function piece(index: u32, address: u64, length: u32, key: u32): void {
  const at = ENTRIES + <usize>(index * COMPOSITE_ENTRY_SIZE);
  const entry = changetype<CompositeEntry>(at);
  entry.address = address;
  entry.length = length;
  entry.key = key;
}

/** `count` data of 8 bytes, `stride` bytes apart. */
function column(index: u32, address: u64, stride: u32, count: u32): void {
  const at = ENTRIES + <usize>(index * INTERLEAVED_WHOLE_SIZE);
  memory.fill(at, 0, INTERLEAVED_WHOLE_SIZE);
  const entry = changetype<InterleavedEntry>(at);
  entry.address = address;
  entry.length = 8;
  entry.key = REGION_KEY;
  entry.repeated = 1;
  entry.dimensions = 1;
  store<u64>(at + INTERLEAVED_ENTRY_SIZE, stride);
  store<u64>(at + INTERLEAVED_ENTRY_SIZE, count, 8);
}

function pieces(arena: Arena, key: u32, pd: u32, address: u64, length: u32): u32 {
  return layoutPieces(arena, key, pd, address, length, false, READ, PIECES);
}

function checkPieces(): void {
  begin('sources that touch, in either order, are one range; others are not');
  const arena = freshArena(64);
  const pd = begun(arena, READ | AccessFlag.ZERO_BASED);
  piece(0, BUFFER + 1000, 100, REGION_KEY);
  piece(1, BUFFER + 940, 60, REGION_KEY);
  piece(2, BUFFER + 1100, 30, REGION_KEY);
  piece(3, BUFFER + 2000, 10, REGION_KEY);
  set(arena, LAYOUT_KEY, 0, 4, AT_ONCE);
  same(pieces(arena, LAYOUT_KEY, pd, 0, 200), 2, 'ranges');
  same(load<u32>(PIECES), BUFFER + 940, 'the first');
  same(load<u32>(PIECES, 4), 190, 'its bytes');
  same(load<u32>(PIECES, 8), BUFFER + 2000, 'the second');
  same(load<u32>(PIECES, 12), 10, 'its bytes');
  end();

  begin('a layout keeps its ranges when another one has it, and its base, as sources');
  addLayoutRegion(arena, pd, UPPER_KEY, READ | AccessFlag.ZERO_BASED);
  piece(0, 0, 200, LAYOUT_KEY);
  set(arena, UPPER_KEY, 0, 1, AT_ONCE);
  same(pieces(arena, UPPER_KEY, pd, 0, 200), 2, 'before');
  addLayoutRegion(arena, pd, TOP_KEY, READ | AccessFlag.ZERO_BASED);
  piece(0, 0, 200, LAYOUT_KEY);
  piece(1, 0, 100, UPPER_KEY);
  set(arena, TOP_KEY, 0, 2, AT_ONCE);
  same(u64(searchBytes(arena) < 4096), 1, 'scratch');
  same(pieces(arena, UPPER_KEY, pd, 0, 200), 2, 'afterwards');
  end();

  begin('a stencil has no instance whose address would wrap');
  const second = freshArena(64);
  const domain = begun(second, READ);
  column(0, 0, 64, 1);
  extent = 1 << 31;
  set(second, LAYOUT_KEY, 1, 1, AT_ONCE);
  extent = 0;
  programOf(LAYOUT_KEY).origin = BUFFER;
  same(pieces(second, LAYOUT_KEY, domain, 0, 8), 1, 'the first instance');
  same(pieces(second, LAYOUT_KEY, domain, 1 << 36, 8), 0, 'the first one again');
  end();
}

function checkHull(): void {
  begin('the hull of a layout is known whatever it allows, and a region has no hull');
  const arena = freshArena(64);
  const pd = begun(arena, READ | AccessFlag.ZERO_BASED);
  same(hullBytes(arena, REGION_KEY, pd), 0, 'of a region');
  same(hullStart(arena, REGION_KEY, pd), 0, 'of a region');
  column(0, BUFFER + 64, 64, 10);
  set(arena, LAYOUT_KEY, 1, 1, AT_ONCE);
  same(hullStart(arena, LAYOUT_KEY, pd), BUFFER + 64, 'begin');
  same(hullBytes(arena, LAYOUT_KEY, pd), 9 * 64 + 8, 'bytes');
  end();
}

function checkNothing(): void {
  begin('no bytes are moved whatever becomes of the base, and an empty range names none (C9-88)');
  const arena = freshArena(64);
  const pd = begun(arena, READ | AccessFlag.ZERO_BASED);
  column(0, BUFFER, 64, 10);
  set(arena, LAYOUT_KEY, 1, 1, AT_ONCE);
  killRegion(arena, REGION_KEY, 0);
  same(u64(moveRemote(arena, LAYOUT_KEY, pd, 80, TARGET, 0, READ, false)), 1, 'at the end');
  same(u64(moveRemote(arena, LAYOUT_KEY, pd, 81, TARGET, 0, READ, false)), 0, 'beyond it');
  same(u64(moveRemote(arena, LAYOUT_KEY, pd, 79, TARGET, 1, READ, false)), 0, 'a byte');
  const second = freshArena(64);
  const domain = begun(second, READ);
  column(0, 0, 64, 10);
  set(second, LAYOUT_KEY, 1, 1, AT_ONCE);
  same(u64(moveRemote(second, LAYOUT_KEY, domain, 0, TARGET, 0, READ, false)), 1, 'a stencil');
  end();

  begin('key 0 leads to no layout, though a dead one was in its slot');
  same(u64(findLayout(second, LAYOUT_KEY, domain, 0) != null), 1, 'alive');
  same(killRegion(second, LAYOUT_KEY, 0), Errno.OK, 'kill');
  same(u64(findLayout(second, LAYOUT_KEY, domain, 0) == null), 1, 'dead');
  same(u64(findLayout(second, 0, domain, 0) == null), 1, 'key 0');
  end();
}

function checkBinding(): void {
  begin('what was recorded is bound once, and stays until something else is');
  const arena = freshArena(64);
  const pd = begun(arena, READ | AccessFlag.ZERO_BASED);
  column(0, BUFFER, 64, 10);
  set(arena, LAYOUT_KEY, 1, 1, MrSetLayoutFlag.WITH_POST_WR | AT_ONCE);
  const program = programOf(LAYOUT_KEY);
  same(program.state, LayoutState.RECORDED, 'recorded');
  same(u64(bindRecorded(arena, 0, pd, REGION_KEY)), 0, 'a region is no layout');
  same(u64(bindRecorded(arena, 1, pd, LAYOUT_KEY)), 0, 'of another context');
  same(u64(bindRecorded(arena, 0, pd, LAYOUT_KEY)), 1, 'bound');
  same(program.state, LayoutState.BOUND, 'state');
  same(u64(layoutReleased(arena, program)), 0, 'in use');
  same(u64(bindRecorded(arena, 0, pd, LAYOUT_KEY)), 0, 'nothing is recorded any more');
  same(program.state, LayoutState.BOUND, 'still');
  end();
}

function checkFaults(): void {
  begin('parameters that are accepted have no fault, whatever was refused before');
  const given = wanted();
  memory.fill(ARGUMENTS, 0, offsetof<LayoutParameters>());
  given.entries = ENTRIES;
  column(0, BUFFER, 64, 10);
  given.interleaved = 1;
  same(checkForm(given), Errno.EINVAL, 'no entries');
  same(given.fault, LayoutFault.ENTRIES, 'fault');
  given.count = 1;
  same(checkForm(given), Errno.OK, 'one entry');
  same(given.fault, LayoutFault.NONE, 'no fault');
  end();
}

/** An arena whose programs others may write: those lie in its heap, and are copied for a walk. */
function sharePrograms(arena: Arena): void {
  arena.layoutPlaces = PLACES;
  arena.heapStart = <u32>PROGRAMS;
  arena.heapEnd = <u32>(PROGRAMS + 8 * PROGRAM_BYTES);
}

function readsFirst(arena: Arena, pd: u32): u64 {
  return u64(moveRemote(arena, LAYOUT_KEY, pd, 0, TARGET, 8, READ, false));
}

/** A column of ten data in such an arena. Returns the source, for others to write over. */
function sharedColumn(arena: Arena): LayoutSource {
  column(0, BUFFER, 64, 10);
  set(arena, LAYOUT_KEY, 1, 1, AT_ONCE);
  sharePrograms(arena);
  return sourceAt(programOf(LAYOUT_KEY), 0);
}

function checkOverwritten(): void {
  begin('a program that others may write lies in the heap, or is no program');
  const arena = freshArena(64);
  const pd = begun(arena, READ | AccessFlag.ZERO_BASED);
  const source = sharedColumn(arena);
  same(readsFirst(arena, pd), 1, 'as it was');
  const start = <usize>arena.heapStart;
  const stop = <usize>arena.heapEnd;
  same(u64(mayLieAt(arena, start, LAYOUT_SIZE)), 1, 'at the begin');
  same(u64(mayLieAt(arena, start - 8, LAYOUT_SIZE)), 0, 'before it');
  same(u64(mayLieAt(arena, stop - LAYOUT_SIZE, LAYOUT_SIZE)), 1, 'at the end');
  same(u64(mayLieAt(arena, stop - LAYOUT_SIZE + 8, LAYOUT_SIZE)), 0, 'beyond it');
  end();

  begin('a word is found in the data that a source has, not in others');
  same(locateRemote(arena, LAYOUT_KEY, pd, 72, 8, READ), BUFFER + 9 * 64, 'the last one');
  source.total = 9;
  same(locateRemote(arena, LAYOUT_KEY, pd, 64, 8, READ), BUFFER + 8 * 64, 'now the last');
  same(locateRemote(arena, LAYOUT_KEY, pd, 72, 8, READ), 0, 'beyond');
  end();
}

function dimension(source: LayoutSource, index: u32, stride: u32, count: u32): void {
  const at = source.dimensions + <usize>(index * LAYOUT_DIMENSION_SIZE);
  changetype<LayoutDimension>(at).stride = stride;
  changetype<LayoutDimension>(at).count = count;
}

function checkSpans(): void {
  begin('a source with more dimensions than there are, or beyond its span, is not sound');
  const arena = freshArena(64);
  const pd = begun(arena, READ | AccessFlag.ZERO_BASED);
  const source = sharedColumn(arena);
  source.dimensions = changetype<usize>(programOf(LAYOUT_KEY)) + 1024;
  for (let index: u32 = 0; index < LAYOUT_DIMENSIONS_MAX; index++) dimension(source, index, 0, 1);
  source.dimensionCount = LAYOUT_DIMENSIONS_MAX - 1;
  same(readsFirst(arena, pd), 1, 'as many as there are');
  source.dimensionCount = LAYOUT_DIMENSIONS_MAX;
  same(readsFirst(arena, pd), 0, 'one more');
  source.dimensionCount = 2;
  dimension(source, 0, 1, source.span);
  same(readsFirst(arena, pd), 0, 'a byte beyond its span');
  // The sum of these is 4, when it has wrapped.
  source.count = 1;
  dimension(source, 0, 0xffffffff, 0xffffffff);
  dimension(source, 1, 3, 0xffffffff);
  same(readsFirst(arena, pd), 0, 'far beyond it');
  end();
}
