/** The guide's table of attacks has a row for each attack, and names nothing that is not there. */
import { readFileSync } from 'node:fs';
import * as assert from 'uvu/assert';
import { ATTACKS } from '../attacks/attacks.js';
import { HEADINGS, TABLE, rowsOf, withCosts } from '../attacks/table.js';
import { ENGINE_DEFENCES, HOST_DEFENCES } from '../mutants/defences.js';
import { test } from '../support/suite.js';

const text = readFileSync(TABLE, 'utf8');
const rows = rowsOf(text);

/** Attacks whose measured answer is the defence: no check can be taken out. */
const WITHOUT_MUTANT = new Set([
  'the time of a refusal does not tell whether a key exists, is of another domain, or is stale',
]);

test('each attack has one row, under the position of its attacker, and each row an attack', () => {
  const listed = rows.map(({ heading, name }) => `${heading}: ${name}`).sort();
  const there = ATTACKS.map(({ position, name }) => `${HEADINGS[position]}: ${name}`).sort();
  assert.equal(listed, there, 'rows of host/guide/ATTACKS.md, and attacks of test/attacks');
  assert.is(new Set(ATTACKS.map(({ name }) => name)).size, ATTACKS.length);
});

test('each row names mutants that exist, and an effect', () => {
  const known = new Set([...ENGINE_DEFENCES, ...HOST_DEFENCES].map(({ name }) => name));
  const unknown = rows.flatMap(({ mutants }) => mutants.filter((name) => !known.has(name)));
  assert.equal(unknown, [], 'names that test/mutants does not have');
  const without = rows.filter(({ mutants }) => mutants.length === 0).map(({ name }) => name);
  assert.equal(without, [...WITHOUT_MUTANT], 'rows without a mutant');
  for (const { name, effect } of rows) assert.ok(effect.length > 0, name);
});

test('each row has a cost that was measured', () => {
  const units = new Map(ATTACKS.map(({ name, unit = 'datagrams' }) => [name, unit]));
  for (const { name, cost } of rows) {
    assert.match(cost, new RegExp(`^[\\d,]+ ${units.get(name)}, \\d+\\.\\d s$`), name);
  }
});

test('costs are written into their rows and nowhere else', () => {
  const [{ name, cost }] = rows as [(typeof rows)[number]];
  const other = withCosts(text, new Map([[name, '1 datagrams, 0.0 s']]));
  assert.is(rowsOf(other)[0]!.cost, '1 datagrams, 0.0 s');
  assert.equal(rowsOf(withCosts(other, new Map([[name, cost]]))), rows);
});
