/**
 * A compiler transform: writes down which branches the engine takes. Every branch of the files in
 * wire/, region/ and transport/ gets a number and a store of one byte into a table at a fixed place
 * in linear memory that nothing else uses: below the arena, which begins at 8192, and behind its
 * configuration, which is read at 1024. What the numbers mean goes into the module's custom section `branches`, as JSON.
 *
 * A branch is: the `then` and the `else` of an `if`, written or not; each case of a `switch`, its
 * `default` written or not; the body of a loop; both values of `?:`; the right-hand side of `&&`
 * and `||`. Used by test/fuzz alone: the engine that ships is compiled without.
 */
import { Node, NodeKind, Token } from 'assemblyscript';
import { Transform } from 'assemblyscript/transform';

/** Where the table lies: [TABLE, TABLE + TABLE_SIZE). */
const TABLE = 1088;
const TABLE_SIZE = 7104;
const FILES = /^assembly\/(wire|region|transport)\//;
const SECTION = 'branches';

/** Put into the global scope by the compiler: its own 64-bit integers. */
const { i64_new } = globalThis;

const LOGICAL = new Map([
  [Token.Ampersand_Ampersand, 'and'],
  [Token.Bar_Bar, 'or'],
]);

function isNode(value) {
  return value instanceof Object && typeof value.kind === 'number' && value.range !== undefined;
}

/** Where control never falls out of: nothing may follow it. */
function ends(statement) {
  if (!statement) return false;
  if (statement.kind === NodeKind.Block) return ends(statement.statements.at(-1));
  return [NodeKind.Return, NodeKind.Break, NodeKind.Continue, NodeKind.Throw].includes(
    statement.kind,
  );
}

export default class CoverageTransform extends Transform {
  #branches = [];
  #file = '';
  #function = '';

  afterParse(parser) {
    for (const source of parser.sources) {
      if (!FILES.test(source.normalizedPath)) continue;
      this.#file = source.normalizedPath;
      for (const statement of source.statements) this.#top(statement);
    }
    if (this.#branches.length > TABLE_SIZE) {
      throw new Error(`${this.#branches.length} branches, but ${TABLE_SIZE} bytes for them`);
    }
  }

  afterCompile(module) {
    const json = JSON.stringify({ table: TABLE, branches: this.#branches });
    module.addCustomSection(SECTION, new TextEncoder().encode(json));
  }

  /** Only what runs is instrumented: constants of the file are not. */
  #top(statement) {
    if (statement.kind !== NodeKind.FunctionDeclaration || !statement.body) return;
    this.#function = statement.name.text;
    this.#walk(statement.body);
  }

  /** `store<u8>(TABLE + id, 1)` for a new branch that stands where `node` does. */
  #mark(node, kind) {
    const { range } = node;
    const id = this.#branches.length;
    const { source } = range;
    const line = source.lineAt(range.start);
    const column = source.columnAt();
    this.#branches.push({ file: this.#file, line, column, kind, function: this.#function });
    const type = Node.createNamedType(Node.createSimpleTypeName('u8', range), [], false, range);
    const number = (value) => Node.createIntegerLiteralExpression(i64_new(value, 0), range);
    const name = Node.createIdentifierExpression('store', range);
    return Node.createCallExpression(name, [type], [number(TABLE + id), number(1)], range);
  }

  #markStatement(node, kind) {
    return Node.createExpressionStatement(this.#mark(node, kind));
  }

  #block(statement, at, kind) {
    const mark = this.#markStatement(at, kind);
    const statements = !statement
      ? [mark]
      : statement.kind === NodeKind.Block
        ? [mark, ...statement.statements]
        : [mark, statement];
    return Node.createBlockStatement(statements, (statement ?? at).range);
  }

  #comma(expression, kind) {
    return Node.createCommaExpression([this.#mark(expression, kind), expression], expression.range);
  }

  /** Children first, so that what is put in is not walked. */
  #walk(node) {
    for (const [key, value] of Object.entries(node)) {
      if (key === 'range') continue;
      if (isNode(value)) this.#walk(value);
      else if (Array.isArray(value)) this.#walkList(value);
    }
    this.#instrument(node);
  }

  /**
   * After an `if` that leaves the block the rest of the block is its `else`; as a written one it
   * would hide from the compiler that a null check holds in that rest.
   */
  #walkList(list) {
    for (const child of list.filter(isNode)) {
      const guard = child.kind === NodeKind.If && !child.ifFalse && ends(child.ifTrue);
      if (guard) child.isGuard = true;
      this.#walk(child);
      if (guard) list.splice(list.indexOf(child) + 1, 0, this.#markStatement(child, 'else'));
    }
  }

  #instrument(node) {
    switch (node.kind) {
      case NodeKind.If:
        if (!node.isGuard) node.ifFalse = this.#block(node.ifFalse, node.ifFalse ?? node, 'else');
        node.ifTrue = this.#block(node.ifTrue, node.ifTrue, 'then');
        break;
      case NodeKind.For:
      case NodeKind.While:
      case NodeKind.Do:
        node.body = this.#block(node.body, node, 'loop');
        break;
      case NodeKind.Switch:
        this.#switch(node);
        break;
      case NodeKind.Ternary:
        node.ifThen = this.#comma(node.ifThen, 'value if true');
        node.ifElse = this.#comma(node.ifElse, 'value if false');
        break;
      case NodeKind.Binary: {
        const kind = LOGICAL.get(node.operator);
        if (kind) node.right = this.#comma(node.right, kind);
        break;
      }
    }
  }

  #switch(node) {
    const hasDefault = node.cases.some((one) => one.label === null);
    for (const one of node.cases) {
      one.statements.unshift(this.#markStatement(one.label ?? one, 'case'));
    }
    const last = node.cases.at(-1);
    if (hasDefault || !ends(last?.statements.at(-1))) return;
    const mark = this.#markStatement(node, 'default');
    node.cases.push(Node.createSwitchCase(null, [mark], node.range));
  }
}
