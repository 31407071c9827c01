/**
 * Runs every test file in a process of its own, up to three at a time, and believes none that says
 * it is fine without having run anything: a file whose `test.run()` was forgotten ends with Total 0,
 * and one that waits on an open socket never ends. Ends with `N passed, N failed`.
 *
 *     node build/test/run.js [part of a file's name …]
 */
import { readdirSync, rmSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { report as reportPyverbs } from './conformance/pyverbs/report.js';
import { RAN_FOLDER } from './conformance/pyverbs/ran.js';
import { missingBrowser } from './support/browser.js';
import { root } from './support/paths.js';
import { endWithUs, runToEnd, type RanToEnd } from './support/run-to-end.js';

/** A file that takes longer hangs, and is ended with all that it has started. */
const FILE_SECONDS_MAX = 120;

interface Result {
  readonly file: string;
  readonly passed: number;
  readonly failed: number;
  readonly seconds: number;
  /** Why the file failed although no test did. */
  readonly complaint: string | undefined;
  readonly output: string;
}

const built = fileURLToPath(new URL('build/test/', root));

/** Compiled test files; a source without a compiled file, or the reverse, is an error. */
function findFiles(): string[] {
  const names = (folder: string, ending: string): string[] =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith(ending))
      .map((name) => name.slice(0, -ending.length))
      .sort();
  const sources = names(fileURLToPath(new URL('test/', root)), '.test.ts');
  const compiled = new Set(names(built, '.test.js'));
  const missing = sources.filter((name) => !compiled.has(name));
  if (missing.length > 0 || sources.length === 0) {
    throw new Error(`not compiled: ${missing.join(', ') || 'anything'}; run npm run build`);
  }
  // What is left in build/ of a deleted source is not run.
  return sources;
}

function count(output: string, word: string): number | undefined {
  const found = new RegExp(`^\\s*${word}:\\s+(\\d+)`, 'm').exec(output);
  return found ? Number(found[1]) : undefined;
}

function judge(file: string, { code, hung, seconds, output }: RanToEnd): Result {
  const total = count(output, 'Total');
  const passed = count(output, 'Passed') ?? 0;
  const skipped = count(output, 'Skipped') ?? 0;
  let complaint: string | undefined;
  if (hung) complaint = `did not end within ${FILE_SECONDS_MAX} s`;
  else if (total === undefined) complaint = `ended with ${code} and without a summary`;
  else if (total === 0) complaint = 'ran no test: is test.run() missing?';
  else if (skipped > 0) complaint = `skipped ${skipped}: a skipped test proves nothing`;
  else if (code !== 0 && passed === total) complaint = `ended with ${code}`;
  const failed = (total ?? 0) - passed - skipped;
  return { file, passed, failed: failed + (complaint ? 1 : 0), seconds, complaint, output };
}

async function runFile(file: string): Promise<Result> {
  const env = { ...process.env, FORCE_COLOR: '0' };
  return judge(file, await runToEnd([`${built}${file}.test.js`], FILE_SECONDS_MAX, { env }));
}

function report(result: Result): void {
  const mark = result.failed > 0 ? 'FAIL' : 'ok  ';
  const seconds = result.seconds.toFixed(1).padStart(5);
  console.log(`${mark} ${seconds} s  ${String(result.passed).padStart(4)}  ${result.file}`);
  if (result.failed === 0) return;
  if (result.complaint) console.log(`     ${result.complaint}`);
  console.log(result.output.replace(/^/gm, '     | '));
}

/** In a real browser; named when there is none, and with REQUIRE_BROWSER=1 a failure. */
function notRun(files: readonly string[]): string[] {
  const reason = missingBrowser();
  if (reason === undefined) return [];
  const left = files.filter((file) => file.startsWith('browser/'));
  for (const file of left) console.log(`NOT RUN            ${file}: ${reason}`);
  return left;
}

const wanted = process.argv.slice(2);
const files = findFiles().filter(
  (file) => wanted.length === 0 || wanted.some((part) => file.includes(part)),
);
const results: Result[] = [];
endWithUs();
rmSync(RAN_FOLDER, { recursive: true, force: true });
const left = notRun(files);
const queue = files.filter((file) => !left.includes(file));
/** They have UDP port 4791 of 127.0.0.1, as their users do: one of them at a time. */
const AT_THE_USUAL_PLACE = /^(cli\/(offload|rpma-examples|tour|voice)|unit\/dgram\/)/;
let isTaken = false;
async function worker(): Promise<void> {
  for (;;) {
    const index = queue.findIndex((file) => !isTaken || !AT_THE_USUAL_PLACE.test(file));
    const [file] = index < 0 ? [] : queue.splice(index, 1);
    // What is left is for the worker that has the place.
    if (file === undefined) return;
    const takes = AT_THE_USUAL_PLACE.test(file);
    if (takes) isTaken = true;
    const result = await runFile(file);
    if (takes) isTaken = false;
    results.push(result);
    report(result);
  }
}
// One more than cores: a third of the time is spent waiting, for timeouts above all.
await Promise.all(Array.from({ length: Math.min(2, availableParallelism()) + 1 }, worker));
const passed = results.reduce((sum, result) => sum + result.passed, 0);
let failed = results.reduce((sum, result) => sum + result.failed, 0);
if (results.length === 0) console.log(`no test file has "${wanted.join('" or "')}" in its name`);
if (wanted.length === 0) {
  const { sentence, complaints } = reportPyverbs();
  for (const complaint of complaints) console.log(complaint);
  console.log(sentence);
  failed += complaints.length;
}
if (left.length > 0 && process.env['REQUIRE_BROWSER'] === '1') failed += left.length;
const lacking = left.length > 0 ? `, ${left.length} files NOT RUN (no browser)` : '';
console.log(`\n${results.length} files${lacking}\n${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
