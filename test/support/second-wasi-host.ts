/**
 * The engine's own checks on a second WASI, one that was written for browsers: what passes on both
 * does not lean on a habit of Node's.
 */
import { readFileSync } from 'node:fs';
import { ConsoleStdout, File, OpenFile, WASI } from '@bjorn3/browser_wasi_shim';
import { SELFTEST_WASM, type SelftestResult } from '../../host/engine/selftest.js';

/** Exports of a command that the shim uses. */
interface CommandExports {
  memory: WebAssembly.Memory;
  _start(): unknown;
}

/** Same as `runSelftest`, on @bjorn3/browser_wasi_shim. */
export function runSelftestOnSecondHost(args: readonly string[] = []): SelftestResult {
  const output = { stdout: '', stderr: '' };
  const collect = (name: keyof typeof output): ConsoleStdout =>
    ConsoleStdout.lineBuffered((line) => (output[name] += `${line}\n`));
  const wasi = new WASI(
    ['selftest', ...args],
    [],
    [new OpenFile(new File([])), collect('stdout'), collect('stderr')],
    // Left out, it traces its own calls to the console.
    { debug: false },
  );
  const module = new WebAssembly.Module(readFileSync(SELFTEST_WASM));
  const instance = new WebAssembly.Instance<CommandExports & WebAssembly.Exports>(module, {
    wasi_snapshot_preview1: wasi.wasiImport as Record<string, WebAssembly.ImportValue>,
  });
  return { exitCode: wasi.start(instance), ...output };
}
