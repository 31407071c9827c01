/**
 * Runs the engine's own checks (assembly/selftest.ts), a WASI command, under `node:wasi`: Node's
 * built-in module of that name, not the npm package called wasi.
 */
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { requireExperimental } from '../base/experimental.js';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { WASI } from 'node:wasi';

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
  const { WASI } = requireExperimental('node:wasi', 'WASI') as typeof import('node:wasi');
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
    const exitCode = start(wasi, module, paths.stdout);
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

/** A check that traps ends the command: the error says behind which line. */
function start(wasi: WASI, module: WebAssembly.Module, output: string): number {
  try {
    return wasi.start(new WebAssembly.Instance(module, importsOf(wasi)));
  } catch (cause) {
    const last = readFileSync(output, 'utf8').trimEnd().split('\n').at(-1);
    throw new Error(`selftest: the check behind "${last}" trapped: ${String(cause)}`, { cause });
  }
}

/**
 * The functions of WASI, each called through one of JavaScript. Node 20 lets WebAssembly call them
 * in a way in which V8 must not collect garbage, yet fd_write sets that off once the command has
 * grown its memory by some hundred megabytes, as `bench keys` does: the process dies.
 */
function importsOf(wasi: WASI): WebAssembly.Imports {
  const { wasi_snapshot_preview1: functions } = wasi.getImportObject() as {
    wasi_snapshot_preview1: Record<string, (...values: unknown[]) => number>;
  };
  const called = Object.entries(functions).map(([name, call]) => [
    name,
    (...values: unknown[]) => call(...values),
  ]);
  return { wasi_snapshot_preview1: Object.fromEntries(called) };
}
