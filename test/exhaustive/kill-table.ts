/**
 * Leftovers of a killed thread, by the access before which it was killed. KILLS.md has this text;
 * the test compares the two.
 */
import type { Protocol } from './build.js';
import { Explorer, type KillPoint, type Outcome } from './explore.js';
import { ATTACHMENT, PAIR, TWO_REGISTRARS, type Scenario } from './scenario.js';
import { Leftover, World } from './world.js';

const STATES_MAX = 1_000_000;

const THREADS: Readonly<Record<string, string>> = { R: 'a registrar', E: 'an engine' };

/** Every access of every thread is a place to die at, and every schedule is visited. */
export function exploreKills(protocol: Protocol, scenario: Scenario): Outcome {
  const world = new World(protocol, scenario, { fine: true });
  const options = { kills: 1, preemptions: Infinity, statesMax: STATES_MAX, books: true };
  return new Explorer(world, options).run();
}

/** The scenarios that the table is made of; in the first, only R changes the books. */
export const TABLE_SCENARIOS: readonly Scenario[] = [PAIR, TWO_REGISTRARS, ATTACHMENT];

function describe(leftover: number, hangs: boolean): string {
  const held: string[] = [];
  if (leftover & Leftover.LOCK) held.push('the lock is held');
  if (leftover & Leftover.SLOT) held.push('the slot is odd');
  if (leftover & Leftover.CALL) held.push('its context is in a call');
  const wait =
    leftover & Leftover.CALL ? 'releases wait for it' : 'callers that need the lock wait';
  return held.join(', ') + (hangs ? `; ${wait}` : '; no caller waits');
}

/** `R register: tryKey write entry.key (lock 2)` is an operation and, without its function, an access. */
function split(label: string): { operation: string; access: string } {
  const [, thread, kind, rest] = /^(\w) (\w+): (.*)$/.exec(label)!;
  const access = rest!.replace(/ \(lock \d+\)$/, '').replace(/^\S+ (?=read|write|update)/, '');
  return { operation: `${THREADS[thread!]} in ${kind}`, access };
}

function gather(groups: Map<string, Set<string>>, group: string, access: string): void {
  const found = groups.get(group);
  if (found) found.add(access);
  else groups.set(group, new Set([access]));
}

function listed(groups: ReadonlyMap<string, ReadonlySet<string>>): string[] {
  return [...groups]
    .map(([group, accesses]) => `- **${group}**: before ${[...accesses].sort().join(', ')}`)
    .sort();
}

/** Markdown: what is stuck, then how the books are wrong. */
export function killTable(outcomes: readonly Outcome[]): string {
  const stuck = new Map<string, Set<string>>();
  const hangs = new Map<string, boolean>();
  const points: (readonly [string, KillPoint])[] = outcomes.flatMap((one) => [...one.killPoints]);
  // A call that is left open, or the lock, is waited for in some scenarios only.
  for (const [label, point] of points) hangs.set(label, (hangs.get(label) ?? false) || point.hangs);
  for (const [label, point] of points) {
    const { operation, access } = split(label);
    for (const leftover of point.leftovers) {
      if (leftover === 0) continue;
      const waits = hangs.get(label)! && leftover !== Leftover.SLOT;
      const where = leftover === Leftover.CALL ? 'any access' : access;
      gather(stuck, `${operation}: ${describe(leftover, waits)}`, where);
    }
  }
  const books = new Map<string, Set<string>>();
  for (const [label, { remains }] of outcomes[0]!.killPoints) {
    if (!label.startsWith('R')) continue;
    const { operation, access } = split(label);
    for (const one of remains) gather(books, `${operation}: ${one || 'nothing'}`, access);
  }
  return [
    'What is stuck:',
    '',
    ...listed(stuck),
    '',
    'How the books are wrong:',
    '',
    ...listed(books),
  ]
    .join('\n')
    .replace(/\bbegins\b/g, 'its first access');
}

const BEGIN = '<!-- kill table -->';
const END = '<!-- end of kill table -->';

/** The same lines as they stand in KILLS.md. */
export function tableIn(page: string): string {
  const from = page.indexOf(BEGIN);
  const to = page.indexOf(END);
  if (from < 0 || to < from) throw new Error('the page has no kill table');
  return page.slice(from + BEGIN.length, to).trim();
}
