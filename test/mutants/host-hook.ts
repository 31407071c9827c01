/**
 * `node --import`: one module of the host is another text. VERBENA_DEFENCE_MODULE is its URL,
 * VERBENA_DEFENCE_TEXT the file that has the text. Child processes inherit it by NODE_OPTIONS.
 */
import { readFileSync } from 'node:fs';
import { register, type LoadHook } from 'node:module';
import { isMainThread } from 'node:worker_threads';

const module = process.env['VERBENA_DEFENCE_MODULE'];

export const load: LoadHook = (url, context, next) => {
  if (url !== module) return next(url, context);
  const source = readFileSync(process.env['VERBENA_DEFENCE_TEXT']!, 'utf8');
  return { format: 'module', source, shortCircuit: true };
};

// The thread of the hooks imports this file as well.
if (isMainThread) register(import.meta.url);
