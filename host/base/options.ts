/** Checks the keys of options objects: an unknown key is an error, not ignored. */
import { shown } from '../errors/check-whole.js';
import { MisuseError } from '../errors/errors.js';

type Names<List extends string, Found = never> = List extends `${infer Name} ${infer Rest}`
  ? Names<Rest, Found | Name>
  : List | Found;
type KeyOf<Type> = Type extends unknown ? keyof Type : never;
/** `never` if a literal list differs from the keys of a type. */
export type Exact<Type, List extends string> = string extends List
  ? List
  : [Exclude<KeyOf<Type>, Names<List>>, Exclude<Names<List>, KeyOf<Type>>] extends [never, never]
    ? List
    : never;

/** Number of adjacent letter pairs that both names contain. */
function likeness(one: string, other: string): number {
  return [...one].filter((_, at) => other.includes(one.slice(at, at + 2))).length;
}

/** Throws MisuseError for null, a number, a string: they have no keys. */
export function checkObject(operation: string, options: unknown, what = 'options'): void {
  // Arrays, maps and views have no options.
  const isObject = typeof options === 'object' && options !== null;
  if (isObject && !(Symbol.iterator in options || ArrayBuffer.isView(options))) return;
  throw new MisuseError(what, `${operation} takes an object, got ${shown(options)}`);
}

/** Throws MisuseError for what is no array. `of`: what it holds. */
export function checkArray(what: string, value: unknown, of: string): void {
  if (!Array.isArray(value)) throw new MisuseError(what, `must be an array of ${of}`);
}

/** Throws MisuseError for a key that is not in `known`, a list of names separated by spaces. */
export function checkKeys<Type extends object, const List extends string>(
  operation: string,
  options: Type,
  known: List & Exact<Type, List>,
): void {
  checkObject(operation, options);
  const names = (known as string).split(' ');
  for (const [key, value] of Object.entries(options)) {
    if (value === undefined || names.includes(key)) continue;
    const [nearest] = [...names].sort(
      // Of two that are as like it the shorter one.
      (one, other) => likeness(other, key) - likeness(one, key) || one.length - other.length,
    );
    const rule = `${operation} has no option of this name; is ${nearest} meant?`;
    throw new MisuseError(key, `${rule} Known: ${names.join(', ')}`);
  }
}
