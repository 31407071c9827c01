/**
 * Functions of the C library, called from JavaScript: by koffi, an optional package, or by
 * `node:ffi` of Node 26. The only file that names either. koffi goes first: `node:ffi` is
 * experimental, and calls with more than three arguments take 0.1 us more with it (150 ns; up to
 * three 50 ns; koffi 35 ns), so single messages use `sendmsg` and `recvmsg`.
 *
 * `node:ffi` needs the flag `--experimental-ffi` up to Node 26.5; Node 20 to 24 lack it
 * (ERR_UNKNOWN_BUILTIN_MODULE). Tried: 26.1.0, 26.5.1, whose 64-bit arguments must be BigInts, and
 * 26.12.1. It keeps no errno: `__errno_location` has it, in 2 million failing calls each time that
 * of the call.
 */
import { constants } from 'node:os';
import { LinkError } from '../errors/errors.js';
import { requireExperimental } from '../base/experimental.js';

/** The types of a prototype that `func` takes. Numbers of 64 bits must be safe integers. */
export type NativeFunction = (...values: never[]) => number;

/** The foreign function interface that `posix.ts` needs. */
export interface NativeCalls {
  readonly name: 'koffi' | 'node:ffi';
  /** Bytes of a pointer of this machine. */
  readonly pointerBytes: number;
  /** Numbers of errno by name. */
  readonly errnos: Readonly<Record<string, number>>;
  /**
   * A function of the C library. `prototype` is in C: int, uint32_t, int64_t, uint64_t; `void *` is
   * a Uint8Array, `const char *` a string. Pointers that JavaScript computes are uint64_t.
   */
  func<Call extends NativeFunction>(prototype: string): Call;
  /** errno of the last call of this thread. */
  errno(): number;
  /** Where the first byte lies in this process. */
  addressOf(bytes: Uint8Array): number;
}

export type NativeLibrary = Pick<NativeCalls, 'func'>;

/** Functions of another library, by koffi. Rejects with an error that names it. */
export async function loadLibrary(path: string): Promise<NativeLibrary> {
  const koffi = (await import('koffi')).default;
  let library: ReturnType<Koffi['load']>;
  try {
    library = koffi.load(path);
  } catch (error) {
    throw new LinkError('EOPNOTSUPP', `${path} does not load: ${(error as Error).message}`);
  }
  return {
    func: <Call extends NativeFunction>(prototype: string) =>
      library.func(prototype) as unknown as Call,
  };
}

type Koffi = typeof import('koffi').default;

/** Calls by koffi. */
function koffiCalls(koffi: Koffi): NativeCalls {
  // null: the C library that the process has loaded already, glibc or musl.
  const libc = koffi.load(null);
  return {
    name: 'koffi',
    pointerBytes: koffi.sizeof('void *'),
    errnos: koffi.os.errno,
    func: <Call extends NativeFunction>(prototype: string) =>
      libc.func(prototype) as unknown as Call,
    errno: () => koffi.errno(),
    addressOf: (bytes) => Number(koffi.address(bytes)),
  };
}

type FfiValue = number | bigint | string | Uint8Array;
type FfiFunction = (...values: FfiValue[]) => number | bigint;

/** The part of `node:ffi` that is used here; its names of types are those of C without `_t`. */
interface Ffi {
  readonly DynamicLibrary: new (path: null) => {
    getFunction(
      name: string,
      signature: { readonly return: string; readonly arguments: readonly string[] },
    ): FfiFunction;
  };
  toArrayBuffer(pointer: bigint, length: number, copy: boolean): ArrayBuffer;
  getRawPointer(bytes: Uint8Array): bigint;
}

const POINTER_BYTES: Readonly<Record<string, number>> = { arm: 4, ia32: 4, mips: 4, mipsel: 4 };
const FFI_TYPES: Readonly<Record<string, string>> = {
  int: 'int32',
  uint32_t: 'uint32',
  int64_t: 'int64',
  uint64_t: 'uint64',
  'void *': 'buffer',
  'const void *': 'buffer',
  'const char *': 'string',
};

