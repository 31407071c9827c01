/**
 * Runs the examples and shows what they say; with `--fail-each` lets each of their host calls fail.
 *
 *     npm run examples [-- part of a name …] [--fail-each] [--json]
 */
import { parseArgs } from 'node:util';
import { failEach } from './failures.js';
import { inParallel, judge, play } from './play.js';
import { COURSE, PROGRAMS, type Example } from './table.js';

const USAGE = 'usage: npm run examples [-- part of a name …] [--fail-each] [--json]';

function wordsOf(): { wanted: string[]; isFailing: boolean; asJson: boolean } | undefined {
  try {
    const options = { 'fail-each': { type: 'boolean' }, json: { type: 'boolean' } } as const;
    const { values, positionals } = parseArgs({ options, allowPositionals: true });
    const { 'fail-each': isFailing = false, json: asJson = false } = values;
    return { wanted: positionals, isFailing, asJson };
  } catch (error) {
    console.error(`${(error as Error).message}\n${USAGE}`);
    return undefined;
  }
}

/** How many were as they should be, and how many were not. */
async function show(examples: readonly Example[]): Promise<[passed: number, failed: number]> {
  let failed = 0;
  const played = inParallel(examples, async (example) => ({ example, ...(await play(example)) }));
  for (const result of played) {
    const { example, ...ended } = await result;
    const complaint = judge(example, ended);
    console.log(`== ${example.name}\n${ended.stdout.trimEnd()}`);
    if (complaint === undefined) continue;
    console.log(`FAIL ${complaint}`);
    failed++;
  }
  return [examples.length - failed, failed];
}

const words = wordsOf();
if (!words) process.exit(2);
const examples = [...COURSE, ...PROGRAMS].filter(
  ({ name }) => words.wanted.length === 0 || words.wanted.some((part) => name.includes(part)),
);
const [passed, failed] = words.isFailing
  ? await failEach(examples, words.asJson)
  : await show(examples);
console.log(`\n${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
