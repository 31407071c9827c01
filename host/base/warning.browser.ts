/** Stands in for warning.ts in a browser. */
export function warn(sentence: string): void {
  console.warn(`VerbenaWarning: ${sentence}`);
}
