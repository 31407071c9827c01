/**
 * Groups with guests run in a process of their own, in a network namespace of its own: whatever
 * they do to interfaces and ports is invisible elsewhere, and ends with that process.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { runGuarded, type GuestGroup, type LineReport } from '../group.js';
import { run, withFolder } from '../tools.js';
import { Lab } from './lab.js';

/** Longer than everything takes on a machine that is busy. */
const SECONDS_MAX = 3600;

/** Last message of the process in the namespace. */
interface Counts {
  readonly passed: number;
  readonly failed: number;
}

/** Runs `main.js --inside FOLDER names…` in a new namespace; its lines are ours. */
export async function runInNamespace(
  main: string,
  names: readonly string[],
  report: LineReport,
): Promise<void> {
  await withFolder(async (folder) => {
    const args = ['--net', '--mount', process.execPath, main, '--inside', folder, ...names];
    const child = spawn('unshare', args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    let counts: Counts | undefined;
    child.on('message', (message) => (counts = message as Counts));
    const timer = setTimeout(() => child.kill('SIGKILL'), SECONDS_MAX * 1000);
    const end = (): boolean => child.kill('SIGTERM');
    process.once('SIGINT', end).once('SIGTERM', end);
    const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
    process.off('SIGINT', end).off('SIGTERM', end);
    clearTimeout(timer);
    report.passed += counts?.passed ?? 0;
    report.failed += counts?.failed ?? 0;
    if (!counts || code !== 0) {
      await report.check(`${names.join(', ')} run to their end`, () => {
        throw new Error(`the process in the namespace ended with ${code ?? signal}`);
      });
    }
  });
}

/**
 * Runs a group. If the kernel of a guest dies meanwhile the run does not count, and a second one
 * with live guests does.
 */
async function judge(group: GuestGroup, lab: Lab, report: LineReport): Promise<void> {
  let part = report.part();
  await runGuarded(group.name, () => group.run(part, lab), part);
  const words = await lab.revive();
  for (const line of words.flatMap((text) => text.split('\n'))) report.note(line);
  if (words.length > 0) {
    report.note(`${group.name} once more, and that counts`);
    part = report.part();
    await runGuarded(group.name, () => group.run(part, lab), part);
    for (const line of (await lab.revive()).flatMap((text) => text.split('\n'))) report.note(line);
  }
  report.passed += part.passed;
  report.failed += part.failed;
}

/** In the namespace: starts the guests that are needed, runs the groups, and says how it went. */
export async function runInside(
  folder: string,
  groups: readonly GuestGroup[],
  report: LineReport,
): Promise<void> {
  // The parent process is gone: this process ends, and the guests with it.
  const abandoned = (): never => process.exit(1);
  process.once('disconnect', abandoned);
  let lab: Lab | undefined;
  await report.check('guests with Linux rxe start', async () => {
    const started = performance.now();
    // The interfaces of this namespace are in a /sys of its own.
    await run('mount', ['-t', 'sysfs', 'sysfs', '/sys']);
    lab = await Lab.open(folder, Math.max(...groups.map(({ guests }) => guests)));
    report.note(`${((performance.now() - started) / 1000).toFixed(1)} s`);
    for (const { console } of lab.guests)
      report.note(/guest \d+ is ready.*/.exec(console)?.[0] ?? '');
  });
  const made = lab;
  if (made) {
    try {
      for (const group of groups) {
        console.log(group.name);
        await judge(group, made, report);
      }
    } finally {
      await made.close();
    }
  }
  process.off('disconnect', abandoned);
  const counts = { passed: report.passed, failed: report.failed } satisfies Counts;
  // A failed check may have left open what would keep this process for ever.
  process.send?.(counts, undefined, undefined, () => process.exit(0));
}
