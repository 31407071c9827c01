/** Replaces other-port.ts in a browser, which has no UDP ports. */
export function warnOfOtherPort(): Promise<void> {
  return Promise.resolve();
}

export function portTowards(): undefined {}
