/** `verbena shmem run`: PEs that end early, and a launcher that is interrupted or killed. */
import { existsSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { loadPosix } from '../../host/link/posix.js';
import { root } from '../support/paths.js';
import { Workspace, cliPath, type Program } from '../support/processes.js';
import { longOnly, sample } from '../support/sample.js';

const test = suite('cli/shmem-run');
const longTest = longOnly(test);
const SHMEM = new URL('build/package/shmem.js', root).href;
const { posix } = await loadPosix();
/** Only detects a hang: init alone would wait for a minute. */
const HANG_MILLIS = 30_000;

const EARLY = `
if (process.env.VERBENA_SHMEM_RANK === '1') process.exit(Number(process.argv[2]));
const { init } = await import('${SHMEM}');
try {
  await init();
} catch (error) {
  console.log('PE', process.env.VERBENA_SHMEM_RANK, error.message);
}
`;

/** PE 0 comes to its end before PE 1 writes to its memory. */
const UNFINISHED = `
const { init } = await import('${SHMEM}');
const shmem = await init();
const own = await shmem.array(Int32Array, 1);
own[0] = 7;
await shmem.barrierAll();
if (shmem.myPe === 1) await new Promise((resolve) => setTimeout(resolve, 300));
console.log('PE', shmem.myPe, 'has', shmem.g(own, 1 - shmem.myPe));
`;

/** PE 1 finalizes where PE 0 calls a barrier, which completes; the next one cannot. */
const EARLY_END = `
const { init } = await import('${SHMEM}');
const shmem = await init();
if (shmem.myPe === 0) {
  await shmem.barrierAll();
  await shmem.barrierAll().catch((error) => console.log(error.message));
}
await shmem.finalize();
`;

/** PE 1 ends the program, where the others compute, wait, or ignore SIGTERM. */
const GLOBAL_EXIT = `
const { init } = await import('${SHMEM}');
const shmem = await init();
await shmem.barrierAll();
if (shmem.myPe === 1) shmem.globalExit(Number(process.argv[2]));
if (shmem.myPe === 2) process.on('SIGTERM', () => undefined);
setTimeout(() => process.exit(3), ${HANG_MILLIS});
if (shmem.myPe === 0) for (;;);
`;

/** A PE starts with memory that is not allowed. */
const REFUSED = `
const { init } = await import('${SHMEM}');
await init({ size: 2 ** 31 });
`;

const SIGNALS = [
  ['SIGINT', 130],
  ['SIGHUP', 129],
] as const;

const WAITS = `
const { init } = await import('${SHMEM}');
const shmem = await init();
console.log('pid', process.pid);
const { readFileSync } = await import('node:fs');
console.log('file', /\\/\\S+\\/verbena-shmem-\\S+/.exec(readFileSync('/proc/self/maps', 'utf8'))?.[0]);
for (;;) await shmem.barrierAll();
`;

function program(space: Workspace, text: string): string {
  const file = space.path('program.mjs');
  writeFileSync(file, text);
  return file;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** The processes of three PEs, once all are in their loop. */
async function pids(run: Program): Promise<number[]> {
  await run.printed('stdout', /(pid \d+\s[^]*){3}/);
  return [...run.stdout.matchAll(/pid (\d+)/g)].map(([, pid]) => Number(pid));
}

async function untilEnded(processes: readonly number[]): Promise<void> {
  const deadline = performance.now() + HANG_MILLIS;
  while (processes.some(isAlive) && performance.now() < deadline) await sleep(50);
  assert.equal(processes.filter(isAlive), []);
}

if (posix) {
  test('PEs that wait in init for one that has ended are refused at once', () =>
    Workspace.use(async (space) => {
      for (const code of sample([5], [0, 5])) {
        const started = performance.now();
        const ended = await space.run('shmem', 'run', '-n', 3, program(space, EARLY), code);
        assert.ok(performance.now() - started < HANG_MILLIS);
        assert.is(ended.code, code, ended.stderr);
        for (const rank of [0, 2]) {
          assert.match(ended.stdout, new RegExp(`PE ${rank} init: PE 1 ended before all PEs had`));
        }
        if (code !== 0) assert.match(ended.stderr, /PE 1 \(process \d+\) ended with exit code 5/);
      }
    }));

  longTest('a program without finalize ends when all PEs have finished', () =>
    Workspace.use(async (space) => {
      const run = space.start('shmem', 'run', '-n', 2, program(space, UNFINISHED));
      const { code, stdout, stderr } = await run.ended;
      assert.is(code, 0, stderr);
      assert.equal(stdout.split('\n').sort(), ['', 'PE 0 has 7', 'PE 1 has 7']);
      // Both have finalized: neither is reported as failed.
      assert.is(stderr, '');
    }),
  );

  longTest('a collective with a PE that has finalized is refused, and names the PE', () =>
    Workspace.use(async (space) => {
      const run = space.start('shmem', 'run', '-n', 2, program(space, EARLY_END));
      const { stdout } = await run.ended;
      assert.match(stdout, /^barrierAll: PE 1 has finalized; all PEs of a team call the same/);
    }),
  );

  test('globalExit ends all PEs at once, and its status is the exit code', () =>
    Workspace.use(async (space) => {
      for (const status of sample([7], [7, 0])) {
        const started = performance.now();
        const file = program(space, GLOBAL_EXIT);
        const ended = await space.run('shmem', 'run', '-n', 4, file, status);
        assert.ok(performance.now() - started < HANG_MILLIS / 3);
        assert.is(ended.code, status, ended.stderr);
        // The PEs that the launcher ends are not reported.
        assert.not.match(ended.stderr, /PE [023] \(process/);
      }
    }));

  test('an error of init that no program catches is a line for each PE', () =>
    Workspace.use(async (space) => {
      const ended = await space.run('shmem', 'run', '-n', 2, program(space, REFUSED));
      const lines = ended.stderr.trim().split('\n').sort();
      assert.is(lines.length, 4, ended.stderr);
      assert.match(lines[0]!, /^verbena shmem run: PE 0 \(process \d+\) ended with exit code 1$/);
      for (const pe of [0, 1]) {
        assert.match(
          lines[pe + 2]!,
          new RegExp(`^verbena shmem: PE ${pe}: size: must let the memory`),
        );
      }
    }));

  test('a signal ends the PEs, and the exit code is that of the signal', () =>
    Workspace.use(async (space) => {
      for (const [signal, code] of SIGNALS.slice(0, sample(1, SIGNALS.length))) {
        const run = space.start('shmem', 'run', '-n', 3, program(space, WAITS));
        const processes = await pids(run);
        run.kill(signal);
        const ended = await run.ended;
        assert.is(ended.code, code, ended.stderr);
        assert.is(ended.stderr, '');
        await untilEnded(processes);
      }
    }));

  test('a second signal ends PEs that ignore the first', () =>
    Workspace.use(async (space) => {
      const ignore = `process.on('SIGTERM', () => console.log('ignored'));`;
      const run = space.start('shmem', 'run', '-n', 3, program(space, `${ignore}\n${WAITS}`));
      const processes = await pids(run);
      run.kill('SIGTERM');
      await run.printed('stdout', /(ignored[^]*){3}/);
      run.kill('SIGTERM');
      const ended = await run.ended;
      assert.is(ended.code, 143, ended.stderr);
      await untilEnded(processes);
    }));

  test('the launcher removes the device of PEs that were all killed', () =>
    Workspace.use(async (space) => {
      const run = space.start('shmem', 'run', '-n', 3, program(space, WAITS));
      const processes = await pids(run);
      await run.printed('stdout', /(file \S+\s+[^]*){3}/);
      const file = /file (\S+)/.exec(run.stdout)![1]!;
      assert.ok(existsSync(file), file);
      for (const pid of processes) process.kill(pid, 'SIGKILL');
      const { code, stderr } = await run.ended;
      assert.is(code, 1, stderr);
      assert.match(stderr, /PE 2 \(process \d+\) was ended by SIGKILL/);
      assert.not(existsSync(file), file);
    }));

  longTest('PEs end with a launcher that is killed', () =>
    Workspace.use(async (space) => {
      // A killed launcher removes no folder of its own: it lies in that of the test.
      const run = space.startProcess('env', [
        `TMPDIR=${space.directory}`,
        ...[process.execPath, cliPath, 'shmem', 'run', '-n', '3', program(space, WAITS)],
      ]);
      const processes = await pids(run);
      run.kill('SIGKILL');
      await untilEnded(processes);
      await run.ended;
    }),
  );
}

test.run();
