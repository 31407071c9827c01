/** The heap of a domain: its code on a memory of its own, with processes that take turns. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Header, Kind, SpanKind, spanWord } from '../../../host/verbs/heap/heap-table.js';
import {
  CLASS_OF,
  CLASS_UNITS,
  SPAN_BYTES,
  alignedUnits,
} from '../../../host/verbs/heap/size-classes.js';
import { usageOf } from '../../../host/verbs/heap/heap-usage.js';
import { HeapWorld } from '../../support/heap-world.js';
import { splitmix32 } from '../../../host/base/splitmix32.js';

test('each size has the smallest class that holds it, and at most a third is lost', () => {
  for (let units = 1; units <= 512; units++) {
    const size = CLASS_UNITS[CLASS_OF[units]!]!;
    assert.ok(size >= units);
    assert.ok(size - units <= Math.max(1, units * 0.6), `${units} units take ${size}`);
  }
});

test('objects do not overlap, and lie at multiples of 64', () => {
  const world = new HeapWorld(20);
  const heap = world.join(0);
  const taken: [number, number][] = [];
  for (const length of [1, 64, 65, 100, 4096, 5000, 32768, 32769, 65536, 70000]) {
    for (let count = 0; count < 2; count++) taken.push([heap.malloc(length), length]);
    if (length > 32768) heap.free(taken.pop()![0]);
  }
  taken.sort(([a], [b]) => a - b);
  taken.forEach(([address, length], index) => {
    assert.is(address % 64, 0);
    assert.ok(address >= world.table.data);
    assert.ok(address + length <= (taken[index + 1]?.[0] ?? world.table.data + 20 * SPAN_BYTES));
    assert.ok(heap.sizeOf(address) >= length);
  });
  for (const [address] of taken) heap.free(address);
  assert.is(world.used, 0);
  assert.equal(world.audit(), []);
});

test('an aligned allocation lies at a multiple of its alignment', () => {
  const heap = new HeapWorld(16).join(0);
  for (let alignment = 64; alignment <= 65536; alignment *= 2) {
    assert.is(
      (heap.mallocAligned(100, alignment) - heap.table.data) % alignment,
      0,
      `${alignment}`,
    );
  }
  assert.is(alignedUnits(3, 2), 4);
  assert.is(alignedUnits(5, 2), 8);
});

test('memory that one process frees, another one gets', () => {
  const world = new HeapWorld(2);
  const [one, other] = [world.join(0), world.join(1)];
  const all: number[] = [];
  for (let count = 0; count < 64; count++) all.push(one.malloc(2048));
  assert.throws(
    () => other.malloc(2048),
    /heap: no 2048 bytes are free of its 131072.*larger reserve/,
  );
  all.forEach((address) => other.free(address));
  for (let count = 0; count < 64; count++) one.malloc(2048);
  assert.throws(() => one.malloc(64), /ENOMEM/);
});

test('a process takes free objects from the cache of an idle process', () => {
  const world = new HeapWorld(1);
  const [idle, busy] = [world.join(0), world.join(1)];
  const all = Array.from({ length: 16 }, () => idle.malloc(4096));
  all.forEach((address) => idle.free(address));
  for (let count = 0; count < 16; count++) busy.malloc(4096);
  assert.throws(() => idle.malloc(4096), /ENOMEM/);
  assert.equal(world.audit(), []);
});

test('slabs without allocations serve other sizes, also as one large allocation', () => {
  const world = new HeapWorld(4);
  const heap = world.join(0);
  const all = Array.from({ length: 4 * 1024 }, () => heap.malloc(64));
  assert.throws(() => heap.malloc(128), /ENOMEM/);
  all.forEach((address) => heap.free(address));
  heap.free(heap.malloc(4 * SPAN_BYTES));
  assert.is(Array.from({ length: 8 }, () => heap.malloc(32768)).length, 8);
  assert.equal(world.audit(), []);
});

test('an address that is not allocated is refused, and so is a second free', () => {
  const heap = new HeapWorld(4).join(0);
  const small = heap.malloc(128);
  const large = heap.malloc(100_000);
  for (const address of [
    small + 64,
    small + 1,
    large + SPAN_BYTES,
    0,
    -64,
    NaN,
    2 ** 33,
    small + 0.5,
  ]) {
    assert.throws(() => heap.free(address), /address: .* is not allocated in this heap/);
    assert.is(heap.sizeOf(address), 0);
  }
  heap.free(small);
  heap.free(large);
  assert.throws(() => heap.free(small), /was freed before/);
  assert.throws(() => heap.free(large), /was freed before/);
  for (const length of [0, -1, NaN, 2 ** 32, 2 ** 32 + 100, Infinity]) {
    assert.throws(() => heap.malloc(length), `${length}`);
  }
});

test('held and cached objects of a dead process become free, common ones stay', () => {
  const world = new HeapWorld(16);
  const [dead, other] = [world.join(0), world.join(1)];
  const common = dead.malloc(1000);
  dead.assign(common, true);
  const adopted = dead.malloc(200_000);
  other.assign(adopted, false);
  for (const length of [64, 500, 9000, 100_000]) dead.malloc(length);
  dead.free(dead.malloc(700));
  world.bury(0);
  assert.is(other.sweepDead(), 1);
  assert.is(other.sweepDead(), 0);
  assert.equal(
    usageOf(world.table).processes.map(({ slot, objects }) => [slot, objects]),
    [[1, 1]],
  );
  assert.is(world.kindAt(common), Kind.COMMON);
  other.free(common);
  other.free(adopted);
  assert.is(world.used, 0);
  assert.equal(world.audit(), []);
});

test('a process in the slot of a dead one does not inherit its memory', () => {
  const world = new HeapWorld(2);
  world.join(2).malloc(5000);
  world.bury(2);
  world.join(2);
  assert.is(world.used, 0);
});

test('the heap grows segment by segment, and refuses more than its table holds', () => {
  const world = new HeapWorld(40);
  const heap = world.join(0);
  heap.malloc(64);
  assert.equal(world.committed, [[world.table.data, 16 * SPAN_BYTES]]);
  heap.malloc(30 * SPAN_BYTES);
  assert.is(world.committed.length, 2);
  assert.throws(() => heap.malloc(20 * SPAN_BYTES), /ENOMEM/);
  assert.is(usageOf(world.table).grownBytes, 32 * SPAN_BYTES);
});

test('a device without room for the next segment is named', () => {
  const world = new HeapWorld(40);
  const heap = world.join(0);
  world.bytesMax = 16 * SPAN_BYTES;
  heap.malloc(64);
  const pattern = /it cannot grow beyond 1048576: no room here/;
  assert.throws(() => heap.malloc(20 * SPAN_BYTES), pattern);
  for (let count = 0; count < 30; count++) heap.malloc(32768);
  assert.throws(() => heap.malloc(32768), pattern);
  assert.equal(world.audit(), []);
});

test('a table that another process filled with rubbish causes refusals, no hang', () => {
  const random = splitmix32(7);
  for (let turn = 0; turn < 40; turn++) {
    const world = new HeapWorld(6);
    const heap = world.join(0);
    const mine = [64, 640, 9000, 70_000].map((length) => heap.malloc(length));
    const { words, header, data } = world.table;
    for (let at = header; at < data >>> 2; at++) if (random() % 3 === 0) words[at] = random() | 0;
    const inside = (address: number): boolean => address >= data && address < data + 6 * SPAN_BYTES;
    for (const work of [
      () => assert.ok(inside(heap.malloc(64))),
      () => assert.ok(inside(heap.malloc(8192))),
      () => assert.ok(inside(heap.malloc(90_000))),
      () => usageOf(world.table),
      () => heap.sweepDead(),
      ...mine.map((address) => () => heap.free(address)),
    ]) {
      try {
        work();
      } catch (error) {
        assert.match((error as Error).message, /heap|address/);
      }
    }
  }
});

test('a lock that a living process keeps is refused with its name', () => {
  const world = new HeapWorld(2);
  const heap = world.join(0);
  const { words, header } = world.table;
  // A word of no process counts as that of a dead one.
  words[header + Header.LOCK] = 0x7fff_ffff;
  world.table.setSpan(0, spanWord(SpanKind.CHANGING, 3));
  world.table.grown = 1;
  heap.malloc(64);
  assert.equal(world.audit(), []);
});

test.run();
