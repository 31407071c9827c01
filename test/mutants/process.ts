/**
 * A process of tests. Its parent (workers.ts) names test files and cases; it imports a file when
 * the first of its cases is due, runs the cases one by one, and reports each. The first failure
 * ends it: the mutant is noticed, and the state of this process is worth nothing any more. A shared
 * process goes on when the case that failed passes without the mutant.
 */
import { register } from 'node:module';
import preload from './preload.cjs';
import type { Case } from './cases.js';
import type { Order, Report } from './workers.js';

register('./hooks.js', import.meta.url);
const { take } = await import('./cases.js');

const files = new Map<string, Case[]>();
/** The text of a run: nothing reads it. */
process.stdout.write = (() => true) as never;
process.stderr.write = (() => true) as never;

function send(report: Report): void {
  process.send!(report);
}

async function casesOf(file: string): Promise<readonly Case[]> {
  let cases = files.get(file);
  if (!cases) {
    await import(new URL(`../${file}.test.js`, import.meta.url).href);
    cases = take();
    files.set(file, cases);
  }
  return cases;
}

/** All cases of a file, in order: how long each takes, and which mutants it reaches. */
async function record(file: string): Promise<void> {
  const start = performance.now();
  const cases = await casesOf(file);
  send({ kind: 'imported', millis: performance.now() - start, reached: preload.takeReached() });
  for (const [index, { name, run }] of cases.entries()) {
    send({ kind: 'started', file, index });
    const [begin, cpuBegin] = [performance.now(), process.cpuUsage()];
    await run();
    const millis = performance.now() - begin;
    const { user, system } = process.cpuUsage(cpuBegin);
    const cpuMillis = (user + system) / 1000;
    const reached = preload.takeReached();
    send({ kind: 'passed', file, index, name, millis, cpuMillis, reached });
  }
  send({ kind: 'done' });
}

const isShared = process.env['VERBENA_MUTANT_SHARED'] === '1';

async function run({ mutant, cases }: Order & { kind: 'run' }): Promise<void> {
  for (const { file, index } of cases) {
    send({ kind: 'started', file, index });
    // Objects that all cases of a file share are made without a mutant, as others will follow.
    preload.setActive(isShared ? 0 : mutant);
    const one = (await casesOf(file))[index]!;
    preload.setActive(mutant);
    try {
      await one.run();
    } catch (error) {
      if (!isShared) throw error;
      preload.setActive(0);
      await one.run();
      return send({ kind: 'failed', why: messageOf(error), clean: true });
    }
    const { name } = one;
    send({ kind: 'passed', file, index, name, millis: 0, cpuMillis: 0, reached: [] });
  }
  send({ kind: 'done' });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const fail = (error: unknown): void => {
  const report: Report = { kind: 'failed', why: messageOf(error), clean: false };
  process.send!(report, () => process.exit(1));
};
process.on('uncaughtException', fail);
process.on('unhandledRejection', fail);
process.on('message', (order: Order) => {
  (order.kind === 'record' ? record(order.file) : run(order)).catch(fail);
});
