/** Texts of thrown errors: each names an argument or object, and its rule, in plain words. */
import { readFileSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';

/** The class whose first argument is the name of an argument, and those where it is an errno. */
const MISUSE = 'MisuseError';
/** Returns one, of a name, a kind and a value. */
const MUST_BE = 'mustBe';
const REFUSAL = new Set(['RefusalError', 'LinkError', 'ReregMrError', 'MeshError', 'ConnectError']);
/** Its second argument is a Reason, which has a rule and a remedy by its type. */
const REMOTE = 'RemoteError';
/** A sentence of `refuse` in a table by errno, behind the name of its verb. */
const BY_ERRNO = /^E(?:ACCES|AGAIN|BUSY|INVAL|NO\w+|OPNOTSUPP|PERM)$/;
/** A pronoun in place of the subject. Other phrases: wording.test.ts. */
const VAGUE = /^(?:it|that|this|what|there|they|one|nothing)\b/i;
const WORDS_MIN = 4;
/** Enough with fewer words: an object and its state. */
const STATE =
  /^[\w. #]+(?:: | )(?:is|was) (?:closed|deallocated|deleted|deregistered|destroyed|freed)$/;

interface Found {
  readonly kind: string;
  readonly file: string;
  readonly where: string;
  readonly text: string;
}

/** The initializer of the constant of that name in the nearest block around `node`. */
function constantOf(node: ts.Identifier): ts.Expression | undefined {
  for (let block: ts.Node = node.parent; block; block = block.parent) {
    if (!ts.isBlock(block) && !ts.isSourceFile(block)) continue;
    for (const statement of block.statements) {
      if (!ts.isVariableStatement(statement)) continue;
      const { flags, declarations } = statement.declarationList;
      const found = declarations.find(({ name }) => name.getText() === node.text);
      if (found) return flags & ts.NodeFlags.Const ? found.initializer : undefined;
    }
  }
  return undefined;
}

/** The text of a string or template, each value as `#`; undefined: it is computed elsewhere. */
function textOf(node: ts.Node | undefined): string | undefined {
  if (!node) return undefined;
  if (ts.isStringLiteralLike(node)) return node.text;
  if (ts.isIdentifier(node)) return textOf(constantOf(node));
  if (ts.isTemplateExpression(node)) {
    const spans = node.templateSpans.map(
      ({ expression, literal }) => (textOf(expression) ?? '#') + literal.text,
    );
    return node.head.text + spans.join('');
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
    const add = (kind: string, subject: string, rule: string | undefined): void => {
      if (rule === undefined) return;
      const line = source.getLineAndCharacterOfPosition(node.getStart()).line + 1;
      found.push({ kind, file, where: `${file}:${line}`, text: subject + rule });
    };
    if (ts.isPropertyAssignment(node) && BY_ERRNO.test(node.name.getText())) {
      if (/^host\/verbs\//.test(file)) add('refuse', '#: ', textOf(node.initializer));
    }
    if (ts.isCallExpression(node) && node.expression.getText() === MUST_BE) {
      const [name, kind] = node.arguments;
      add(MISUSE, `${textOf(name) ?? '#'}: `, `must be ${textOf(kind) ?? '#'}, got #`);
    }
    if (!ts.isNewExpression(node)) return;
    const kind = node.expression.getText();
    if (kind !== MISUSE && kind !== REMOTE && !REFUSAL.has(kind)) return;
    const [first, second] = node.arguments ?? [];
    const rule = kind === REMOTE ? '#; #' : textOf(second);
    add(kind, REFUSAL.has(kind) ? '' : `${textOf(first) ?? '#'}: `, rule);
  };
  visit(source);
  yield* found;
}

const files = readdirSync(new URL('host', root), { recursive: true, encoding: 'utf8' })
  .map((name) => `host/${name.replaceAll('\\', '/')}`)
  .filter((name) => name.endsWith('.ts'));
const all = files.flatMap((file) => [...errorsOf(file)]);

/** States of an object, and of its caller, that forbid a call: no value says more. */
const STATES =
  'acknowledged|available|closed|deallocated|deleted|deregistered|destroyed|finalized|freed|' +
  'held|imported|open|removed|used up';
const FORBIDS = new RegExp(
  `\\b(?:is|was|has been) (?:already |not |no longer )?(?:${STATES})\\b|` +
    String.raw`\b(?:is|are) (?:only |not )?valid (?:with|for|during)\b|\bhas (?:no|an?) `,
);
/** An argument is absent or one too many, or an object without a text: nothing to print. */
const NO_TEXT = new RegExp(
  String.raw`\brequire[ds]?\b|\bneeds?\b|\b(?:without|both|neither|at most one|not several)\b|` +
    String.raw`\bof (?:the same|this|another) \w+|\bmust (?:be (?:an? (?!whole|number|name)|` +
    String.raw`memory )|return memory|belong to|have a method)`,
);
/** `must` and the value, or what must be there together: the rule is its own remedy. */
const MUST = new RegExp(
  String.raw`\bmust\b.*#|#.*\bmust\b|\bmust be of one\b|\bexactly one of\b.*\bis required\b|` +
    String.raw`\bneeds? [A-Z_]+$`,
);
/** A key is never printed. */
const SECRET = /^(?:#\.)?\w*(?:key|secret): must /i;
/** `name: `, or the value or the object that it is about. */
const NAMED = /^(?:[\w.#'"()[\]/ -]{1,40}: |"?#|(?:the )?[\w-]+ "?#)/;
/** `verbena NAME: ` precedes the texts of these: they are shown by a command. */
const OF_COMMANDS = /^host\/(?:cli|transfer)\//;
const partsOf = (text: string): readonly string[] => text.split(/: |; |\. /);

/** It carries a value or names a state (misuse); operation or value, rule and remedy (others). */
function isJudged({ kind, file, text }: Found): boolean {
  // The parts are computed elsewhere, or copied from the message of another thread.
  if (/^[#:; ]*$/.test(text)) return true;
  const rest = partsOf(text).slice(1);
  if (kind === MISUSE) {
    const rule = rest.join(': ');
    return [/#/, FORBIDS, NO_TEXT].some((good) => good.test(rule)) || SECRET.test(text);
  }
  if (!NAMED.test(text) && !OF_COMMANDS.test(file)) return false;
  // Otherwise the first part is a sentence: of an object, or computed elsewhere.
  const isOperation = /^[\w.#-]+: /.test(text);
  return MUST.test(text) || rest.length >= (isOperation ? 2 : 1) || (rest.at(-1) ?? '') === '#';
}

const wrong = (isWrong: (text: string) => boolean): string[] =>
  all.filter(({ text }) => isWrong(text)).map(({ where, text }) => `${where}: ${text}`);

test('the errors of the host are found', () => {
  assert.ok(all.length > 1000, `${all.length}`);
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

test('a text names operation and value, rule and remedy', () => {
  const found = all.filter((one) => !isJudged(one));
  assert.equal(
    found.map(({ where, text }) => `${where}: ${text}`),
    [],
  );
});

test.run();
