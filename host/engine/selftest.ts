/**
 * Runs the engine's own checks (assembly/selftest.ts), a WASI command, under `node:wasi`: Node's
 * built-in module of that name, not the npm package called wasi.
 */
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** How a run of the command ended. */
export interface SelftestResult {
  /** 0: all checks passed; 1: some failed; 2: wrong arguments. */
  readonly exitCode: number;
  /** Standard output: TAP. */
  readonly stdout: string;
  readonly stderr: string;
}

/** Where the command lies. */
export const SELFTEST_WASM = new URL('../../selftest.wasm', import.meta.url);

/** Runs the command with `args`: none for all checks, `bench` and a name for a benchmark. */
export function runSelftest(args: readonly string[] = []): SelftestResult {
  const { WASI } = requireWasi();
  const module = new WebAssembly.Module(readFileSync(SELFTEST_WASM));
  const folder = mkdtempSync(join(tmpdir(), 'verbena-selftest-'));
  // node:wasi writes to file descriptors only, at once and blocking: so files, never pipes.
  const paths = { stdout: join(folder, 'stdout'), stderr: join(folder, 'stderr') };
  const stdout = openSync(paths.stdout, 'w');
  const stderr = openSync(paths.stderr, 'w');
  try {
    const wasi = new WASI({
      version: 'preview1',
      args: ['selftest', ...args],
      stdout,
      stderr,
      returnOnExit: true,
    });
    const imports = wasi.getImportObject() as WebAssembly.Imports;
    const exitCode = wasi.start(new WebAssembly.Instance(module, imports));
    return {
      exitCode,
      stdout: readFileSync(paths.stdout, 'utf8'),
      stderr: readFileSync(paths.stderr, 'utf8'),
    };
  } finally {
    closeSync(stdout);
    closeSync(stderr);
    rmSync(folder, { recursive: true });
  }
}

/**
 * Loads node:wasi without its warning that WASI is experimental: every Node that we support prints
 * it, and our users can do nothing about it. Other warnings pass; nothing else runs meanwhile,
 * since `require` is synchronous.
 */
function requireWasi(): typeof import('node:wasi') {
  const emitWarning = process.emitWarning;
  const filtered = (warning: string | Error, ...rest: unknown[]): void => {
    if (rest[0] === 'ExperimentalWarning' && String(warning).startsWith('WASI')) return;
    Reflect.apply(emitWarning, process, [warning, ...rest]);
  };
  process.emitWarning = filtered;
  try {
    return createRequire(import.meta.url)('node:wasi') as typeof import('node:wasi');
  } finally {
    process.emitWarning = emitWarning;
  }
}
