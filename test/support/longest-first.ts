/**
 * The order in which test files are run: the longest first, so that no long one ends alone. Seconds
 * of processor time and waiting, on an idle machine of two cores; a file without an entry is short.
 */
const SECONDS: Readonly<Record<string, number>> = {};
const SHORT_SECONDS = 2;

/** `files` by their seconds; files that `runInTurn` names come first, as only one runs at a time. */
export function longestFirst(
  files: readonly string[],
  runInTurn: (file: string) => boolean,
): string[] {
  const rank = (file: string): number =>
    (SECONDS[file] ?? SHORT_SECONDS) + (runInTurn(file) ? 1000 : 0);
  return [...files].sort((one, other) => rank(other) - rank(one));
}
