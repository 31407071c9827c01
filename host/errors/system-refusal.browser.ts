/** A browser's errors have no errno: they are told as they are. */
export function systemSentence(): undefined {
  return undefined;
}

export function systemRefusal(_what: string, error: unknown): unknown {
  return error;
}