/** `int close(int)`: name, result, parameters. */
function parsePrototype(prototype: string) {
  const [, result, name, list] = /^(.+) (\w+)\((.*)\)$/.exec(prototype)!;
  const parameters = list === '' ? [] : list!.split(', ');
  return {
    name: name!,
    signature: {
      return: FFI_TYPES[result!]!,
      arguments: parameters.map((type) => FFI_TYPES[type]!),
    },
  };
}

/**
 * Calls by `node:ffi`. Those with at most three arguments take 50 ns, those with more 150 ns (Node
 * 26.12, koffi 35 ns). It keeps no errno, so it is read where the C library has it for this thread,
 * right behind the call; nothing of Node runs between the two.
 */
function ffiCalls(ffi: Ffi): NativeCalls {
  const libc = new ffi.DynamicLibrary(null);
  const find = (name: string, result: string, ...parameters: string[]): FfiFunction =>
    libc.getFunction(name, { return: result, arguments: parameters });
  const place = find('__errno_location', 'pointer')() as bigint;
  const errno = new Int32Array(ffi.toArrayBuffer(place, 4, false));
  const wants = takesNumbers(find('llabs', 'int64', 'int64')) ? Number : BigInt;
  return {
    name: 'node:ffi',
    pointerBytes: POINTER_BYTES[process.arch] ?? 8,
    errnos: constants.errno,
    func: <Call extends NativeFunction>(prototype: string) => {
      const { name, signature } = parsePrototype(prototype);
      const real = libc.getFunction(name, signature);
      return numbersOnly(real, signature, wants) as unknown as Call;
    },
    errno: () => errno[0]!,
    addressOf: (bytes) => Number(ffi.getRawPointer(bytes)),
  };
}

/** Does this release take numbers for arguments of 64 bits? Those before 26.12 want a BigInt. */
function takesNumbers(llabs: FfiFunction): boolean {
  try {
    return llabs(-1) === 1n;
  } catch {
    return false;
  }
}

const isWide = (type: string): boolean => type.endsWith('int64');

/** `real` with numbers in place of the BigInts of its 64-bit arguments and result. */
function numbersOnly(
  real: FfiFunction,
  { return: result, arguments: types }: { return: string; arguments: readonly string[] },
  wants: typeof Number | typeof BigInt,
): (...values: FfiValue[]) => number {
  const wide = wants === BigInt ? types.map(isWide) : [];
  const convert = (value: FfiValue, index: number): FfiValue =>
    wide[index] ? BigInt(value as number) : value;
  if (wide.includes(true)) return (...values) => Number(real(...values.map(convert)));
  if (!isWide(result)) return real as (...values: FfiValue[]) => number;
  switch (types.length) {
    case 3:
      return (a, b, c) => Number(real(a!, b!, c!));
    default:
      return (...values) => Number(real(...values));
  }
}

/** The calls, or the reason why this process has none. */
export type NativeResult =
  | { readonly calls: NativeCalls; readonly reason?: never }
  | { readonly calls?: never; readonly reason: string };

/** koffi if it is installed, else `node:ffi` if this Node has it. Never rejects. */
export async function loadNativeCalls(): Promise<NativeResult> {
  let reason: string;
  try {
    return { calls: koffiCalls((await import('koffi')).default) };
  } catch (error) {
    reason = `koffi ${causeOf(error, 'MODULE_NOT_FOUND', 'is not installed')}: npm install koffi`;
  }
  try {
    return { calls: ffiCalls(requireExperimental('node:ffi', 'FFI') as Ffi) };
  } catch (error) {
    const absent = causeOf(error, 'ERR_UNKNOWN_BUILTIN_MODULE', '');
    return { reason: absent === '' ? reason : `${reason} (node:ffi ${absent})` };
  }
}

/** `absent` if the code says so, else the first line of the error. */
function causeOf(error: unknown, code: string, absent: string): string {
  const { code: found, message } = error as NodeJS.ErrnoException;
  return found?.endsWith(code) ? absent : `does not load (${message.split('\n', 1)[0]})`;
}
