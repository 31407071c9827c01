import fc from 'fast-check';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import * as abi from '#build/abi.js';
import { EngineMemory } from '../../../host/engine/memory.js';
import { structAt, type Layout } from '../../../host/engine/struct.js';

const SIZES = { u8: 1, u16: 2, u32: 4, i32: 4, u64: 8, i64: 8, f64: 8 } as const;
const memory = EngineMemory.create(65536, false);

/** Every layout that the build wrote down. */
const layouts = Object.entries(abi).filter(([name]) => name.endsWith('Layout')) as unknown as [
  string,
  Layout,
][];

/** Names that hide what the class keeps for itself would be the first to break. */
const AWKWARD = {
  size: 24,
  fields: {
    view: [0, 'u8'],
    base: [2, 'u16'],
    address: [4, 'u32'],
    size: [8, 'u64'],
    span: [16, 'i64'],
  },
} as const;

function valueOf(kind: keyof typeof SIZES, seed: bigint): number | bigint {
  if (kind === 'f64') return Number(seed);
  const bits = BigInt.asUintN(SIZES[kind] * 8, seed);
  if (kind === 'i64') return BigInt.asIntN(64, bits);
  return kind === 'u64' ? bits : Number(bits);
}

/** Little-endian. */
function bytesOf(kind: keyof typeof SIZES, value: number | bigint): Uint8Array {
  const view = new DataView(new ArrayBuffer(8));
  if (kind === 'f64') view.setFloat64(0, value as number, true);
  else view.setBigUint64(0, BigInt.asUintN(64, BigInt(value)), true);
  return new Uint8Array(view.buffer, 0, SIZES[kind]);
}

test('fields of the engine’s structs lie apart, inside, and where their size divides', () => {
  assert.ok(layouts.length > 10, `${layouts.length} layouts`);
  for (const [name, { size, fields }] of layouts) {
    let end = 0;
    const inOrder = Object.entries(fields).sort(([, [a]], [, [b]]) => a - b);
    for (const [field, [offset, kind]] of inOrder) {
      assert.is(offset % SIZES[kind], 0, `${name}.${field}`);
      assert.ok(offset >= end, `${name}.${field} overlaps its predecessor`);
      end = offset + SIZES[kind];
    }
    assert.ok(end <= size, `${name} ends at ${end}, but has ${size} bytes`);
  }
});

test('a value written to a field is read back, little-endian, and no other byte changes', () => {
  for (const [name, layout] of [...layouts, ['awkward', AWKWARD as Layout] as const]) {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), fc.nat(500), (seed, unit) => {
        const at = 1024 + unit * 8;
        for (const [field, [offset, kind]] of Object.entries(layout.fields)) {
          memory.bytes.fill(0xa5, at - 8, at + layout.size + 8);
          const struct = structAt(memory, layout, at) as Record<string, number | bigint>;
          const value = valueOf(kind, seed);
          struct[field] = value;
          const again = structAt(memory, layout, at) as Record<string, number | bigint>;
          assert.is(again[field], value, `${name}.${field}`);
          const wanted = new Uint8Array(layout.size + 16).fill(0xa5);
          wanted.set(bytesOf(kind, value), 8 + offset);
          assert.equal(memory.bytes.slice(at - 8, at + layout.size + 8), wanted);
        }
      }),
      { numRuns: 3 },
    );
  }
});

test('a struct is a live view: two of one place see each other', () => {
  const one = structAt(memory, AWKWARD, 4096);
  const other = structAt(memory, AWKWARD, 4096);
  one.size = 7n;
  one.view = 255;
  assert.is(other.size, 7n);
  assert.is(other.view, 255);
  assert.equal(Object.keys(AWKWARD.fields), ['view', 'base', 'address', 'size', 'span']);
});

test('memory is taken whole, in pages, and its views are of one buffer', () => {
  for (const shared of [false, true]) {
    const made = EngineMemory.create(65537, shared);
    assert.is(made.buffer.byteLength, 2 * 65536);
    assert.is(made.shared, shared);
    for (const view of [made.bytes, made.words, made.view]) assert.is(view.buffer, made.buffer);
    assert.throws(() => made.memory.grow(1), RangeError);
  }
});

test.run();
