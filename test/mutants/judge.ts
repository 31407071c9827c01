/** Runs the tests that reach a mutant, until one of them notices it. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { root } from '../support/paths.js';
import { costOf, type Reach, type Recorded } from './reach.js';
import type { Mutant } from './schemata.js';
import { TIME_IS_UP, perform, type CaseRef } from './workers.js';

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
const WITHOUT_TIME = /^(conformance|simulation|unit\/(memory|pool|region|transport|wire))\//;
/** Killers of a function that are tried first. */
const KILLERS_MAX = 6;

export class Judge {
  readonly #reach: Reach;
  /** Cases that noticed mutants of a function, the last one first. */
  readonly #killers = new Map<string, string[]>();
  readonly #noticed = new Map<string, string>();
  /** Does a case pass by itself, without a mutant? */
  readonly #sound = new Map<string, Promise<boolean>>();

  readonly #budgetMillis: number;

  constructor(reach: Reach, budgetMillis = BUDGET_MILLIS) {
    this.#reach = reach;
    this.#budgetMillis = budgetMillis;
    if (!existsSync(NOTICED)) return;
    const noticed = JSON.parse(readFileSync(NOTICED, 'utf8')) as Record<string, string>;
    for (const [mutant, key] of Object.entries(noticed)) this.#noticed.set(mutant, key);
  }

  /** For the next run. */
  save(): void {
    writeFileSync(NOTICED, JSON.stringify(Object.fromEntries(this.#noticed)));
  }

  async of(mutant: Mutant): Promise<Verdict> {
    let cases = this.#inOrder(mutant);
    for (;;) {
      if (cases.length === 0) return { mutant, killedBy: undefined, why: 'no test reaches it' };
      const order = { kind: 'run', cases } as const;
      const { failure } = await perform(mutant.id, order, (at) => this.#reach.limitsOf(at));
      if (!failure) return { mutant, killedBy: undefined, why: `${cases.length} cases pass` };
      const { at = cases[0]!, why } = failure;
      if (await this.#isCertain(mutant, at, why)) {
        this.#remember(mutant, keyOf(at));
        return { mutant, killedBy: at.file, why };
      }
      cases = cases.filter((each) => keyOf(each) !== keyOf(at));
    }
  }

  /** First what noticed this mutant, or others of the function, then what is quick. */
  #inOrder(mutant: Mutant): Recorded[] {
    const all = this.#reach.casesOf(mutant.id);
    const before = this.#noticed.get(textOf(mutant));
    const killers = [...(before ? [before] : []), ...(this.#killers.get(mutant.function) ?? [])];
    const first = killers.flatMap((key) => all.filter((each) => keyOf(each) === key));
    let millis = 0;
    return [...new Set([...first, ...all])].filter(
      (each) => (millis += costOf(each)) <= this.#budgetMillis,
    );
  }

  /** Did `mutant` make the case fail, and not the case itself or a busy machine? */
  async #isCertain(mutant: Mutant, at: CaseRef, why: string): Promise<boolean> {
    if (!(await this.#isSound(at))) return false;
    if (WITHOUT_TIME.test(at.file) && why !== TIME_IS_UP) return true;
    if (this.#noticed.get(textOf(mutant)) === keyOf(at)) return true;
    const order = { kind: 'run', cases: [at] } as const;
    const again = await perform(mutant.id, order, (each) => this.#reach.limitsOf(each));
    return again.failure !== undefined;
  }

  #isSound(at: CaseRef): Promise<boolean> {
    let sound = this.#sound.get(keyOf(at));
    if (!sound) {
      const order = { kind: 'run', cases: [at] } as const;
      sound = perform(0, order, (each) => this.#reach.limitsOf(each)).then(
        ({ failure }) => failure === undefined,
      );
      this.#sound.set(keyOf(at), sound);
    }
    return sound;
  }

  #remember(mutant: Mutant, key: string): void {
    const { function: name } = mutant;
    this.#noticed.set(textOf(mutant), key);
    const others = (this.#killers.get(name) ?? []).filter((each) => each !== key);
    this.#killers.set(name, [key, ...others].slice(0, KILLERS_MAX));
  }
}

/** Stays the same when lines move. */
export function textOf({ file, function: name, operator, source, becomes }: Mutant): string {
  return [file, name, operator, source, becomes].join('\n');
}

function keyOf({ file, index }: CaseRef): string {
  return `${file} ${index}`;
}
