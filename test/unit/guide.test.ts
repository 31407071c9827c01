/** The guide and the docstrings cover the whole public surface. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { importGraph } from '../support/import-graph.js';
import { root } from '../support/paths.js';
import { publicSurface, type PublicName } from '../support/public-surface.js';

const read = (name: string): string => readFileSync(fileURLToPath(new URL(name, root)), 'utf8');

/** Entries of the package that have declarations. */
const { exports } = JSON.parse(read('package.json')) as {
  exports: Record<string, string | { types: string }>;
};
const entries = Object.values(exports).flatMap((entry) =>
  typeof entry === 'string' ? [] : [entry.types.replace('./build/', '')],
);
const surface = new Map<string, PublicName>();
for (const entry of entries) {
  for (const one of publicSurface(entry)) surface.set(one.name, surface.get(one.name) ?? one);
}

test('the public surface is found: more than 300 names', async () => {
  assert.ok(surface.size > 300, `${surface.size}`);
  const index = (await import('../../host/index.js')) as Record<string, unknown>;
  for (const [name, value] of Object.entries(index)) {
    const isNamespace = typeof value === 'object' && !surface.has(name);
    const found = isNamespace
      ? [...surface.keys()].some((one) => one.startsWith(`${name}.`))
      : surface.has(name);
    assert.ok(found, `index.ts exports ${name}`);
  }
});

test('everything that is exported has a docstring', () => {
  const without = [...surface.values()].filter(({ isDocumented }) => !isDocumented);
  assert.equal(
    without.map(({ kind, name, file }) => `${kind} ${name} (${file})`),
    [],
  );
});

/** Rows of THREADS.md: what the first cell names, and the calls of the second one. */
const rows = new Map<string, string>();
for (const [, first, calls] of read('host/guide/THREADS.md').matchAll(
  /^\| (.+?) +\| (.+?) +\|$/gm,
)) {
  rows.set(first!.replaceAll('`', ''), calls!);
}
/** Calls of a cell; those in bold are awaited. */
const callsOf = (cell: string): string[] =>
  [...cell.matchAll(/(?:\*\*)?`[\w.]+`/g)].map(([call]) => call.replaceAll('`', ''));
const callOf = (name: string, isAwaited: boolean): string => (isAwaited ? `**${name}` : name);

function same(told: readonly string[], there: readonly string[], what: string): void {
  assert.equal(
    { missing: there.filter((call) => !told.includes(call)), wrong: twiceOrNot(told, there) },
    { missing: [], wrong: [] },
    what,
  );
}

/** Names of pages that do not exist, or stand there twice. */
function twiceOrNot(told: readonly string[], there: readonly string[]): string[] {
  return told.filter((call, at) => !there.includes(call) || told.indexOf(call) !== at);
}

test('THREADS.md has every call of every class, and says which are awaited', () => {
  const classes = [...surface.values()].filter(({ kind }) => kind === 'class');
  assert.ok(classes.length > 50);
  for (const { name, members } of classes) {
    const cell = rows.get(name);
    assert.ok(cell !== undefined, `${name} has no row`);
    const methods = members.filter((one) => one.kind === 'method' && !one.name.startsWith('['));
    const there = methods.map((one) => callOf(one.name, one.isAwaited));
    same(callsOf(cell), there, name);
  }
});

test('THREADS.md has every function once, and none that is not exported', () => {
  const functions = [...surface.values()].filter(({ kind }) => kind === 'function');
  const classes = new Set([...surface.values()].map(({ name, kind }) => kind === 'class' && name));
  const cells = [...rows].filter(([first]) => !classes.has(first)).map(([, cell]) => cell);
  const there = functions.map((one) => callOf(one.name, one.isAwaited));
  same(cells.flatMap(callsOf), there, 'functions');
});

test('host/README.md has the current import graph', () => {
  assert.ok(read('host/README.md').includes(importGraph()), 'npm run graph');
});

test.run();
