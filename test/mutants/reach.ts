/**
 * Which cases of the tests reach which mutants, and how long a case takes: each test file runs once
 * on the guarded engine without an active mutant. Kept in build/mutants/reach.json until the engine
 * or the test file changes.
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync, renameSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { root } from '../support/paths.js';
import { isAtUsualPlace } from '../support/usual-place.js';
import { TREE, type Mutant } from './schemata.js';
import { perform, type CaseRef, type Limits, type Outcome } from './workers.js';

/** A case as it was recorded. */
export interface Recorded extends CaseRef {
  readonly name: string;
  readonly millis: number;
  /** Of the process of tests, without the processes that it starts. */
  readonly cpuMillis: number;
}

/** Milliseconds; one of waiting costs less than one of computing, which occupies a processor. */
export function costOf({ millis, cpuMillis }: Recorded): number {
  return cpuMillis + (millis - cpuMillis) / 4;
}

interface FileRecord {
  /** Hashes of the engine and of the test file. */
  readonly key: string;
  readonly importMillis: number;
  readonly importReached: readonly number[];
  readonly cases: readonly (Recorded & { readonly reached: readonly number[] })[];
  /** Why a case failed on an engine without a mutant. */
  readonly failure?: string;
}

const CACHE = new URL('build/mutants/reach.json', root);
const BUILT = new URL('build/test/', root);
/** Folders of the tests that call the engine. */
const FOLDERS = /^((unit|conformance|simulation|shared)\/|exhaustive\/deaths$)/;
/** Its engine is compiled from these sources, and has no room for the table of the guards. */
const SEARCH = { file: 'exhaustive/deaths', sources: /^assembly\/(memory|region)\// };
/** Tests of the build itself, and of what is no part of the engine. */
const NOT_RUN = [
  /^unit\/(\w+$|base|bridge|browser|cli|crypto|demo|dgram|errors|link|nvme|pmem|rpma)/,
  /^unit\/engine\/module/,
  /^conformance\/(table|link|channel-link)/,
];
const RECORD_LIMITS: Limits = { millis: 60_000, cpuMillis: 60_000 };
/** A case may take this many times its recorded time, and some seconds for a busy machine. */
const SLOWER_MAX = 10;
const GRACE: Limits = { millis: 5000, cpuMillis: 1500 };

export class Reach {
  readonly #files = new Map<string, FileRecord>();
  /** Mutants that the search may reach. */
  readonly #searched = new Set<number>();

  /** Records what is missing or out of date; `each` is called per file. */
  static async record(
    mutants: readonly Mutant[],
    workers: number,
    each: (line: string) => void,
  ): Promise<Reach> {
    const reach = new Reach();
    const searched = mutants.filter(({ file }) => SEARCH.sources.test(file));
    for (const { id } of searched) reach.#searched.add(id);
    const old: Record<string, FileRecord> = existsSync(CACHE)
      ? JSON.parse(readFileSync(CACHE, 'utf8'))
      : {};
    const engine = hash(readFileSync(new URL('build/engine.wasm', TREE)));
    const queue: string[] = [];
    for (const file of testFiles()) {
      const record = old[file];
      // A case may have failed because the machine was busy.
      const isKept = record?.key === keyOf(file, engine) && record.failure === undefined;
      if (isKept) reach.#files.set(file, record);
      else queue.push(file);
    }
    const worker = async (): Promise<void> => {
      for (let file = queue.shift(); file; file = queue.shift()) {
        const outcome = await perform({ kind: 'record', file }, () => RECORD_LIMITS);
        const record = toRecord(keyOf(file, engine), outcome);
        reach.#files.set(file, record);
        reach.#save();
        if (record.failure) each(`not used: ${file}: ${record.failure.split('\n')[0]}`);
      }
    };
    await Promise.all(Array.from({ length: workers }, worker));
    reach.#save();
    return reach;
  }

  #save(): void {
    const unfinished = new URL('build/mutants/reach.json.new', root);
    writeFileSync(unfinished, JSON.stringify(Object.fromEntries(this.#files)));
    renameSync(unfinished, CACHE);
  }

  /** Cases that reach mutant `id`, the quickest first. */
  casesOf(id: number): Recorded[] {
    const found: { readonly one: Recorded; readonly cost: number }[] = [];
    for (const { importMillis, importReached, cases } of this.#files.values()) {
      const isSearched = cases[0]?.file === SEARCH.file && this.#searched.has(id);
      const all = isSearched || importReached.includes(id);
      for (const one of cases) {
        if (all || one.reached.includes(id)) found.push({ one, cost: costOf(one) + importMillis });
      }
    }
    return found.sort((left, right) => left.cost - right.cost).map(({ one }) => one);
  }

  /** Does the import of the file reach mutant `id`? */
  isReachedByImport(file: string, id: number): boolean {
    return this.#files.get(file)?.importReached.includes(id) ?? false;
  }

  /** Time of a case, its file's import included, before it counts as endless. */
  limitsOf(at: CaseRef | undefined): Limits {
    const file = at && this.#files.get(at.file);
    const one = file?.cases.find(({ index }) => index === at!.index);
    const importMillis = file?.importMillis ?? 0;
    return {
      millis: GRACE.millis + SLOWER_MAX * ((one?.millis ?? 0) + importMillis),
      cpuMillis: GRACE.cpuMillis + SLOWER_MAX * ((one?.cpuMillis ?? 0) + importMillis),
    };
  }
}

/** Their cases start processes and wait for them. */
const isLast = (file: string): boolean => file.startsWith('shared/');

function testFiles(): string[] {
  return readdirSync(BUILT, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.test.js'))
    .map((name) => name.slice(0, -'.test.js'.length).replaceAll('\\', '/'))
    .filter((file) => FOLDERS.test(file) && !isAtUsualPlace(file))
    .filter((file) => !NOT_RUN.some((each) => each.test(file)))
    .filter((file) => existsSync(fileURLToPath(new URL(`test/${file}.test.ts`, root))))
    .sort((left, right) => Number(isLast(left)) - Number(isLast(right)) || (left < right ? -1 : 1));
}

function hash(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex').slice(0, 16);
}

function keyOf(file: string, engine: string): string {
  const test = readFileSync(new URL(`${file}.test.js`, BUILT));
  // The checks of this file are in a module of their own.
  const checks = file.endsWith('/selftest') ? [new URL('build/selftest.wasm', TREE)] : [];
  return `${engine} ${hash(Buffer.concat([test, ...checks.map((each) => readFileSync(each))]))}`;
}

function toRecord(key: string, { reports, failure }: Outcome): FileRecord {
  const imported = reports.find(({ kind }) => kind === 'imported');
  return {
    key,
    importMillis: imported?.kind === 'imported' ? imported.millis : 0,
    importReached: imported?.kind === 'imported' ? imported.reached : [],
    cases: reports
      .filter((report) => report.kind === 'passed')
      .map(({ kind: _, ...recorded }) => recorded),
    ...(failure ? { failure: `case ${failure.at?.index}: ${failure.why}` } : {}),
  };
}
