/**
 * The part of WebAssembly's JavaScript interface that we use. TypeScript has these types in its
 * DOM library only, which would bring a whole browser along.
 */
declare namespace WebAssembly {
  /** Bytes of a module. */
  type Source = ArrayBufferView | ArrayBufferLike;

  interface MemoryDescriptor {
    /** Pages of 64 KiB. */
    initial: number;
    /** Pages of 64 KiB; required when `shared`. */
    maximum?: number;
    shared?: boolean;
  }

  class Memory {
    constructor(descriptor: MemoryDescriptor);
    /** A SharedArrayBuffer when the memory is shared. `grow` detaches it when it is not. */
    readonly buffer: ArrayBuffer | SharedArrayBuffer;
    /** Returns how many pages there were. */
    grow(pages: number): number;
  }

  class Global {
    constructor(descriptor: { value: 'i32'; mutable: boolean }, value: number);
    value: number;
  }

  /** A function of a module: i64 is a bigint, everything else a number. */
  type ExportedFunction = (...values: (number | bigint)[]) => number | bigint | undefined;
  type ImportedFunction = (...values: never[]) => number | bigint | void;
  type ExportValue = ExportedFunction | Memory;
  type ImportValue = ImportedFunction | Memory | Global | number | bigint;
  type Exports = Record<string, ExportValue>;
  type Imports = Record<string, Record<string, ImportValue>>;
  type Kind = 'function' | 'global' | 'memory' | 'table';

  interface ExportDescriptor {
    name: string;
    kind: Kind;
  }

  interface ImportDescriptor extends ExportDescriptor {
    module: string;
  }

  /** Compiled code; may be posted to other threads. */
  class Module {
    constructor(bytes: Source);
    static exports(module: Module): ExportDescriptor[];
    static imports(module: Module): ImportDescriptor[];
    static customSections(module: Module, name: string): ArrayBuffer[];
  }

  class Instance<Names extends object = Exports> {
    constructor(module: Module, imports?: Imports);
    readonly exports: Names;
  }

  class LinkError extends Error {}
  class RuntimeError extends Error {}
}
