/** Programs whose memory is of huge pages, which the machine has for as long as they run. */
import { readFileSync, writeFileSync } from 'node:fs';
import * as assert from 'uvu/assert';
import { SEGMENTS, compile } from '../../support/c-program.js';
import { Workspace } from '../../support/processes.js';
import type { Report } from '../group.js';
import { bounded, nextAddresses } from './pair.js';

const PAGES_FILE = '/proc/sys/vm/nr_hugepages';
/** Of 2 MiB: four ranks of UCX have 24 MiB each, huge.c has 80 MiB. */
const PAGES = 160;

/** Lines of huge.c. */
const PARTS = [
  '1048576 bytes at 4206592: success, 0 wrong',
  '2097152 bytes at 11534341: success, 0 wrong',
  '1048576 bytes at 0: success, 0 wrong',
  '1048576 bytes at 82837504: success, 0 wrong',
  '7340032 bytes at 20971620: success, 0 wrong',
  'unmapped',
];

function readPages(): number {
  return Number(readFileSync(PAGES_FILE, 'utf8'));
}

/** Runs `body` with more huge pages. Needs root, as the interop suite does. */
async function withHugePages(body: () => Promise<void>): Promise<void> {
  const before = readPages();
  writeFileSync(PAGES_FILE, String(before + PAGES));
  try {
    const after = readPages();
    assert.ok(after === before + PAGES, `Linux has ${after} of ${before + PAGES} huge pages`);
    await body();
  } finally {
    writeFileSync(PAGES_FILE, String(before));
  }
}

function linesOf(name: string, words: readonly string[], expected: readonly string[]) {
  return () =>
    Workspace.use(async (space) => {
      const program = await compile(space, name);
      assert.ok(program, 'the library of verbena run is built');
      const device = ['--address', nextAddresses()[0], '--memory', '64M'];
      const run = space.start('run', ...device, '--', program, ...words);
      const { code, stdout, stderr } = await bounded(run);
      assert.is(code, 0, stderr);
      assert.equal(stdout.trim().split('\n'), expected);
    });
}

/** `checks`: programs of Debian packages, which take huge pages where there are some. */
export async function checkHugePages(
  report: Report,
  checks: readonly (readonly [name: string, run: () => Promise<void>])[],
): Promise<void> {
  const all = [
    ['a mapping that is larger than the device', linesOf('huge', [], PARTS)],
    ['segments of System V', linesOf('segments', ['huge'], SEGMENTS)],
    ...checks,
  ] as const;
  for (const [name, run] of all) {
    await report.check(`huge pages: ${name}`, () => withHugePages(run));
  }
}
