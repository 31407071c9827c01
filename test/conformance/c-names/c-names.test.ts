/** The reference of C names holds: against the headers, and against what the package has. */
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import * as verbena from '../../../host/index.js';
import { root } from '../../support/paths.js';
import { PAGE, isOurs, readHeaders, readMapping, render } from './names.js';

const headers = readHeaders();
const mapping = readMapping();
const exported = verbena as unknown as { readonly [name: string]: unknown };
/** Folders of host/ whose classes have C's verbs as methods. */
const FOLDERS = ['verbs', 'cm'];

test('every name of the headers has its entry, and no other name has', () => {
  const functions = headers.flatMap((header) => header.functions);
  const enums = headers.flatMap((header) => Object.keys(header.enums));
  assert.equal(Object.keys(mapping.functions).sort(), functions.sort());
  assert.equal(Object.keys(mapping.enums).sort(), enums.sort());
  assert.ok(functions.length >= 230 && enums.length >= 70);
});

test('each name without a counterpart has a reason', () => {
  for (const entry of [...Object.values(mapping.functions), ...Object.values(mapping.enums)]) {
    if (!isOurs(entry)) assert.match(entry, /^(not|later): .{3,}/);
  }
});

type Classes = Map<string, { readonly prototype: object }>;

/** Every class of the folders, by its name. */
async function readClasses(): Promise<Classes> {
  const classes: Classes = new Map();
  for (const folder of FOLDERS) {
    const url = new URL(`build/host/${folder}/`, root);
    const files = readdirSync(url, { recursive: true })
      .map(String)
      .filter((file) => file.endsWith('.js'));
    for (const file of files) {
      const module = (await import(new URL(file, url).href)) as { [name: string]: unknown };
      for (const [name, value] of Object.entries(module)) {
        if (typeof value === 'function') classes.set(name, value);
      }
    }
  }
  return classes;
}

test('every method and function that an entry names exists', async () => {
  const classes = await readClasses();
  for (const [name, entry] of Object.entries(mapping.functions)) {
    if (!isOurs(entry)) continue;
    const [owner, method] = entry.split('.') as [string, string | undefined];
    if (method === undefined) {
      assert.type(exported[owner], 'function', `${name}: ${entry}`);
      continue;
    }
    const prototype = classes.get(owner)?.prototype as { [name: string]: unknown };
    assert.ok(prototype, `${name}: there is no class ${owner}`);
    assert.type(prototype[method], 'function', `${name}: ${entry}`);
  }
});

test('members of enums have C’s names and values', () => {
  for (const header of headers) {
    for (const [name, members] of Object.entries(header.enums)) {
      const entry = mapping.enums[name]!;
      if (!isOurs(entry)) continue;
      const [ours, prefix] = entry.split(' ') as [string, string];
      const values = exported[ours] as { readonly [member: string]: number } | undefined;
      assert.ok(values, `${name}: the package exports no ${ours}`);
      assert.ok(Object.keys(values).length > 0);
      for (const [member, value] of Object.entries(values)) {
        if (mapping.extras[`${ours}.${member}`]) continue;
        assert.is(members[`${prefix}${member}`], value, `${ours}.${member}`);
      }
    }
  }
});

test('c-names.md is the mapping', () => {
  const hint = 'a row is not in the order of the headers, or a count is wrong';
  assert.is(readFileSync(PAGE, 'utf8'), render(headers, mapping), hint);
});

test.run();
