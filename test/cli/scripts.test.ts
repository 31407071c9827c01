/** The scripts of package.json that take words have one voice, which is that of the commands. */
import { readFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { CommanderError, type Command } from 'commander';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { words as bench } from '../bench/words.js';
import { words as examples } from '../examples/words.js';
import { words as exhaustive } from '../exhaustive/words.js';
import { words as fuzz } from '../fuzz/words.js';
import { wordsFor } from '../interop/words.js';
import { words as mutants } from '../mutants/words.js';
import { words as sim } from '../simulation/words.js';
import { words as attacks } from '../attacks/words.js';
import { words as hunt } from '../hunt/words.js';
import { words as net } from '../net/words.js';
import { words as soak } from '../soak/words.js';
import { root } from '../support/paths.js';

const test = suite('cli/scripts');

const SCRIPTS: Readonly<Record<string, Command>> = {
  ...{ attacks, bench, examples, exhaustive, fuzz, hunt, mutants, net, sim, soak },
  interop: wordsFor(['rxe', 'cm']),
};

/** Output of a script for these words, and its exit code. */
function say(program: Command, ...words: string[]): [code: number, stdout: string, stderr: string] {
  let [stdout, stderr] = ['', ''];
  program.configureOutput({
    ...program.configureOutput(),
    writeOut: (text) => (stdout += text),
    writeErr: (text) => (stderr += text),
  });
  try {
    program.parse(words, { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    return [error.exitCode, stdout, stderr];
  }
  throw new Error(`${words.join(' ')}: accepted`);
}

for (const [name, program] of Object.entries(SCRIPTS)) {
  test(`${name}: help has a usage line, and examples that are made of its options`, () => {
    const [code, stdout, stderr] = say(program, '--help');
    assert.is(code, 0);
    assert.is(stderr, '');
    assert.match(stdout, `Usage: npm run ${name} -- `);
    assert.match(stdout, 'Exit codes: 0 ');
    const flags = program.options.map(({ long }) => long);
    const [, example = ''] = stdout.split('\nExample:\n');
    const lines = example.split('\n').filter((line) => line.startsWith('  '));
    assert.ok(lines.length > 0);
    for (const line of lines) {
      assert.ok(line.startsWith(`  npm run ${name}`), line);
      const [, behind = ''] = line.split(' -- ');
      for (const word of behind.split(' ').filter((part) => part.startsWith('--'))) {
        assert.ok(flags.includes(word), `${word} in: ${line}`);
      }
      program.parse(behind.split(' '), { from: 'user' });
    }
  });

  test(`${name}: what it does not know it says in one line, with the remedy`, () => {
    const [code, stdout, stderr] = say(program, '--nonsense');
    assert.is.not(code, 0);
    assert.is(stdout, '');
    const remedy = `(npm run ${name} -- --help)`;
    assert.is(stderr, `npm run ${name}: unknown option '--nonsense' ${remedy}\n`);
  });
}

test('an invalid number or name is refused with the valid ones', () => {
  for (const [program, words, says] of [
    [soak, ['--minutes', '0'], /minutes <number>' argument '0' is invalid\. It must be a number/],
    [sim, ['--seeds', 'many'], /It must be a whole number from 1 to /],
    [sim, ['--replay', '{"loss'], /It must be a seed, or options as JSON: /],
    [sim, ['--replay', '{"lost":1}'], /there is no option called lost/],
    [fuzz, ['--packets', '1e3'], /It must be a whole number/],
    [bench, ['no-such-bench'], /There is no bench of that name, but all, .*write-bw/],
    [bench, [], /missing required argument 'name'/],
    [SCRIPTS['interop']!, ['rex'], /There is no group of that name, but rxe, cm\./],
  ] as const) {
    const [code, stdout, stderr] = say(program, ...words);
    assert.is(code, 1);
    assert.is(stdout, '');
    assert.match(stderr, says);
    assert.match(stderr, /^[^\n]+ --help\)\n$/);
  }
});

test('as a process: help ends with 0, a mistake with 2', () => {
  const file = fileURLToPath(new URL('build/test/soak/main.js', root));
  const run = (...words: string[]) =>
    spawnSync(process.execPath, [file, ...words], { encoding: 'utf8' });
  assert.equal([run('--help').status, run('--help').stderr], [0, '']);
  const { status, stdout, stderr } = run('--minute', '1');
  assert.equal([status, stdout], [2, '']);
  assert.match(stderr, /^npm run soak: unknown option '--minute' \(Did you mean --minutes\?\) /);
});

test('every script with words of its own is walked', () => {
  const { scripts } = JSON.parse(readFileSync(new URL('package.json', root), 'utf8')) as {
    scripts: Readonly<Record<string, string>>;
  };
  const own = Object.keys(scripts).filter((name) => scripts[name]!.endsWith('/main.js'));
  assert.equal(own.sort(), Object.keys(SCRIPTS).sort());
});

test.run();
