/** Checks of memory windows, fast registration, re-registration and the null region. */
import type { Row } from './mutants.js';

const KEYS = 'assembly/region/key-table.ts';
const WINDOW = 'assembly/region/window.ts';
const FAST = 'assembly/region/fast-region.ts';
const NULL = 'assembly/region/null-region.ts';
const REREG = 'assembly/region/reregister.ts';
const LOCAL = 'assembly/transport/local-work.ts';
const REQUESTER = 'assembly/transport/requester.ts';
const CONTROL = 'assembly/transport/control.ts';
const FAILURE = 'assembly/transport/failure.ts';

export const WINDOWS: readonly Row[] = [
  // What a window opens.
  [
    'the low byte of a window’s key is not compared',
    WINDOW,
    'entry.key == key &&\n      (access',
    '(entry.key ^ key) >>> 8 == 0 &&\n      (access',
  ],
  [
    'a window of another domain opens',
    WINDOW,
    'note.pd == pd &&\n      (note.binding == 0 ||',
    '(note.binding == 0 ||',
  ],
  [
    'a window of type 2 opens to every queue pair',
    WINDOW,
    '(note.binding == 0 || note.binding == binding) &&\n      (access',
    '(access',
  ],
  ['a window’s rights are not compared', WINDOW, '(access & need) == need &&', ''],
  [
    'a window’s range does not begin',
    WINDOW,
    'offset <= <u64>size &&\n      length <= size - <u32>offset &&',
    'length <= size - <u32>offset &&',
  ],
  [
    'a window’s range does not end',
    WINDOW,
    'offset <= <u64>size &&\n      length <= size - <u32>offset &&',
    'offset <= <u64>size &&',
  ],
  [
    'a window outlives its region',
    WINDOW,
    'if (!granted || !alive) return 0;',
    'if (!granted) return 0;',
  ],
  [
    'windows outlive the life of their queue pair',
    CONTROL,
    '  // The next peer finds no window that was bound for this one.\n  qp.binding = nextBinding(context.arena);\n',
    '',
  ],

  // What binds a window.
  ['a bind may choose the whole key', WINDOW, '(window ^ key) >>> 8 != 0 ||', 'false ||'],
  [
    'a window may have any right',
    WINDOW,
    '|| access & ~WINDOW_ACCESS) return false;',
    ') return false;',
  ],
  [
    'a window of type 1 may be zero-based',
    WINDOW,
    'return !(access & AccessFlag.ZERO_BASED);',
    'return true;',
  ],
  [
    'a region may be bound like a window',
    WINDOW,
    'if (!(entry.access & KeyKind.WINDOW_TYPE_2)) return false;',
    '',
  ],
  [
    'a window of type 2 is bound anew while it is bound',
    WINDOW,
    'return note.state == KeyState.INVALID && length != 0;',
    'return length != 0;',
  ],
  [
    'a window of type 2 is unbound by length 0',
    WINDOW,
    'return note.state == KeyState.INVALID && length != 0;',
    'return note.state == KeyState.INVALID;',
  ],
  [
    'a window of another domain is bound',
    WINDOW,
    '(note.key ^ window) >>> 8 != 0 || note.pd != pd) return false;',
    '(note.key ^ window) >>> 8 != 0) return false;',
  ],
  ['a window on a region of another domain', WINDOW, 'region.pd == pd &&', ''],
  ['a window on any key of the region’s slot', WINDOW, 'region.key == base &&', ''],
  ['a window on a region without MW_BIND', WINDOW, 'if (!(region & AccessFlag.MW_BIND) ||', 'if ('],
  [
    'a window on a zero-based region',
    WINDOW,
    'if (region & AccessFlag.ZERO_BASED) return false;',
    '',
  ],
  [
    'a window that writes where the region may not',
    WINDOW,
    'return !(window & writes) || (region & AccessFlag.LOCAL_WRITE) != 0;',
    'return true;',
  ],
  [
    'a window that begins outside of its region',
    WINDOW,
    'offset <= <u64>region.length &&\n      length',
    'length',
  ],
  [
    'a window that ends outside of its region',
    WINDOW,
    '&&\n      length <= <u64>region.length - offset;',
    ';',
  ],
  ['a failed bind counts on', WINDOW, '  discountBound(baseNote);\n', ''],
  [
    'what moves to another region stays counted',
    WINDOW,
    '    unbind(arena, note);\n    entry.iova',
    '    entry.iova',
  ],

  // What ends a window.
  [
    'a window of type 1 is invalidated',
    WINDOW,
    '(entry.access & KeyKind.WINDOW_TYPE_2) != 0 &&\n    note.pd',
    'note.pd',
  ],
  [
    'a peer frees windows of other queue pairs',
    WINDOW,
    '(binding == 0 || note.binding == binding);',
    'true;',
  ],
  [
    'a region goes while windows are bound to it',
    KEYS,
    'const busy = atomic.load<u32>(boundOf(note)) != 0;',
    'const busy = false;',
  ],
  [
    'a dead window stays bound',
    KEYS,
    '  unbind(arena, note);\n  if (entry.access',
    '  if (entry.access',
  ],
  [
    'a refused invalidation is a change',
    KEYS,
    '  } else {\n    abandonChange(entry, sequence);',
    '  } else {\n    endChange(entry, sequence);',
  ],

  // Fast registration.
  ['REG_MR may choose the whole key', FAST, '(region ^ key) >>> 8 != 0 ||', 'false ||'],
  [
    'REG_MR takes an address beyond 32 bits',
    FAST,
    'if (address >> 32 != 0 || length >> 32 != 0) return false;',
    '',
  ],
  [
    'REG_MR grants what regMr does not',
    FAST,
    'if (checkAccess(access, first, <u32>address, <u32>length) != Errno.OK) return false;',
    '',
  ],
  ['REG_MR of what is registered', FAST, 'if (note.state != KeyState.INVALID ||', 'if ('],
  ['REG_MR in another domain', FAST, '!= 0 && note.pd == pd;', '!= 0;'],
  ['REG_MR of any memory', FAST, 'if (allowed) return true;\n    break;', 'return true;'],
  ['REG_MR of memory that any key names', FAST, '(entry.access & KeyKind.AREA) != 0 &&', ''],
  ['REG_MR beyond its area', FAST, '&&\n      length <= entry.length - offset;', ';'],
  ['REG_MR does not count on its area', FAST, '  note.base = area;\n', ''],

  // In the send queue.
  [
    'a bind that fails succeeds',
    LOCAL,
    'return bound ? WcStatus.SUCCESS : WcStatus.MW_BIND_ERR;',
    'return WcStatus.SUCCESS;',
  ],
  [
    'what is done here completes before its turn',
    LOCAL,
    'if (qp.sendTail == qp.sendNext++) completeSend',
    'qp.sendNext++;\n  if (true) completeSend',
  ],
  [
    'what is done here is never completed',
    FAILURE,
    'if (sendRequestAt(qp, qp.sendTail).state != SendState.DONE) break;',
    'break;',
  ],
  [
    'what is done is done again',
    REQUESTER,
    'while (request.state == <u32>SendState.DONE) {',
    'while (false) {',
  ],
  [
    'nobody asks in front of what has no packets',
    REQUESTER,
    'return isLocal(next.opcode) || next.state',
    'return next.state',
  ],

  // Re-registration and the null region.
  ['an old domain is left with a use', REREG, 'if (errno != Errno.OK && changesPd)', 'if (false)'],
  ['rereg of what was invalidated', REREG, 'note.state == KeyState.LIVE && note.key', 'note.key'],
  ['rereg grants what regMr does not', REREG, 'if (errno != Errno.OK) {', 'if (false) {'],
  ['rereg leaves the domain', REREG, 'entry.pd = note.pd;', ''],
  ['any domain reads zeros', NULL, 'note.pd == pd &&', ''],
  ['every key is null', NULL, '(entry.access & KeyKind.NULL_REGION) != 0 &&', ''],
  [
    'zeros are written to',
    NULL,
    '(need & AccessFlag.LOCAL_WRITE ? <usize>NULL_PAGE_SIZE : 0)',
    '0',
  ],
];
