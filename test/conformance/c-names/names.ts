/**
 * Every name of libibverbs' and librdmacm's headers, and where it is here. The names are data taken
 * from the headers (libibverbs.json, librdmacm.json), mapping.json says what became of each:
 * `Class.method` or a function of the package, `not: why`, or `later: with what`. An enum is
 * `Name PREFIX_`: its members are C's without the prefix. c-names.md is rendered from them.
 */
import { readFileSync } from 'node:fs';
import { root } from '../../support/paths.js';

export const RENDERED = new URL('test/conformance/c-names.md', root);
const FOLDER = new URL('test/conformance/c-names/', root);

export interface Header {
  readonly header: string;
  readonly functions: readonly string[];
  /** Members and their values. */
  readonly enums: { readonly [name: string]: { readonly [member: string]: number } };
}

export interface Mapping {
  readonly functions: { readonly [name: string]: string };
  readonly enums: { readonly [name: string]: string };
  /** Members that C's enums do not have, and why. */
  readonly extras: { readonly [member: string]: string };
}

export function readHeaders(): Header[] {
  return ['libibverbs', 'librdmacm'].map((name) => read(`${name}.json`) as Header);
}

export function readMapping(): Mapping {
  return read('mapping.json') as Mapping;
}

/** Is it here, and not a reason why not? */
export function isOurs(entry: string): boolean {
  return !/^(not|later): /.test(entry);
}

function read(name: string): unknown {
  return JSON.parse(readFileSync(new URL(name, FOLDER), 'utf8'));
}

function sentence(entry: string): string {
  if (isOurs(entry)) return `\`${entry.split(' ')[0]}\``;
  const [kind, reason] = entry.split(/: (.*)/);
  return `_${kind}_: ${reason}`;
}

/** c-names.md. */
export function render(headers: readonly Header[], mapping: Mapping): string {
  const lines = [
    '# C names',
    '',
    'Every function and enum of libibverbs and librdmacm, and where it is here, or why not. Methods are the C',
    'verb in camelCase on its first argument; enum members are C’s without the prefix, with the same values.',
    '',
    'Rendered from `c-names/mapping.json` by `node build/test/conformance/c-names/render.js`; a test compares,',
    'and holds every name against what the package has.',
  ];
  for (const { header, functions, enums } of headers) {
    const ours = functions.filter((name) => isOurs(mapping.functions[name] ?? 'not: '));
    lines.push('', `## ${header}`, '', `${ours.length} of ${functions.length} functions.`, '');
    for (const name of functions) {
      lines.push(`- \`${name}\`: ${sentence(mapping.functions[name] ?? 'not: ')}`);
    }
    lines.push('');
    for (const name of Object.keys(enums)) {
      lines.push(`- \`enum ${name}\`: ${sentence(mapping.enums[name] ?? 'not: ')}`);
    }
  }
  return `${lines.join('\n')}\n`;
}
