/**
 * The mutation operators. A file of assembly/ parses as TypeScript, so the compiler API finds each
 * place that an operator fits. A mutant is described by text: the expression or statement of
 * the source, and the text that takes its place. Nothing here writes a file.
 *
 * | operator    | change                                                             |
 * | ----------- | ------------------------------------------------------------------ |
 * | `condition` | a condition, or an operand of `&&` and `\|\|`, is always true or false |
 * | `boundary`  | `<` and `<=`, `>` and `>=` are exchanged                           |
 * | `operator`  | `+` and `-`, `<<` and `>>`, `&` and `\|`, `*`, `/` and `%` are exchanged |
 * | `constant`  | a literal that is assigned, passed or returned is off by one       |
 * | `return`    | `true` and `false` are exchanged                                   |
 * | `extreme`   | `min` and `max` are exchanged                                      |
 * | `skip`      | an assignment, or a call whose result is unused, is left out       |
 * | `jump`      | `break`, `continue` or `return` is left out                        |
 */
import ts from 'typescript';

export type Operator =
  'condition' | 'boundary' | 'operator' | 'constant' | 'return' | 'extreme' | 'skip' | 'jump';

/** How the guard goes around the text: see guarded() in schemata.ts. */
export type Form = 'or' | 'and' | 'choice' | 'statement';

/** One change of one place. */
export interface Mutation {
  /** From the repository's root. */
  readonly file: string;
  /** Of `node`, from 1. */
  readonly line: number;
  /** The function, or `Class.method`, that it stands in. */
  readonly function: string;
  readonly operator: Operator;
  readonly form: Form;
  /** Text of the node, white space folded. */
  readonly source: string;
  /** The text instead; `''`: the statement is left out. */
  readonly becomes: string;
  /** Text of the expression or statement that the node is part of. */
  readonly around: string;
  readonly node: ts.Node;
}

const { SyntaxKind } = ts;

const BOUNDARIES = new Map([
  [SyntaxKind.LessThanToken, '<='],
  [SyntaxKind.LessThanEqualsToken, '<'],
  [SyntaxKind.GreaterThanToken, '>='],
  [SyntaxKind.GreaterThanEqualsToken, '>'],
] as const) as ReadonlyMap<ts.SyntaxKind, string>;

const ARITHMETIC = new Map([
  [SyntaxKind.PlusToken, '-'],
  [SyntaxKind.MinusToken, '+'],
  [SyntaxKind.AsteriskToken, '/'],
  [SyntaxKind.SlashToken, '*'],
  [SyntaxKind.PercentToken, '/'],
  [SyntaxKind.LessThanLessThanToken, '>>'],
  [SyntaxKind.GreaterThanGreaterThanToken, '<<'],
  [SyntaxKind.GreaterThanGreaterThanGreaterThanToken, '<<'],
  [SyntaxKind.AmpersandToken, '|'],
  [SyntaxKind.BarToken, '&'],
  [SyntaxKind.CaretToken, '|'],
] as const) as ReadonlyMap<ts.SyntaxKind, string>;

const EQUALITIES: ReadonlySet<ts.SyntaxKind> = new Set([
  SyntaxKind.EqualsEqualsToken,
  SyntaxKind.ExclamationEqualsToken,
]);

/** Their arguments are types, immediates or lanes: the compiler wants constants. */
const CONSTANT_ARGUMENTS =
  /^((v128|[if]\d+x\d+|atomic|memory)\b.*|load|store|offsetof|sizeof|alignof)$/;
/** A constant of the build, such as PACKET_AUTH: the compiler leaves out what it excludes. */
const BUILD_CONSTANT = /^!?[A-Z][A-Z0-9_]*$/;
const WORD_MAX = 0xffffffffn;
const EXTREMES: Readonly<Record<string, string>> = { min: 'max', max: 'min' };

/** All mutations of one source file, in the order of the text. */
export function mutationsOf(file: string, text: string): Mutation[] {
  return new Finder(file, text).find();
}

class Finder {
  readonly #file: string;
  readonly #source: ts.SourceFile;
  readonly #found: Mutation[] = [];
  #function = '';

