/**
 * Each instruction in C does what it does in WebAssembly: a module with one function for each is
 * translated, compiled, and run beside the one that V8 compiles, over edge values of its operands.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import koffi from 'koffi';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { PAGE, isTranslated, link } from '../../support/native-engine.js';
import { root } from '../../support/paths.js';
import { Workspace } from '../../support/processes.js';
import { Random } from '../../simulation/random.js';

const test = suite('unit/bridge/wasm-to-c');

interface Row {
  readonly name: string;
  readonly takes: readonly (keyof typeof CODES)[];
  readonly gives: keyof typeof CODES | undefined;
  readonly kind: 'pure' | 'ordered' | 'access';
}

interface Translator {
  translate(
    bytes: Uint8Array,
    shape: { prefix: string; runtime: string; origin: string },
  ): { source: string };
}

const folder = new URL('host/bridge/', root);
const { OPCODES } = (await import(String(new URL('wasm-opcodes.mjs', folder)))) as {
  OPCODES: Map<number, Row>;
};
const { translate } = (await import(String(new URL('wasm-to-c.mjs', folder)))) as Translator;

/** Load and store of each type. */
const CODES = {
  i32: { load: [0x28], store: [0x36] },
  i64: { load: [0x29], store: [0x37] },
  f64: { load: [0x2b], store: [0x39] },
  v128: { load: [0xfd, 0], store: [0xfd, 0x0b] },
} as const;
/** Where the result goes, where operands lie, and what accesses access. */
const RESULT = 0;
const OPERANDS = 64;
const TARGET = 256;
const OFFSET = 16;
const END = 0x0b;

function leb(value: number): number[] {
  return value < 128 ? [value] : [(value & 127) | 128, ...leb(Math.floor(value / 128))];
}

/** With a sign, for addresses. */
function signed(value: number): number[] {
  return value < 64 ? [value] : [(value & 127) | 128, ...signed(Math.floor(value / 128))];
}

const vector = (items: readonly (readonly number[])[]): number[] => [
  ...leb(items.length),
  ...items.flat(),
];
const section = (id: number, bytes: readonly number[]): number[] => [
  id,
  ...leb(bytes.length),
  ...bytes,
];
const text = (value: string): number[] => [...leb(value.length), ...Buffer.from(value)];
const constant = (value: number): number[] => [0x41, ...signed(value)];
const load = (type: keyof typeof CODES, at: number): number[] => [
  ...constant(at),
  ...CODES[type].load,
  0,
  0,
];

function instruction(opcode: number, isAccess: boolean): number[] {
  const [prefix, rest] = [Math.floor(opcode / 256), opcode % 256];
  const bytes = prefix === 0 ? [opcode] : [prefix, ...leb(rest)];
  // Alignment as an exponent: atomics require their own.
  const align = prefix === 0xfe ? (ROWS.get(opcode)!.name.startsWith('i64') ? 3 : 2) : 0;
  return isAccess ? [...bytes, align, OFFSET] : bytes;
}

const ROWS = OPCODES;

/** `operands` from memory, the instruction, its result to memory. */
function body(opcode: number, { takes, gives, kind }: Row): number[] {
  const isAccess = kind === 'access';
  const operands = takes.flatMap((type, index) => load(type, OPERANDS + 16 * index));
  const work = [...operands, ...instruction(opcode, isAccess)];
  const code = gives ? [...constant(RESULT), ...work, ...CODES[gives].store, 0, 0] : work;
  return [...leb(code.length + 2), 0, ...code, END];
}

