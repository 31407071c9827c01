/** The ring between an engine and a store: what is merged, woken for, and told. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  DURABLE_RING_BYTES,
  DurableRing,
  mergeRanges,
} from '../../../../host/device/durable/durable-ring.js';
import { EngineMemory } from '../../../../host/engine/memory.js';

const PAGE = 65536;

function make(): { ring: DurableRing; memory: EngineMemory } {
  const pages = Math.ceil((2 * DURABLE_RING_BYTES) / PAGE);
  const memory = new EngineMemory(
    new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true }),
  );
  return { ring: new DurableRing(memory, 64), memory };
}

function push(ring: DurableRing, job: number, offset = 0, length = 8): void {
  ring.push({ queuePair: 1, job, serial: job + 100 }, offset, length);
}

function answers(ring: DurableRing): [job: number, failed: boolean][] {
  const all: [number, boolean][] = [];
  ring.collect(({ job, serial, queuePair }, failed) => {
    assert.equal([queuePair, serial], [1, job + 100]);
    all.push([job, failed]);
  });
  return all;
}

test('ranges that touch or overlap become one, with all of their bytes', () => {
  const of = (...pairs: [number, number][]) =>
    mergeRanges(pairs.map(([offset, length]) => ({ offset, length }))).map((range) => [
      range.offset,
      range.length,
    ]);
  assert.equal(of([0, 8], [8, 8]), [[0, 16]]);
  assert.equal(of([4, 8], [0, 8]), [[0, 12]]);
  assert.equal(of([0, 64], [8, 8]), [[0, 64]]);
  assert.equal(of([0, 8], [9, 8]), [
    [0, 8],
    [9, 8],
  ]);
  assert.equal(of([5, 0], [100, 1]), [[100, 1]]);
});

test('entries that were taken complete together, and later entries do not', () => {
  const { ring } = make();
  push(ring, 1, 0);
  push(ring, 2, 8);
  const taken = ring.take()!;
  assert.is(taken.count, 2);
  assert.equal(taken.ranges, [{ offset: 0, length: 16 }]);
  push(ring, 3);
  assert.equal(answers(ring), []);
  ring.finish(taken.end);
  assert.equal(answers(ring), [
    [1, false],
    [2, false],
  ]);
  assert.is(ring.pending, 1);
  assert.not(ring.idle);
});

test('the oldest are taken first, as many as are wanted, over the wrap of the indices as well', () => {
  const { ring, memory } = make();
  const indices = new Int32Array(memory.buffer, 64, 3);
  indices.fill(-2);
  for (let job = 1; job <= 5; job++) push(ring, job, 16 * job);
  const first = ring.take(3)!;
  assert.equal([first.count, first.end], [3, 1]);
  assert.equal(
    first.ranges.map(({ offset }) => offset),
    [16, 32, 48],
  );
  ring.finish(first.end);
  assert.equal(
    answers(ring).map(([job]) => job),
    [1, 2, 3],
  );
  assert.is(ring.pending, 2);
  assert.equal([ring.take(3)!.count, ring.take(Infinity)!.count, ring.take()!.count], [2, 2, 2]);
});

test('after a failure no entry completes, whatever a store reports later', () => {
  const { ring } = make();
  push(ring, 1);
  ring.finish(ring.take()!.end);
  push(ring, 2);
  ring.fail(ring.take()!.end);
  push(ring, 3);
  ring.finish(ring.take()!.end);
  assert.equal(answers(ring), [
    [1, false],
    [2, true],
    [3, true],
  ]);
  assert.ok(ring.failed);
});

test('a store that sleeps is called when as many are there as it waits for', async () => {
  const { ring, memory } = make();
  const calls = new Int32Array(memory.buffer, 64 + 20, 1);
  ring.announce();
  assert.is(calls[0], 0, 'no store sleeps');
  const came = ring.workComes();
  ring.announce();
  assert.is(calls[0], 0, 'nothing is there');
  push(ring, 1);
  ring.announce();
  assert.is(calls[0], 1);
  assert.ok(await came);
  push(ring, 2);
  ring.announce();
  assert.is(calls[0], 1, 'it is awake');
});

test('a gathering store waits for a number of entries, and for a limited time', () => {
  const { ring } = make();
  push(ring, 1);
  let now = 0;
  const clock = (): number => (now += 400);
  assert.ok(ring.gather(1, 1000, clock));
  assert.not(ring.gather(2, 1000, clock));
  push(ring, 2);
  assert.ok(ring.gather(2, 1000, clock));
});

test('a stopped ring has no work, and no store waits for it', async () => {
  const { ring } = make();
  const came = ring.workComes();
  ring.stop();
  assert.not(await came);
  assert.not(ring.awaitWork());
  assert.not(ring.gather(1, 1e9, () => 0));
});

/** Sets all indices of an idle ring. */
function jump(memory: EngineMemory, index: number): void {
  const words = new Int32Array(memory.buffer);
  for (const at of [0, 1, 2]) words[(64 >> 2) + at] = index | 0;
}

test('a failed entry stays failed, also when indices wrap', () => {
  for (const start of [0, 0x7ffffffe, 0xfffffffe, 0xffffffff]) {
    const { ring, memory } = make();
    jump(memory, start);
    push(ring, 1);
    ring.finish(ring.take()!.end);
    assert.equal(answers(ring), [[1, false]]);
    push(ring, 2);
    ring.fail(ring.take()!.end);
    assert.equal(answers(ring), [[2, true]], `from ${start} on`);
    // Once around, and beyond the range of a signed number.
    for (let step = 1; step <= 5; step++) {
      jump(memory, start + 2 + step * 2 ** 30);
      push(ring, 3);
      ring.fail(ring.take()!.end);
      assert.equal(answers(ring), [[3, true]], `from ${start} on, step ${step}`);
    }
  }
});

test.run();
