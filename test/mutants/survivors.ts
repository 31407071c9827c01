/**
 * Mutants that no test can notice, or none that ends in reasonable time, each with the reason. A
 * row names function and text, so it stays valid when lines or files move; mutants.test.ts demands
 * that its mutant exists.
 */
import type { Mutation } from './operators.js';

/** `becomes`: the text in place of `source`. An empty `source` is any mutant of the function. */
type Row = readonly [where: string, source: string, becomes: string, why: string];

export const SURVIVORS: readonly Row[] = [];

/** Why this mutant may survive; undefined: it may not. */
export function reasonFor(mutation: Mutation): string | undefined {
  return SURVIVORS.find((row) => matches(row, mutation))?.[3];
}

export function matches([where, source, becomes]: Row, mutation: Mutation): boolean {
  if (where !== mutation.function) return false;
  return source === '' || (source === mutation.source && becomes === mutation.becomes);
}
