/** Programs of the guide: each block that begins with its name runs, and prints what it says. */
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';
import { Workspace, cliPath, freePort } from '../support/processes.js';

const test = suite('unit/guide-programs');
const guide = fileURLToPath(new URL('host/guide/', root));
const PACKAGE = new URL('build/package/', root).href;

interface Program {
  readonly page: string;
  readonly name: string;
  readonly text: string;
}

function programs(): Program[] {
  const pages = readdirSync(guide).filter((name) => name.endsWith('.md'));
  return pages.flatMap((page) =>
    [
      ...readFileSync(`${guide}${page}`, 'utf8').matchAll(/```js\n(\/\/ (\S+\.mjs)\n[^]*?)```/g),
    ].map(([, text, name]) => ({ page, name: name!, text: text! })),
  );
}

/** Comments behind console.log: `// 300n`, or several lines with commas between. */
function printed(text: string): string[] {
  return [...text.matchAll(/console\.log\(.*\); \/\/ (.+)/g)].flatMap(([, line]) =>
    line!.split(', '),
  );
}

test('the guide begins with programs', () => {
  const pages = new Set(programs().map(({ page }) => page));
  const all = [
    ...['WORKERS', 'IMMEDIATE', 'RECOVERY', 'CAPTURES', 'MESH', 'TRANSFERS', 'REMOTE', 'LINKS'],
    ...['CONNECTIONS', 'DEVICES', 'POOLS', 'PERSISTENCE', 'DATAGRAMS', 'NVME', 'VERBS'],
    ...['SECURITY', 'TUNING', 'SHARED-MEMORY', 'FRAMES'],
  ];
  for (const page of all.map((name) => `${name}.md`)) {
    assert.ok(pages.has(page), page);
  }
});

for (const [index, { page, name, text }] of programs().entries()) {
  test(`${page}: ${name} runs, and prints what its comments say`, () =>
    Workspace.use(async (space) => {
      // An address of its own: another program may have port 4791 of 127.0.0.1.
      const address = `127.0.35.${index + 1}`;
      const port = await freePort(address);
      const own = text
        .replaceAll("'verbena'", `'${PACKAGE}index.js'`)
        .replaceAll("'verbena/shmem'", `'${PACKAGE}shmem.js'`)
        .replaceAll("'verbena/mesh'", `'${PACKAGE}mesh.js'`)
        .replaceAll("'verbena/transfer'", `'${PACKAGE}transfer.js'`)
        .replaceAll('127.0.0.1:0', `${address}:0?udp=${port}`)
        .replaceAll('127.0.0.1', address);
      writeFileSync(space.path(name), own);
      const words = text.includes('verbena/shmem') ? `'${cliPath}' shmem run -n 2 ` : '';
      const run = `cd '${space.directory}' && exec '${process.execPath}' ${words}${name}`;
      const { code, stdout, stderr } = await space.startProcess('sh', ['-c', run]).ended;
      assert.is(code, 0, stderr);
      for (const line of printed(text)) assert.ok(stdout.includes(line), `${line}\n${stdout}`);
    }));
}

test.run();
