import fc from 'fast-check';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { RefusalError } from '../../../host/errors/errors.js';
import { Heap } from '../../../host/engine/heap.js';
import { expectMisuse, expectRefusal } from '../../support/refusal.js';

const UNIT = 64;
const BYTES = 64 * UNIT;
/** Neither end of the managed range is a multiple of anything. */
const START = 100;
const END = START + BYTES + 90;
const FIRST = Math.ceil(START / UNIT) * UNIT;
const SIZE = Math.floor((END - FIRST) / UNIT) * UNIT;

interface Block {
  readonly address: number;
  readonly size: number;
  readonly mark: number;
}

/** Model of the heap: blocks, and the byte with which each was filled. */
class Model {
  readonly bytes = new Uint8Array(END + 200).fill(0xff).fill(0, FIRST, FIRST + SIZE);
  readonly heap = new Heap(this.bytes, START, END);
  blocks: Block[] = [];
  #mark = 0;

  get used(): number {
    return this.blocks.reduce((sum, { size }) => sum + size, 0);
  }

  /** Units that are free, as runs: the longest decides what may be refused. */
  longestGap(alignment: number): number {
    const sorted = [...this.blocks].sort((a, b) => a.address - b.address);
    const ends = [FIRST, ...sorted.map(({ address, size }) => address + size)];
    const starts = [...sorted.map(({ address }) => address), FIRST + SIZE];
    return Math.max(
      ...ends.map((end, index) => starts[index]! - Math.ceil(end / alignment) * alignment),
    );
  }

  alloc(size: number, alignment: number): void {
    const rounded = Math.max(UNIT, Math.ceil(size / UNIT) * UNIT);
    const fits = this.longestGap(alignment) >= rounded;
    let address: number;
    try {
      address = this.heap.alloc(size, alignment);
    } catch (error) {
      assert.instance(error, RefusalError);
      assert.is((error as RefusalError).code, 'ENOMEM');
      assert.match((error as Error).message, `no ${size} bytes in a row are left`);
      assert.match((error as Error).message, `${SIZE - this.used} free in all`);
      assert.not.ok(fits, `${rounded} bytes would have fitted`);
      return;
    }
    assert.ok(fits);
    assert.is(address % alignment, 0, 'alignment');
    assert.ok(address >= FIRST && address + rounded <= FIRST + SIZE, 'inside');
    for (const other of this.blocks) {
      const apart = address + rounded <= other.address || other.address + other.size <= address;
      assert.ok(apart, 'overlap');
    }
    const block = this.bytes.subarray(address, address + rounded);
    assert.ok(
      block.every((byte) => byte === 0),
      'zero',
    );
    this.#mark = (this.#mark % 254) + 1;
    block.fill(this.#mark);
    this.blocks.push({ address, size: rounded, mark: this.#mark });
  }

  free(choice: number): void {
    if (this.blocks.length === 0) return;
    const [block] = this.blocks.splice(choice % this.blocks.length, 1);
    this.heap.free(block!.address);
    expectMisuse(() => this.heap.free(block!.address), 'address');
  }

  /** Only owners write to their blocks, and nothing writes outside of the range. */
  check(): void {
    assert.is(this.heap.bytesFree, SIZE - this.used, 'bytesFree');
    for (const { address, size, mark } of this.blocks) {
      const block = this.bytes.subarray(address, address + size);
      assert.ok(
        block.every((byte) => byte === mark),
        'contents',
      );
    }
    const outside = [this.bytes.subarray(0, FIRST), this.bytes.subarray(FIRST + SIZE)];
    for (const part of outside) assert.ok(part.every((byte) => byte === 0xff));
  }
}

const operation = fc.oneof(
  fc.record({
    kind: fc.constant('alloc' as const),
    size: fc.oneof(fc.integer({ min: 0, max: 300 }), fc.integer({ min: 0, max: BYTES + 100 })),
    alignment: fc.constantFrom(64, 64, 64, 128, 1024, 4096),
  }),
  fc.record({ kind: fc.constant('free' as const), choice: fc.nat() }),
);

test('blocks never overlap, are zero, keep their bytes; refused is only what does not fit', () => {
  fc.assert(
    fc.property(fc.array(operation, { maxLength: 120 }), (operations) => {
      const model = new Model();
      for (const step of operations) {
        if (step.kind === 'alloc') model.alloc(step.size, step.alignment);
        else model.free(step.choice);
        model.check();
      }
    }),
    { numRuns: 200 },
  );
});

test('free ranges are joined again, in whatever order they were freed', () => {
  fc.assert(
    fc.property(fc.array(fc.nat(), { minLength: 64, maxLength: 64 }), (choices) => {
      const model = new Model();
      while (model.heap.bytesFree >= UNIT) model.alloc(1, UNIT);
      for (const choice of choices) model.free(choice);
      for (const block of [...model.blocks]) {
        model.heap.free(block.address);
        model.blocks = model.blocks.filter((other) => other !== block);
      }
      assert.is(model.heap.bytesFree, SIZE);
      // Only one range can hold the block.
      assert.is(model.heap.alloc(SIZE), FIRST);
    }),
    { numRuns: 50 },
  );
});

test('only an allocated block can be freed, and only once', () => {
  const heap = new Heap(new Uint8Array(4096), 0, 4096);
  const address = heap.alloc(256);
  for (const wrong of [address + 64, address + 1, address - 64, 4096, -1, NaN]) {
    expectMisuse(() => heap.free(wrong), 'address');
  }
  heap.free(address);
  assert.throws(() => heap.free(address), /0x0 was not allocated, or freed before/);
  assert.is(heap.bytesFree, 4096);
});

test('a range without a whole unit is empty, and says so', () => {
  const heap = new Heap(new Uint8Array(4096), 65, 190);
  assert.is(heap.bytesFree, 0);
  expectRefusal(() => heap.alloc(1), 'ENOMEM', /memoryBytes/);
});

test.run();
