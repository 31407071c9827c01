/**
 * Several versions of Node: each with each, connected, sending, writing, flushing a file, and on
 * one device that both share. A version that cannot be fetched is named as not run, and counts
 * nothing.
 */
import { readFileSync } from 'node:fs';
import { delimiter, dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { judge } from '../support/judge.js';
import { root } from '../support/paths.js';
import { Workspace } from '../support/processes.js';
import { runToEnd } from '../support/run-to-end.js';
import { HIDDEN_KOFFI } from '../support/without-koffi.js';
import type { Group } from './group.js';
import { findVersions } from './node-versions.js';
import { run } from './tools.js';

/** A machine may have other things to do. */
const SLOW_MILLIS = 90_000;
const SUITE_SECONDS_MAX = 120;
const PEER = fileURLToPath(new URL('build/test/interop/nodes/peer.js', root));

/** Suites that depend on the version of Node: timers above all, and Node's own dgram. */
const SUITES = [
  'unit/base/timer',
  'unit/rds/socket/socket',
  'unit/dgram/like-node',
  'unit/dgram/differential',
  'unit/dgram/reliable',
];

/** Suites of the system calls: with `node:ffi` in place of koffi, where Node has it. */
const FFI_SUITES = [
  'unit/link/native-calls',
  'unit/link/copy-bytes',
  'unit/link/udp/udp-batch',
  'unit/link/udp/send-refusals',
  'unit/pmem/pmem-file',
  'shared/domains',
];
const HAS_FFI =
  "process.stdout.write(String(process.getBuiltinModule?.('node:ffi') !== undefined))";

async function hasFfi(node: string): Promise<boolean> {
  return (await run(node, ['--no-warnings', '--eval', HAS_FFI])).stdout === 'true';
}

async function runSuite(node: string, file: string, options: readonly string[] = []) {
  const path = fileURLToPath(new URL(`build/test/${file}.test.js`, root));
  const ran = await runToEnd([...options, path], SUITE_SECONDS_MAX, {}, node);
  const { failed, complaint, output } = judge(file, ran, SUITE_SECONDS_MAX);
  if (failed > 0) throw new Error(`${complaint ?? `${failed} failed`}\n${output}`);
}

const SAID = ['SEND SUCCESS', 'WRITE volatile SUCCESS', 'WRITE durable SUCCESS', 'FLUSH SUCCESS'];

async function meet(lender: string, user: string, [version, pair]: [string, number]) {
  const [here, there] = [`127.0.29.${2 * pair + 1}`, `127.0.29.${2 * pair + 2}`];
  await Workspace.use(async (workspace) => {
    const name = `nodes-${process.pid}-${pair}`;
    const file = workspace.path('pmem');
    const lending = workspace.startProcess(lender, [PEER, 'lend', here, name, file]);
    const told = await lending.printed('stdout', /lends (\S+) (\d+) (\d+) (\d+)\n/, SLOW_MILLIS);
    const args = ['use', here, there, name, ...told.slice(1)];
    const { stdout, stderr, code } = await workspace.startProcess(user, [PEER, ...args]).ended;
    const written = `written by Node ${version}`;
    const missing = [...SAID, `shares: ${written}`].filter((line) => !stdout.includes(line));
    if (code !== 0 || missing.length > 0) {
      throw new Error(`not said: ${missing.join(', ')}\n${stdout}\n${stderr}`);
    }
    await lending.printed(
      'stdout',
      new RegExp(`received 4 bytes: SUCCESS[^]*memory: ${written}`),
      SLOW_MILLIS,
    );
    if (!readFileSync(file).includes(written)) throw new Error('the file does not have it');
    lending.kill('SIGTERM');
    const end = await lending.ended;
    if (end.code !== 0) throw new Error(`the lender ended with ${end.code}\n${end.stderr}`);
  });
}

export const nodesGroup: Group = {
  name: 'nodes',
  tools: [],
  async run(report) {
    const versions = [...(await findVersions(report))];
    for (const [version, node] of versions) {
      for (const file of SUITES) {
        await report.check(`Node ${version} runs ${file}`, () => runSuite(node, file));
      }
      for (const file of (await hasFfi(node)) ? FFI_SUITES : []) {
        const what = `Node ${version} runs ${file} with node:ffi in place of koffi`;
        await report.check(what, () => runSuite(node, file, HIDDEN_KOFFI));
      }
    }
    let pair = 0;
    for (const [lenderVersion, lender] of versions) {
      for (const [version, user] of versions) {
        const what = `Node ${version} connects to ${lenderVersion}, writes, flushes, joins`;
        await report.check(what, () => meet(lender, user, [version, pair++]));
      }
    }
  },
};

const TESTS = fileURLToPath(new URL('build/test/run.js', root));
/** Five minutes where nothing else runs. */
const TESTS_SECONDS_MAX = 2400;
/** Of the output, if a test fails. */
const FAILED_LINES_MAX = 400;

async function runAllTests(node: string): Promise<void> {
  // Programs that tests start by name have the same version.
  const PATH = `${dirname(node)}${delimiter}${process.env['PATH']}`;
  const env = { ...process.env, PATH };
  const { code, output } = await runToEnd([TESTS], TESTS_SECONDS_MAX, { env }, node);
  if (code === 0) return;
  const lines = output.split('\n').filter((line) => !line.startsWith('ok '));
  throw new Error(lines.slice(-FAILED_LINES_MAX).join('\n'));
}

/** `npm test` as a whole with every other version. */
export const nodeTestsGroup: Group = {
  name: 'node-tests',
  tools: [],
  async run(report) {
    for (const [version, node] of await findVersions(report, [22, 24, 26])) {
      await report.check(`Node ${version} runs npm test`, () => runAllTests(node));
    }
  },
};
