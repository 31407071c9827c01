/** A warning of Verbena, for a problem that no call can report. */
export function warn(sentence: string): void {
  process.emitWarning(sentence, 'VerbenaWarning');
}
