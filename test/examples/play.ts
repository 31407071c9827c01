/** Runs one example as its reader would: `node NAME.js`, all of its processes. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Test } from 'uvu';
import * as assert from 'uvu/assert';
import { afterOwnSeconds } from '../support/own-time.js';
import { examples, root } from '../support/paths.js';
import type { Example } from './table.js';

/** Far beyond the slowest example on a busy machine: a slower one hangs. */
const SECONDS_MAX = 90;

export interface Played {
  readonly pid: number;
  /** Null when a signal ended it. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** It was ended, with all that it had started. */
  readonly hung: boolean;
}

export function fileOf(name: string): string {
  return fileURLToPath(new URL(`${name}.js`, examples));
}

/** The compiled example itself, whose modules are files of their own. */
export function ownFileOf(name: string): string {
  return fileURLToPath(new URL(`build/host/examples/${name}.js`, root));
}

export function play(
  { name, args = [] }: Example,
  env: NodeJS.ProcessEnv = process.env,
  file = fileOf(name),
): Promise<Played> {
  const child = spawn(process.execPath, [file, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    // A group of its own: what hangs is ended whole.
    detached: true,
    env,
  });
  const pid = child.pid!;
  let [stdout, stderr, hung] = ['', '', false];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const callOff = afterOwnSeconds(SECONDS_MAX, () => {
    hung = true;
    process.kill(-pid, 'SIGKILL');
  });
  return new Promise((resolve) => {
    child.on('close', (code) => {
      callOff();
      resolve({ pid, code, stdout, stderr, hung });
    });
  });
}

/** Complaint about the run; undefined: it passed. */
export function judge({ says }: Example, { code, stdout, stderr, hung }: Played) {
  if (hung) return `did not end within ${SECONDS_MAX} s`;
  if (code !== 0) return `ended with ${code}: ${stderr}`;
  const missing = says.find((line) => !line.test(stdout));
  return missing && `did not say ${missing}, but: ${stdout}${stderr}`;
}

/** At a time: most of an example is starting Node. */
const TOGETHER = 3;

/** Calls `work` for each of `items`, some at a time; a promise for each, in order. */
export function inParallel<Item, Result>(
  items: readonly Item[],
  work: (item: Item) => Promise<Result>,
  together = TOGETHER,
): Promise<Result>[] {
  const results: Promise<Result>[] = [];
  items.forEach((item, index) => {
    const before = results[index - together] ?? Promise.resolve();
    // In line behind one that began earlier, whatever its result.
    results.push(
      before.then(
        () => work(item),
        () => work(item),
      ),
    );
  });
  return results;
}

/** A test for each example; they run beside each other. */
export function testAll(test: Test, examples: readonly Example[]): void {
  const played = inParallel(examples, async (example) => judge(example, await play(example)));
  examples.forEach(({ name }, index) => {
    test(`${name}: says what it should`, async () => {
      assert.is(await played[index], undefined);
    });
  });
}
