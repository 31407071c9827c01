/** Contents of the root README and the guide: programs that run, commands and files that exist. */
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { figuresTable, readRecord } from '../bench/figures.js';
import { root } from '../support/paths.js';
import { Workspace, freePort } from '../support/processes.js';

const top = fileURLToPath(root);
const read = (name: string): string => readFileSync(join(top, name), 'utf8');
const readme = read('README.md');

/** The program that begins with its name, as the README has it, at an address of its own. */
function program(name: string, port: number): string {
  const found = new RegExp(`\`\`\`js\\n// ${name}\\n([^]*?)\`\`\``).exec(readme);
  assert.ok(found, `README.md has no ${name}`);
  return found[1]!.replaceAll('rdma://127.0.0.1:7471', `rdma://127.0.34.1:7471?udp=${port}`);
}

test('the first program of the README shares memory, and the second one writes into it', async () => {
  const port = await freePort('127.0.34.1');
  await Workspace.use(async (workspace) => {
    const start = (name: string, ...args: string[]) => {
      // The module that `import 'verbena'` finds in an installed package.
      const index = new URL('build/host/index.js', root).href;
      const file = workspace.path(name);
      writeFileSync(file, program(name, port).replace("'verbena'", `'${index}'`));
      return workspace.startProcess(process.execPath, [file, ...args]);
    };
    const sharing = start('share.mjs');
    await sharing.printed('stdout', /rdma:.*\n"/);
    const { code, stdout, stderr } = await start('write.mjs', 'hello').ended;
    assert.is(code, 0, stderr);
    assert.match(stdout, /^hello\n$/);
    await sharing.printed('stdout', /"hello"/);
  });
});

test('each of the first programs has at most five lines', () => {
  for (const name of ['share.mjs', 'write.mjs']) {
    const lines = program(name, 0).split('\n');
    const statements = lines.filter((line) => line !== '' && !line.startsWith('import '));
    assert.ok(statements.length <= 5, name);
    for (const line of lines) assert.ok(line.length <= 100, line);
  }
});

test('every command is in the table of the README, and no other', async () => {
  const told = new Set([...readme.matchAll(/`verbena ([a-z-]+)/g)].map((match) => match[1]!));
  await Workspace.use(async (workspace) => {
    const { stdout } = await workspace.run('--help');
    const help = stdout.slice(stdout.indexOf('Commands:'), stdout.indexOf('\nExample:'));
    const there = [...help.matchAll(/^ {2}([a-z-]+) /gm)].map((match) => match[1]!);
    assert.ok(there.length > 10, help);
    const unsaid = there.filter((name) => name !== 'help' && !told.has(name));
    assert.equal(unsaid, [], 'not in the README');
    assert.equal(
      [...told].filter((name) => !there.includes(name)),
      [],
      'no such command',
    );
  });
});

test('npm scripts that are named are there', () => {
  const { scripts } = JSON.parse(read('package.json')) as { scripts: object };
  for (const name of texts()) {
    for (const [, script] of read(name).matchAll(/npm run (?:-s )?([a-z:]*[a-z])/g)) {
      assert.ok(script! in scripts, `${name}: npm run ${script}`);
    }
  }
});

/** The README and the guide. */
function texts(): string[] {
  const guide = readdirSync(join(top, 'host/guide'), { recursive: true, encoding: 'utf8' });
  return ['README.md', ...guide.filter((n) => n.endsWith('.md')).map((n) => `host/guide/${n}`)];
}

test('files that the README and the guide name are there', () => {
  assert.ok(texts().length > 5);
  for (const name of texts()) {
    const text = read(name);
    for (const [, target] of text.matchAll(/\]\(([^)#:]+)\)/g)) {
      assert.ok(existsSync(join(top, dirname(name), target!)), `${name} leads to ${target}`);
    }
    for (const [, path] of text.matchAll(/`((?:assembly|host|test)\/[\w./-]+)`/g)) {
      assert.ok(existsSync(join(top, path!)), `${name} names ${path}`);
    }
  }
});

test('the figures of the README are those that were recorded', () => {
  // Prettier pads the cells.
  const cells = (text: string): string[] =>
    text.split('\n').map((line) => line.replace(/\s*\|\s*/g, '|').replace(/-+/g, '-'));
  const there = new Set(cells(readme));
  for (const line of cells(figuresTable(readRecord()))) {
    assert.ok(there.has(line), `npm run figures: ${line}`);
  }
});

test.run();
