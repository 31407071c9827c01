/** Texts of thrown errors: each names an argument or object, and its rule, in plain words. */
import { readFileSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';

/** Classes whose first argument is the name of an argument, and those where it is an errno. */
const MISUSE = new Set(['MisuseError']);
const REFUSAL = new Set(['RefusalError', 'LinkError', 'ReregMrError']);
/** A pronoun in place of the subject. Other phrases: wording.test.ts. */
const VAGUE = /^(?:it|that|this|what|there|they|one|nothing)\b/i;
const WORDS_MIN = 4;
/** Enough with fewer words: an object and its state. */
const STATE =
  /^[\w. #]+(?:: | )(?:is|was) (?:closed|deallocated|deleted|deregistered|destroyed|freed)$/;

interface Found {
  readonly where: string;
  readonly text: string;
}

/** The text of a string or template, each expression as `#`; undefined: it is computed elsewhere. */
function textOf(node: ts.Node | undefined): string | undefined {
  if (!node) return undefined;
  if (ts.isStringLiteralLike(node)) return node.text;
  if (ts.isTemplateExpression(node)) {
    return node.head.text + node.templateSpans.map((span) => `#${span.literal.text}`).join('');
  }
  if (ts.isBinaryExpression(node)) {
    const [left, right] = [textOf(node.left), textOf(node.right)];
    return left === undefined || right === undefined ? undefined : left + right;
  }
  return undefined;
}

function* errorsOf(file: string): Iterable<Found> {
  const text = readFileSync(fileURLToPath(new URL(file, root)), 'utf8');
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const found: Found[] = [];
  const visit = (node: ts.Node): void => {
    ts.forEachChild(node, visit);
    if (!ts.isNewExpression(node)) return;
    const name = node.expression.getText();
    const isMisuse = MISUSE.has(name);
    if (!isMisuse && !REFUSAL.has(name)) return;
    const [first, second] = node.arguments ?? [];
    const rule = textOf(second);
    if (rule === undefined) return;
    const line = source.getLineAndCharacterOfPosition(node.getStart()).line + 1;
    const subject = isMisuse ? `${textOf(first) ?? '#'}: ` : '';
    found.push({ where: `${file}:${line}`, text: subject + rule });
  };
  visit(source);
  yield* found;
}

const files = readdirSync(new URL('host', root), { recursive: true, encoding: 'utf8' })
  .map((name) => `host/${name.replaceAll('\\', '/')}`)
  .filter((name) => name.endsWith('.ts'));
const all = files.flatMap((file) => [...errorsOf(file)]);

const wrong = (isWrong: (text: string) => boolean): string[] =>
  all.filter(({ text }) => isWrong(text)).map(({ where, text }) => `${where}: ${text}`);

test('the errors of the host are found', () => {
  assert.ok(all.length > 500, `${all.length}`);
});

test('a text has at least four words', () => {
  assert.equal(
    // An expression stands for any number of words.
    wrong((text) => !/#|^$/.test(text) && !STATE.test(text) && text.split(' ').length < WORDS_MIN),
    [],
  );
});

test('a text starts with an argument or object, not with a pronoun', () => {
  assert.equal(
    wrong((text) => VAGUE.test(text)),
    [],
  );
});

test.run();
