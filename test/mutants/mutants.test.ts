/** The tables of test/mutants name what the sources have; the operators find what they should. */
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';
import { ENGINE_DEFENCES, HOST_DEFENCES, isOf } from './defences.js';
import { mutationsOf } from './operators.js';
import { allMutations } from './schemata.js';
import { SURVIVORS, matches } from './survivors.js';

const all = allMutations();

test('each defence of the engine is one mutation of the operators', () => {
  for (const row of ENGINE_DEFENCES) {
    assert.ok(
      all.some((mutation) => isOf(row, mutation)),
      `${row.name}: ${row.function} has no "${row.source}" that becomes "${row.becomes}"`,
    );
  }
});

test('each defence of the host names one place of its file, and a test', () => {
  for (const { name, file, find, test: path } of HOST_DEFENCES) {
    const source = readFileSync(new URL(file, root), 'utf8');
    assert.is(source.split(find).length - 1, 1, `${name}: "${find}" in ${file}`);
    assert.ok(existsSync(new URL(`test/${path}.test.ts`, root)), `${name}: ${path}`);
  }
});

test('each defence has a name of its own', () => {
  const names = [...ENGINE_DEFENCES, ...HOST_DEFENCES].map(({ name }) => name);
  assert.is(new Set(names).size, names.length);
});

test('each reviewed survivor is a mutation that exists, and has a reason', () => {
  for (const row of SURVIVORS) {
    assert.ok(
      all.some((mutation) => matches(row, mutation)),
      `${row[0]}: "${row[1]}" that becomes "${row[2]}"`,
    );
    assert.ok(row[3].length > 0, row[0]);
  }
});

test('operators change conditions, boundaries, constants, calls and stores', () => {
  const source = `
    function f(x: u32, y: u32): u32 {
      if (x < y && y != 7) g(x + 1);
      entry.key = 0;
      return min<u32>(x, 1);
    }`;
  const found = mutationsOf('f.ts', source).map(
    ({ operator, source: text, becomes }) => `${operator}: ${text} -> ${becomes}`,
  );
  assert.equal(found, [
    'condition: x < y && y != 7 -> true',
    'condition: x < y && y != 7 -> false',
    'condition: x < y -> true',
    'condition: y != 7 -> true',
    'boundary: x < y -> x <= y',
    'skip: g(x + 1); -> ',
    'operator: x + 1 -> x - 1',
    'skip: entry.key = 0; -> ',
    'constant: 0 -> 1',
    'extreme: min<u32>(x, 1) -> max<u32>(x, 1)',
    'constant: 1 -> 2',
  ]);
});

test('what the compiler must know is left alone', () => {
  const source = `
    function f(pair: Pair | null): void {
      if (pair == null) return;
      if (PACKET_AUTH) g(load<u32>(at, 4 * SIZE));
      for (;;) g(offsetof<Pair>('key'));
    }`;
  const found = mutationsOf('f.ts', source).map(({ operator, becomes }) => operator + becomes);
  assert.equal(found, ['skip', 'skip']);
});

test.run();
