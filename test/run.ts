/**
 * Runs every test file, up to five processes at a time, and rejects a result without tests: a file
 * whose `test.run()` was forgotten ends with Total 0, and one that waits on an open socket never
 * ends. Ends with `N passed, N failed`.
 *
 *     node build/test/run.js [--fast | --long] [part of a file's name …]
 *
 * `--fast` (`npm run test:fast`) leaves out what starts processes or browsers, and what takes long.
 * `--long` (`npm run test:long`) runs the files that otherwise run a sample, as a whole, and those
 * that only it runs.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, readdirSync, rmSync, rmdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findDeviceDirectory } from '../host/device/sharing/device-directory.js';
import { removeDeadFiles } from '../host/device/sharing/device-file.js';
import { loadPosix } from '../host/link/posix.js';
import { report as reportPyverbs } from './conformance/pyverbs/report.js';
import { RAN_FOLDER } from './conformance/pyverbs/ran.js';
import { missingBrowser } from './support/browser.js';
import { bundleTests } from './support/bundle-tests.js';
import { inBatches, runBatch } from './support/file-batches.js';
import { judge, type Result } from './support/judge.js';
import { BUNDLES, root } from './support/paths.js';
import { longestFirst } from './support/longest-first.js';
import { endWithUs, runToEnd } from './support/run-to-end.js';
import { LONG_ONLY } from './support/long-only.js';
import { LONG } from './support/sample.js';
import { isAtUsualPlace } from './support/usual-place.js';

/** A file that takes longer hangs, and is ended with all that it has started. */
const FILE_SECONDS_MAX = 200;
const BATCH_SECONDS_MAX = 400;
/** All simulations are one batch: 150 s alone on two slow cores, 400 s beside others. */
const LONG_BATCH_SECONDS_MAX = 1000;

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
  // Files in build/ of deleted sources are not run.
  return sources;
}

/** Bundling takes seconds, and saves a third of one per file: fewer files run as they are. */
const BUNDLED_FILES_MIN = 15;
/** Their processes are started from their own modules: pages of browsers, mutated modules. */
const UNBUNDLED = /^(browser|mutants)\//;

/** Where the compiled file to run is, for each of `files`. */
async function findPrograms(files: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const isBundled = (file: string): boolean =>
    files.length >= BUNDLED_FILES_MIN && !UNBUNDLED.test(file);
  const wanted = files.filter(isBundled).map((file) => `test/${file}.test.js`);
  if (wanted.length === 0) return new Map(files.map((file) => [file, `${built}${file}.test.js`]));
  const bundles = await bundleTests(wanted);
  process.env[BUNDLES] = bundles.href;
  const folder = fileURLToPath(new URL('test/', bundles));
  return new Map(files.map((file) => [file, `${isBundled(file) ? folder : built}${file}.test.js`]));
}

/** Runs a file in a process of its own, or several one after the other in one. */
async function runTogether(files: readonly string[]): Promise<void> {
  const env = { ...process.env, FORCE_COLOR: '0' };
  const [file] = files;
  if (files.length === 1) {
    const ran = await runToEnd([programs.get(file!)!], FILE_SECONDS_MAX, { env });
    report(judge(file!, ran, FILE_SECONDS_MAX));
    return;
  }
  const batch = files.map((each) => ({ file: each, program: programs.get(each)! }));
  await runBatch(batch, long ? LONG_BATCH_SECONDS_MAX : BATCH_SECONDS_MAX, env, report);
}

function report(result: Result): void {
  results.push(result);
  const mark = result.failed > 0 ? 'FAIL' : 'ok  ';
  const seconds = result.seconds.toFixed(1).padStart(5);
  console.log(`${mark} ${seconds} s  ${String(result.passed).padStart(4)}  ${result.file}`);
  if (result.failed === 0) return;
  if (result.complaint) console.log(`     ${result.complaint}`);
  console.log(result.output.replace(/^/gm, '     | '));
}

/** Tests in a real browser; without one they are listed, and with REQUIRE_BROWSER=1 a failure. */
function notRun(files: readonly string[]): string[] {
  const reason = missingBrowser();
  if (reason === undefined) return [];
  const left = files.filter((file) => file.startsWith('browser/'));
  for (const file of left) console.log(`NOT RUN            ${file}: ${reason}`);
  return left;
}

const sourceOf = (file: string): string =>
  readFileSync(new URL(`test/${file}.test.ts`, root), 'utf8');

