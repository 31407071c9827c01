/** One voice: every command, whichever there are, has the same words, help and complaints. */
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { exitCodeOf, makeProgram } from '../../host/cli/main.js';
import { root } from '../support/paths.js';
import { Workspace } from '../support/processes.js';

const test = suite('cli/voice');

interface Said {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Output of a command line that runs no command, without a process. */
async function say(...words: string[]): Promise<Said> {
  let [stdout, stderr] = ['', ''];
  const program = makeProgram();
  for (const command of [program, ...program.commands, ...commandsIn(program)]) {
    command.configureOutput({
      writeOut: (text) => (stdout += text),
      writeErr: (text) => (stderr += text),
    });
  }
  try {
    await program.parseAsync(words, { from: 'user' });
  } catch (error) {
    return { code: exitCodeOf(error), stdout, stderr };
  }
  throw new Error(`${words.join(' ')}: it ran`);
}

/** Those that do something, however deep they lie. */
function commandsIn(program: Command): readonly Command[] {
  return program.commands.flatMap((one) => (one.commands.length > 0 ? commandsIn(one) : [one]));
}

function wordsOf(command: Command): string[] {
  return command.parent ? [...wordsOf(command.parent), command.name()] : [];
}

/** Its output is another program's, and words behind its own are that program's. */
const WRAPPERS = ['run', 'shmem run'];

const COMMANDS = commandsIn(makeProgram());
const NAMES = COMMANDS.map((command) => wordsOf(command).join(' '));

/** Values of an option, in angle brackets: a kind of thing, or its unit. */
const KINDS = new Set([
  ...['file', 'directory', 'address', 'port', 'name', 'name...', 'list', 'type', 'how', 'index'],
  ...['number', 'size', 'bytes', 'seconds', 'hours', 'percent', 'parameter=value', 'key'],
]);

test('there are commands, and each of them is walked', () => {
  for (const name of ['serve', 'put', 'rpma bench', 'decode', 'perf', 'pool top', 'devinfo']) {
    assert.ok(NAMES.includes(name), name);
  }
});

for (const [index, name] of NAMES.entries()) {
  const words = name.split(' ');
  const command = COMMANDS[index]!;

  test(`${name}: help has a usage line, --json, and an example that is made of its options`, async () => {
    const { code, stdout, stderr } = await say(...words, '--help');
    assert.is(code, 0);
    assert.is(stderr, '');
    assert.match(stdout, `Usage: verbena ${name} `);
    if (!WRAPPERS.includes(name)) assert.match(stdout, /--json /);
    assert.not.match(stdout, /\x1b/);
    const [, examples = ''] = stdout.split('\nExample:\n');
    const lines = examples.split('\n').filter((line) => line.trim() !== '');
    assert.ok(lines.length > 0, 'no example');
    const flags = command.options.flatMap(({ short, long }) => [short, long]);
    for (const line of lines) {
      assert.ok(line.startsWith(`  verbena ${name}`), line);
      for (const word of line.split(' ').filter((part) => /^--?[a-zA-Z]/.test(part))) {
        assert.ok(flags.includes(word), `${word} in: ${line}`);
      }
    }
  });

  test(`${name}: what it does not know it says in one line, with the remedy, and ends with 2`, async () => {
    const { code, stdout, stderr } = await say(...words, '--nonsense');
    assert.is(code, 2);
    assert.is(stdout, '');
    const remedy = `(verbena ${name} --help)`;
    assert.is(stderr, `verbena ${name}: unknown option '--nonsense' ${remedy}\n`);
    const nearly = await say(...words, '--jsom');
    if (WRAPPERS.includes(name)) return;
    assert.match(nearly.stderr, /^[^\n]+Did you mean --json\?[^\n]+\n$/);
    const many = await say(...words, ...new Array<string>(9).fill('write'));
    assert.is(many.code, 2);
    assert.match(many.stderr, new RegExp(`^verbena ${name}: [^\\n]+--help\\)\\n$`));
  });
}

test('an option is called, and measured, the same in every command', () => {
  const kinds = new Map<string, string>();
  for (const [index, command] of COMMANDS.entries()) {
    for (const { long, flags } of command.options) {
      const [, kind = ''] = /[<[](.+)[>\]]$/.exec(flags) ?? [];
      // Where one command has a switch another may want a file.
      if (kind === '') continue;
      assert.ok(KINDS.has(kind), `${NAMES[index]}: ${flags}`);
      if (!long) continue;
      const before = kinds.get(long) ?? kind;
      assert.is(kind, before, `${NAMES[index]}: ${flags}, elsewhere <${before}>`);
      kinds.set(long, kind);
    }
  }
});

test('the help of all has an example, and says what is in a command that is several', async () => {
  const { code, stdout } = await say('--help');
  assert.is(code, 0);
  assert.match(stdout, '\nExample:\n  verbena tour\n');
  for (const several of ['"rpma bench"', '"pool top"']) assert.match(stdout, several);
});

/** The program itself, and commands that hold others: `rpma`. */
const GROUPS = [
  [],
  ...makeProgram()
    .commands.filter((one) => one.commands.length > 0)
    .map(wordsOf),
];

test('a missing command, and an unknown one, refer to --help in one line', async () => {
  assert.ok(GROUPS.length >= 4);
  for (const words of GROUPS) {
    const name = ['verbena', ...words].join(' ');
    const unknown = `${name}: unknown command 'frobnicate' (${name} --help)\n`;
    const nothing = await say(...words);
    assert.equal(nothing, {
      code: 2,
      stdout: '',
      stderr: `${name}: missing command (${name} --help)\n`,
    });
    assert.equal(await say(...words, 'frobnicate'), { code: 2, stdout: '', stderr: unknown });
    const help = await say(...words, 'help', 'frobnicate');
    assert.equal(help, { code: 2, stdout: '', stderr: unknown });
  }
});

test('help and help COMMAND print what --help prints, and end with 0', async () => {
  for (const words of [...GROUPS, ['put'], ['perf']]) {
    const asked = await say('help', ...words);
    assert.equal(asked, await say(...words, '--help'));
    assert.is(asked.code, 0);
    assert.match(asked.stdout, `Usage: ${['verbena', ...words].join(' ')} `);
  }
  const bench = await say('rpma', 'help', 'bench');
  assert.equal(bench, await say('rpma', 'bench', '--help'));
});

test('a port that the peer must know is not 0', async () => {
  for (const words of [['perf', 'write', 'bw'], ['pingpong'], ['rping', '-s'], ['rds-stress']]) {
    const server = await say(...words, '-p', '0');
    assert.is(server.code, 2);
    const rule =
      "option '-p, --port <port>' argument '0' is invalid. It must be a whole number from 1";
    assert.match(server.stderr, rule);
  }
  for (const words of [
    ['perf', 'write', 'bw'],
    ['rping', '-c'],
    ['rds-ping', '192.0.2.1'],
  ]) {
    const client = await say(...words, '--peer-udp-port', '0');
    assert.is(client.code, 2);
    assert.match(client.stderr, "option '--peer-udp-port <port>' argument '0' is invalid.");
  }
});

test('--json is lines of JSON on standard output, and nothing else', () =>
  Workspace.use(async (space) => {
    const file = await space.file('some.bin', 20_000);
    const layout = fileURLToPath(new URL('test/cli/column.json', root));
    const ends = await Promise.all([
      space.run('devinfo', '--json'),
      space.run('layout', layout, '--json'),
      space.run('tour', file, '--json', '--pcap', space.path('tour.pcap')),
    ]);
    ends.push(await space.run('decode', space.path('tour.pcap'), '--json', '-n', 5));
    for (const { code, stdout, stderr } of ends) {
      assert.is(code, 0, stderr);
      assert.not.match(stderr + stdout, /\x1b/);
      const lines = stdout.trimEnd().split('\n');
      // One that is printed for people to read, too, may stretch over lines.
      if (lines[0]!.trim() === '{') JSON.parse(stdout);
      else for (const line of lines) JSON.parse(line);
    }
  }));

test('a server that ctrl-C ends has done its work: exit code 0', () =>
  Workspace.use(async (space) => {
    const servers = [
      ['serve', '--dir', space.directory, '--port', '0'],
      ['serve', '--pmem', space.path('store'), '--port', '0'],
      ['nvme-target', '--ram', '1M', '--port', '0', '--udp-port', '0'],
      ['demo', '--port', '0'],
    ].map((words) => space.start(...words));
    for (const server of servers) {
      await server.printed('stdout', /ctrl-C ends/);
      server.kill('SIGINT');
      const { code, stderr } = await server.ended;
      assert.is(code, 0, stderr);
    }
  }));

test('a reader that goes away is no failure', () =>
  Workspace.use(async (space) => {
    const file = await space.file('some.bin', 20_000);
    const told = [space.start('devinfo', '--json'), space.start('tour', file, '--json')];
    for (const program of told) program.closeStdout();
    for (const program of told) {
      const { code, stderr } = await program.ended;
      assert.is(code, 0, stderr);
    }
  }));

test.run();
