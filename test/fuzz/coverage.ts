/**
 * The instrumented engine: which branches of its sources were taken. It is compiled on demand by
 * assembly/toolchain/coverage-transform.mjs, and only when its sources are newer.
 */
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  readFileSync,
  readdirSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { fileURLToPath } from 'node:url';
import { root } from '../support/paths.js';

/** One way that control can go. */
export interface Branch {
  /** From the repository's root. */
  readonly file: string;
  readonly line: number;
  readonly column: number;
  /** `then`, `else`, `case`, `loop`, `and`, … */
  readonly kind: string;
  readonly function: string;
}

export interface CoverageEngine {
  readonly module: WebAssembly.Module;
  /** Address of the table: one byte per branch, 1 once it was taken. */
  readonly table: number;
  readonly branches: readonly Branch[];
}

const WASM = new URL('build/engine.coverage.wasm', root);
const JSON_FILE = new URL('build/engine.coverage.json', root);
const ASC = new URL('node_modules/assemblyscript/bin/asc.js', root);
const TRANSFORM = './assembly/toolchain/coverage-transform.mjs';

function newestSource(): number {
  const folder = new URL('assembly/', root);
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(ts|mjs)$/.test(name))
    .map((name) => new URL(name, folder));
  return Math.max(...[...files, new URL('asconfig.json', root)].map((at) => statSync(at).mtimeMs));
}

function compile(): void {
  // Two test files may do this at once: each writes a file of its own and moves it into place.
  const own = `build/engine.coverage.${process.pid}.wasm`;
  const flags = ['assembly/engine.ts', '--target', 'engine', '--outFile', own];
  execFileSync(process.execPath, [fileURLToPath(ASC), ...flags, '--transform', TRANSFORM], {
    cwd: fileURLToPath(root),
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  renameSync(new URL(own, root), WASM);
}

/** Compiles the engine when need be, and reads what its numbers mean. */
export function buildCoverage(): CoverageEngine {
  if (!existsSync(WASM) || statSync(WASM).mtimeMs < newestSource()) compile();
  const module = new WebAssembly.Module(readFileSync(WASM));
  const [section] = WebAssembly.Module.customSections(module, 'branches');
  if (!section) throw new Error(`${WASM.pathname} has no list of branches`);
  const text = new TextDecoder().decode(section);
  // For a look at single branches.
  if (!existsSync(JSON_FILE) || statSync(JSON_FILE).mtimeMs < statSync(WASM).mtimeMs) {
    writeFileSync(JSON_FILE, text);
  }
  const { table, branches } = JSON.parse(text) as { table: number; branches: Branch[] };
  return { module, table, branches };
}

/** The branches that were taken so far, in any number of worlds. */
export class Coverage {
  readonly taken: Uint8Array;
  readonly #engine: CoverageEngine;

  constructor(engine: CoverageEngine) {
    this.#engine = engine;
    this.taken = new Uint8Array(engine.branches.length);
  }

  /** Adds what an engine's table says and clears the table. Returns how many branches are new. */
  collect(memory: Uint8Array): number {
    const { table } = this.#engine;
    const { taken } = this;
    let fresh = 0;
    for (let id = 0; id < taken.length; id++) {
      if (memory[table + id] === 0 || taken[id] === 1) continue;
      taken[id] = 1;
      fresh++;
    }
    memory.fill(0, table, table + taken.length);
    return fresh;
  }

  merge(taken: Uint8Array): void {
    for (let id = 0; id < taken.length; id++) this.taken[id]! |= taken[id]!;
  }
}

/** A part of the engine, and its coverage. */
export interface Reached {
  readonly total: number;
  readonly missing: readonly Branch[];
  readonly percent: number;
}

/** How many of the branches that `belongs` names were taken. */
export function reached(
  engine: CoverageEngine,
  taken: Uint8Array,
  belongs: (branch: Branch) => boolean,
): Reached {
  let total = 0;
  const missing: Branch[] = [];
  engine.branches.forEach((branch, id) => {
    if (!belongs(branch)) return;
    total++;
    if (taken[id] === 0) missing.push(branch);
  });
  return { total, missing, percent: total === 0 ? 0 : (100 * (total - missing.length)) / total };
}

const RECEIVE_FILES = new Set(
  [
    'receive',
    'responder/responder',
    'responder/response',
    'responder/response-queue',
    'responder/scatter',
    'responder/unreliable',
    'datagram/datagram',
    'requester/completer',
    'queue/receive-queue',
    'requester/congestion-window',
    'requester/retransmit-timer',
    'shared/atomics',
    'responder/reorder-buffer',
    'requester/in-flight',
    'requester/retransmit',
    'responder/fast-path',
    'shared/send-buffer',
  ].map((name) => `assembly/transport/${name}.ts`),
);
/** Functions of the region table that the receive path calls. */
const LOOKUPS = new Set(['translate', 'invalidateKey', 'countRead', 'countWrite', 'countAtomic']);

/** Does this branch check, or make, the trailer of an authenticated packet? */
export function onAuthenticPath({ file, function: name }: Branch): boolean {
  if (file === 'assembly/transport/receive.ts') return name === 'receiveAuthenticated';
  // Functions that the host calls for other messages, and this attacker for its own, are not on
  // that path.
  return file === 'assembly/transport/shared/packet-auth.ts' && !name.startsWith('aead');
}

/** Does this branch lie on the way of a received packet, up to its trailer and behind it? */
export function onReceivePath(branch: Branch): boolean {
  if (onAuthenticPath(branch)) return false;
  return (
    RECEIVE_FILES.has(branch.file) ||
    branch.file === 'assembly/wire/packet.ts' ||
    (branch.file === 'assembly/region/key-table.ts' && LOOKUPS.has(branch.function))
  );
}

const POSTED_FILES = new Set(
  [
    'queue/send-queue',
    'requester/fast-path',
    'queue/scatter-gather',
    'requester/local-work',
    'requester/requester',
    'requester/request-packet',
    'requester/retransmit',
    'queue/completion',
    'shared/work-request',
    'transmit',
  ].map((name) => `assembly/transport/${name}.ts`),
);

/** Source files of the region table that posted work reaches. */
const BINDING_FILES = new Set(
  ['memory-window', 'fast-region', 'access', 'layout-walk'].map(
    (name) => `assembly/region/${name}.ts`,
  ),
);

/** Does this branch lie on the way of a posted work request? */
export function onPostedPath(branch: Branch): boolean {
  // A control verb, beside REG_MR.
  if (branch.function === 'revokeFast') return false;
  if (POSTED_FILES.has(branch.file) || BINDING_FILES.has(branch.file)) return true;
  return branch.file === 'assembly/transport/datagram/datagram.ts';
}