/** Instructions with operands of their own, and control flow: [name, code]. */
const VECTORS: readonly (readonly [string, readonly number[]])[] = [
  ['shuffle', [0xfd, 0x0d, 3, 1, 2, 0, 31, 30, 17, 16, 15, 8, 9, 10, 20, 5, 6, 7]],
];
const SPECIALS: readonly (readonly [string, readonly number[]])[] = [
  ...VECTORS.map(([name, code]) => {
    const both = [...load('v128', OPERANDS), ...load('v128', OPERANDS + 16)];
    return [name, [...constant(RESULT), ...both, ...code, ...CODES.v128.store, 0, 0]] as const;
  }),
  [
    'replace and extract a lane',
    [
      ...constant(RESULT),
      ...load('v128', OPERANDS),
      ...[...load('v128', OPERANDS + 16), 0xfd, 0x1b, 3],
      ...[0xfd, 0x1c, 1, ...CODES.v128.store, 0, 0],
    ],
  ],
  ['fill', [...constant(TARGET), ...load('i32', OPERANDS), ...constant(20), 0xfc, 0x0b, 0]],
  [
    'fill as many bytes as operand 0',
    [...constant(TARGET), ...constant(7), ...load('i32', OPERANDS), 0xfc, 0x0b, 0],
  ],
  [
    'copy over itself',
    [...constant(OPERANDS + 4), ...constant(OPERANDS), ...constant(24), 0xfc, 0x0a, 0, 0],
  ],
  [
    'a value below one that changes its local',
    // local 0 = operand 0; result = local 0 + (local 0 = operand 1)
    [
      ...[...load('i32', OPERANDS), 0x21, 0],
      ...[...constant(RESULT), 0x20, 0, ...load('i32', OPERANDS + 16), 0x22, 0, 0x6a, 0x36, 0, 0],
    ],
  ],
  [
    'a loop that counts down, a branch out with a value, dead code behind',
    [
      ...[...load('i32', OPERANDS), ...constant(15), 0x71, 0x21, 0],
      ...[...constant(RESULT), 0x02, 0x7f, 0x03, 0x40],
      // if local 0 = 0, leave with 5
      ...[...constant(5), 0x20, 0, 0x45, 0x0d, 1, 0x1a],
      ...[0x20, 0, ...constant(1), 0x6b, 0x21, 0, 0x0c, 0],
      ...[0x20, 0, 0x1a, END, ...constant(9), END],
      ...[0x20, 0, 0x6a, 0x36, 0, 0],
    ],
  ],
  [
    'a table of branches',
    [
      ...[0x02, 0x40, 0x02, 0x40, 0x02, 0x40, ...load('i32', OPERANDS)],
      ...[0x0e, 2, 0, 1, 2, END],
      ...[...constant(RESULT), ...constant(10), 0x36, 0, 0, 0x0f, END],
      ...[...constant(RESULT), ...constant(11), 0x36, 0, 0, END],
      ...[...constant(RESULT + 4), ...constant(12), 0x36, 0, 0],
    ],
  ],
  [
    'if and else with a value, select, and a function that returns early',
    [
      ...[...constant(RESULT), ...load('i32', OPERANDS), 0x04, 0x7f],
      ...[...load('i32', OPERANDS + 16), 0x05, ...constant(33), END],
      ...[0x22, 0, 0x20, 0, ...constant(1), 0x74, 0x20, 0, 0x1b, 0x36, 0, 0],
    ],
  ],
  ['unreachable', [...load('i32', OPERANDS), 0x04, 0x40, 0x00, END]],
];

function special(code: readonly number[]): number[] {
  return [...leb(code.length + 4), 1, 1, 0x7f, ...code, END];
}

const CASES = [
  ...[...ROWS].map(([opcode, row]) => ({ name: row.name, bytes: body(opcode, row), row })),
  ...SPECIALS.map(([name, code]) => ({ name, bytes: special(code), row: undefined })),
];

function moduleOf(): Uint8Array<ArrayBuffer> {
  const memory = [...text('env'), ...text('memory'), 2, 3, 1, 1];
  const names = CASES.map((_, index) => [...text(`f${index}`), 0, ...leb(index)]);
  return new Uint8Array([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, vector([[0x60, 0, 0]])),
    ...section(2, vector([memory])),
    ...section(3, vector(CASES.map(() => [0]))),
    ...section(7, vector(names)),
    ...section(10, vector(CASES.map(({ bytes }) => bytes))),
  ]);
}

const I32 = [0, 1, 2, 7, 31, 32, 33, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff, 0x12345678];
const I64 = [0n, 1n, 63n, 64n, 2n ** 31n, 2n ** 32n, 2n ** 53n + 1n, 2n ** 63n, 2n ** 64n - 1n];
const F64 = [0, -0, 1, -1, 0.5, -0.5, 1.9, NaN, Infinity, -Infinity, 2 ** 31, 2 ** 32 - 0.5].concat(
  [2 ** 32, -(2 ** 31), 2 ** 53 + 2, 2 ** 63, 2 ** 64, 2 ** 64 * 3, -(2 ** 63), 1e-300],
);

/** Edge values of a type, as 16 bytes each. */
function valuesOf(type: keyof typeof CODES, random: Random): Buffer[] {
  const make = (write: (bytes: Buffer) => void): Buffer => {
    const bytes = Buffer.alloc(16);
    write(bytes);
    return bytes;
  };
  if (type === 'i32') return I32.map((value) => make((to) => to.writeUInt32LE(value)));
  if (type === 'i64') return I64.map((value) => make((to) => to.writeBigUInt64LE(value)));
  if (type === 'f64') return F64.map((value) => make((to) => to.writeDoubleLE(value)));
  return Array.from({ length: 12 }, (_, index) =>
    make((to) => {
      // Small bytes: indices of a swizzle.
      for (let at = 0; at < 16; at++) to[at] = random.below(index < 6 ? 32 : 256);
    }),
  );
}

