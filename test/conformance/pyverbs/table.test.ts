/** pyverbs.md is complete, and names tests that are there. */
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { FOLDER, PAGE, UPSTREAM_COUNT, count, readTable, render } from './table.js';

const table = readTable();

test('every upstream test has its row, and one answer', () => {
  const { covered, exceptions, later, all } = count(table);
  assert.is(all, UPSTREAM_COUNT);
  assert.is(covered + exceptions + later, all);
  for (const [file, rows] of Object.entries(table)) {
    for (const [upstream, row] of Object.entries(rows)) {
      assert.is(Object.keys(row).length, 1, `${file} ${upstream}`);
      assert.ok(Object.values(row).every((text) => text.length > 10 || row.test));
    }
  }
});

test('an exception quotes what it needs', () => {
  for (const [file, rows] of Object.entries(table)) {
    for (const [upstream, { exception }] of Object.entries(rows)) {
      if (exception !== undefined) assert.match(exception, /".+"/, `${file} ${upstream}`);
    }
  }
});

/** The tests of a file, by the upstream test that each names. */
function defined(file: string): Map<string, string> {
  const text = readFileSync(new URL(`${file}.test.ts`, FOLDER), 'utf8');
  const calls = text.matchAll(/everywhere\(\s*'([^']+)',\s*'([^']+)'/g);
  return new Map([...calls].map(([, upstream, name]) => [upstream!, name!]));
}

test('every test that is named stands in its file, and none is named twice', () => {
  const files = new Set(readdirSync(FOLDER));
  for (const [file, rows] of Object.entries(table)) {
    const named = Object.entries(rows).filter(([, row]) => row.test !== undefined);
    const names = named.map(([, row]) => row.test);
    assert.is(new Set(names).size, names.length, `${file} names a test twice`);
    if (named.length === 0) continue;
    assert.ok(files.has(`${file}.test.ts`), `there is no ${file}.test.ts`);
    // Names that a loop makes are not literals: the run itself reports those (report.ts).
    for (const [upstream, name] of defined(file)) {
      assert.is(rows[upstream]?.test, name, `${file} ${upstream}`);
    }
  }
});

test('pyverbs.md is the table', () => {
  const hint = 'a line is no row, or a count is wrong';
  assert.is(readFileSync(PAGE, 'utf8'), render(table), hint);
});

test.run();
