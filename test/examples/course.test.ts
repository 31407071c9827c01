/** The course: each part run as its reader would, and what it says. */
import { readFileSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';
import { Workspace, freePort } from '../support/processes.js';
import { sample } from '../support/sample.js';
import { fileOf, testAll } from './play.js';
import { COURSE, FIRST_HALF } from './table.js';

const test = suite('examples/course');

const LINES_MAX = 80;
const folder = fileURLToPath(new URL('host/examples/', root));

// The others: course-seeds.test.ts.
testAll(test, COURSE.slice(0, sample(5, FIRST_HALF)));

test('server and client are two commands, as between two machines', async () => {
  const [port, udpPort] = [await freePort(), await freePort()];
  const words = [`127.0.0.1:${port}`, `${udpPort}`];
  await Workspace.use(async (workspace) => {
    const start = (role: string) =>
      workspace.startProcess(process.execPath, [fileOf('01-connect'), role, ...words]);
    const server = start('server');
    await server.printed('stdout', /listening/);
    const client = await start('client').ended;
    assert.is(client.stderr, '');
    assert.match(client.stdout, /the server says: welcome/);
    assert.is((await server.ended).code, 0);
  });
});

test('unknown names are refused with the valid ones', async () => {
  await Workspace.use(async (workspace) => {
    const { code, stderr } = await workspace.startProcess(process.execPath, [
      fileOf('01-connect'),
      'serve',
    ]).ended;
    assert.is(code, 1);
    assert.is(stderr, '01-connect: usage: [server|client HOST:PORT [UDP-PORT]]\n');
  });
});

test('the course has no gap, every part is run, and none is long', () => {
  const files = readdirSync(folder).filter((name) => /^\d\d-.*\.ts$/.test(name));
  files.forEach((name, index) => {
    assert.is(Number(name.slice(0, 2)), index + 1, name);
    const lines = readFileSync(`${folder}${name}`, 'utf8').trimEnd().split('\n').length;
    assert.ok(lines <= LINES_MAX, `${name} has ${lines} lines`);
  });
  // A page is the last one's other half: test/browser/example.test.ts.
  const run = COURSE.map(({ name }) => `${name}.ts`);
  assert.equal([...run, '18-browser.ts'], files);
  const readme = readFileSync(`${folder}README.md`, 'utf8');
  for (const name of files) assert.ok(readme.includes(`\`${name.slice(0, -3)}\``), name);
});

test.run();
