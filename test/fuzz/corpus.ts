/**
 * Files that are kept between runs. corpus/receive.jsonl and corpus/posted.jsonl: scenarios that
 * together reach all branches reached so far. regressions.json: scenarios that once did what must
 * not happen, with a sentence each. Both are replayed first.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { root } from '../support/paths.js';
import type { Scenario } from './action.js';
import { Campaign, type Profile } from './campaign.js';
import type { CoverageEngine } from './coverage.js';
import { FAMILIES, type Family } from './world.js';

export interface Entry {
  readonly family: Family;
  readonly scenario: Scenario;
}

export interface Regression extends Entry {
  /** The fault and its cause. */
  readonly what: string;
}

const FOLDER = new URL('test/fuzz/corpus/', root);

export function readCorpus(profile: Profile): Entry[] {
  const lines = readFileSync(new URL(`${profile}.jsonl`, FOLDER), 'utf8').split('\n');
  return lines.filter((line) => line !== '').map((line) => JSON.parse(line) as Entry);
}

export function readRegressions(): Regression[] {
  const file = new URL('test/fuzz/regressions.json', root);
  return JSON.parse(readFileSync(file, 'utf8')) as Regression[];
}

/** One scenario per line, so that a change of one is a change of one line. */
export function writeCorpus(profile: Profile, entries: readonly Entry[]): void {
  mkdirSync(FOLDER, { recursive: true });
  const lines = entries.map((entry) => JSON.stringify(entry));
  writeFileSync(new URL(`${profile}.jsonl`, FOLDER), `${lines.join('\n')}\n`);
}

/** A world of its own for each question: what one scenario reaches alone. */
class Judge {
  readonly #campaign: Campaign;

  constructor(campaign: Campaign) {
    this.#campaign = campaign;
  }

  /** The branches that this scenario takes from a tidy world. */
  branches(entry: Entry): Set<number> {
    const { coverage } = this.#campaign;
    coverage.taken.fill(0);
    this.#campaign.execute(entry.scenario, entry.family);
    const ids = new Set<number>();
    coverage.taken.forEach((taken, id) => taken && ids.add(id));
    return ids;
  }
}

/** Fewest scenarios first, greedily: each next one adds most branches per action. */
function cover(entries: readonly Entry[], judge: Judge): { entry: Entry; adds: Set<number> }[] {
  const left = entries.map((entry) => ({ entry, branches: judge.branches(entry) }));
  const covered = new Set<number>();
  const chosen: { entry: Entry; adds: Set<number> }[] = [];
  for (;;) {
    let best: (typeof left)[number] | undefined;
    let bestScore = 0;
    for (const candidate of left) {
      let fresh = 0;
      for (const id of candidate.branches) if (!covered.has(id)) fresh++;
      const score = fresh / (4 + candidate.entry.scenario.length);
      if (score <= bestScore) continue;
      best = candidate;
      bestScore = score;
    }
    if (!best) return chosen;
    const adds = new Set([...best.branches].filter((id) => !covered.has(id)));
    for (const id of adds) covered.add(id);
    chosen.push({ entry: best.entry, adds });
  }
}

/** Takes actions away as long as the scenario still reaches what it was chosen for. */
function shorten(entry: Entry, adds: ReadonlySet<number>, judge: Judge): Entry {
  let { scenario } = entry;
  for (let size = Math.max(1, scenario.length >> 1); size >= 1; size >>= 1) {
    for (let at = scenario.length - size; at >= 0; at -= size) {
      const shorter = [...scenario.slice(0, at), ...scenario.slice(at + size)];
      const branches = judge.branches({ family: entry.family, scenario: shorter });
      if ([...adds].every((id) => branches.has(id))) scenario = shorter;
    }
  }
  return { family: entry.family, scenario };
}

/** The few scenarios that reach what all of `entries` do, each as short as it can be. */
export async function minimise(
  engine: CoverageEngine,
  profile: Profile,
  entries: readonly Entry[],
): Promise<Entry[]> {
  const campaign = await Campaign.open(engine, profile, 1);
  const judge = new Judge(campaign);
  const short = cover(entries, judge).map(({ entry, adds }) => shorten(entry, adds, judge));
  await campaign.close();
  return short.sort((a, b) => FAMILIES.indexOf(a.family) - FAMILIES.indexOf(b.family));
}
