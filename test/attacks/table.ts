/** The table of attacks in the guide (host/guide/ATTACKS.md): its rows, and their costs. */
import { fileURLToPath } from 'node:url';
import { root } from '../support/paths.js';
import type { Position } from './attack.js';

export const TABLE = fileURLToPath(new URL('host/guide/ATTACKS.md', root));

/** The heading of each position's rows. */
export const HEADINGS: Readonly<Record<Position, string>> = {
  'on path': 'On the path',
  'forged source': 'With a forged source',
  'any host': 'Any host',
  peer: 'A connected peer',
  'foreign page': 'A page of another site',
  'co-process': 'Another process of a shared device',
  'local user': 'Another user of the machine',
  file: 'The author of a file',
};

export interface TableRow {
  readonly heading: string;
  readonly name: string;
  readonly cost: string;
  readonly effect: string;
  /** Names of mutants; empty if the cell is `none`. */
  readonly mutants: readonly string[];
}

function cellsOf(line: string): string[] {
  return line
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim());
}

/** The rows below the headings of positions. */
export function rowsOf(text: string): TableRow[] {
  const headings = new Set(Object.values(HEADINGS));
  const rows: TableRow[] = [];
  let heading = '';
  for (const line of text.split('\n')) {
    if (line.startsWith('## ')) heading = line.slice(3);
    if (!headings.has(heading) || !line.startsWith('|')) continue;
    const [name, cost, effect, mutants] = cellsOf(line);
    if (name === 'attack' || /^-+$/.test(name!)) continue;
    const names = mutants === 'none' ? [] : mutants!.split('; ');
    rows.push({ heading, name: name!, cost: cost!, effect: effect!, mutants: names });
  }
  return rows;
}

/** The text with other costs, of those attacks that have one. */
export function withCosts(text: string, costs: ReadonlyMap<string, string>): string {
  const lines = text.split('\n').map((line) => {
    const [name, , effect, mutants] = cellsOf(line);
    const cost = mutants === undefined ? undefined : costs.get(name!);
    return cost === undefined ? line : `| ${name} | ${cost} | ${effect} | ${mutants} |`;
  });
  return lines.join('\n');
}
