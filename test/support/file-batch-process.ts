/**
 * Runs several test files one after the other in this process, each with a summary of its own. A
 * file ends when its tests are over and nothing that it opened is left: sockets, timers, threads. A
 * line on both streams marks the end of each file, so that its parent (file-batches.ts) judges each
 * by its own output.
 *
 *     node file-batch-process.js COMPILED-TEST-FILE …
 */
import { pathToFileURL } from 'node:url';

/** uvu runs no suite by itself, and queues each in the group `UVU_INDEX` of `UVU_QUEUE`. */
// A pipe is open from the first use of its stream on.
void [process.stdout, process.stderr];

const uvu = globalThis as { UVU_DEFER?: number; UVU_QUEUE?: unknown[][]; UVU_INDEX?: number };
uvu.UVU_DEFER = 1;
const { exec } = await import('uvu');

/** Time limit for handles that a file leaves open; they keep a process of its own from ending. */
const OPEN_MILLIS_MAX = Number(process.env['VERBENA_TEST_OPEN_MILLIS'] ?? 20_000);

/** No complaint: a file whose tests run in another process prints that one's summary. */
const EMPTY = '';

/** Exit code behind a file that something is left of. */
const OVER = 99;

/** A line that starts so ends a file's output. */
const END_OF_FILE = '\x1e';

const turn = (millis: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, millis));

/** How many of each kind keep the event loop alive. */
function openResources(): Map<string, number> {
  const counts = new Map<string, number>();
  for (const kind of process.getActiveResourcesInfo()) {
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  return counts;
}

/** Handles that are open beyond `before`, as words. */
function openBeyond(before: ReadonlyMap<string, number>): string[] {
  return [...openResources()]
    .filter(([kind, count]) => count > (before.get(kind) ?? 0))
    .map(([kind, count]) => `${count - (before.get(kind) ?? 0)} ${kind}`);
}

/** Environment variables and the directory, which the next file finds as this one did. */
const surroundings = (): string => JSON.stringify([process.cwd(), Object.entries(process.env)]);

/** Returns why the file failed apart from its tests. */
async function runFile(program: string): Promise<string | undefined> {
  uvu.UVU_QUEUE = [[null]];
  uvu.UVU_INDEX = 0;
  process.exitCode = undefined;
  process.argv[1] = program;
  await turn(0);
  const [before, around] = [openResources(), surroundings()];
  await import(pathToFileURL(program).href);
  // The tests of a suite that was not run are left in it, and the next file would run them.
  const isEmpty = uvu.UVU_QUEUE[0]!.length === 1;
  await exec();
  if (isEmpty) return EMPTY;
  const deadline = performance.now() + OPEN_MILLIS_MAX;
  for (let pause = 0; ; pause = 5) {
    await turn(pause);
    const open = openBeyond(before);
    if (open.length === 0) break;
    if (performance.now() > deadline) return `left open: ${open.join(', ')}`;
  }
  return surroundings() === around ? undefined : 'changed process.env or the directory';
}

const programs = process.argv.splice(2);
for (const program of programs) {
  const start = performance.now();
  const complaint = await runFile(program);
  const seconds = (performance.now() - start) / 1000;
  const code = process.exitCode ?? 0;
  process.stderr.write(`${END_OF_FILE}\n`);
  process.stdout.write(
    `${END_OF_FILE}${JSON.stringify({ code, seconds, complaint: complaint || undefined })}\n`,
  );
  // The next file would run beside what this one left; its parent starts another process for it.
  if (complaint !== undefined) process.exit(OVER);
}
// The last file's was reported; what is not 0 behind it is an error of the end of the process.
process.exitCode = 0;
