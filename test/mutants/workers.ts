/** The parent's side of a process of tests (process.ts): one order, and its result. */
import { fork } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cpuSecondsOf } from '../support/process-tree.js';
import { endTree, running } from '../support/run-to-end.js';
import { TREE } from './schemata.js';

/** A case of a test file, by its place in the file. */
export interface CaseRef {
  readonly file: string;
  readonly index: number;
}

/** Order for a process of tests. */
export type Order =
  | { readonly kind: 'record'; readonly file: string }
  | { readonly kind: 'run'; readonly mutant: number; readonly cases: readonly CaseRef[] };

export type Report =
  | { readonly kind: 'imported'; readonly millis: number; readonly reached: readonly number[] }
  | ({ readonly kind: 'started' } & CaseRef)
  | ({
      readonly kind: 'passed';
      readonly name: string;
      readonly millis: number;
      readonly cpuMillis: number;
      readonly reached: readonly number[];
    } & CaseRef)
  /** `clean`: in the same process the case passes without the mutant. */
  | { readonly kind: 'failed'; readonly why: string; readonly clean: boolean }
  | { readonly kind: 'done' };

export interface Failure {
  /** The last case that was started. */
  readonly at: CaseRef | undefined;
  readonly why: string;
  readonly clean: boolean;
}

/** How an order ended. `failure` is undefined when all cases passed. */
export interface Outcome {
  readonly reports: readonly Report[];
  readonly failure: Failure | undefined;
}

/** Limits of one case, its file's import included. */
export interface Limits {
  readonly millis: number;
  /** Processor time of the process. A busy machine does not change it. */
  readonly cpuMillis: number;
}

type LimitsOf = (at: CaseRef | undefined) => Limits;

/** `why` of a case that exceeded its processor time: an endless loop. */
export const ENDLESS = 'an endless loop';
/** `why` of a case that exceeded its time: it waits, or the machine is busy. */
export const TIME_IS_UP = 'time is up';
const CPU_POLL_MILLIS = 250;
/** Engines of earlier mutants occupy memory. */
const MUTANTS_PER_PROCESS_MAX = 40;

class TestProcess {
  readonly #folder = mkdtempSync(join(tmpdir(), 'verbena-mutant-'));
  readonly #child;
  orders = 0;

  constructor(kind: 'record' | 'run' | 'shared', mutant: number) {
    this.#child = fork(fileURLToPath(new URL('process.js', import.meta.url)), {
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
      detached: true,
      env: {
        ...process.env,
        NODE_OPTIONS: `--require ${fileURLToPath(new URL('preload.cjs', import.meta.url))}`,
        VERBENA_MUTANT: String(mutant),
        VERBENA_MUTANT_REACHED: this.#folder,
        VERBENA_MUTANT_BUILD: fileURLToPath(new URL('build/', TREE)),
        VERBENA_EXHAUSTIVE_TREE: fileURLToPath(TREE),
        VERBENA_MUTANT_RECORD: kind === 'record' ? '1' : '0',
        VERBENA_MUTANT_SHARED: kind === 'shared' ? '1' : '0',
      },
    });
    const { pid } = this.#child;
    running.add(pid!);
    this.#child.on('exit', () => {
      // Processes that a test has started end with it.
      this.end();
      running.delete(pid!);
      rmSync(this.#folder, { recursive: true, force: true });
    });
  }

  /** False: it has ended, perhaps by what an earlier case left behind. */
  get isAlive(): boolean {
    return this.#child.connected;
  }

  end(): void {
    endTree(this.#child.pid!);
  }

  perform(order: Order, limitsOf: LimitsOf): Promise<Outcome> {
    const [child, reports] = [this.#child, [] as Report[]];
    let at: CaseRef | undefined;
    this.orders++;
    return new Promise((resolve) => {
      let why = 'the process ended';
      let [limits, begin, cpuBefore] = [limitsOf(undefined), performance.now(), 0];
      const arm = (): void => {
        limits = limitsOf(at);
        begin = performance.now();
        cpuBefore = 1000 * cpuSecondsOf(child.pid!);
      };
      arm();
      const timer = setInterval(() => {
        const isEndless = 1000 * cpuSecondsOf(child.pid!) - cpuBefore > limits.cpuMillis;
        if (!isEndless && performance.now() - begin <= limits.millis) return;
        clearInterval(timer);
        why = isEndless ? ENDLESS : TIME_IS_UP;
        this.end();
      }, CPU_POLL_MILLIS);
      const settle = (failure: Failure | undefined): void => {
        clearInterval(timer);
        child.off('message', hear).off('exit', onExit);
        resolve({ reports, failure });
      };
      const hear = (report: Report): void => {
        reports.push(report);
        if (report.kind === 'started') at = report;
        if (report.kind === 'failed') why = report.why;
        if (report.kind === 'failed' && report.clean) settle({ at, why, clean: true });
        else if (report.kind === 'done') settle(undefined);
        else arm();
      };
      const onExit = (): void => settle({ at, why, clean: false });
      child.on('message', hear).on('exit', onExit);
      // It may end at this moment: then `exit` settles.
      child.send(order, () => undefined);
    });
  }
}

/** Processes that have judged mutants, all of whose cases ended as they should. */
const idle: TestProcess[] = [];

/** Runs `order` in a process of its own, which has no other mutant. */
export async function perform(order: Order, limitsOf: LimitsOf): Promise<Outcome> {
  const isRecord = order.kind === 'record';
  const own = new TestProcess(order.kind, isRecord ? 0 : order.mutant);
  const outcome = await own.perform(order, limitsOf);
  own.end();
  return outcome;
}

/**
 * Runs cases in a process that has judged other mutants: most of a case's time is the start of a
 * process. A failure that is not `clean` may be the work of an earlier mutant.
 */
export async function performShared(
  mutant: number,
  cases: readonly CaseRef[],
  limitsOf: LimitsOf,
): Promise<Outcome> {
  let one = idle.pop();
  while (one && !one.isAlive) one = idle.pop();
  one ??= new TestProcess('shared', 0);
  const outcome = await one.perform({ kind: 'run', mutant, cases }, limitsOf);
  const isUsable = outcome.failure === undefined || outcome.failure.clean;
  if (isUsable && one.orders < MUTANTS_PER_PROCESS_MAX) idle.push(one);
  else one.end();
  return outcome;
}

/** Ends the processes that wait for mutants. */
export function endIdle(): void {
  for (const one of idle.splice(0)) one.end();
}
