/** The script of the guide CI.md runs; its job files call only what exists. */
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { makeProgram } from '../../host/cli/main.js';
import { isBuilt } from '../support/c-program.js';
import { root } from '../support/paths.js';
import { Workspace, cliPath, freePort } from '../support/processes.js';

const test = suite('cli/ci-recipes');
const page = readFileSync(fileURLToPath(new URL('host/guide/CI.md', root)), 'utf8');
const blocks = [...page.matchAll(/```(\w+)\n# (\S+)\n([^]*?)```/g)].map(
  ([, language, name, text]) => ({ language, name, text: text! }),
);

test('the page has a script, two job files for GitHub, one for GitLab and a Dockerfile', () => {
  assert.equal(
    blocks.map(({ name }) => name),
    [
      'rdma-test.sh',
      '.github/workflows/rdma.yml',
      '.github/actions/verbena/action.yml',
      '.gitlab-ci.yml',
      'Dockerfile',
    ],
  );
});

test('each job installs the package, and its commands and files exist', () => {
  const commands = makeProgram().commands.map((one) => one.name());
  for (const { name, text } of blocks) {
    for (const [, command] of text.matchAll(/verbena (\w+) (?!\S*@)/g)) {
      assert.ok(commands.includes(command!), `${name}: verbena ${command}`);
    }
    for (const [, script] of text.matchAll(/sh (\S+\.sh)/g)) assert.is(script, 'rdma-test.sh');
    if (name !== 'rdma-test.sh') assert.match(text, /npm install --(no-save|global) verbena/, name);
  }
});

test('the script of two sides ends with 0, and fails if a side fails', () =>
  Workspace.use(async (space) => {
    const hasProgram = process.env['PATH']!.split(':').some((one) =>
      existsSync(`${one}/ibv_rc_pingpong`),
    );
    if (!isBuilt || !hasProgram) {
      const { code } = await space.run('run', 'ibv_no_such_program');
      assert.is(code, 1);
      return;
    }
    const bin = space.path('bin');
    mkdirSync(bin);
    // As npm installs it.
    writeFileSync(`${bin}/npx`, `#!/bin/sh\nshift\nexec '${process.execPath}' '${cliPath}' "$@"\n`);
    chmodSync(`${bin}/npx`, 0o755);
    const port = await freePort();
    const text = blocks[0]!.text
      .replaceAll('127.0.0.', '127.74.3.')
      .replaceAll('-n 100', `-n 100 -p ${port}`);
    const run = (script: string) => {
      writeFileSync(space.path('rdma-test.sh'), script);
      const environment = `PATH='${bin}':"$PATH"`;
      return space.startProcess('sh', ['-c', `${environment} sh '${space.path('rdma-test.sh')}'`])
        .ended;
    };
    const { code, stdout, stderr } = await run(text);
    assert.is(code, 0, stderr);
    assert.match(stdout, /100 iters in/);
    const broken = text.replace('-n 100', '--no-such-option').replace('-lt 20', '-lt 2');
    assert.is.not((await run(broken)).code, 0);
  }));

test.run();