/** All combinations of edge values of up to three operands. */
function* operandsOf(row: Row | undefined, random: Random): Generator<Buffer[]> {
  const types = row?.takes ?? (['v128', 'v128'] as const);
  const lists = types.map((type, index) => {
    if (row?.kind !== 'access' || index > 0) return valuesOf(type, random);
    // An address: aligned for all, for some, for none; a little before the end, and behind it.
    const places = [TARGET, TARGET + 4, TARGET + 1, PAGE - 16 - OFFSET, PAGE - OFFSET - 3];
    return places.map((at) => {
      const bytes = Buffer.alloc(16);
      bytes.writeUInt32LE(at);
      return bytes;
    });
  });
  let combinations: Buffer[][] = [[]];
  for (const list of lists) combinations = combinations.flatMap((c) => list.map((v) => [...c, v]));
  if (row === undefined) {
    for (const value of I32) {
      const bytes = Buffer.alloc(16);
      bytes.writeUInt32LE(value);
      combinations.push([bytes, bytes]);
    }
  }
  yield* combinations;
}

function hasTrapped(call: () => void): boolean {
  try {
    call();
    return false;
  } catch (error) {
    if (error instanceof WebAssembly.RuntimeError) return true;
    throw error;
  }
}

/** A NaN has many forms, and any of them may come out. */
function normalize(bytes: Buffer, row: Row | undefined): Buffer {
  if (row?.gives === 'f64' && Number.isNaN(bytes.readDoubleLE(0))) bytes.writeDoubleLE(NaN, 0);
  return bytes;
}

if (isTranslated) {
  test('each instruction has the effects that V8 gives it', async () => {
    await Workspace.use(async (space) => {
      const bytes = moduleOf();
      const shape = { prefix: 'try_', runtime: 'wasm-runtime.h', origin: 'a test' };
      writeFileSync(space.path('try.c'), translate(bytes, shape).source);
      const library = link(space.path('try.so'), [space.path('try.c')]);
      (library.func('void test_use_pages(uint32_t)') as (pages: number) => void)(1);
      const traps = library.func('uint32_t test_traps(void *, uint64_t)') as (
        call: unknown,
        memory: bigint,
      ) => number;
      const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
      const imports = { env: { memory } };
      const { exports } = new WebAssembly.Instance(new WebAssembly.Module(bytes), imports);
      const theirs = Buffer.from(memory.buffer);
      // Behind the page: what an access behind the end would hit.
      const ours = Buffer.alloc(2 * PAGE);
      const random = new Random(5);
      let runs = 0;
      CASES.forEach(({ name, row }, index) => {
        const call = exports[`f${index}`] as () => void;
        const native = library.symbol(`try_f${index}`, 'void *') as unknown;
        for (const operands of operandsOf(row, random)) {
          for (let at = 0; at < 512; at++) theirs[at] = (at * 37) & 255;
          operands.forEach((value, at) => theirs.set(value, OPERANDS + 16 * at));
          theirs.copy(ours, 0);
          const trapped = hasTrapped(call);
          // An access that is behind the end is a fault of the address, which a host has to map.
          const isBehind = trapped && row?.kind === 'access' && !row.name.includes('atomic');
          if (isBehind) continue;
          const what = `${name} of ${operands.map((each) => each.toString('hex')).join(' ')}`;
          assert.is(traps(native, BigInt(koffi.address(ours))), Number(trapped), what);
          const size = 512;
          const [a, b] = [theirs, ours].map((each) => normalize(each.subarray(0, size), row));
          assert.is(Buffer.compare(a!, b!), 0, what);
          assert.is(Buffer.compare(theirs, ours.subarray(0, PAGE)), 0, what);
          runs++;
        }
      });
      assert.ok(runs > 5000, `${runs}`);
    });
  });

  test('the same module gives the same C, and what has no C is named', () => {
    const engine = readFileSync(new URL('build/engine.shared.wasm', root));
    const shape = { prefix: 'e_', runtime: 'wasm-runtime.h', origin: 'a test' };
    assert.is(translate(engine, shape).source, translate(engine, shape).source);
    const module = moduleOf();
    // f32.add
    const at = Buffer.from(module).lastIndexOf(Buffer.from([0x00, END, 0x0b]));
    assert.ok(at > 0);
    module[at] = 0x92;
    assert.throws(() => translate(module, shape), /opcode 0x92 has no C; add it to wasm-opcodes/);
  });
}

test.run();
