/** Checks of memory layouts: what is refused, whose keys work, where walks begin and end. */
import type { Row } from './mutants.js';

const LAYOUT = 'assembly/region/layout.ts';
const FIND = 'assembly/region/layout-find.ts';
const PARAMETERS = 'assembly/region/layout-parameters.ts';
const COMPILE = 'assembly/region/layout-compile.ts';
const SEARCH = 'assembly/region/layout-search.ts';
const PIECES = 'assembly/region/layout-pieces.ts';
const USE = 'assembly/region/layout-use.ts';
const WALK = 'assembly/region/layout-walk.ts';
const UNEVEN = 'assembly/region/layout-uneven.ts';
const STRIDED = 'assembly/memory/strided.ts';
const PLACE = 'assembly/transport/place.ts';
const RESPONDER = 'assembly/transport/responder.ts';

export const LAYOUTS: readonly Row[] = [
  // What a list may be.
  [
    'unknown flags of a layout are taken',
    PARAMETERS,
    'if (parameters.flags & ~KNOWN_FLAGS) return refuse(parameters, LayoutFault.FLAGS, 0);',
    '',
  ],
  [
    'a layout may have no entries',
    PARAMETERS,
    'parameters.count == 0 || parameters.count > most',
    'parameters.count > most',
  ],
  [
    'a layout may have any number of entries',
    PARAMETERS,
    'parameters.count == 0 || parameters.count > most',
    'parameters.count == 0',
  ],
  [
    'a source may have any number of dimensions',
    PARAMETERS,
    'if (entry.dimensions > LAYOUT_DIMENSIONS_MAX) return LayoutFault.DIMENSIONS;',
    '',
  ],
  [
    'a ratio may be 0',
    PARAMETERS,
    'entry.length == 0 || entry.repeated == 0 || total == 0',
    'entry.length == 0 || total == 0',
  ],
  [
    'a datum may have no bytes',
    PARAMETERS,
    'entry.length == 0 || entry.repeated == 0 || total == 0',
    'entry.repeated == 0 || total == 0',
  ],
  [
    'counts may be more than 32 bits hold',
    PARAMETERS,
    'return total > U32_MAX ? LayoutFault.OVERFLOW : LayoutFault.NONE;',
    'return LayoutFault.NONE;',
  ],
  [
    'stride times count may wrap',
    COMPILE,
    'if (nextStride > U32_MAX / (nextCount - 1)) return 0;',
    '',
  ],
  ['a source may span more than 32 bits hold', COMPILE, 'if (span > U32_MAX) return 0;', ''],
  [
    'the stream of interleaved sources may wrap',
    COMPILE,
    'if (bytes > U32_MAX || packed + bytes > U32_MAX) {',
    'if (false) {',
  ],
  [
    'a piece may be empty',
    COMPILE,
    'if (entry.length == 0) return refuse(parameters, LayoutFault.ZERO, index);',
    '',
  ],
  [
    'a base without the layout’s rights is taken',
    COMPILE,
    'if (inner == null) return LayoutFault.RIGHT;',
    'if (inner == null) return LayoutFault.NONE;',
  ],
  [
    'a region without the layout’s rights is taken',
    COMPILE,
    'const need = (access & EVERY_RIGHT) | LOCAL_USE;',
    'const need = LOCAL_USE;',
  ],
  [
    'layouts may be nested without end',
    COMPILE,
    'if (inner.level >= LAYOUT_NESTING_MAX) return LayoutFault.NESTING;',
    '',
  ],
  [
    'a layout may be a part of itself',
    COMPILE,
    'return reaches(arena, layout, key, parameters.scratch) ? LayoutFault.CYCLE : LayoutFault.NONE;',
    'return LayoutFault.NONE;',
  ],
  [
    'a layout of one layout may contain itself',
    COMPILE,
    'return (source.key ^ key) >>> 8 == 0 ? LayoutFault.CYCLE : LayoutFault.NONE;',
    'return LayoutFault.NONE;',
  ],
  [
    'a cycle is looked for on one level',
    SEARCH,
    'if (waiting == 0) return false;',
    'return false;',
  ],
  [
    'each nested layout is searched once per source that refers to it',
    SEARCH,
    'store<u32>(word, bits | bit);',
    'store<u32>(word, bits | bit);\n    store<u32>(word + <usize>(((arena.keyMask + 32) >>> 5) << 2), 0);',
  ],
  [
    'a layout found behind the position of the scan is not searched',
    SEARCH,
    'if (at == bytes) at = 0;',
    'if (at == bytes) return false;',
  ],
  [
    'the slot of a destroyed layout counts as that layout',
    SEARCH,
    'if ((entryAt(arena, slot).key ^ source.key) >>> 8 != 0) continue;',
    '',
  ],
  [
    'after its search a layout is compiled without clearing the memory',
    COMPILE,
    'memory.fill(changetype<usize>(source), 0, LAYOUT_SOURCE_SIZE);\n    source.address = entry.address;\n    source.datum = entry.length;\n    source.key = entry.key;\n    source.total',
    'source.address = entry.address;\n    source.datum = entry.length;\n    source.key = entry.key;\n    source.total',
  ],
  [
    'an instance begins at its first entry, not at its lowest byte',
    COMPILE,
    'low = min<i64>(low, distance);',
    '',
  ],
  [
    'a piece below the previous one counts as 2^64 bytes above it',
    COMPILE,
    'if (distance == 0 || distance > U32_MAX - piece.datum) return false;',
    'if (distance == 0) return false;',
  ],
  [
    'a negative extent may have any size',
    COMPILE,
    'return extent > <i64>U32_MAX || extent < -(<i64>U32_MAX);',
    'return extent > <i64>U32_MAX;',
  ],
  [
    'a FLUSH walks a layout once per source that refers to it',
    PIECES,
    'if (source.nested == <u32>Nesting.AGAIN) continue;',
    '',
  ],
  [
    'a FLUSH of instances with a negative extent begins at the first one',
    PIECES,
    'const lowest = layout.extent < 0 ? last : first;',
    'const lowest = first;',
  ],
  [
    'a piece may end behind the layout below',
    COMPILE,
    'if (source.address > inner.packed || source.span > inner.packed - <u32>source.address) {',
    'if (false) {',
  ],

  // Whose keys work.
  [
    'a layout of another domain opens',
    FIND,
    'note.pd == pd &&\n      (entry.access & need) == need;',
    '(entry.access & need) == need;',
  ],
  [
    'a layout’s rights are not compared',
    FIND,
    'note.pd == pd &&\n      (entry.access & need) == need;',
    'note.pd == pd;',
  ],
  [
    'the low byte of a layout’s key is not compared',
    FIND,
    'entry.key == key &&\n      (entry.access & KeyKind.LAYOUT)',
    '(entry.key ^ key) >>> 8 == 0 &&\n      (entry.access & KeyKind.LAYOUT)',
  ],
  [
    'a rebind keeps the key',
    COMPILE,
    'const keep = first || (parameters.flags & MrSetLayoutFlag.AVOID_INVALIDATION) != 0;',
    'const keep = true;',
  ],
  [
    'AVOID_INVALIDATION changes the key',
    COMPILE,
    'const keep = first || (parameters.flags & MrSetLayoutFlag.AVOID_INVALIDATION) != 0;',
    'const keep = first;',
  ],
  [
    'an invalidated key comes back',
    COMPILE,
    'note.state == KeyState.INVALID && note.killedAt == 0;',
    'note.state == KeyState.INVALID;',
  ],
  [
    'BIND_MR binds for another domain',
    LAYOUT,
    'if (!ownsLayout(entry, note, slot, key) || note.pd != pd) {',
    'if (!ownsLayout(entry, note, slot, key)) {',
  ],
  [
    'BIND_MR binds what was overtaken',
    LAYOUT,
    'note.state = KeyState.LIVE;\n  note.binding = 0;',
    'note.state = KeyState.LIVE;',
  ],
  [
    'an invalidated layout opens still',
    LAYOUT,
    'entry.key = 0;\n  entry.address = 0;',
    'entry.address = 0;',
  ],
  [
    'programs that were replaced are kept',
    LAYOUT,
    'if (former != 0) retire(arena, former, nextEpoch(arena));',
    '',
  ],
  [
    'programs are given back while somebody may read them',
    LAYOUT,
    'return layout.retiredAt == 0 || domainQuiesced(arena, layout.pd, layout.retiredAt);',
    'return true;',
  ],

  // Of programs that other processes may write.
  [
    'a program may lie anywhere',
    LAYOUT,
    'return at >= start && <u64>at + bytes <= <u64>arena.heapEnd;',
    'return true;',
  ],
  [
    'sources are read where others may write',
    FIND,
    'return isCopy(arena, layout) ? takeInSource(arena, layout, source) : source;',
    'return source;',
  ],
  ['a source may span less than its data', FIND, 'if (!spans(source)) return null;', ''],

  // Where a walk may go.
  [
    'a stream has no end',
    WALK,
    'export function moveStream(\n  arena: Arena,\n  layout: Layout,\n  pd: u32,\n  need: u32,\n  offset: u64,\n  buffer: usize,\n  length: u32,\n  write: bool,\n): bool {\n  if (offset > <u64>layout.packed || length > layout.packed - <u32>offset) return false;',
    'export function moveStream(\n  arena: Arena,\n  layout: Layout,\n  pd: u32,\n  need: u32,\n  offset: u64,\n  buffer: usize,\n  length: u32,\n  write: bool,\n): bool {',
  ],
  [
    'a message may begin to be written that does not fit',
    USE,
    'return address <= <u64>layout.packed && length <= layout.packed - <u32>address;',
    'return true;',
  ],
  [
    'walks go round in circles',
    WALK,
    'return inner != null && inner.level < layout.level ? inner : null;',
    'return inner;',
  ],
  ['an atomic may lie in two pieces', WALK, 'if (length > source.datum - skip) return 0;', ''],
  [
    'an atomic may end behind its stencil’s instance',
    WALK,
    'if (length > layout.packed - within || !reachesInstance(layout, instance)) return 0;',
    'if (!reachesInstance(layout, instance)) return 0;',
  ],
  [
    'instances wrap around, to where none is',
    WALK,
    'return index <= 0xffffffff && index * <u64>abs<i64>(layout.extent) <= <u64>i64.MAX_VALUE;',
    'return true;',
  ],
  [
    'a READ through a layout is not checked',
    RESPONDER,
    '!allowsRemote(context.arena, key, qp.pd, address, length, need)\n',
    'false\n',
  ],
  [
    'a WRITE beyond a layout is written in part',
    PLACE,
    'if (!allowsRemote(arena, key, qp.pd, address, checked, need)) return false;',
    '',
  ],
  [
    'a READ through a layout is overtaken by a WRITE',
    PLACE,
    'start = hullStart(context.arena, job.key, qp.pd);',
    '',
  ],

  // Where bytes are.
  [
    'the rest of a datum is skipped',
    WALK,
    'rest = 0;\n      datum++;',
    'rest = 0;\n      datum += 2;',
  ],
  ['a row begins where the first one does', WALK, 'place += rowOffset(source, datum);', ''],
  [
    'whole cycles begin with the first datum',
    WALK,
    'let place = at + <usize>(begin * source.stride);',
    'let place = at;',
  ],
  [
    'instances of a stencil lie on each other',
    WALK,
    'at += layout.extent;\n    within = 0;',
    'within = 0;',
  ],
  [
    'who has no more is not passed over',
    UNEVEN,
    'if (before >= source.total) return 0;',
    'if (before >= source.total) return source.datum;',
  ],
  [
    'the rest of a source counts for all cycles',
    UNEVEN,
    'put(layout, index * 2, whole, (source.repeated - rest) * source.datum);',
    'put(layout, index * 2, whole, source.repeated * source.datum);',
  ],
  ['a tree has one level', UNEVEN, 'return 33 - clz((count - 1) / LEAVES);', 'return 1;'],
  [
    'the fourth of four doubles is the third',
    STRIDED,
    'store<u64>(to, d, 24);',
    'store<u64>(to, c, 24);',
  ],
];
