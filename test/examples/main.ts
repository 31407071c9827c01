/**
 * Runs the examples and shows their output; `--fail-each` lets each of their host calls fail;
 * `--peers` kills one side of each example, or disconnects it at once.
 *
 *     npm run examples [-- part of a name …] [--peers] [--fail-each] [--kinds] [--json]
 */
import { read } from '../support/script.js';
import { failEach } from './failures.js';
import { playPeers } from './peers.js';
import { inParallel, judge, play } from './play.js';
import { COURSE, PROGRAMS, type Example } from './table.js';
import { words, type ExamplesOptions } from './words.js';

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

const { options, names } = read<ExamplesOptions>(words);
const isWanted = (name: string): boolean => {
  return names.length === 0 || names.some((part) => name.includes(part));
};
const examples = [...COURSE, ...PROGRAMS].filter(({ name }) => isWanted(name));
if (examples.length === 0) console.error(`no example has "${names.join('" or "')}" in its name`);
const run = options.failEach ? (): Promise<[number, number]> => failEach(examples, options) : show;
const [passed, failed] = await (options.peers ? playPeers(isWanted) : run(examples));
console.log(`\n${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
