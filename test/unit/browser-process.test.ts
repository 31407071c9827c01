/** The browsers of tests, with programs in their place that fail. */
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Firefox } from '../support/firefox.js';

const folder = mkdtempSync(join(tmpdir(), 'verbena-browser-process-'));
test.after(() => rmSync(folder, { recursive: true, force: true }));

/** Its process, and its profile. */
interface Started {
  readonly pid: number;
  readonly profile: string;
}

let programs = 0;

/** A program in the place of Firefox, and how it was started. */
function program(body: string): { path: string; started: () => Started } {
  const path = join(folder, `${++programs}.mjs`);
  const note = `${path}.json`;
  const text = `#!${process.execPath}
    import { writeFileSync } from 'node:fs';
    import { WebSocketServer } from ${JSON.stringify(import.meta.resolve('ws'))};
    const profile = process.argv[process.argv.indexOf('--profile') + 1];
    writeFileSync(${JSON.stringify(note)}, JSON.stringify({ pid: process.pid, profile }));
    ${body}`;
  writeFileSync(path, text);
  chmodSync(path, 0o755);
  return { path, started: () => JSON.parse(readFileSync(note, 'utf8')) as Started };
}

/** Answers each command, with `answer` in its scope. */
const server = (answer: string): string => `
  const contexts = [{ context: 'chrome' }];
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0 }, () =>
    console.error('WebDriver BiDi listening on ws://127.0.0.1:' + server.address().port));
  server.on('connection', (socket) => socket.on('message', (data) => {
    const { id, method } = JSON.parse(data);
    const result = { type: 'success', contexts, context: 'a tab' };
    const reply = (more) => socket.send(JSON.stringify({ id, ...more }));
    ${answer}
    reply({ result });
  }));`;

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

function isGone({ pid, profile }: Started): void {
  assert.not(isAlive(pid), `process ${pid} is left`);
  assert.not(existsSync(profile), `${profile} is left`);
}

async function failure(launch: Promise<unknown>): Promise<string> {
  const error: unknown = await launch.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  assert.instance(error, Error);
  return (error as Error).message;
}

test('a browser that cannot be started is an error of its launch', async () => {
  assert.match(
    await failure(Firefox.launch(join(folder, 'missing'))),
    /^Firefox cannot be started: spawn .* ENOENT/,
  );
});

test('a browser that ends before it listens leaves no profile', async () => {
  const { path, started } = program(`console.error('no display'); process.exit(3);`);
  assert.match(await failure(Firefox.launch(path)), /^Firefox ended with 3\nno display/);
  isGone(started());
});

test('a browser without a session is ended, and leaves no profile', async () => {
  const refusing = `if (method === 'session.new') {
    reply({ error: 'session not created', message: 'one is enough' });
    return;
  }`;
  const unheard = `console.error('WebDriver BiDi listening on ws://127.0.0.1:9');
    setInterval(() => {}, 1000);`;
  for (const [body, says] of [
    [server(refusing), /^session not created: one is enough$/],
    [unheard, /ECONNREFUSED/],
  ] as const) {
    // It ignores what a terminal or a supervisor would send.
    const { path, started } = program(`process.on('SIGTERM', () => {}); ${body}`);
    assert.match(await failure(Firefox.launch(path)), says);
    isGone(started());
  }
});

test('a browser that has ended already is closed, and its commands are rejected', async () => {
  const { path, started } = program(server(''));
  const firefox = await Firefox.launch(path);
  const page = await firefox.newPage();
  process.kill(started().pid, 'SIGKILL');
  while (isAlive(started().pid)) await new Promise((resolve) => setTimeout(resolve, 10));
  assert.is(await failure(page.bringToFront()), 'Firefox has ended');
  assert.is(await failure(firefox.newPage()), 'Firefox has ended');
  await firefox.close();
  isGone(started());
});

test.run();
