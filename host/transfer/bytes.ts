/** Bytes as text and back, where Node has Buffer and a page has not. */

export function hexOf(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function bytesOfHex(text: string): Uint8Array {
  return Uint8Array.from(text.match(/../g) ?? [], (digits) => parseInt(digits, 16));
}

export function areEqual(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, index) => byte === b[index]);
}

/** Undefined: the bytes are not UTF-8. */
export function textOf(bytes: Uint8Array): string | undefined {
  try {
    // A copy: a page decodes no shared memory. `ignoreBOM` keeps the mark.
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes.slice());
  } catch {
    return undefined;
  }
}