  constructor(file: string, text: string) {
    this.#file = file;
    this.#source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  }

  find(): Mutation[] {
    for (const statement of this.#source.statements) {
      if (ts.isFunctionDeclaration(statement)) this.#enter(statement, statement.name!.text);
      if (!ts.isClassDeclaration(statement)) continue;
      for (const member of statement.members) {
        const { name } = member;
        if (!ts.isFunctionLike(member)) continue;
        const own = name ? name.getText(this.#source) : 'constructor';
        this.#enter(member as ts.FunctionLikeDeclaration, `${statement.name!.text}.${own}`);
      }
    }
    return this.#found;
  }

  #enter(declaration: ts.FunctionLikeDeclaration, name: string): void {
    this.#function = name;
    if (declaration.body) this.#walk(declaration.body);
  }

  #text(node: ts.Node): string {
    return node.getText(this.#source);
  }

  /** Of an operand whose own operator may bind less than the new one beside it. */
  #operandText(node: ts.Expression): string {
    return ts.isBinaryExpression(node) ? `(${this.#text(node)})` : this.#text(node);
  }

  #add(operator: Operator, form: Form, node: ts.Node, becomes: string): void {
    const { line } = this.#source.getLineAndCharacterOfPosition(node.getStart(this.#source));
    this.#found.push({
      file: this.#file,
      line: line + 1,
      function: this.#function,
      operator,
      form,
      source: folded(this.#text(node)),
      becomes: folded(becomes),
      around: folded(this.#text(node.parent)),
      node,
    });
  }

  #walk(node: ts.Node): void {
    if (ts.isTypeNode(node)) return;
    this.#mutate(node);
    if (ts.isCallExpression(node) && CONSTANT_ARGUMENTS.test(this.#text(node.expression))) {
      // The address and the value of a load or store are computed; the rest are immediates.
      for (const argument of node.arguments.slice(0, 2)) {
        if (!isConstant(argument)) this.#walk(argument);
      }
      return;
    }
    ts.forEachChild(node, (child) => this.#walk(child));
  }

  #mutate(node: ts.Node): void {
    if (ts.isIfStatement(node)) this.#condition(node.expression, true);
    if (ts.isConditionalExpression(node)) this.#condition(node.condition, true);
    // A loop that is always entered again never ends: nothing is learned from it.
    if (ts.isWhileStatement(node) || ts.isDoStatement(node)) {
      this.#condition(node.expression, false);
    }
    if (ts.isForStatement(node) && node.condition) this.#condition(node.condition, false);
    if (ts.isBinaryExpression(node)) this.#binary(node);
    if (ts.isCallExpression(node)) this.#extreme(node);
    if (ts.isNumericLiteral(node)) this.#constant(node);
    if (ts.isReturnStatement(node)) this.#return(node);
    if (ts.isExpressionStatement(node)) this.#skip(node);
    if (isJump(node)) this.#jump(node);
  }

  /** True or false whatever it says; `endless`: true is worth trying. */
  #condition(condition: ts.Expression, canBeTrue: boolean): void {
    if (aboutNull(condition, this.#source) || BUILD_CONSTANT.test(this.#text(condition))) return;
    if (condition.kind === SyntaxKind.TrueKeyword) return;
    if (canBeTrue) this.#add('condition', 'or', condition, 'true');
    this.#add('condition', 'and', condition, 'false');
  }

  #binary(node: ts.BinaryExpression): void {
    const { kind } = node.operatorToken;
    const [left, right] = [this.#text(node.left), this.#text(node.right)];
    const isLogical =
      kind === SyntaxKind.AmpersandAmpersandToken || kind === SyntaxKind.BarBarToken;
    if (isLogical) {
      for (const operand of [node.left, node.right]) this.#operand(operand, kind);
      return;
    }
    const boundary = BOUNDARIES.get(kind);
    if (boundary) this.#add('boundary', 'choice', node, `${left} ${boundary} ${right}`);
    if ((boundary || EQUALITIES.has(kind)) && isValue(node)) this.#condition(node, true);
    const arithmetic = ARITHMETIC.get(kind);
    if (arithmetic && !isText(node)) {
      this.#add(
        'operator',
        'choice',
        node,
        `${this.#operandText(node.left)} ${arithmetic} ${this.#operandText(node.right)}`,
      );
    }
  }

  /** An operand is left out: what stays decides. */
  #operand(operand: ts.Expression, kind: ts.SyntaxKind): void {
    if (aboutNull(operand, this.#source) || BUILD_CONSTANT.test(this.#text(operand))) return;
    // Of a chain the inner operands are visited as operands of their own.
    if (ts.isBinaryExpression(operand) && operand.operatorToken.kind === kind) return;
    const isAnd = kind === SyntaxKind.AmpersandAmpersandToken;
    this.#add('condition', isAnd ? 'or' : 'and', operand, isAnd ? 'true' : 'false');
  }

  #extreme(node: ts.CallExpression): void {
    const other = EXTREMES[this.#text(node.expression)];
    if (!other) return;
    const rest = this.#text(node).slice(this.#text(node.expression).length);
    this.#add('extreme', 'choice', node, other + rest);
  }

  #constant(node: ts.NumericLiteral): void {
    const { parent } = node;
    const isUsed =
      ts.isVariableDeclaration(parent) ||
      ts.isReturnStatement(parent) ||
      ts.isCallExpression(parent) ||
      (ts.isBinaryExpression(parent) &&
        parent.right === node &&
        parent.operatorToken.kind === SyntaxKind.EqualsToken);
    if (isUsed) this.#add('constant', 'choice', node, another(node.text));
  }

  #return(node: ts.ReturnStatement): void {
    const value = node.expression;
    if (value?.kind === SyntaxKind.TrueKeyword) this.#add('return', 'choice', value, 'false');
    if (value?.kind === SyntaxKind.FalseKeyword) this.#add('return', 'choice', value, 'true');
  }

  #skip({ expression }: ts.ExpressionStatement): void {
    const isEffect =
      ts.isCallExpression(expression) ||
      ts.isPostfixUnaryExpression(expression) ||
      ts.isPrefixUnaryExpression(expression) ||
      ts.isBinaryExpression(expression);
    if (isEffect) this.#add('skip', 'statement', expression.parent, '');
  }

  /** Where it is all that its `if` does, the condition's mutants are the same. */
  #jump(node: ts.Node): void {
    const { parent } = node;
    const list = ts.isBlock(parent) || ts.isCaseOrDefaultClause(parent) ? parent.statements : [];
    if (list.length > 1 && !guardsNull(node, this.#source))
      this.#add('jump', 'statement', node, '');
  }
}

