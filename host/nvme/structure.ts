/**
 * Structures of NVM Express as tables of fields, little-endian: one table reads and builds. What a
 * table does not name is reserved: 0 when it is built, and ignored when it is read.
 */
import { shown } from '../errors/check-whole.js';
import { MisuseError } from '../errors/errors.js';

export interface NumberField {
  readonly kind: 'number';
  readonly at: number;
  /** 1, 2, 3 or 4. */
  readonly bytes: number;
}
export interface WideField {
  readonly kind: 'bigint';
  readonly at: number;
}
export interface BytesField {
  readonly kind: 'bytes';
  readonly at: number;
  readonly bytes: number;
}
/** ASCII: filled up with spaces, or ended by a NUL. */
export interface TextField {
  readonly kind: 'text';
  readonly at: number;
  readonly bytes: number;
  readonly padding: ' ' | '\0';
}
type Field = NumberField | WideField | BytesField | TextField;
type Fields = Readonly<Record<string, Field>>;

type ValueOf<F extends Field> = F extends NumberField
  ? number
  : F extends WideField
    ? bigint
    : F extends BytesField
      ? Uint8Array
      : string;
export type Values<T extends Fields> = { readonly [Name in keyof T]: ValueOf<T[Name]> };

export const u8 = (at: number): NumberField => ({ kind: 'number', at, bytes: 1 });
export const u16 = (at: number): NumberField => ({ kind: 'number', at, bytes: 2 });
export const u32 = (at: number): NumberField => ({ kind: 'number', at, bytes: 4 });
export const u64 = (at: number): WideField => ({ kind: 'bigint', at });
export const bytes = (at: number, length: number): BytesField => ({
  kind: 'bytes',
  at,
  bytes: length,
});
export const text = (at: number, length: number, padding: ' ' | '\0' = '\0'): TextField => ({
  kind: 'text',
  at,
  bytes: length,
  padding,
});

export class Structure<T extends Fields> {
  readonly #entries: readonly (readonly [string, Field])[];

  constructor(
    /** Bytes of the structure. */
    readonly size: number,
    readonly fields: T,
  ) {
    this.#entries = Object.entries(fields);
  }

  /** Parses the first `size` bytes. Throws MisuseError if there are fewer. */
  read(from: Uint8Array): Values<T> {
    if (from.length < this.size) {
      throw new MisuseError('bytes', `a structure of ${this.size} bytes has ${from.length}`);
    }
    const values: Record<string, number | bigint | Uint8Array | string> = {};
    for (const [name, field] of this.#entries) values[name] = readField(from, field);
    return values as Values<T>;
  }

  /** Fields that are left out are 0. Throws MisuseError for a value that does not fit. */
  build(values: Partial<Values<T>>, into: Uint8Array = new Uint8Array(this.size)): Uint8Array {
    into.fill(0, 0, this.size);
    for (const [name, field] of this.#entries) {
      const value = values[name];
      if (value !== undefined) writeField(into, name, field, value);
    }
    return into;
  }
}

export function readNumber(from: Uint8Array, at: number, count: number): number {
  let value = 0;
  for (let index = count - 1; index >= 0; index--) value = value * 256 + from[at + index]!;
  return value;
}

export function writeNumber(into: Uint8Array, at: number, count: number, value: number): void {
  for (let index = 0; index < count; index++) {
    into[at + index] = value % 256;
    value = Math.floor(value / 256);
  }
}

export function readWide(from: Uint8Array, at: number): bigint {
  return BigInt(readNumber(from, at, 4)) + (BigInt(readNumber(from, at + 4, 4)) << 32n);
}

export function writeWide(into: Uint8Array, at: number, value: bigint): void {
  writeNumber(into, at, 4, Number(value & 0xffff_ffffn));
  writeNumber(into, at + 4, 4, Number((value >> 32n) & 0xffff_ffffn));
}

function readField(from: Uint8Array, field: Field): number | bigint | Uint8Array | string {
  switch (field.kind) {
    case 'number':
      return readNumber(from, field.at, field.bytes);
    case 'bigint':
      return readWide(from, field.at);
    case 'bytes':
      return from.slice(field.at, field.at + field.bytes);
    case 'text':
      return readText(from.slice(field.at, field.at + field.bytes));
  }
}

function readText(from: Uint8Array): string {
  const end = from.indexOf(0);
  let value = '';
  for (const byte of end < 0 ? from : from.subarray(0, end)) value += String.fromCharCode(byte);
  return value.trimEnd();
}

function writeField(into: Uint8Array, name: string, field: Field, value: unknown): void {
  switch (field.kind) {
    case 'number': {
      const most = 256 ** field.bytes - 1;
      if (!Number.isInteger(value) || (value as number) < 0 || (value as number) > most) {
        throw new MisuseError(
          name,
          `must be a whole number from 0 to ${most}, got ${shown(value)}`,
        );
      }
      writeNumber(into, field.at, field.bytes, value as number);
      return;
    }
    case 'bigint':
      if (typeof value !== 'bigint' || value < 0n || value >= 1n << 64n) {
        throw new MisuseError(name, `must be a bigint of 64 bits, got ${shown(value)}`);
      }
      writeWide(into, field.at, value);
      return;
    case 'bytes':
      if (!(value instanceof Uint8Array) || value.length > field.bytes) {
        throw new MisuseError(name, `must be at most ${field.bytes} bytes`);
      }
      into.set(value, field.at);
      return;
    case 'text': {
      const words = String(value);
      // A text that ends with NUL has one byte less.
      const most = field.padding === '\0' ? field.bytes - 1 : field.bytes;
      if (words.length > most || /[^ -~]/.test(words)) {
        throw new MisuseError(name, `must be at most ${most} ASCII characters, got "${words}"`);
      }
      into.fill(field.padding.charCodeAt(0), field.at, field.at + field.bytes);
      for (let index = 0; index < words.length; index++) {
        into[field.at + index] = words.charCodeAt(index);
      }
    }
  }
}
