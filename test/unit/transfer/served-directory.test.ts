/** Quota of a served directory, removal of expired files. */
import { mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { checkQuota, removeUnfinished } from '../../../host/transfer/served-directory.js';
import { rejection } from '../../support/refusal.js';

const test = suite<{ directory: string }>('transfer/served-directory');

test.before.each((world) => {
  world.directory = mkdtempSync(join(tmpdir(), 'verbena-served-'));
});
test.after.each(({ directory }) => rmSync(directory, { recursive: true, force: true }));

/** An unfinished file whose parts changed at those seconds. */
function begin(directory: string, name: string, part: number, journal: number): void {
  for (const [suffix, seconds] of [
    ['.part', part],
    ['.part.journal', journal],
  ] as const) {
    const path = join(directory, name + suffix);
    writeFileSync(path, 'x');
    utimesSync(path, seconds, seconds);
  }
}

test('unfinished files expire, but for those in use and finished ones', async ({ directory }) => {
  begin(directory, 'old', 100, 100);
  begin(directory, 'used', 100, 100);
  begin(directory, 'written', 990, 100);
  begin(directory, 'noted', 100, 990);
  writeFileSync(join(directory, 'whole'), 'x');
  const inUse = (name: string): boolean => name === 'used';
  assert.equal(await removeUnfinished(directory, 60_000, inUse, 1_000_000), ['old']);
  const left = readdirSync(directory).filter((name) => !name.endsWith('.journal'));
  assert.equal(left.sort(), ['noted.part', 'used.part', 'whole', 'written.part']);
});

test('there are 64 unfinished files at most: the oldest ones go', async ({ directory }) => {
  for (let index = 0; index < 70; index++) begin(directory, `${index}`, 1000 + index, 1000);
  const gone = await removeUnfinished(directory, Infinity, () => false, 2_000_000);
  assert.equal(gone, ['0', '1', '2', '3', '4', '5']);
  assert.is(readdirSync(directory).length, 128);
});

test('files that others begin remove none with more pieces, until it rests for a day', async ({
  directory,
}) => {
  begin(directory, 'large', 1000, 1000);
  const journal = join(directory, 'large.part.journal');
  writeFileSync(journal, 'x'.repeat(500));
  utimesSync(journal, 1000, 1000);
  for (let index = 0; index < 70; index++) begin(directory, `${index}`, 2000, 2000 + index);
  const gone = await removeUnfinished(directory, Infinity, () => false, 3_000_000);
  assert.equal(gone, ['0', '1', '2', '3', '4', '5', '6']);
  begin(directory, 'one more', 90_000, 90_000);
  assert.equal(await removeUnfinished(directory, Infinity, () => false, 88_000_000), ['large']);
});

test('a quota counts finished and unfinished files, and an own part once', async ({
  directory,
}) => {
  writeFileSync(join(directory, 'whole'), Buffer.alloc(100));
  writeFileSync(join(directory, 'a.part'), Buffer.alloc(50));
  await checkQuota(directory, 200, { name: 'a', size: 100 });
  await checkQuota(directory, 200, { name: 'b', size: 50 });
  const error = await rejection(checkQuota(directory, 200, { name: 'b', size: 51 }));
  assert.match((error as Error).message, /raise it \(option quotaBytes; --quota\) \(ENOSPC\)$/);
});

test.run();
