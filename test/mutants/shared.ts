/** Checks of what processes share. */
import type { Row } from './mutants.js';

const KEYS = 'assembly/region/key-table.ts';
const DOMAINS = 'assembly/region/protection-domain.ts';
const SHARE = 'assembly/region/share.ts';
const REAP = 'assembly/region/reap.ts';
const HEAP = 'assembly/memory/heap.ts';
const SPIN = 'host/device/spin.ts';

export const SHARED: readonly Row[] = [
  [
    'a key opens what lies beyond the shared memory',
    KEYS,
    '((left | above | below) >> 63);',
    '((left | below) >> 63);',
  ],
  [
    'a share key is not compared',
    SHARE,
    '(domain.shareKey ^ parameters.shareKey) | (domain.nonce',
    '(domain.nonce',
  ],
  ['the chance in a handle is not compared', SHARE, ' | (domain.nonce ^ parameters.nonce);', ';'],
  [
    'a domain that nobody shares can be shared',
    SHARE,
    'u32(domain.attachedCount == 0) | (domain.shared ^ 1);',
    'u32(domain.attachedCount == 0);',
  ],
  [
    'a domain has any number of handles',
    SHARE,
    'errno = domain.shared ? Errno.EBUSY : Errno.OK;',
    'errno = Errno.OK;',
  ],
  [
    'who imported a domain may end it under others',
    DOMAINS,
    '    if (changetype<Attachment>(node).useCount > 0) return Errno.EBUSY;\n    node',
    '    node',
  ],
  ['memory is given back while others hold it', HEAP, 'if (!isHeld(block)) unlink', 'unlink'],
  [
    'what dead processes held stays taken',
    REAP,
    '  letGoOfAll(arena, slot);\n  rebuildHeap(arena);',
    '  rebuildHeap(arena);',
  ],
  [
    'keys of dead processes stay alive',
    REAP,
    'const isOwn = isHeld(note) && (note.owner == slot || isOrphan(arena, index));',
    'const isOwn = false;',
  ],
  // Processors that they share.
  [
    'who looks does so whoever else wants the processor',
    SPIN,
    'this.#pauseEnds = before + lost + this.#pauseMicros;',
    '',
  ],
  ['who got the processor back at once looks no more', SPIN, 'if (lost < LOST_MICROS) return;', ''],
  [
    'who loses the processor again and again tries as often as before',
    SPIN,
    'const isAgain = before - this.#pauseEnds < this.#pauseMicros;',
    'const isAgain = false;',
  ],
  [
    'pauses grow for ever',
    SPIN,
    'Math.min(2 * this.#pauseFactor, PAUSE_FACTOR_MAX)',
    '2 * this.#pauseFactor',
  ],
  [
    'the processor is given away before the next request can have come',
    SPIN,
    'if (before - this.#since < this.#keptMicros) return;',
    '',
  ],
  [
    'who is stopped while it waits has lost patience when it goes on',
    'host/device/lock-timeout.ts',
    'Math.min(this.#now() - before, NAP_MILLIS_MAX)',
    'this.#now() - before',
  ],
];
