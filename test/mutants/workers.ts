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

/** What a process of tests is to do. */
export type Order =
  | { readonly kind: 'record'; readonly file: string }
  | { readonly kind: 'run'; readonly cases: readonly CaseRef[] };

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
  | { readonly kind: 'failed'; readonly why: string }
  | { readonly kind: 'done' };

/** How a process ended. */
export interface Outcome {
  readonly reports: readonly Report[];
  /** Undefined: all cases passed. Otherwise the last case that was started, and why it failed. */
  readonly failure: { readonly at: CaseRef | undefined; readonly why: string } | undefined;
}

/** What one case may take, its file's import included. */
export interface Limits {
  readonly millis: number;
  /** Processor time of the process. A busy machine does not change it. */
  readonly cpuMillis: number;
}

/** `why` of a case that exceeded its processor time: an endless loop. */
export const ENDLESS = 'an endless loop';
/** `why` of a case that exceeded its time: it waits, or the machine is busy. */
export const TIME_IS_UP = 'time is up';
const CPU_POLL_MILLIS = 250;

/** Runs `order` on the engine with mutant `id`, 0 for none. */
export function perform(
  id: number,
  order: Order,
  limitsOf: (at: CaseRef | undefined) => Limits,
): Promise<Outcome> {
  const folder = mkdtempSync(join(tmpdir(), 'verbena-mutant-'));
  const child = fork(fileURLToPath(new URL('process.js', import.meta.url)), {
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    detached: true,
    env: {
      ...process.env,
      NODE_OPTIONS: `--require ${fileURLToPath(new URL('preload.cjs', import.meta.url))}`,
      VERBENA_MUTANT: String(id),
      VERBENA_MUTANT_REACHED: folder,
      VERBENA_MUTANT_BUILD: fileURLToPath(new URL('build/', TREE)),
      VERBENA_EXHAUSTIVE_TREE: fileURLToPath(TREE),
      VERBENA_MUTANT_RECORD: order.kind === 'record' ? '1' : '0',
    },
  });
  running.add(child.pid!);
  const reports: Report[] = [];
  let [at, isDone]: [CaseRef | undefined, boolean] = [undefined, false];
  return new Promise((resolve) => {
    let why = 'the process ended';
    let [limits, begin, cpuBefore] = [limitsOf(undefined), performance.now(), 0];
    const arm = (): void => {
      limits = limitsOf(at);
      begin = performance.now();
      cpuBefore = 1000 * cpuSecondsOf(child.pid!);
    };
    const timer = setInterval(() => {
      const isEndless = 1000 * cpuSecondsOf(child.pid!) - cpuBefore > limits.cpuMillis;
      if (!isEndless && performance.now() - begin <= limits.millis) return;
      clearInterval(timer);
      why = isEndless ? ENDLESS : TIME_IS_UP;
      endTree(child.pid!);
    }, CPU_POLL_MILLIS);
    child.on('message', (report: Report) => {
      reports.push(report);
      if (report.kind === 'started') at = report;
      if (report.kind === 'failed') why = report.why;
      if (report.kind === 'done') isDone = true;
      arm();
    });
    child.on('exit', () => {
      clearInterval(timer);
      // Processes that a test has started end with it.
      endTree(child.pid!);
      running.delete(child.pid!);
      rmSync(folder, { recursive: true, force: true });
      resolve({ reports, failure: isDone ? undefined : { at, why } });
    });
    child.send(order);
  });
}
