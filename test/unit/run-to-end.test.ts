/** The runner of these tests, with a test that hangs. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { endTree, runToEnd } from '../support/run-to-end.js';

const DEATH_MILLIS_MAX = 10_000;
const FOR_EVER = 'setInterval(() => {}, 1000);';

/** Starts a program that starts others, one with each of these options, and then does `then`. */
async function start(options: readonly object[], then: string): Promise<readonly number[]> {
  const one = (each: object): string =>
    `spawn(process.execPath, ['-e', '${FOR_EVER}'], ${JSON.stringify(each)}).pid`;
  const program = `import { spawn } from 'node:child_process';
    console.log(${options.map(one).join(", ' ', ")});
    ${then}`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
    detached: true,
  });
  const [line] = (await once(child.stdout.setEncoding('utf8'), 'data')) as [string];
  if (then !== FOR_EVER) await once(child, 'exit');
  return [child.pid!, ...line.trim().split(/\s+/).map(Number)];
}

/** A zombie, which has ended and was not reaped, is not alive. */
function isAlive(pid: number): boolean {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return !/^\) [ZX]/.test(text.slice(text.lastIndexOf(')')));
  } catch {
    return false;
  }
}

async function ends(pid: number): Promise<boolean> {
  const until = performance.now() + DEATH_MILLIS_MAX;
  while (isAlive(pid) && performance.now() < until) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return !isAlive(pid);
}

test('a process ends with all that it has started, in groups of their own as well', async () => {
  const [first, ...others] = await start([{}, { detached: true }], FOR_EVER);
  assert.is(others.length, 2);
  for (const pid of others) assert.ok(isAlive(pid));
  endTree(first!);
  for (const pid of [first!, ...others]) assert.ok(await ends(pid), `process ${pid} is left`);
});

test('a child that was left behind is ended, too', async () => {
  const [first, left] = await start([{}], 'process.exit();');
  assert.ok(isAlive(left!));
  endTree(first!);
  assert.ok(await ends(left!), `process ${left} is left`);
});

test('a process that takes too long is ended', async () => {
  const { code, hung } = await runToEnd(['-e', FOR_EVER], 0.2);
  assert.ok(hung);
  assert.is(code, null);
});

test('the output and the exit code of a process that ends are reported', async () => {
  const program = 'console.log("out"); console.error("err"); process.exit(3);';
  const { code, hung, output } = await runToEnd(['-e', program], 60);
  assert.is(code, 3);
  assert.not(hung);
  assert.equal(output.split('\n').sort(), ['', 'err', 'out']);
});

test.run();
