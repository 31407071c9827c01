/** Experimental modules of Node, without the warning that each of them prints. */
import { createRequire } from 'node:module';

/**
 * Loads a built-in module without its ExperimentalWarning, whose text begins with `subject`: the
 * users of Verbena can do nothing about it. Other warnings pass; nothing else runs meanwhile, since
 * `require` is synchronous. Throws what `require` throws (ERR_UNKNOWN_BUILTIN_MODULE: this Node
 * does not have the module).
 */
export function requireExperimental(name: `node:${string}`, subject: string): unknown {
  const emitWarning = process.emitWarning;
  const filtered = (warning: string | Error, ...rest: unknown[]): void => {
    if (rest[0] === 'ExperimentalWarning' && String(warning).startsWith(subject)) return;
    Reflect.apply(emitWarning, process, [warning, ...rest]);
  };
  process.emitWarning = filtered;
  try {
    return createRequire(import.meta.url)(name);
  } finally {
    process.emitWarning = emitWarning;
  }
}
