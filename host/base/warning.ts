let redirected: ((sentence: string) => void) | undefined;

/** A warning of Verbena, for a problem that no call can report. */
export function warn(sentence: string): void {
  if (redirected) redirected(sentence);
  else process.emitWarning(sentence, 'VerbenaWarning');
}

/** Of a thread whose event loop stands still: the program's thread shows its warnings. */
export function redirectWarnings(to: (sentence: string) => void): void {
  redirected = to;
}
