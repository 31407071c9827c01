import { readFileSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';
import { MUTANTS } from './mutants.js';

test('every mutant names a place in the sources, and only one', () => {
  for (const { name, file, find } of MUTANTS) {
    const source = readFileSync(new URL(file, root), 'utf8');
    assert.is(source.split(find).length - 1, 1, `${name}: "${find}" in ${file}`);
  }
});

test('there are at least 60 of them, each with a name of its own', () => {
  assert.ok(MUTANTS.length >= 60, `${MUTANTS.length}`);
  assert.is(new Set(MUTANTS.map(({ name }) => name)).size, MUTANTS.length);
});

test.run();
