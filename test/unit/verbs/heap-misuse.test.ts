/** A heap of a domain that is used wrongly: each call is refused with the name of its argument. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  openDevice,
  type Context,
  type DomainHeap,
  type ProtectionDomain,
} from '../../../host/index.js';
import { createLoopbackPair } from '../../../host/link/loopback.js';

const test = suite('unit/verbs/heap-misuse');

async function withHeap(use: (heap: DomainHeap, context: Context) => void): Promise<void> {
  const context = await openDevice({ link: createLoopbackPair().a, memoryBytes: 8 * 2 ** 20 });
  try {
    use(context.allocPd().heap({ reserve: 2 ** 20 }), context);
  } finally {
    await context.close();
  }
}

const not = (value: unknown): never => value as never;

test('lengths, addresses and words that are no whole numbers are refused', () =>
  withHeap((heap) => {
    const address = heap.malloc(64);
    const lengths = [0, -1, 1.5, NaN, Infinity, 2 ** 32, not(1n), not('64'), not(undefined)];
    for (const length of lengths) {
      assert.throws(() => heap.malloc(length), /^length: /, `malloc ${String(length)}`);
      assert.throws(() => heap.alloc(length), /^length: /, `alloc ${String(length)}`);
      assert.throws(() => heap.alloc(length, { alignment: 4096 }), /^length: /);
    }
    for (const value of [NaN, 1.5, 2 ** 32, -(2 ** 31) - 1, not(1n), not(null)]) {
      assert.throws(() => heap.store(address, value), /^value: /, String(value));
    }
    for (const length of [1.5, NaN, -1, not('1')]) {
      assert.throws(() => heap.bytes(address, length), /^length: /, String(length));
    }
    for (const allocation of [not(null), not(undefined), new Uint8Array(4), not({})]) {
      assert.throws(() => heap.free(allocation), /^allocation: must be an address of malloc/);
      assert.throws(() => heap.share(allocation), /^allocation: /);
      assert.throws(() => heap.adopt(allocation), /^allocation: /);
    }
    for (const at of [heap.alloc(64), '64', 1n, null, {}]) {
      assert.throws(
        () => heap.store(not(at), 1),
        /^address: must be a whole number .{0,60}$/,
        typeof at,
      );
    }
    assert.throws(() => heap.alloc(64, { common: not('no') }), /^common: must be true or false/);
    assert.throws(() => heap.alloc(64, { alignment: not(64n) }), /^alignment: /);
    heap.store(address, 0xffff_ffff);
    heap.store(address, -1);
    heap.free(address);
  }));

/** A domain whose heaps may have no more storage: another one has it all. */
function fullDomain(context: Context): ProtectionDomain {
  const pd = context.allocPd();
  pd.limitHeaps(2 ** 20);
  const full = pd.heap({ name: 'full', reserve: 2 ** 20 });
  for (let count = 0; count < 16; count++) full.malloc(65536);
  return pd;
}

test('a callback that ends its heap ends the allocation that called it', () =>
  withHeap((_, context) => {
    const pd = fullDomain(context);
    const taken: Uint8Array[] = [];
    const onPressure = (): void => {
      pd.dealloc();
      while (taken.length < 10) taken.push(context.alloc(65536).fill(0xaa));
    };
    const heap = pd.heap({ name: 'b', reserve: 2 ** 20, onPressure });
    assert.throws(() => heap.malloc(65536), /heap: is closed, or its domain has ended/);
    assert.ok(taken.every((bytes) => bytes.every((byte) => byte === 0xaa)));
  }));

test('a callback that allocates from its heap is not called for that, but again later', () =>
  withHeap((_, context) => {
    const pd = fullDomain(context);
    const codes: (string | undefined)[] = [];
    const onPressure = (): void => {
      try {
        heap.malloc(65536);
      } catch (error) {
        codes.push((error as { code?: string }).code);
      }
    };
    const heap = pd.heap({ name: 'b', reserve: 2 ** 20, onPressure });
    for (let count = 1; count <= 2; count++) {
      assert.throws(() => heap.malloc(65536), /are free of its|exceed what the heaps/);
      assert.equal(
        codes,
        Array.from({ length: count }, () => 'ENOMEM'),
      );
    }
  }));

test('a root whose flag is no boolean is refused', () =>
  withHeap((_, context) => {
    const pd = context.allocPd();
    assert.throws(() => context.roots.put('a', { pd, common: not('no') }), /^common: must be true/);
    assert.is(context.roots.find('a'), undefined);
  }));

test('a heap of a closed context is refused', async () => {
  let ended: DomainHeap | undefined;
  await withHeap((heap) => {
    ended = heap;
  });
  const heap = ended!;
  const calls = [
    () => heap.malloc(64),
    () => heap.alloc(64),
    () => heap.free(heap.address),
    () => heap.bytes(heap.address, 4),
    () => heap.store(heap.address, 1),
    () => heap.notify(),
    () => heap.usage(),
    () => heap.share(heap.address),
  ];
  for (const call of calls) assert.throws(call, /^context: is closed/);
});

test.run();
