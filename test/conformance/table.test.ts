/** The table of semantics.md is complete, and every test that it names exists. */
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';
import { test } from '../support/suite.js';

const folder = new URL('test/conformance/', root);
const POINTS = 108;

interface Row {
  readonly point: number;
  readonly sentence: string;
  readonly where: string;
}

function rows(): Row[] {
  const text = readFileSync(new URL('semantics.md', folder), 'utf8');
  const found = [...text.matchAll(/^\| S(\d+) +\| (.*?) +\| (.*?) +\|$/gm)];
  return found.map(([, point, sentence, where]) => ({
    point: Number(point),
    sentence: sentence!.trim(),
    where: where!,
  }));
}

/** File and test that a row names. */
function named({ where }: Row): { file: string; name: string } | undefined {
  const match = /^`([^`]+\.test\.ts)` `([^`]+)`$/.exec(where);
  return match ? { file: match[1]!, name: match[2]! } : undefined;
}

/** Names of tests that end with a point, by file. */
function numbered(): { file: string; name: string; point: number }[] {
  const files = readdirSync(folder).filter((file) => file.endsWith('.test.ts'));
  return files.flatMap((file) => {
    const text = readFileSync(new URL(file, folder), 'utf8');
    const names = [...text.matchAll(/'([^'\n]*\(S(\d+)\))'/g)];
    return names.map(([, name, point]) => ({ file, name: name!, point: Number(point) }));
  });
}

test('the table has all points, in order, each with a sentence', () => {
  const seen = new Map<number, Row>();
  let last = 0;
  for (const row of rows()) {
    assert.ok(row.point === last || row.point === last + 1, `S${row.point} behind S${last}`);
    if (!seen.has(row.point)) {
      assert.ok(row.sentence.length > 10, `S${row.point} has no sentence`);
      seen.set(row.point, row);
    }
    last = row.point;
  }
  assert.is(seen.size, POINTS);
  assert.is(last, POINTS);
});

test('every row names a test that exists', () => {
  for (const row of rows()) {
    const test = named(row);
    assert.ok(test, `S${row.point}: ${row.where}`);
    assert.ok(existsSync(new URL(test.file, folder)), `S${row.point}: there is no ${test.file}`);
    const text = readFileSync(new URL(test.file, folder), 'utf8');
    assert.ok(text.includes(`'${test.name}'`), `${test.file} has no test "${test.name}"`);
  }
});

test('every test that ends with a point stands in the table under it', () => {
  const listed = new Set(
    rows().map((row) => `${row.point} ${named(row)?.file} ${named(row)?.name}`),
  );
  const tests = numbered();
  assert.ok(tests.length > 100, `${tests.length} tests`);
  for (const { file, name, point } of tests) {
    assert.ok(listed.has(`${point} ${file} ${name}`), `S${point} lacks ${file} "${name}"`);
  }
});

test('no two tests of a file have the same name', () => {
  const names = numbered().map(({ file, name }) => `${file} ${name}`);
  assert.is(new Set(names).size, names.length);
});
