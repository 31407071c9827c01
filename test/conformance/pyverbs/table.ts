/**
 * rdma-core's vendor-neutral pyverbs tests, every one, and what stands for each of them here: a test
 * of ours, a reason why it cannot be, or what it waits for: the rows of pyverbs.md.
 */
import { readFileSync } from 'node:fs';
import { root } from '../../support/paths.js';

export const FOLDER = new URL('test/conformance/pyverbs/', root);
export const PAGE = new URL('test/conformance/pyverbs.md', root);
/** `grep -c 'def test_'` over the vendor-neutral files of rdma-core's tests/. */
export const UPSTREAM_COUNT = 231;
const UPSTREAM_REVISION = '691953d8d502';

/** One of the three. */
export interface Row {
  /** Name of a test of ours, in the file of the same name. */
  readonly test?: string;
  /** Needs what no software has; upstream's own words for it in quotes. */
  readonly exception?: string;
  /** Comes with something that is not there yet. */
  readonly later?: string;
}

/** By upstream's file (`qp` of test_qp.py) and test (`query_rc_qp` of test_query_rc_qp). */
export type Table = { readonly [file: string]: { readonly [upstream: string]: Row } };

export function readTable(): Table {
  const table: { [file: string]: { [upstream: string]: Row } } = {};
  for (const section of readFileSync(PAGE, 'utf8').split('\n## ').slice(1)) {
    const rows = section.matchAll(/^- `(\w+)`: (?:\*\*(exception)\*\*: |_(later)_: )?(.+)$/gm);
    const entries = [...rows].map(([, upstream, exception, later, text]) => {
      return [upstream!, { [exception ?? later ?? 'test']: text! }] as const;
    });
    table[section.slice(0, section.indexOf('\n'))] = Object.fromEntries(entries);
  }
  return table;
}

export interface Count {
  readonly covered: number;
  readonly exceptions: number;
  readonly later: number;
  readonly all: number;
}

export function count(table: Table): Count {
  const rows = Object.values(table).flatMap((file) => Object.values(file));
  return {
    covered: rows.filter((row) => row.test !== undefined).length,
    exceptions: rows.filter((row) => row.exception !== undefined).length,
    later: rows.filter((row) => row.later !== undefined).length,
    all: rows.length,
  };
}

function sentence({ test, exception, later }: Row): string {
  if (test !== undefined) return test;
  return exception !== undefined ? `**exception**: ${exception}` : `_later_: ${later}`;
}

/** pyverbs.md, as its rows demand it. */
export function render(table: Table): string {
  const { covered, exceptions, later, all } = count(table);
  const lines = [
    '# The pyverbs tests of rdma-core',
    '',
    `${all} tests of rdma-core ${UPSTREAM_REVISION} that need no particular vendor: ${covered} have a test`,
    `of ours in \`pyverbs/FILE.test.ts\`, ${exceptions} are exceptions, ${later} wait. Each of ours runs on a perfect`,
    'wire, over UDP sockets, and on a wire that loses 5 % of all packets.',
    '',
    '`pyverbs/table.test.ts` reads this page, and holds every row against the tests.',
  ];
  for (const [file, rows] of Object.entries(table)) {
    lines.push('', `## ${file}`, '');
    for (const [upstream, row] of Object.entries(rows)) {
      lines.push(`- \`${upstream}\`: ${sentence(row)}`);
    }
  }
  return `${lines.join('\n')}\n`;
}
