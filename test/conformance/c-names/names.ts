/**
 * Every name of libibverbs' and librdmacm's headers, and where it is here. The names are data taken
 * from the headers (libibverbs.json, librdmacm.json), c-names.md says what became of each:
 * `Class.method` or a function of the package, `not: why`, or `later: with what`. An enum is
 * `Name PREFIX_`: its members are C's without the prefix.
 */
import { readFileSync } from 'node:fs';
import { root } from '../../support/paths.js';

export const PAGE = new URL('test/conformance/c-names.md', root);
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

/** The rows of c-names.md. */
export function readMapping(): Mapping {
  const mapping = { functions: {}, enums: {}, extras: {} };
  const page = readFileSync(PAGE, 'utf8');
  for (const [, isEnum, name, text] of page.matchAll(/^- `(enum )?([\w.]+)`: (.+)$/gm)) {
    const kind = isEnum ? 'enums' : name!.includes('.') ? 'extras' : 'functions';
    const entry = text!.replace(/^_(not|later)_/, '$1').replace('` without `', ' ');
    Object.assign(mapping[kind], { [name!]: entry.replace(/^`(.*)`$/, '$1') });
  }
  return mapping;
}

/** Is it here, and not a reason why not? */
export function isOurs(entry: string): boolean {
  return !/^(not|later): /.test(entry);
}

function read(name: string): unknown {
  return JSON.parse(readFileSync(new URL(name, FOLDER), 'utf8'));
}

function sentence(entry: string): string {
  if (isOurs(entry)) return `\`${entry.replace(' ', '` without `')}\``;
  const [kind, reason] = entry.split(/: (.*)/);
  return `_${kind}_: ${reason}`;
}

/** c-names.md, as its rows and the headers demand it. */
export function render(headers: readonly Header[], mapping: Mapping): string {
  const lines = [
    '# C names',
    '',
    'Every function and enum of libibverbs and librdmacm, and where it is here, or why not. Methods are the C',
    'verb in camelCase on its first argument; enum members are C’s without the prefix, with the same values.',
    '',
    '`c-names/c-names.test.ts` reads this page, and holds every name against the headers and what the package',
    'has.',
    '',
    '## Members that C’s enums do not have',
    '',
    ...Object.entries(mapping.extras).map(([member, reason]) => `- \`${member}\`: ${reason}`),
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
