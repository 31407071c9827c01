/**
 * Short test files run several in a process: a process of its own costs a file 0.15 s of processor
 * time, which is more than most of them need. The parent's side of file-batch-process.ts.
 */
import { fileURLToPath } from 'node:url';
import { judge, type Result } from './judge.js';
import { isLong } from './longest-first.js';
import { runToEnd, type RanToEnd } from './run-to-end.js';
import { isAtUsualPlace } from './usual-place.js';

const PROGRAM = fileURLToPath(new URL('file-batch-process.js', import.meta.url));

const BATCH_FOLDERS = /^(unit|conformance)\//;
/** One process runs all files of such a folder: the compiler and the engine become fast once. */
const WHOLE_FOLDERS = /^(exhaustive|fuzz|simulation)\//;
const BATCH_FILES_MAX = 18;

/** `files` in groups, each of which one process runs. */
export function inBatches(files: readonly string[]): string[][] {
  const isAlone = (file: string): boolean =>
    !BATCH_FOLDERS.test(file) || isAtUsualPlace(file) || isLong(file);
  const isInWhole = (file: string): boolean => WHOLE_FOLDERS.test(file);
  const batches = files.filter((file) => isAlone(file) && !isInWhole(file)).map((file) => [file]);
  for (const folder of new Set(files.filter(isInWhole).map((file) => file.split('/')[0]))) {
    batches.push(files.filter((file) => file.startsWith(`${folder}/`)));
  }
  const others = files.filter((file) => !isAlone(file));
  const count = Math.ceil(others.length / BATCH_FILES_MAX);
  const size = Math.ceil(others.length / count);
  for (let at = 0; at < others.length; at += size) batches.push(others.slice(at, at + size));
  return batches;
}

/** Ends a file's part of each stream. */
const END_OF_FILE = /^\x1e(.*)\n/m;

interface End {
  readonly code: number;
  readonly seconds: number;
  readonly complaint?: string;
}

export interface BatchFile {
  readonly file: string;
  /** The compiled file. */
  readonly program: string;
}

/** The parts of a stream that are ended by a mark, with what is behind each, and the rest. */
function partsOf(stream: string): { ended: [text: string, mark: string][]; rest: string } {
  const words = stream.split(END_OF_FILE);
  const ended: [string, string][] = [];
  for (let at = 0; at + 2 < words.length; at += 2) ended.push([words[at]!, words[at + 1]!]);
  return { ended, rest: words.at(-1)! };
}

/**
 * Judges each of `files` by its part of what a batch of them printed. A file that ended the process
 * fails, or that did not end in time; files behind it have no result.
 */
export function judgeBatch(files: readonly string[], ran: RanToEnd, secondsMax: number): Result[] {
  const [out, err] = [partsOf(ran.stdout), partsOf(ran.stderr)];
  const results = out.ended.map(([text, mark], index) => {
    const { code, seconds, complaint } = JSON.parse(mark) as End;
    const output = text + (err.ended[index]?.[0] ?? '');
    const result = judge(files[index]!, { code, hung: false, seconds, output }, secondsMax);
    if (complaint === undefined || result.complaint !== undefined) return result;
    return { ...result, complaint, failed: result.failed + 1 };
  });
  if (ran.code === OVER) return results;
  const next = files[results.length];
  if (next === undefined) return withEnd(results, ran);
  const seconds = ran.seconds - results.reduce((sum, result) => sum + result.seconds, 0);
  return [...results, judge(next, { ...ran, seconds, output: out.rest + err.rest }, secondsMax)];
}

/** Behind its last file the process ends by itself. */
function withEnd(results: readonly Result[], { code, hung, output }: RanToEnd): Result[] {
  const last = results.at(-1)!;
  if (code === 0 && !hung) return [...results];
  const complaint = hung ? 'its batch did not end' : `its batch ended with ${code}`;
  return [...results.slice(0, -1), { ...last, complaint, failed: last.failed + 1, output }];
}

/** Exit code of the process behind a file that something is left of. */
const OVER = 99;

/** Runs `batch` in one process, and what is behind a file that ended it in another one. */
export async function runBatch(
  batch: readonly BatchFile[],
  secondsMax: number,
  env: NodeJS.ProcessEnv,
  report: (result: Result) => void,
): Promise<void> {
  for (let left = batch; left.length > 0;) {
    const programs = left.map(({ program }) => program);
    const ran = await runToEnd([PROGRAM, ...programs], secondsMax, { env });
    const names = left.map(({ file }) => file);
    const results = judgeBatch(names, ran, secondsMax);
    for (const result of results) report(result);
    left = left.slice(results.length);
  }
}
