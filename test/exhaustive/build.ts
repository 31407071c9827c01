/**
 * The protocol under test as a machine that stops before every access to memory: the sources of
 * assembly/memory and assembly/region, compiled as they are (or with an edit, to see the checker
 * notice it), then
 *
 *  1. every load, store, atomic and fill goes through a function that calls `env.step(site, address)`
 *     first; `site` is an index into `sites`, which says where in the sources the access stands;
 *  2. binaryen's asyncify lets `step` leave the call and come back to it later.
 *
 * The instrumentation works on the compiler's text output, one instruction per line, so that
 * the sources need no change and an optimized build can be checked as well as a plain one.
 */
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { fileURLToPath } from 'node:url';
import { root } from '../support/paths.js';

/** One replacement in a source file below assembly/; `find` stands there exactly once. */
export interface Edit {
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

export interface Variant {
  readonly name: string;
  readonly edits: readonly Edit[];
  /** As the engine that ships is compiled; otherwise in the order of the sources. */
  readonly optimized?: boolean;
  /** Source files in addition to those of memory and region, by their path below assembly/. */
  readonly added?: Readonly<Record<string, string>>;
  /** How often a reader starts over; the engine's own number would only repeat the same states. */
  readonly readAttempts?: number;
}

export type SiteKind = 'read' | 'write' | 'update';

export interface Site {
  readonly function: string;
  readonly kind: SiteKind;
  readonly instruction: string;
  /** How many bytes it touches; of a fill, which is always of a KeyNote, all of them. */
  readonly bytes: number;
}

export interface Protocol {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly sites: readonly Site[];
}

const READ_ATTEMPTS = 2;
/** The tests of mutants name a tree with other sources. */
const top = process.env['VERBENA_EXHAUSTIVE_TREE'] ?? fileURLToPath(root);
const cache = `${top}build/exhaustive/`;

/**
 * Functions that the checker calls. 64-bit arguments are made here: the checker's addresses are
 * small.
 */
const ENTRY = `
import { Arena, ArenaConfig, arenaSize, contextSlot, enter, initArena, leave } from './memory/arena';
import * as keys from './region/key-table';
import * as domains from './region/protection-domain';
import * as windows from './region/memory-window';
import { translateRemote as lookUpRemote } from './region/access';
export function arenaBytes(config: usize): u32 { return arenaSize(changetype<ArenaConfig>(config)); }
export function arenaInit(arena: usize, config: usize): void {
  initArena(changetype<Arena>(arena), changetype<ArenaConfig>(config));
}
export function allocPd(arena: usize, slot: u32): u32 {
  return domains.allocProtectionDomain(changetype<Arena>(arena), slot);
}
export function attach(arena: usize, slot: u32, pd: u32): u32 {
  return domains.attachProtectionDomain(changetype<Arena>(arena), pd, slot);
}
export function detach(arena: usize, slot: u32, pd: u32): u32 {
  return domains.deallocProtectionDomain(changetype<Arena>(arena), pd, slot);
}
export function register(arena: usize, slot: u32, parameters: usize): u32 {
  const p = changetype<keys.RegionParameters>(parameters);
  return keys.registerRegion(changetype<Arena>(arena), slot, p);
}
export function kill(arena: usize, slot: u32, key: u32): u32 {
  return keys.killRegion(changetype<Arena>(arena), key, slot);
}
export function release(arena: usize, slot: u32, key: u32): u32 {
  return u32(keys.regionReleased(changetype<Arena>(arena), key));
}
export function invalidate(arena: usize, slot: u32, key: u32, pd: u32): u32 {
  return u32(keys.invalidateKey(changetype<Arena>(arena), key, pd));
}
export function enterCall(arena: usize, slot: u32): void {
  const a = changetype<Arena>(arena);
  enter(a, contextSlot(a, slot));
}
export function leaveCall(arena: usize, slot: u32): void {
  leave(contextSlot(changetype<Arena>(arena), slot));
}
export function bind(
  arena: usize, slot: u32, window: u32, base: u32, pd: u32, at: u32, length: u32, access: u32,
): u32 {
  const a = changetype<Arena>(arena);
  return u32(windows.bindWindow(a, window, window, base, pd, 1, at, length, access));
}
export function unbind(arena: usize, slot: u32, window: u32, pd: u32): u32 {
  return u32(windows.invalidateLocal(changetype<Arena>(arena), window, pd));
}
export function translateRemote(
  arena: usize, slot: u32, key: u32, pd: u32, at: u32, length: u32, need: u32,
): usize {
  return lookUpRemote(changetype<Arena>(arena), key, pd, 1, at, length, need);
}
export function translate(arena: usize, slot: u32, key: u32, pd: u32, at: u32, length: u32, need: u32): usize {
  return keys.translate(changetype<Arena>(arena), key, pd, at, length, need);
}
`;

function readSources(variant: Variant): Map<string, string> {
  const sources = new Map([['entry.ts', ENTRY]]);
  for (const folder of ['memory', 'region']) {
    for (const name of readdirSync(`${top}assembly/${folder}`)) {
      if (!name.endsWith('.ts')) continue;
      const file = `${folder}/${name}`;
      sources.set(file, readFileSync(`${top}assembly/${file}`, 'utf8'));
    }
  }
  const guard = `${top}assembly/mutant.ts`;
  if (existsSync(guard)) sources.set('mutant.ts', readFileSync(guard, 'utf8'));
  for (const [file, source] of Object.entries(variant.added ?? {})) sources.set(file, source);
  const attempts = {
    file: 'region/key-table.ts',
    find: 'const READ_ATTEMPTS: u32 = 1000;',
    replace: `const READ_ATTEMPTS: u32 = ${variant.readAttempts ?? READ_ATTEMPTS};`,
  };
  for (const { file, find, replace } of [attempts, ...variant.edits]) {
    const source = sources.get(file) ?? '';
    if (source.split(find).length !== 2) {
      throw new Error(`${variant.name}: not exactly once in ${file}: ${find}`);
    }
    sources.set(
      file,
      source.replace(find, () => replace),
    );
  }
  return sources;
}

interface Asc {
  main(
    args: readonly string[],
    api: {
      readFile(name: string): string | null;
      writeFile(name: string, contents: string | Uint8Array): void;
      listFiles(): string[];
    },
  ): Promise<{ error: Error | null; stderr: { toString(): string } }>;
}

interface BinaryenModule {
  setFeatures(features: number): void;
  runPasses(passes: readonly string[]): void;
  optimize(): void;
  validate(): number;
  emitBinary(): Uint8Array<ArrayBuffer>;
  dispose(): void;
}

interface Binaryen {
  readonly Features: { readonly [name: string]: number };
  parseText(text: string): BinaryenModule;
  setOptimizeLevel(level: number): void;
  setShrinkLevel(level: number): void;
  setPassArgument(name: string, value: string | null): void;
}

/** Imported by a name that tsc does not follow: their types bring AssemblyScript's own globals. */
async function load<T>(name: string): Promise<T> {
  const loaded = (await import(name)) as { readonly default: unknown };
  return loaded.default as T;
}

async function compile(variant: Variant): Promise<string> {
  const asc = await load<Asc>('assemblyscript/asc');
  const sources = readSources(variant);
  const args =
    'entry.ts --textFile out.wat --runtime stub --importMemory --noExportMemory --debug ' +
    '--initialMemory 1 --maximumMemory 1 --enable simd --enable threads --use abort= ' +
    (variant.optimized ? '--optimizeLevel 3 --shrinkLevel 0' : '--optimizeLevel 0');
  let text = '';
  const { error, stderr } = await asc.main(args.split(' '), {
    readFile: (name) => sources.get(name) ?? null,
    writeFile: (name, contents) => {
      if (name.endsWith('.wat')) text = String(contents);
    },
    listFiles: () => [],
  });
  if (error) throw new Error(`${variant.name}: ${error.message}\n${stderr.toString()}`);
  return text;
}

const ACCESS = /^(?:i32|i64|v128)\.(?:atomic\.)?(?:load|store|rmw)\S*|^memory\.(?:fill|copy)\b/;

function kindOf(instruction: string): SiteKind {
  if (instruction.includes('rmw')) return 'update';
  return instruction.includes('load') ? 'read' : 'write';
}

function bytesOf(instruction: string): number {
  if (instruction.startsWith('memory.fill')) return 64;
  const narrow = /(?:load|store|rmw)(8|16|32)/.exec(instruction);
  if (narrow) return Number(narrow[1]) / 8;
  return { i32: 4, i64: 8, v128: 16 }[instruction.slice(0, instruction.indexOf('.'))] ?? 4;
}

/** Parameters after the address, and the result, of a function that stands for an access. */
function signature(instruction: string): { values: string[]; result: string } {
  const type = instruction.slice(0, instruction.indexOf('.'));
  if (instruction.startsWith('memory.fill')) return { values: ['i32', 'i32'], result: '' };
  if (instruction.includes('cmpxchg')) return { values: [type, type], result: type };
  if (instruction.includes('rmw')) return { values: [type], result: type };
  if (instruction.includes('store')) return { values: [type], result: '' };
  if (instruction.includes('load')) return { values: [], result: type };
  throw new Error(`the checker does not know ${instruction}`);
}

/** `offset`: of the instruction; wasm adds it to the address. */
function accessFunction(name: string, instruction: string): string {
  const { values, result } = signature(instruction);
  const offset = /offset=(\d+)/.exec(instruction)?.[1] ?? '0';
  const parameters = ['i32', ...values, 'i32'].map((type, at) => `(param $${at} ${type})`);
  const body = ['0', ...values.map((_, at) => String(at + 1))].map((at) => `local.get $${at}`);
  return [
    ` (func $${name} ${parameters.join(' ')}${result ? ` (result ${result})` : ''}`,
    `  local.get $${values.length + 1}`,
    `  local.get $0\n  i32.const ${offset}\n  i32.add`,
    '  call $step',
    ...body.map((line) => `  ${line}`),
    `  ${instruction}`,
    ' )',
  ].join('\n');
}

/** Field accessors of structs, which an unoptimized build calls: their one access by name. */
function accessors(lines: readonly string[]): Map<string, string> {
  const found = new Map<string, string>();
  let name = '';
  for (const line of lines) {
    const start = /^ \(func (\$\S+#[gs]et:\S+)/.exec(line);
    if (start) name = start[1]!;
    else if (line.startsWith(' (func')) name = '';
    else if (name && ACCESS.test(line.trim())) found.set(name, line.trim());
  }
  return found;
}

function instrument(text: string): { text: string; sites: Site[] } {
  const lines = text.split('\n');
  const fields = accessors(lines);
  const sites: Site[] = [];
  const helpers = new Map<string, string>();
  let current = '';
  const out = lines.map((line) => {
    const start = /^ \(func \$(\S+)/.exec(line);
    if (start) current = start[1]!;
    const called = /^\s*call (\$\S+)/.exec(line);
    const instruction = (called && fields.get(called[1]!)) ?? line.trim();
    if (!ACCESS.test(instruction)) return line;
    const name = `access:${instruction.replace(/[ =]/g, ':')}`;
    helpers.set(name, instruction);
    sites.push({
      function: current.replace(/^.*\//, ''),
      kind: kindOf(instruction),
      instruction,
      bytes: bytesOf(instruction),
    });
    return `  i32.const ${sites.length - 1}\n  call $${name}`;
  });
  const end = out.lastIndexOf(')');
  const added = [...helpers].map(([name, instruction]) => accessFunction(name, instruction));
  out.splice(end, 0, ...added);
  const imported = ' (import "env" "step" (func $step (param i32 i32)))';
  out.splice(
    out.findIndex((line) => line.startsWith(' (import')),
    0,
    imported,
  );
  return { text: out.join('\n'), sites };
}

const FEATURES = ['Atomics', 'MutableGlobals', 'SIMD128', 'BulkMemory', 'SignExt', 'BulkMemoryOpt'];

async function make(variant: Variant): Promise<Protocol> {
  const binaryen = await load<Binaryen>('assemblyscript/binaryen');
  const { text, sites } = instrument(await compile(variant));
  const module = binaryen.parseText(text);
  const features = FEATURES.map((name) => binaryen.Features[name]!);
  module.setFeatures(features.reduce((all, one) => all | one));
  // Every access hides behind a call now, so optimizing cannot reorder any of them.
  binaryen.setOptimizeLevel(2);
  binaryen.setShrinkLevel(0);
  binaryen.setPassArgument('asyncify-imports', 'env.step');
  module.optimize();
  module.runPasses(['asyncify']);
  module.optimize();
  if (!module.validate()) throw new Error(`${variant.name}: binaryen made no valid module`);
  const bytes = module.emitBinary();
  module.dispose();
  return { bytes, sites };
}

function digest(variant: Variant): string {
  const hash = createHash('sha256');
  hash.update(readFileSync(fileURLToPath(import.meta.url)));
  hash.update(readFileSync(`${top}node_modules/assemblyscript/package.json`));
  hash.update(JSON.stringify(variant));
  for (const [name, source] of readSources(variant)) hash.update(`${name}\0${source}\0`);
  return hash.digest('hex').slice(0, 24);
}

/** Whole or not at all: another process may be looking for it. */
function place(file: string, contents: string | Uint8Array): void {
  const draft = `${file}.${process.pid}`;
  writeFileSync(draft, contents);
  renameSync(draft, file);
}

/** The instrumented machine, from build/exhaustive/ where it was made before. */
export async function buildProtocol(variant: Variant): Promise<Protocol> {
  const name = variant.name.replace(/\W+/g, '-');
  const wasm = `${cache}${name}.${digest(variant)}.wasm`;
  const json = `${wasm}.json`;
  if (!existsSync(json)) {
    const { bytes, sites } = await make(variant);
    mkdirSync(cache, { recursive: true });
    for (const old of readdirSync(cache)) {
      if (old.startsWith(`${name}.`)) rmSync(`${cache}${old}`, { force: true });
    }
    place(wasm, bytes);
    place(json, JSON.stringify(sites));
  }
  const sites = JSON.parse(readFileSync(json, 'utf8')) as Site[];
  return { bytes: new Uint8Array(readFileSync(wasm)), sites };
}

export const PLAIN: Variant = { name: 'plain', edits: [] };
export const OPTIMIZED: Variant = { name: 'optimized', edits: [], optimized: true };
