/** No function has more than 70 lines, but for a table with reasons: it may only shrink. */
import { readFileSync, readdirSync } from 'node:fs';
import ts from 'typescript';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';

const LINES_MAX = 70;
const FOLDERS = ['assembly', 'host', 'test'];

/** Lines of each longer function, by file and name. */
const LEFT: Readonly<Record<string, number>> = {
  // Unrolled: the sixteen vectors of the state are local variables.
  'assembly/crypto/chacha20.ts keyStream': 114,
  // A class around its queue: its methods are short.
  'test/simulation/host/turns.ts makePromise': 138,
};

/** Lines of each function that is too long, by file and name. */
function longFunctions(): Map<string, number> {
  const long = new Map<string, number>();
  for (const folder of FOLDERS) {
    const names = readdirSync(new URL(folder, root), { recursive: true, encoding: 'utf8' });
    for (const name of names.filter((each) => /\.(ts|cts|mjs)$/.test(each))) {
      const file = `${folder}/${name}`;
      const text = readFileSync(new URL(file, root), 'utf8');
      // A shorter file has no longer function: it need not be parsed.
      if (text.split('\n').length <= LINES_MAX) continue;
      const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest);
      const lineOf = (at: number): number => source.getLineAndCharacterOfPosition(at).line;
      const visit = (node: ts.Node): void => {
        if (ts.isFunctionLike(node) && 'body' in node && node.body) {
          const lines = lineOf(node.end) - lineOf(node.getStart(source)) + 1;
          const key = `${file} ${node.name?.getText(source) ?? '(anonymous)'}`;
          if (lines > LINES_MAX) long.set(key, Math.max(lines, long.get(key) ?? 0));
        }
        ts.forEachChild(node, visit);
      };
      visit(source);
    }
  }
  return long;
}

const found = longFunctions();

test('no function has more than 70 lines, or more than the table says', () => {
  for (const [name, lines] of found) {
    assert.ok(lines <= (LEFT[name] ?? 0), `${name}: ${lines} lines`);
  }
});

test('the table has no row for a function that is short', () => {
  assert.equal(
    Object.keys(LEFT).filter((name) => !found.has(name)),
    [],
  );
});

test.run();
