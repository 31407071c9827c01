/** Options of a call that reads them again later. */
import { checkKeys, type Exact } from './options.js';

/**
 * Throws MisuseError for a key that is not in `known`, a list of names separated by spaces. Returns
 * a copy of the options, which later changes of the caller's object do not change.
 */
export function copyOptions<Type extends object, const List extends string>(
  operation: string,
  options: Type,
  known: List & Exact<Type, List>,
): Type {
  checkKeys<object, string>(operation, options, known);
  const values = options as Record<string, unknown>;
  const names = (known as string).split(' ').filter((name) => values[name] !== undefined);
  return Object.fromEntries(names.map((name) => [name, values[name]])) as Type;
}
