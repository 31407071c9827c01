/** Runs the tests that reach a mutant, until one of them notices it. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { root } from '../support/paths.js';
import { costOf, type Reach, type Recorded } from './reach.js';
import type { Mutant } from './schemata.js';
import { TIME_IS_UP, perform, performShared, type CaseRef, type Limits } from './workers.js';

export interface Verdict {
  readonly mutant: Mutant;
  /** The file of the case that failed; undefined: the mutant survived. */
  readonly killedBy: string | undefined;
  /** Why the case failed, or what was tried. */
  readonly why: string;
}

/** By mutant, the case that noticed it in the last run: the next run tries that one first. */
const NOTICED = new URL('build/mutants/noticed.json', root);
/** Cost of the cases for a mutant; a mutant that survives them survives. */
const BUDGET_MILLIS = 30_000;
/** Their cases wait for no clock and no other process: one that fails has noticed the mutant. */
const WITHOUT_TIME =
  /^(conformance|exhaustive|simulation|unit\/(engine|memory|pool|region|transport|wire))\//;
/** Cases whose files are imported with the mutant. */
const IMPORTERS_MAX = 3;
const NEAR_POWER = 10;
/** Overhead of each case besides its recorded time. */
const CASE_MILLIS = 20;
/** Killers of a function that are tried first. */
const KILLERS_MAX = 6;

export class Judge {
  readonly #reach: Reach;
  /** Cases that noticed mutants of a function, the last one first. */
  readonly #killers = new Map<string, string[]>();
  /** By source file: how many of its mutants each test file noticed. */
  readonly #powers = new Map<string, Map<string, number>>();
  readonly #noticed = new Map<string, string>();
  /** Does a case pass by itself, without a mutant? */
  readonly #sound = new Map<string, Promise<boolean>>();

  readonly #budgetMillis: number;

  constructor(reach: Reach, budgetMillis = BUDGET_MILLIS) {
    this.#reach = reach;
    this.#budgetMillis = budgetMillis;
    if (!existsSync(NOTICED)) return;
    const noticed = JSON.parse(readFileSync(NOTICED, 'utf8')) as Record<string, string>;
    for (const [mutant, key] of Object.entries(noticed)) {
      this.#noticed.set(mutant, key);
      this.#count(mutant.split('\n')[0]!, key.split(' ')[0]!);
    }
  }

