/** Quotas of heaps, and memory that the library moves between the heaps of a domain. */
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { openDevice, type Context, type ProtectionDomain } from '../../host/index.js';
import { Member, freshName } from '../support/member.js';

const MIB = 2 ** 20;

async function withDomain(
  work: (context: Context, pd: ProtectionDomain) => Promise<void> | void,
): Promise<void> {
  const context = await openDevice({ name: freshName(), port: 0 });
  try {
    await work(context, context.allocPd());
  } finally {
    await context.close();
  }
}

test('a process that reaches its quota is refused with quota, use and remedy', () =>
  withDomain((_, pd) => {
    const heap = pd.heap({ reserve: 8 * MIB, quota: MIB });
    const first = heap.malloc(MIB / 2);
    assert.throws(
      () => heap.malloc(MIB),
      /1048576 bytes exceed the quota of this process: 524288 of 1048576 .*setQuota/,
    );
    let count = 0;
    assert.throws(() => {
      for (;;) {
        heap.malloc(64);
        count++;
      }
    }, /exceed the quota/);
    assert.is(count, MIB / 2 / 64);
    assert.is(heap.usage().processes[0]!.quotaBytes, MIB);
    // Freed and common objects do not count.
    heap.free(first);
    heap.malloc(MIB / 4);
    heap.share(heap.malloc(MIB / 4));
    heap.malloc(MIB / 4);
    assert.throws(() => heap.malloc(64), /exceed the quota/);
    heap.alloc(64, { common: true });
    heap.alloc(MIB, { common: true, alignment: 4096 });
    assert.throws(() => heap.malloc(64), /exceed the quota/);
    const { slot } = heap.usage().processes[0]!;
    heap.setQuota(2 * MIB, slot);
    heap.malloc(MIB / 2);
    heap.setQuota(0);
    heap.setQuota(0, slot);
    heap.malloc(2 * MIB);
  }));

test('a heap gets free segments of others: low priority first, never below the minimum', () =>
  withDomain((_, pd) => {
    const sizes = { reserve: 4 * MIB };
    const cheap = pd.heap({ name: 'cheap', ...sizes, minimum: MIB / 2 });
    const dear = pd.heap({ name: 'dear', ...sizes, priority: 9 });
    const needy = pd.heap({ name: 'needy', ...sizes });
    pd.limitHeaps(3 * MIB);
    for (const heap of [cheap, dear]) {
      heap.free(heap.malloc(MIB));
      assert.is(heap.usage().grownBytes, MIB);
    }
    needy.malloc(MIB);
    assert.is(cheap.usage().grownBytes, MIB);
    needy.malloc(MIB / 4);
    assert.equal(
      [cheap, dear].map((heap) => heap.usage().grownBytes),
      [0.75 * MIB, MIB],
    );
    needy.malloc(MIB / 2);
    assert.equal(
      [cheap, dear].map((heap) => heap.usage().grownBytes),
      [MIB / 2, 0.75 * MIB],
    );
    needy.malloc(0.75 * MIB);
    assert.equal(
      [cheap, dear].map((heap) => heap.usage().grownBytes),
      [MIB / 2, 0],
    );
    assert.throws(
      () => needy.malloc(64),
      /heaps of the domain may have together: 3145728 bytes.*2621440 in use.*limitHeaps/,
    );
    // The heap that gave has its minimum, and more when the budget is raised.
    cheap.malloc(MIB / 2);
    pd.limitHeaps(4 * MIB);
    dear.alloc(MIB).fill(1);
    assert.is(dear.usage().budgetBytes, 4 * MIB);
  }));

