/** The engine's C (host/bridge/wasm-to-c.mjs) as a library that this process calls. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import koffi from 'koffi';
import { root } from './paths.js';

const path = (name: string): string => fileURLToPath(new URL(name, root));

/** The engine as an object, from the build where gcc is. */
export const ENGINE_OBJECT = path('build/bridge/engine.o');
export const isTranslated = existsSync(ENGINE_OBJECT);
export const RUNTIME_FOLDER = path('host/bridge/');
/** Bytes of a page of WebAssembly. */
export const PAGE = 65536;

export type Library = ReturnType<typeof koffi.load>;
type ValueType = 'i32' | 'i64' | 'f64' | 'v128';

export interface Exported {
  readonly name: string;
  readonly takes: readonly ValueType[];
  readonly gives: readonly ValueType[];
}

/** V8 gives and takes i32 with a sign, and i64 as a BigInt with one. */
const TYPES = { i32: 'int32_t', i64: 'int64_t', f64: 'double', v128: 'void' } as const;

export type Call = (...values: (number | bigint)[]) => number | bigint | undefined;

/** A library of `files` (objects or C) and the test's own traps. */
export function link(library: string, files: readonly string[]): Library {
  const flags = ['-std=gnu11', '-O2', '-mssse3', '-ffp-contract=off', '-fPIC', '-shared'];
  const glue = path('test/unit/bridge/wasm-glue.c');
  execFileSync('gcc', [...flags, `-I${RUNTIME_FOLDER}`, glue, ...files, '-o', library]);
  return koffi.load(library);
}

/** An exported function on the memory at `base`. */
export function bind(library: Library, name: string, base: bigint, type: Exported): Call {
  const { takes, gives } = type;
  const wide = gives[0] === 'i64';
  const result = gives[0] ? TYPES[gives[0]] : 'void';
  const words = ['uint64_t', ...takes.map((each) => TYPES[each])].join(', ');
  const real = library.func(`${result} ${name}(${words})`) as (
    ...values: unknown[]
  ) => number | bigint;
  // koffi gives an int64_t that is a safe integer as a number.
  return (...values) => {
    const given = takes.map((_, index) => values[index] ?? 0);
    const answer = real(base, ...given);
    if (!wide) return answer;
    return BigInt(answer);
  };
}

/** The exports of the engine, as V8 has them, on the memory `bytes`. */
export class NativeEngine {
  readonly #library: Library;
  readonly #exports: readonly Exported[];
  readonly #usePages: (pages: number) => void;

  /** `library`: where to write it. */
  constructor(library: string) {
    this.#library = link(library, [ENGINE_OBJECT]);
    const types = readFileSync(path('build/bridge/engine.json'), 'utf8');
    this.#exports = JSON.parse(types) as Exported[];
    this.#usePages = this.#library.func('void test_use_pages(uint32_t)') as (pages: number) => void;
  }

  exportsOn(bytes: Uint8Array): Record<string, Call> {
    const base = BigInt(koffi.address(bytes));
    const pages = bytes.length / PAGE;
    const entries = this.#exports.map((type) => {
      const call = bind(this.#library, `engine_${type.name}`, base, type);
      const paged: Call = (...values) => {
        this.#usePages(pages);
        return call(...values);
      };
      // A caller reads how many parameters there are.
      Object.defineProperty(paged, 'length', { value: type.takes.length });
      return [type.name, paged] as const;
    });
    return Object.fromEntries(entries);
  }
}