/** Another number than this one: the next, or twice a fraction. */
function another(text: string): string {
  if (/[.e]/.test(text)) return String(2 * Number(text));
  const value = BigInt(text);
  return String(value === WORD_MAX ? value - 1n : value + 1n);
}

/** Is it a jump without a value? */
function isJump(node: ts.Node): boolean {
  return (
    ts.isBreakStatement(node) ||
    ts.isContinueStatement(node) ||
    (ts.isReturnStatement(node) && !node.expression)
  );
}

/** Is a comparison's result kept, passed or returned? In a condition it has mutants already. */
function isValue({ parent }: ts.Node): boolean {
  return (
    ts.isReturnStatement(parent) ||
    ts.isVariableDeclaration(parent) ||
    ts.isCallExpression(parent) ||
    (ts.isBinaryExpression(parent) && parent.operatorToken.kind === SyntaxKind.EqualsToken)
  );
}

/** The compiler learns from a comparison with null what it needs to read a member. */
function aboutNull(node: ts.Node, source: ts.SourceFile): boolean {
  return /\bnull\b/.test(node.getText(source));
}

/** Does the code after the jump's `if` rely on a pointer that is not null? */
function guardsNull(jump: ts.Node, source: ts.SourceFile): boolean {
  const branch = jump.parent.parent;
  return ts.isIfStatement(branch) && aboutNull(branch.expression, source);
}

function isConstant(node: ts.Node): boolean {
  if (ts.isBinaryExpression(node)) return isConstant(node.left) && isConstant(node.right);
  if (ts.isParenthesizedExpression(node)) return isConstant(node.expression);
  return ts.isNumericLiteral(node) || (ts.isIdentifier(node) && BUILD_CONSTANT.test(node.text));
}

/** Is it a sum of texts? */
function isText(node: ts.Node): boolean {
  if (ts.isStringLiteral(node) || ts.isTemplateExpression(node)) return true;
  return ts.isBinaryExpression(node) && (isText(node.left) || isText(node.right));
}

/** On one line, without comments: it goes into a line of the source, and into reports. */
function folded(text: string): string {
  return text
    .replace(/\/\/.*$/gm, '')
    .replace(/\/\*[^]*?\*\//g, '')
    .replace(/\s+/g, ' ')
    .trim();
}
