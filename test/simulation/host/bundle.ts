/**
 * Host code as a process of the simulation runs it: the files that ship, with `async` lowered to
 * generators, so that every continuation goes through the process's own promises. Each process
 * evaluates it anew: it shares no module with the others.
 */
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { root } from '../../support/paths.js';
import type * as Programs from './programs.js';
import type { Turns } from './turns.js';

type Evaluate = (...values: unknown[]) => void;

const NAMES = [
  'Promise',
  'queueMicrotask',
  'setTimeout',
  'setInterval',
  'setImmediate',
  'clearTimeout',
  'clearInterval',
  'clearImmediate',
] as const;

let evaluate: Evaluate | undefined;

/** Bundles the code, once. */
export async function makeBundle(): Promise<void> {
  if (evaluate) return;
  const top = fileURLToPath(root);
  const { outputFiles } = await build({
    entryPoints: [`${top}build/test/simulation/host/programs.js`],
    bundle: true,
    write: false,
    format: 'cjs',
    platform: 'node',
    target: 'esnext',
    packages: 'external',
    supported: { 'async-await': false, 'async-generator': false, 'for-await': false },
    define: { 'import.meta.url': '__url' },
    alias: { '#build/abi.js': `${top}build/abi.js` },
    logLevel: 'error',
  });
  const code = outputFiles[0]!.text;
  // The only way to evaluate code with its own globals but without its own context.
  // eslint-disable-next-line @typescript-eslint/no-implied-eval
  evaluate = new Function('require', 'module', '__url', ...NAMES, code) as Evaluate;
}

/** The programs of a new process. */
export function startProcess(turns: Turns): typeof Programs {
  const module = { exports: {} };
  const url = new URL('build/host/engine/module-bytes.js', root).href;
  const globals = NAMES.map((name) => turns.globals[name]);
  evaluate!(createRequire(import.meta.url), module, url, ...globals);
  return module.exports as typeof Programs;
}