test('an application frees on request, in the process that lacks memory and in another one', () =>
  withDomain(async (context, pd) => {
    pd.limitHeaps(2 * MIB);
    const cache = pd.heap({ name: 'cache', reserve: 2 * MIB });
    let cached = cache.malloc(MIB);
    const lacks: unknown[] = [];
    const work = pd.heap({
      name: 'work',
      reserve: 2 * MIB,
      onPressure: (lack) => {
        lacks.push(lack);
        if (cached) cache.free(cached);
        cached = 0;
      },
    });
    work.malloc(1.5 * MIB);
    assert.equal(lacks, [{ name: 'work', bytes: 1.5 * MIB }]);
    const member = await Member.open({ name: context.device.shared!.name });
    try {
      const held = await member.run(({ context, kept }, handle) => {
        kept.pd = context.importPd(handle);
        const heap = kept.pd.heap({ name: 'cache' });
        const held = heap.malloc(2 ** 19);
        void heap.waitPressure({ timeout: 20_000 }).then((bytes) => {
          kept.memory = Uint8Array.of(bytes >> 16);
        });
        return held;
      }, pd.handle);
      assert.throws(() => work.malloc(MIB / 4), /limitHeaps/);
      const end = performance.now() + 20_000;
      while (!(await member.run(({ kept }) => kept.memory?.[0]))) {
        assert.ok(performance.now() < end, 'the member was not woken');
      }
      assert.is(await member.run(({ kept }) => kept.memory[0]), 4);
      await member.run(({ kept }, held) => kept.pd.heap({ name: 'cache' }).free(held), held);
      work.malloc(MIB / 4);
    } finally {
      await member.close();
    }
  }));

test('storage of a device that grows goes from heap to heap, and back to the system', async () => {
  const name = freshName();
  const directory = mkdtempSync(join(tmpdir(), 'verbena-heap-'));
  const sizes = { memoryBytes: 24 * MIB, memoryBytesMax: 256 * MIB };
  const context = await openDevice({ name, directory, port: 0, ...sizes });
  const used = (): number => statSync(join(directory, `verbena-${name}`)).blocks * 512;
  try {
    const pd = context.allocPd();
    const one = pd.heap({ name: 'one', reserve: 64 * MIB });
    const two = pd.heap({ name: 'two', reserve: 64 * MIB });
    pd.limitHeaps(32 * MIB);
    const before = used();
    const bytes = one.alloc(30 * MIB);
    bytes.fill(1);
    assert.ok(used() > before + 16 * MIB, `${used() - before}`);
    one.free(bytes);
    two.alloc(30 * MIB).fill(2);
    assert.ok(used() < before + 40 * MIB, `${used() - before}`);
    // Another process uses what went back.
    const member = await Member.open({ name, directory });
    try {
      await member.run(({ context }, handle) => {
        const heap = context.importPd(handle).heap({ name: 'one' });
        heap.alloc(2 ** 20).fill(3);
      }, pd.handle);
    } finally {
      await member.close();
    }
    one.trim();
    assert.ok(used() < before + 36 * MIB, `${used() - before}`);
    assert.is(one.usage().grownBytes, 0);
  } finally {
    await context.close();
    rmSync(directory, { recursive: true });
  }
});

test('a process that is killed while memory moves leaves heaps that are whole', async () => {
  await withDomain(async (context, pd) => {
    pd.limitHeaps(2 * MIB);
    const heaps = ['a', 'b'].map((name) => pd.heap({ name, reserve: 2 * MIB }));
    for (let turn = 0; turn < 3; turn++) {
      const member = await Member.open({ name: context.device.shared!.name });
      const running = member
        .run(({ context }, handle) => {
          const pd = context.importPd(handle);
          const [a, b] = [pd.heap({ name: 'a' }), pd.heap({ name: 'b' })];
          for (;;) for (const heap of [a, b]) heap.free(heap.malloc(1.5 * 2 ** 20));
        }, pd.handle)
        .catch(() => undefined);
      await new Promise((resolve) => setTimeout(resolve, 60 + 11 * turn));
      member.kill();
      await member.ended;
      await running;
      const end = performance.now() + 20_000;
      while (heaps.some((heap) => heap.usage().processes.some(({ heldBytes }) => heldBytes > 0))) {
        assert.ok(performance.now() < end, 'the memory of the dead process stays');
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
      for (const heap of heaps) heap.free(heap.alloc(2 * MIB));
    }
  });
});

test.run();
