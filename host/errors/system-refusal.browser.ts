/** Errors of a browser have no errno, so their texts stay unchanged. */
export function systemSentence(): undefined {
  return undefined;
}

export function systemRefusal(_what: string, error: unknown): unknown {
  return error;
}
