/**
 * The protocol with one rule taken out, each of which the checker must notice: what would a checker
 * be worth that never complains?
 */
import type { Protocol, Variant } from './build.js';
import { Explorer } from './explore.js';
import {
  BEREFT,
  BINDING,
  INVALIDATION,
  PAIR,
  SAME_KEY,
  TWO_DOMAINS,
  TWO_REGISTRARS,
} from './scenario.js';
import type { Scenario } from './scenario.js';
import { World } from './world.js';

export interface Mutant {
  readonly variant: Variant;
  /** Where it shows. */
  readonly scenario: Scenario;
}

const ARENA = 'memory/arena.ts';
const KEYS = 'region/key-table.ts';
const DOMAINS = 'region/protection-domain.ts';
const WINDOW = 'region/memory-window.ts';

function mutant(
  scenario: Scenario,
  name: string,
  ...edits: readonly (readonly [file: string, find: string, replace: string])[]
): Mutant {
  const list = edits.map(([file, find, replace]) => ({ file, find, replace }));
  return { variant: { name: `mutant ${name}`, edits: list }, scenario };
}

const RELEASE_CHECK = 'if (!domainQuiesced(arena, note.pd, note.killedAt)) return false;';
const PUBLISH = 'atomic.store<u32>(changetype<usize>(slot), (epoch << 1) | 1);';
const KILL_START = 'const sequence = takeEntry(entry);\n  if (sequence & 1) return Errno.EAGAIN;';
const KILL_END = `endChange(entry, sequence);
  // Only now: a call that begins in the new epoch cannot find the key any more.
  note.killedAt = nextEpoch(arena);`;
const SLOW_CHECK =
  'if (atomic.load<u32>(sequenceOf(entry)) == before) return granted ? address : 0;';

export const MUTANTS: readonly Mutant[] = [
  mutant(PAIR, 'release does not wait', [KEYS, RELEASE_CHECK, '']),
  mutant(PAIR, 'quiesced is always true', [
    ARENA,
    'return !(activity & 1) || <i32>((epoch << 1) - (activity & ~1)) <= 0;',
    'return !(activity & 1) || epoch != 0;',
  ]),
  mutant(SAME_KEY, 'only the first context of a domain is waited for', [
    ARENA,
    'node != 0; node = changetype<Attachment>(node).next) {\n    const slot = contextSlot',
    'node != 0; node = 0) {\n    const slot = contextSlot',
  ]),
  mutant(
    PAIR,
    'the epoch moves before the key is gone',
    [KEYS, KILL_START, `const epoch = nextEpoch(arena);\n  ${KILL_START}`],
    [KEYS, KILL_END, 'endChange(entry, sequence);\n  note.killedAt = epoch;'],
  ),
  mutant(PAIR, 'the epoch does not move', [
    KEYS,
    KILL_END,
    'endChange(entry, sequence);\n  note.killedAt = arena.epoch;',
  ]),
  mutant(PAIR, 'entering publishes nothing', [ARENA, PUBLISH, '']),
  mutant(PAIR, 'entering publishes before it knows the epoch is past', [
    ARENA,
    PUBLISH,
    'atomic.store<u32>(changetype<usize>(slot), ((epoch + 1) << 1) | 1);',
  ]),
  mutant(
    SAME_KEY,
    'lookups do not look at the sequence again',
    [KEYS, 'if (wrong == 0 && atomic.load<u64>(at + <usize>wrong) == head) {', 'if (wrong == 0) {'],
    [KEYS, SLOW_CHECK, 'return granted ? address : 0;'],
  ),
  mutant(TWO_DOMAINS, 'the quick lookup does not look again', [
    KEYS,
    'if (wrong == 0 && atomic.load<u64>(at + <usize>wrong) == head) {',
    'if (wrong == 0) {',
  ]),
  mutant(SAME_KEY, 'the slow lookup does not look again', [
    KEYS,
    SLOW_CHECK,
    'return granted ? address : 0;',
  ]),
  mutant(SAME_KEY, 'the quick lookup takes an odd sequence', [
    KEYS,
    '& 0xffffffff00000001) |',
    '& 0xffffffff00000000) |',
  ]),
  mutant(SAME_KEY, 'the slow lookup takes an odd sequence', [
    KEYS,
    'if (before & 1) continue;',
    '',
  ]),
  mutant(TWO_REGISTRARS, 'a registration does not look at the state', [
    KEYS,
    'if (sequence & 1 || note.state != KeyState.FREE) return false;',
    '',
  ]),
  mutant(TWO_REGISTRARS, 'entries are taken without a swap', [
    KEYS,
    'return atomic.cmpxchg<u32>(sequenceOf(entry), even, even + 1) == even;',
    'atomic.store<u32>(sequenceOf(entry), even + 1); return true;',
  ]),
  mutant(TWO_REGISTRARS, 'use counts without the lock', [
    DOMAINS,
    'const taken = lockArena(arena);\n  const attachment = findAttachment(arena, id, slot);\n' +
      '  if (attachment != null) attachment.useCount++;\n  unlockArena(arena, taken);',
    'const attachment = findAttachment(arena, id, slot);\n' +
      '  if (attachment != null) attachment.useCount++;',
  ]),
  mutant(INVALIDATION, 'an invalidation leaves the key', [
    KEYS,
    'entry.key = 0;\n    note.state = KeyState.INVALID;',
    'note.state = KeyState.INVALID;',
  ]),
  mutant(BINDING, 'a region is killed whatever is bound to it', [
    KEYS,
    'const busy = atomic.load<u32>(boundOf(note)) != 0;',
    'const busy = false;',
  ]),
  mutant(
    BINDING,
    'a bind counts only when it has looked',
    [WINDOW, '  countBound(baseNote);\n  for', '  for'],
    [WINDOW, '  discountBound(baseNote);\n', ''],
    [WINDOW, '    note.base = base;\n', '    countBound(baseNote);\n    note.base = base;\n'],
  ),
  mutant(BEREFT, 'a window does not look at its region', [
    WINDOW,
    'return granted && alive ? address : 0;',
    'return granted ? address : 0;',
  ]),
  mutant(TWO_DOMAINS, 'a lookup does not compare the domain', [
    KEYS,
    '((owner ^ wanted) & (((<u64>need) << 32) | 0xffffffff)) |',
    '((owner ^ wanted) & ((<u64>need) << 32)) |',
  ]),
];

/** How a broken protocol shows, with as few preemptions as possible; undefined: it does not. */
export function findFailure(
  protocol: Protocol,
  scenario: Scenario,
  statesMax: number,
): string | undefined {
  for (const preemptions of [0, 1, 2, 3]) {
    const options = { kills: 0, preemptions, statesMax };
    const { failure } = new Explorer(new World(protocol, scenario), options).run();
    if (failure) return `${failure.message} (${preemptions} preemptions)`;
  }
  return undefined;
}
