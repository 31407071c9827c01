/** Module hooks of a process of tests: `uvu` is the registry of cases.ts. */
import type { ResolveHook } from 'node:module';

const CASES = new URL('./cases.js', import.meta.url).href;

export const resolve: ResolveHook = (specifier, context, next) =>
  specifier === 'uvu' ? { url: CASES, shortCircuit: true } : next(specifier, context);
