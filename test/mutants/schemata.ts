/**
 * One build of the engine that has all mutants of a run. Each stands behind a guard in the source:
 * `mutant(17) ? a <= b : a < b`. The guard compares its number with an imported constant, which
 * preload.ts gives to each instance; 0 is the engine as it is. While reachability is recorded, the
 * guard also sets a bit in linear memory.
 *
 * The sources are copied into build/mutants/tree, guarded, and compiled there by the copy of
 * assembly/toolchain/build.mjs. Lines stay where they are, so a compile error names its mutants:
 * those are dropped, and the build starts again.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { writeFileSync } from 'node:fs';
import { dirname, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { root } from '../support/paths.js';
import { mutationsOf, type Mutation } from './operators.js';

/** A mutation with its number in this build, from 1. */
export interface Mutant extends Mutation {
  readonly id: number;
}

/** The folder whose build/ has the guarded modules. */
export const TREE = new URL('build/mutants/tree/', root);
const STAMP = new URL('build/mutants.json', TREE);
/** Tests in the engine's language, what runs at build time, and texts: a module of their own. */
const NOT_MUTATED = /^assembly\/(selftest|toolchain|explain)/;
const TARGETS = ['engine', 'engine-shared', 'engine-modelled', 'selftest'];
const GUARD_FILE = 'assembly/mutant.ts';
/** Address of a bit per mutant: below the arena, as the table of coverage-transform.mjs. */
export const REACHED_TABLE = 1088;
export const REACHED_SIZE = 7104;
const GUARD = `
@external('mutants', 'active') declare let ACTIVE: u32;
@external('mutants', 'recording') declare const RECORDING: u32;

export function mutant(id: u32): bool {
  if (RECORDING) {
    const at: usize = ${REACHED_TABLE} + <usize>(id >> 3);
    store<u8>(at, <u8>(<u32>load<u8>(at) | (<u32>1 << (id & 7))));
  }
  return ACTIVE == id;
}
`;
const COMPILE_ROUNDS_MAX = 20;

/** Every mutation of assembly/, in the order of files and lines. */
export function allMutations(): Mutation[] {
  return sources().flatMap((file) => mutationsOf(file, readFileSync(new URL(file, root), 'utf8')));
}

/**
 * All mutants of the guarded engine, which is compiled when the sources or the operators changed.
 * `log` gets a line for each mutant that does not compile.
 */
export function mutantsOfBuild(log: (line: string) => void): Mutant[] {
  const mutants = allMutations().map((mutation, index) => ({ ...mutation, id: index + 1 }));
  const key = createHash('sha256')
    .update(GUARD + mutants.map(({ operator, form, becomes }) => operator + form + becomes).join())
    .update(
      sources()
        .map((file) => readFileSync(new URL(file, root), 'utf8'))
        .join(),
    )
    .update(selftests().join())
    .digest('hex');
  const kept = existsSync(STAMP)
    ? (JSON.parse(readFileSync(STAMP, 'utf8')) as { key: string; dropped: number[] })
    : undefined;
  if (kept?.key === key) return mutants.filter(({ id }) => !kept.dropped.includes(id));
  const left = compileMutants(mutants);
  const ids = new Set(left.map(({ id }) => id));
  const dropped = mutants.filter(({ id }) => !ids.has(id));
  for (const { file, line, source } of dropped) log(`does not compile: ${file}:${line} ${source}`);
  writeFileSync(STAMP, JSON.stringify({ key, dropped: dropped.map(({ id }) => id) }));
  return left;
}

