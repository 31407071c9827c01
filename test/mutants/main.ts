/**
 * Mutation tests of the engine: `npm run mutants`. README.md says how; words.ts has the options.
 * Ends with `N passed, M failed`: a mutant fails that no test notices and that survivors.ts has no
 * reason for.
 */
import { createHash } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { endWithUs } from '../support/run-to-end.js';
import { read } from '../support/script.js';
import { judgeHostDefences } from './defence-run.js';
import { ENGINE_DEFENCES, isOf } from './defences.js';
import { Judge, textOf, type Verdict } from './judge.js';
import { Reach } from './reach.js';
import { mutantsOfBuild, type Mutant } from './schemata.js';
import { reasonFor } from './survivors.js';
import { endIdle } from './workers.js';
import { words, type Options } from './words.js';

const KILLED_PERCENT_MIN = 97;
const workers = Math.min(2, availableParallelism());

function describe({ id, file, line, function: name, operator, source, becomes }: Mutant): string {
  const change = becomes === '' ? `left out: ${source}` : `${source}  =>  ${becomes}`;
  return `#${id} ${file}:${line} ${name}: ${operator}: ${change}`;
}

/** Of a mutant in the draw: it depends on its text alone, so other changes leave the sample. */
function rankOf(mutant: Mutant, seed: number): number {
  return createHash('sha256')
    .update(`${seed}\n${textOf(mutant)}`)
    .digest()
    .readUInt32LE();
}

function chosen(all: readonly Mutant[], { mutant, file, sample, seed }: Options): Mutant[] {
  if (mutant !== undefined) return all.filter(({ id }) => id === mutant);
  const pool = all.filter((each) => file === undefined || each.file.includes(file));
  const ranks = new Map(pool.map((each) => [each, rankOf(each, seed)]));
  return pool.sort((left, right) => ranks.get(left)! - ranks.get(right)!).slice(0, sample);
}

async function judgeAll(judge: Judge, mutants: readonly Mutant[]): Promise<Verdict[]> {
  const [verdicts, queue]: [Verdict[], Mutant[]] = [[], [...mutants]];
  const worker = async (): Promise<void> => {
    for (let mutant = queue.shift(); mutant; mutant = queue.shift()) {
      const verdict = await judge.of(mutant);
      verdicts.push(verdict);
      if (!verdict.killedBy) console.log(`SURVIVED ${describe(mutant)}\n         ${verdict.why}`);
      if (verdicts.length % 100 !== 0) continue;
      console.log(`${verdicts.length} of ${mutants.length}`);
      judge.save();
    }
  };
  await Promise.all(Array.from({ length: workers }, worker));
  endIdle();
  judge.save();
  return verdicts;
}

async function judgeOperators(options: Options): Promise<{ passed: number; failed: number }> {
  const all = mutantsOfBuild(console.log);
  const mutants = chosen(all, options);
  console.log(`${mutants.length} of ${all.length} mutants, seed ${options.seed}`);
  const reach = await Reach.record(all, workers, console.log);
  const verdicts = await judgeAll(new Judge(reach), mutants);
  const survivors = verdicts.filter(({ killedBy }) => !killedBy);
  let failed = 0;
  for (const { mutant } of survivors) {
    const reason = reasonFor(mutant);
    if (!reason) failed++;
    console.log(`${reason ? 'reviewed' : 'NO REASON'}  ${describe(mutant)}  ${reason ?? ''}`);
  }
  const killed = verdicts.length - survivors.length;
  // A reviewed survivor is equivalent to the original: no test can notice it.
  const noticeable = killed + failed;
  const percent = noticeable === 0 ? 0 : (100 * killed) / noticeable;
  const reviewed = survivors.length - failed;
  console.log(
    `\nkilled ${killed} of ${noticeable} that can be noticed: ${percent.toFixed(1)} %; ` +
      `${reviewed} are equivalent`,
  );
  if (percent < KILLED_PERCENT_MIN && options.mutant === undefined && !options.file) {
    console.log(`fewer than ${KILLED_PERCENT_MIN} % were killed`);
    failed++;
  }
  return { passed: verdicts.length - failed, failed };
}

/** The defences that host/guide/ATTACKS.md names: the rows with one of `parts` in their name. */
async function judgeDefences(
  parts: readonly string[],
): Promise<{ passed: number; failed: number }> {
  const wanted = (name: string): boolean =>
    parts.length === 0 || parts.some((part) => name.includes(part));
  const { passed, failed } = await judgeHostDefences(wanted);
  const rows = ENGINE_DEFENCES.filter(({ name }) => wanted(name));
  if (rows.length === 0) return { passed, failed };
  const all = mutantsOfBuild(console.log);
  const judge = new Judge(await Reach.record(all, workers, console.log));
  let survived = 0;
  for (const row of rows) {
    const mutant = all.find((each) => isOf(row, each));
    const verdict = mutant && (await judge.of(mutant));
    if (!verdict?.killedBy) survived++;
    console.log(
      `${verdict?.killedBy ? 'noticed ' : 'SURVIVED'}  ${row.name}  ${verdict?.killedBy ?? ''}`,
    );
  }
  return { passed: passed + rows.length - survived, failed: failed + survived };
}

endWithUs();
const { options, names } = read<Options>(words);
const { passed, failed } = await (options.defences
  ? judgeDefences(names)
  : judgeOperators(options));
console.log(`\n${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