/** Folders of the fast tests. */
const FAST_FOLDERS = /^(unit|conformance|mutants)\//;
/** A test that imports one of these starts processes. */
const STARTS_PROCESSES = /child_process|support\/(processes|run-to-end|other-user|killed-server)/;
/** Each takes seconds: many bytes, many rounds, or real timeouts. */
const SLOW = new Set(
  `channel-link runs link icrc-udp vectors message loss refusals data-channel ice-restart
    address-handle connections threads race cookies access psk directed semantics hostile
    buffers desk socket thread-share reliable like-node connect auth-connect last-answer
    durable replicated-log timer selftest entropy completion-counter rdmacm qpex accepting
    option-values flood-filter processes buses http-site file-batches loops move`.split(/\s+/),
);

/** Does the file run in one process, and quickly? */
function isFast(file: string): boolean {
  if (!FAST_FOLDERS.test(file) || SLOW.has(basename(file))) return false;
  return !STARTS_PROCESSES.test(sourceOf(file));
}

/** Does the file have more to run than a sample? */
function hasSample(file: string): boolean {
  return /support\/sample\.js/.test(sourceOf(file));
}

const words = process.argv.slice(2);
const [fast, long] = ['--fast', '--long'].map((word) => words.includes(word));
if (long) process.env[LONG] = '1';
const wanted = words.filter((word) => !/^--(fast|long)$/.test(word));
const files = findFiles().filter(
  (file) =>
    (wanted.length === 0 || wanted.some((part) => file.includes(part))) &&
    (!fast || isFast(file)) &&
    (!long || hasSample(file) || LONG_ONLY.has(file)) &&
    (long || wanted.length > 0 || !LONG_ONLY.has(file)),
);
const results: Result[] = [];
// Tests run the command as it is now, even if only tsc ran since the last build.
execFileSync(process.execPath, [fileURLToPath(new URL('host/bundle.mjs', root))]);
endWithUs();
/** Only such a run reads what each file of pyverbs left; another one beside it leaves it alone. */
const isWhole = wanted.length === 0 && !fast && !long;
if (isWhole) rmSync(RAN_FOLDER, { recursive: true, force: true });
const left = notRun(files);
const wantedFiles = files.filter((file) => !left.includes(file));
const programs = await findPrograms(wantedFiles);
const isBundled = wantedFiles.length >= BUNDLED_FILES_MIN;
const queue = longestFirst(
  isBundled ? inBatches(wantedFiles) : wantedFiles.map((file) => [file]),
  ([file]) => isAtUsualPlace(file!),
);
/**
 * Files that run beside those that the cores compute. In a long run most files start many processes
 * or a browser each: five of them are a load of 46, at which limits that detect a hang end tests.
 */
const WAITING_FILES = long ? 1 : 3;
let isTaken = false;
async function worker(): Promise<void> {
  for (;;) {
    const takesPlace = ([file]: readonly string[]): boolean => isAtUsualPlace(file!);
    const index = queue.findIndex((batch) => !isTaken || !takesPlace(batch));
    const [batch] = index < 0 ? [] : queue.splice(index, 1);
    // The remaining files are for the worker that has the place.
    if (batch === undefined) return;
    const takes = takesPlace(batch);
    if (takes) isTaken = true;
    await runTogether(batch);
    if (takes) isTaken = false;
  }
}
// More than cores: most of a file's time is spent waiting, for timeouts and for processes.
const { posix } = await loadPosix();
const hadDirectory = posix && findDeviceDirectory(posix.effectiveUser) !== undefined;
await Promise.all(
  Array.from({ length: Math.min(2, availableParallelism()) + WAITING_FILES }, worker),
);
// Removes the device files of killed test processes, as the next open of a device would; and their
// directory, if these tests created it.
const directory = posix && findDeviceDirectory(posix.effectiveUser);
if (directory !== undefined) {
  removeDeadFiles(posix!, directory);
  if (!hadDirectory && readdirSync(directory).length === 0) rmdirSync(directory);
}
const passed = results.reduce((sum, result) => sum + result.passed, 0);
let failed = results.reduce((sum, result) => sum + result.failed, 0);
if (results.length === 0) console.log(`no test file has "${wanted.join('" or "')}" in its name`);
if (isWhole) {
  const { sentence, complaints } = reportPyverbs();
  for (const complaint of complaints) console.log(complaint);
  console.log(sentence);
  console.log(`${LONG_ONLY.size} more files: npm run test:long`);
  failed += complaints.length;
}
if (left.length > 0 && process.env['REQUIRE_BROWSER'] === '1') failed += left.length;
const lacking = left.length > 0 ? `, ${left.length} files NOT RUN (no browser)` : '';
console.log(`\n${results.length} files${lacking}\n${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
