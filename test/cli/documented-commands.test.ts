/** Every command line that a README, the guide or the change log has is accepted. */
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { makeProgram } from '../../host/cli/main.js';
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

const test = suite('cli/documented-commands');

const top = fileURLToPath(root);
const read = (name: string): string => readFileSync(join(top, name), 'utf8');
const filesOf = (folder: string): string[] =>
  readdirSync(join(top, folder), { recursive: true, encoding: 'utf8' }).map(
    (name) => `${folder}/${name}`,
  );

const { scripts } = JSON.parse(read('package.json')) as { scripts: object };
const groups = readdirSync(join(top, 'test/interop')).flatMap((file) => {
  if (!file.endsWith('.ts')) return [];
  return (
    /Group: (?:Guest)?Group = \{\s*name: '([\w-]+)'/.exec(read(`test/interop/${file}`))?.[1] ?? []
  );
});
const WORDS: Readonly<Record<string, Command>> = {
  ...{ attacks, bench, examples, exhaustive, fuzz, hunt, mutants, net, sim, soak },
  interop: wordsFor(groups),
};
const tests = filesOf('test').filter((file) => file.endsWith('.test.ts'));

interface Told {
  readonly where: string;
  readonly line: string;
}

/** A word that stands for one of the reader's. */
const PLACEHOLDERS: Readonly<Record<string, string>> = { N: '1', S: '1', T: '1' };

/** Lines of boxes, and words in backticks, that begin as commands do: one command each. */
function* toldIn(where: string): Iterable<Told> {
  const text = read(where);
  const begins = /^(?:npx verbena|npm|node) /;
  const boxed = [...text.matchAll(/^```\w*\n([^]*?)^```/gm)].flatMap(([, box]) => box!.split('\n'));
  const indented = [...text.matchAll(/^ {4}(\S.*)$/gm)].map(([, line]) => line!);
  const inline = [...text.matchAll(/`([^`\n]+)`/g)].map(([, line]) => line!);
  for (const line of [...boxed, ...indented, ...inline]) {
    if (!begins.test(line)) continue;
    // `and: npx …` in a comment is a command as well.
    for (const part of line.split(/\s+&&?\s+|\s+#\s+(?:and: )?|\s{3,}/)) {
      if (begins.test(part)) yield { where, line: part.split(/ [|>] /)[0]!.trim() };
    }
  }
}

const told = ['README.md', 'CHANGELOG.md', ...['assembly', 'host', 'test'].flatMap(filesOf)]
  .filter((name) => name.endsWith('.md'))
  .flatMap((name) => [...toldIn(name)]);

/** Complaint of the program about words that it does not accept; the command is not run. */
function complaint(program: Command, words: readonly string[]): string | undefined {
  const commands: Command[] = [program];
  let said = '';
  for (const command of commands) {
    commands.push(...command.commands);
    command.configureOutput({ writeOut: () => {}, writeErr: (text) => (said += text) });
    if (command.commands.length === 0) command.action(() => {});
  }
  try {
    program.parse([...words], { from: 'user' });
  } catch (error) {
    const { code, message } = error as Error & { code: string };
    if (code !== 'commander.helpDisplayed') return said || message;
  }
  return undefined;
}

/** Words as a shell has them, where nothing is escaped. */
function wordsOf(line: string): string[] {
  return [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, word]) => {
    return quoted ?? PLACEHOLDERS[word!] ?? word!;
  });
}

/** Of `npm run`. */
function complaintOfScript([, ...words]: readonly string[]): string | undefined {
  const [first, ...rest] = words;
  const name = first === 'run' ? rest.filter((word) => word !== '-s')[0]! : first!;
  if (['ci', 'pack', 'install'].includes(name)) return undefined;
  if (!(name in scripts)) return 'there is no such script';
  const own = WORDS[name];
  const behind = rest.slice(rest.indexOf(name) + 1).filter((word) => word !== '--');
  // A name or a form, and no command: `[--json]`, `NAME`.
  if (!own || behind.length === 0 || behind.some((word) => /[[\]…]|^[A-Z]{2,}/.test(word)))
    return undefined;
  return complaint(own, behind);
}

function complaintOfNode(words: readonly string[]): string | undefined {
  const [file = '', ...parts] = words.slice(1).filter((word) => !word.startsWith('-'));
  if (!file.startsWith('build/') || /NAME|NN-name/.test(file)) return undefined;
  const source = file.replace(/^build\//, '').replace(/\.js$/, '.ts');
  if (!existsSync(join(top, source))) return `there is no ${source}`;
  if (source !== 'test/run.ts') return undefined;
  const unknown = parts.find(
    (part) => !part.startsWith('part-of-') && !tests.some((file) => file.includes(part)),
  );
  return unknown && `no test file has ${unknown} in its name`;
}

function complaintOf(line: string): string | undefined {
  const words = wordsOf(line);
  if (words[0] === 'npm') return complaintOfScript(words);
  if (words[0] === 'node') return complaintOfNode(words);
  if (words[2] === 'COMMAND') return undefined;
  return complaint(makeProgram(), words.slice(2));
}

test('commands are found, of every kind', () => {
  for (const start of ['npx verbena rpma bench', 'npm run interop -- ', 'node build/test/run.js']) {
    assert.ok(
      told.some(({ line }) => line.startsWith(start)),
      start,
    );
  }
  assert.ok(told.length > 60, `${told.length}`);
});

test('each of them is understood', () => {
  const wrong = told.flatMap(({ where, line }) => {
    const why = complaintOf(line);
    return why ? [`${where}: ${line}: ${why}`] : [];
  });
  assert.equal(wrong, []);
});

test('what is not understood is found', () => {
  for (const line of [
    'npx verbena putt FILE',
    'npx verbena put FILE ADDR --los 5',
    'npm run sim -- --lost',
    'npm run interop -- rex',
    'npm run -s bench -- write',
    'npm run simulation',
    'node build/host/examples/19-nothing.js',
    'node build/test/run.js no-such-file',
  ]) {
    assert.ok(complaintOf(line), line);
  }
});

test.run();
