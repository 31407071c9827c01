/**
 * Exports of the package, read from its compiled declarations: names, their docstrings, and the
 * methods of classes. By syntax alone, so that a test may ask.
 */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { root } from './paths.js';

export interface PublicMember {
  readonly name: string;
  readonly kind: 'method' | 'property';
  /** It gives a promise, or is iterated with `for await`. */
  readonly isAwaited: boolean;
  readonly isDocumented: boolean;
}

export interface PublicName {
  readonly name: string;
  readonly kind: 'class' | 'function' | 'interface' | 'type' | 'constant';
  /** Where it is declared, from the folder of declarations on. */
  readonly file: string;
  readonly isDocumented: boolean;
  /** Of functions: it gives a promise. */
  readonly isAwaited: boolean;
  /** Of classes: what is public of them, and is theirs. */
  readonly members: readonly PublicMember[];
}

const files = new Map<string, ts.SourceFile>();

function parse(url: URL): ts.SourceFile {
  const known = files.get(url.href);
  if (known) return known;
  const text = readFileSync(url, 'utf8');
  const file = ts.createSourceFile(fileURLToPath(url), text, ts.ScriptTarget.Latest, true);
  files.set(url.href, file);
  return file;
}

function docOf(node: ts.Node): boolean {
  return ts.getJSDocCommentsAndTags(node).length > 0;
}

function isPromise(type: ts.TypeNode | undefined): boolean {
  return /^(Promise|Async)/.test(type?.getText() ?? '');
}

function isInternal(node: ts.Node): boolean {
  return ts.getJSDocTags(node).some(({ tagName }) => tagName.text === 'internal');
}

function membersOf(node: ts.ClassDeclaration): PublicMember[] {
  const found = new Map<string, PublicMember>();
  for (const member of node.members) {
    const name = member.name?.getText() ?? '';
    const hidden = ts.ModifierFlags.Private | ts.ModifierFlags.Protected;
    const flags = ts.getCombinedModifierFlags(member);
    if (name === '' || name.startsWith('#') || flags & hidden || isInternal(member)) continue;
    const kind = ts.isMethodDeclaration(member) ? 'method' : 'property';
    const isDocumented = docOf(member) || (found.get(name)?.isDocumented ?? false);
    const isPromised = ts.isMethodDeclaration(member) && isPromise(member.type);
    const isAwaited = isPromised || (found.get(name)?.isAwaited ?? false);
    found.set(name, { name, kind, isAwaited, isDocumented });
  }
  return [...found.values()];
}

function describe(node: ts.Node, name: string, url: URL): PublicName | undefined {
  const kind = ts.isClassDeclaration(node)
    ? 'class'
    : ts.isFunctionDeclaration(node)
      ? 'function'
      : ts.isInterfaceDeclaration(node)
        ? 'interface'
        : ts.isTypeAliasDeclaration(node)
          ? 'type'
          : ts.isVariableStatement(node)
            ? 'constant'
            : undefined;
  if (!kind) return undefined;
  const file = url.href.slice(new URL('build/', root).href.length);
  const members = ts.isClassDeclaration(node) ? membersOf(node) : [];
  const isAwaited = ts.isFunctionDeclaration(node) && isPromise(node.type);
  return { name, kind, file, isDocumented: docOf(node), isAwaited, members };
}

function namesOf(node: ts.Statement): string[] {
  if (ts.isVariableStatement(node)) {
    return node.declarationList.declarations.map(({ name }) => name.getText());
  }
  const { name } = node as ts.Statement & { name?: ts.Identifier };
  return name ? [name.text] : [];
}

/** Where a module specifier of a declaration leads; undefined: to another package. */
function follow(from: URL, specifier: string): URL | undefined {
  if (specifier === '#build/abi.js') return new URL('build/abi.d.ts', root);
  if (!specifier.startsWith('.')) return undefined;
  return new URL(specifier.replace(/\.js$/, '.d.ts'), from);
}

/** By file: other files reach one once for each of its names that they export. */
const exported = new Map<string, ReadonlyMap<string, PublicName>>();

/** The declarations that a file of declarations exports, by name. */
function exportsOf(url: URL): ReadonlyMap<string, PublicName> {
  const known = exported.get(url.href) ?? readExports(url);
  exported.set(url.href, known);
  return known;
}

function readExports(url: URL): Map<string, PublicName> {
  const found = new Map<string, PublicName>();
  const add = (name: string, what: PublicName | undefined): void => {
    const before = found.get(name);
    // A constant and a type of one name are one thing: either may have the docstring.
    const isDocumented = (what?.isDocumented ?? false) || (before?.isDocumented ?? false);
    if (what) found.set(name, { ...(before ?? what), name, isDocumented });
  };
  const imported = new Map<string, URL>();
  for (const node of parse(url).statements) {
    if (ts.isImportDeclaration(node)) {
      const target = follow(url, (node.moduleSpecifier as ts.StringLiteral).text);
      const bindings = node.importClause?.namedBindings;
      if (!target || !bindings || !ts.isNamedImports(bindings)) continue;
      for (const { name } of bindings.elements) imported.set(name.text, target);
    } else if (ts.isExportDeclaration(node)) {
      addExports(node, url, imported, add);
    } else if (ts.getCombinedModifierFlags(node as never) & ts.ModifierFlags.Export) {
      for (const name of namesOf(node)) add(name, describe(node, name, url));
    }
  }
  return found;
}

function addExports(
  node: ts.ExportDeclaration,
  url: URL,
  imported: ReadonlyMap<string, URL>,
  add: (name: string, what: PublicName | undefined) => void,
): void {
  const specifier = node.moduleSpecifier as ts.StringLiteral | undefined;
  const target = specifier && follow(url, specifier.text);
  const clause = node.exportClause;
  if (!clause) {
    if (target) for (const [name, what] of exportsOf(target)) add(name, what);
  } else if (ts.isNamespaceExport(clause)) {
    const all = target ? exportsOf(target) : [];
    for (const [name, what] of all) add(`${clause.name.text}.${name}`, what);
  } else {
    for (const { name, propertyName } of clause.elements) {
      const original = (propertyName ?? name).text;
      const from = target ?? imported.get(original);
      const what = from ? exportsOf(from).get(original) : locally(url, original);
      add(name.text, what);
    }
  }
}

/** `export { name }` of what is declared in the same file without the word. */
function locally(url: URL, name: string): PublicName | undefined {
  const node = parse(url).statements.find((statement) => namesOf(statement).includes(name));
  return node && describe(node, name, url);
}

/** Of an entry of the package, such as `host/index.d.ts`. */
export function publicSurface(entry: string): PublicName[] {
  return [...exportsOf(new URL(`build/${entry}`, root)).values()];
}
