/** Places of fields in the datagrams of mad.ts. */

export interface NumberField {
  readonly kind: 'number';
  /** Byte of the aligned 32-bit word that it lies in, from the start of the message. */
  readonly word: number;
  /** Bits to its right in that word. */
  readonly shift: number;
  readonly width: number;
}
export interface WideField {
  readonly kind: 'bigint';
  readonly at: number;
}
export interface BytesField {
  readonly kind: 'bytes';
  readonly at: number;
  readonly length: number;
}
export type Field = NumberField | WideField | BytesField;

/** `width` bits, the first of them bit `bit` (0 is the most significant) of byte `at`. */
export function bits(at: number, width: number, bit = 0): NumberField {
  const first = (at & 3) * 8 + bit;
  return { kind: 'number', word: at & ~3, shift: 32 - first - width, width };
}

export function wide(at: number): WideField {
  return { kind: 'bigint', at };
}

export function bytes(at: number, length: number): BytesField {
  return { kind: 'bytes', at, length };
}