/** The sources of assembly/ that have mutants, from the repository's root. */
function sources(): string[] {
  return readdirSync(new URL('assembly/', root), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.d.ts'))
    .map((name) => `assembly/${name.replaceAll('\\', '/')}`)
    .filter((file) => !NOT_MUTATED.test(file))
    .sort();
}

/** Tests in the engine's language: compiled with it, and without mutants of their own. */
function selftests(): string[] {
  const folder = new URL('assembly/selftest/', root);
  const all = ['../selftest.ts', ...readdirSync(folder).sort()];
  return all.map((name) => readFileSync(new URL(name, folder), 'utf8'));
}

/** Compiles the engine with these mutants. Returns those that compile. */
function compileMutants(chosen: readonly Mutant[]): Mutant[] {
  let mutants = [...chosen];
  for (let round = 0; round < COMPILE_ROUNDS_MAX; round++) {
    writeTree(mutants);
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [fileURLToPath(new URL('assembly/toolchain/build.mjs', TREE)), ...TARGETS],
      { encoding: 'utf8', maxBuffer: 1 << 28 },
    );
    if (status === 0) return mutants;
    const places = errorPlaces(stdout + stderr);
    const own = mutants.filter((mutant) => !places.some((at) => stands(at, mutant.node)));
    // A statement that is left out may be missed further on in its function.
    const left =
      own.length < mutants.length
        ? own
        : mutants.filter(
            (mutant) =>
              !isStatement(mutant) || !places.some((at) => stands(at, functionOf(mutant.node))),
          );
    if (left.length === mutants.length) throw new Error(`the engine does not compile:\n${stderr}`);
    mutants = left;
  }
  throw new Error(`the engine does not compile after ${COMPILE_ROUNDS_MAX} rounds`);
}

interface Place {
  readonly file: string;
  readonly line: number;
}

/** Does the place lie in the lines of the node? */
function stands({ file, line }: Place, node: ts.Node): boolean {
  const source = node.getSourceFile();
  const lineAt = (at: number): number => source.getLineAndCharacterOfPosition(at).line + 1;
  return file === source.fileName && line >= lineAt(node.getStart()) && line <= lineAt(node.end);
}

function isStatement({ form }: Mutant): boolean {
  return form === 'statement';
}

function functionOf(node: ts.Node): ts.Node {
  let outer = node;
  while (!ts.isFunctionLike(outer)) outer = outer.parent;
  return outer;
}

function errorPlaces(output: string): Place[] {
  return [...output.matchAll(/ in (assembly\/[\w./-]+)\((\d+),\d+\)/g)].map(([, file, line]) => ({
    file: file!,
    line: Number(line),
  }));
}

function writeTree(mutants: readonly Mutant[]): void {
  rmSync(TREE, { recursive: true, force: true });
  mkdirSync(new URL('build/', TREE), { recursive: true });
  for (const name of ['package.json', 'asconfig.json'])
    cpSync(new URL(name, root), new URL(name, TREE));
  cpSync(new URL('assembly/', root), new URL('assembly/', TREE), { recursive: true });
  symlinkSync(new URL('node_modules/', root), new URL('node_modules', TREE));
  writeFileSync(new URL(GUARD_FILE, TREE), GUARD);
  for (const [file, own] of grouped(mutants, (mutant) => mutant.file)) {
    const path = relative(dirname(file), GUARD_FILE).replace(/\.ts$/, '');
    const from = path.startsWith('.') ? path : `./${path}`;
    // On the first line, before its comment: no line moves.
    const text = `import { mutant } from '${from}';${guarded(own)}`;
    writeFileSync(new URL(file, TREE), text);
  }
}

/** The text of a file with all of its mutants behind their guards. */
function guarded(mutants: readonly Mutant[]): string {
  const source = mutants[0]!.node.getSourceFile();
  const byNode = grouped(mutants, ({ node }) => node);
  const emit = (node: ts.Node): string => {
    let [text, at] = ['', node.getStart(source)];
    ts.forEachChild(node, (child) => {
      text += source.text.slice(at, child.getStart(source)) + emit(child);
      at = child.end;
    });
    text += source.text.slice(at, node.end);
    return (byNode.get(node) ?? []).reduce(behindGuard, text);
  };
  return source.text.slice(0, source.getStart()) + emit(source) + source.text.slice(source.end);
}

function grouped<T, K>(items: readonly T[], key: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) {
    const group = groups.get(key(item));
    if (group) group.push(item);
    else groups.set(key(item), [item]);
  }
  return groups;
}

function behindGuard(text: string, { id, form, becomes }: Mutant): string {
  switch (form) {
    case 'or':
      return `((${text}) || mutant(${id}))`;
    case 'and':
      return `((${text}) && !mutant(${id}))`;
    case 'choice':
      return `(mutant(${id}) ? (${becomes}) : (${text}))`;
    case 'statement':
      return `{ if (!mutant(${id})) { ${text} } }`;
  }
}
