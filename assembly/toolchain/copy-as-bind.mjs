/**
 * Copies as-bind's runtime into build/. As a dependency the package would pull AssemblyScript 0.19
 * into the projects of our users, and its main entry is the compiler transform: we need one file.
 */
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const PACKAGE = new URL('../../node_modules/as-bind/', import.meta.url);
const BUILD = new URL('../../build/', import.meta.url);

/** The types that we use: as-bind has none. */
const DECLARATION = `/** as-bind's runtime: see as-bind.LICENSE. Written by copy-as-bind.mjs. */

/** A value as it crosses the border: a number, a bigint, or an address. */
export type Raw = number | bigint;

/** Exports of a module that was built with --exportRuntime, besides its own functions. */
export interface RuntimeExports {
  readonly memory: { readonly buffer: ArrayBuffer };
  __new(byteSize: number, typeId: number): number;
  __pin(address: number): number;
  __unpin(address: number): void;
  __collect(): void;
}

/** An instance with bound exports: they take and give strings and typed arrays. */
export interface Bound<Exports> {
  readonly exports: Exports;
  readonly loadedModule: { readonly exports: RuntimeExports };
  /** The runtime id of a class, by its internal name. */
  getTypeId(typeName: string): number;
}

/** How values of one type cross the border. */
export interface Converter {
  ascToJs(bound: Bound<unknown>, value: Raw, typeName: string): unknown;
  jsToAsc(bound: Bound<unknown>, value: unknown, typeName: string): Raw;
}

/** By internal name of the type, or a pattern; the first match counts. */
export const converters: Map<string | RegExp, Converter>;

/** \`wasm\`: the bytes of a module. \`imports\`: module, name, function. */
export function instantiateSync<Exports>(
  wasm: Uint8Array,
  imports: Record<string, Record<string, unknown>>,
): Bound<Exports>;

export const version: string;
`;

/** Writes build/as-bind.js, build/as-bind.d.ts and build/as-bind.LICENSE. */
export function copyAsBind() {
  mkdirSync(BUILD, { recursive: true });
  copyFileSync(new URL('dist/as-bind.esm.js', PACKAGE), new URL('as-bind.js', BUILD));
  copyFileSync(new URL('LICENSE', PACKAGE), new URL('as-bind.LICENSE', BUILD));
  writeFileSync(new URL('as-bind.d.ts', BUILD), DECLARATION);
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) copyAsBind();
