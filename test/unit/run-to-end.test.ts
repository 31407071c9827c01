/** What the runner of these tests does with one that hangs. */
import { readFileSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { runToEnd } from '../support/run-to-end.js';

const LIMIT_SECONDS = 3;
const DEATH_MILLIS_MAX = 10_000;

/** A program that starts others, one with each of these options, and says who they are. */
function starter(options: readonly object[], then: string): string[] {
  const start = (each: object): string =>
    `spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], ${JSON.stringify(each)}).pid`;
  const program = `import { spawn } from 'node:child_process';
    console.log(${options.map(start).join(", ' ', ")});
    ${then}`;
  return ['--input-type=module', '-e', program];
}

function pidsOf(output: string): number[] {
  return output.trim().split(/\s+/).map(Number);
}

/** One that has ended and that nobody has asked about is not alive. */
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

test('who hangs is ended with all that it has started, in groups of their own as well', async () => {
  const options = [{ stdio: 'ignore' }, { stdio: 'ignore', detached: true }];
  const ran = await runToEnd(starter(options, 'setInterval(() => {}, 1000);'), LIMIT_SECONDS);
  assert.ok(ran.hung);
  assert.is(ran.code, null);
  const pids = pidsOf(ran.output);
  assert.is(pids.length, 2, ran.output);
  for (const pid of pids) assert.ok(await ends(pid), `process ${pid} is left`);
});

test('a child that is left behind with the output is ended, too', async () => {
  const options = [{ stdio: ['ignore', 'inherit', 'inherit'] }];
  const ran = await runToEnd(starter(options, 'process.exit();'), LIMIT_SECONDS);
  assert.ok(ran.hung);
  const [pid] = pidsOf(ran.output);
  assert.ok(await ends(pid!), `process ${pid} is left`);
});

test('who ends is told as it ended', async () => {
  const program = 'console.log("out"); console.error("err"); process.exit(3);';
  const { code, hung, output } = await runToEnd(['-e', program], 60);
  assert.is(code, 3);
  assert.not(hung);
  assert.equal(output.split('\n').sort(), ['', 'err', 'out']);
});

test.run();