  #count(source: string, test: string): void {
    const powers = this.#powers.get(source) ?? new Map<string, number>();
    this.#powers.set(source, powers.set(test, (powers.get(test) ?? 0) + 1));
  }

  /** For the next run. */
  save(): void {
    writeFileSync(NOTICED, JSON.stringify(Object.fromEntries(this.#noticed)));
  }

  async of(mutant: Mutant): Promise<Verdict> {
    const cases = this.#inOrder(mutant);
    if (cases.length === 0) return { mutant, killedBy: undefined, why: 'no test reaches it' };
    const isShared = ({ file }: Recorded): boolean => WITHOUT_TIME.test(file);
    const others = cases.filter((each) => !isShared(each));
    const isFirst = others[0] !== undefined && others[0] === cases[0];
    const importers = this.#importersOf(mutant, cases.filter(isShared));
    // The case that killed the mutant in the last run comes first.
    return (
      (isFirst && (await this.#killed(mutant, others.slice(0, 1)))) ||
      (await this.#killedShared(mutant, cases.filter(isShared))) ||
      (await this.#killed(mutant, [...importers, ...others])) || {
        mutant,
        killedBy: undefined,
        why: `${cases.length} cases pass`,
      }
    );
  }

  /** Shared processes import files without a mutant: a case of each whose import reaches it. */
  #importersOf(mutant: Mutant, cases: readonly Recorded[]): Recorded[] {
    const byFile = new Map(cases.map((each) => [each.file, each]));
    return [...byFile.values()]
      .filter(({ file }) => this.#reach.isReachedByImport(file, mutant.id))
      .slice(0, IMPORTERS_MAX);
  }

  readonly #limitsOf = (at: CaseRef | undefined): Limits => this.#reach.limitsOf(at);

  async #killedShared(mutant: Mutant, all: readonly Recorded[]): Promise<Verdict | undefined> {
    for (let cases = all; cases.length > 0;) {
      const { failure } = await performShared(mutant.id, cases, this.#limitsOf);
      if (!failure) return undefined;
      const { at = cases[0]!, why, clean } = failure;
      const [one] = cases.filter((each) => keyOf(each) === keyOf(at));
      if (clean) return this.#remember(mutant, at, why);
      const verdict = await this.#killed(mutant, [one!]);
      if (verdict) return verdict;
      cases = cases.filter((each) => each !== one);
    }
    return undefined;
  }

  async #killed(mutant: Mutant, all: readonly Recorded[]): Promise<Verdict | undefined> {
    for (let cases = all; cases.length > 0;) {
      const order = { kind: 'run', mutant: mutant.id, cases } as const;
      const { failure } = await perform(order, this.#limitsOf);
      if (!failure) return undefined;
      const { at = cases[0]!, why } = failure;
      if (await this.#isCertain(mutant, at, why)) return this.#remember(mutant, at, why);
      cases = cases.filter((each) => keyOf(each) !== keyOf(at));
    }
    return undefined;
  }

  /**
   * First what noticed this mutant, or others of the function; then what is quick, or noticed many
   * of the source file.
   */
  #inOrder(mutant: Mutant): Recorded[] {
    const all = this.#reach.casesOf(mutant.id);
    const before = this.#noticed.get(textOf(mutant));
    const killers = [...(before ? [before] : []), ...(this.#killers.get(mutant.function) ?? [])];
    const first = killers.flatMap((key) => all.filter((each) => keyOf(each) === key));
    const powers = this.#powers.get(mutant.file);
    const price = (each: Recorded): number =>
      (CASE_MILLIS + costOf(each)) / (powerOf(each, mutant) + (powers?.get(each.file) ?? 0));
    const prices = new Map(all.map((each) => [each, price(each)]));
    all.sort((left, right) => prices.get(left)! - prices.get(right)!);
    let left = this.#budgetMillis;
    return [...new Set([...first, ...all])].filter((each) => {
      const cost = costOf(each);
      if (cost > left) return false;
      left -= cost;
      return true;
    });
  }

  /** Did `mutant` make the case fail, and not the case itself or a busy machine? */
  async #isCertain(mutant: Mutant, at: CaseRef, why: string): Promise<boolean> {
    if (!(await this.#isSound(at))) return false;
    if (WITHOUT_TIME.test(at.file) && why !== TIME_IS_UP) return true;
    if (this.#noticed.get(textOf(mutant)) === keyOf(at)) return true;
    const order = { kind: 'run', mutant: mutant.id, cases: [at] } as const;
    const again = await perform(order, this.#limitsOf);
    return again.failure !== undefined;
  }

  #isSound(at: CaseRef): Promise<boolean> {
    let sound = this.#sound.get(keyOf(at));
    if (!sound) {
      const order = { kind: 'run', mutant: 0, cases: [at] } as const;
      sound = perform(order, this.#limitsOf).then(({ failure }) => failure === undefined);
      this.#sound.set(keyOf(at), sound);
    }
    return sound;
  }

  #remember(mutant: Mutant, at: CaseRef, why: string): Verdict {
    const [{ function: name }, key] = [mutant, keyOf(at)];
    this.#noticed.set(textOf(mutant), key);
    this.#count(mutant.file, at.file);
    const others = (this.#killers.get(name) ?? []).filter((each) => each !== key);
    this.#killers.set(name, [key, ...others].slice(0, KILLERS_MAX));
    return { mutant, killedBy: at.file, why };
  }
}

/** Stays the same when lines move. */
export function textOf({ file, function: name, operator, source, becomes }: Mutant): string {
  return [file, name, operator, source, becomes].join('\n');
}

/**
 * Prior of a case before its first run: the simulation compares every packet, the self-tests of the
 * engine call its functions one by one, and tests of a folder are about its sources.
 */
function powerOf({ file }: CaseRef, mutant: Mutant): number {
  const [, folder] = mutant.file.split('/');
  const isNear =
    file.startsWith('simulation/') ||
    file === 'unit/engine/selftest' ||
    file.startsWith(`unit/${folder}/`);
  return isNear ? NEAR_POWER : 1;
}

function keyOf({ file, index }: CaseRef): string {
  return `${file} ${index}`;
}
