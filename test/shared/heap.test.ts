/** Heaps, roots and waits of a device that real processes share. */
import { closeSync, mkdtempSync, openSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { ArenaLayout, CONTEXT_SLOT_SIZE, ContextSlotLayout, RootKind } from '#build/abi.js';
import { structAt } from '../../host/engine/struct.js';
import { openDevice, type Context, type ProtectionDomain } from '../../host/index.js';
import { loadPosix } from '../../host/link/posix.js';
import { Header, HeapTable } from '../../host/verbs/heap/heap-table.js';
import { SPAN_BYTES } from '../../host/verbs/heap/size-classes.js';
import { Member, freshName } from '../support/member.js';
import { expectMisuse, expectRefusal } from '../support/refusal.js';
import { until } from '../support/until.js';

const KEY = 0x6ea9;
/** Of host/device/sharing/device-file.ts: attaching and detaching. */
const JOIN_LOCK = 2 ** 53 - 2 ** 20;
const RESERVE = 4 * 2 ** 20;

/** A device with a domain that members find by the root `domain`. */
async function openShared(): Promise<{
  readonly name: string;
  readonly context: Context;
  readonly pd: ProtectionDomain;
}> {
  const name = freshName();
  const context = await openDevice({ name, port: 0 });
  const pd = context.allocPd();
  context.roots.put('domain', { pd, shpd: pd.allocShpd(KEY), common: true });
  return { name, context, pd };
}

/** A member that has the domain. */
async function joinDomain(name: string): Promise<Member> {
  const member = await Member.open({ name });
  await member.run(async ({ context, kept }, key) => {
    const { shpd } = await context.roots.wait('domain', { timeout: 10_000 });
    kept.pd = context.sharePd(shpd!, key);
  }, KEY);
  return member;
}

test('processes allocate from one heap, and each frees what another one allocated', async () => {
  const { name, context, pd } = await openShared();
  const heap = pd.heap({ reserve: RESERVE });
  assert.is(pd.heap(), heap);
  const member = await joinDomain(name);
  try {
    const [key, address, length] = await member.run(({ kept }) => {
      const heap = kept.pd.heap();
      const bytes = heap.alloc(5000);
      bytes.fill(7);
      return [heap.key, bytes.byteOffset, heap.length] as const;
    });
    assert.is(key, heap.key);
    assert.is(length, RESERVE);
    assert.is(
      heap.bytes(address, 5000).every((byte) => byte === 7),
      true,
    );
    heap.free(address);
    assert.is(heap.sizeOf(address), 0);
    const mine = heap.alloc(64);
    await member.run(({ kept }, address) => kept.pd.heap().free(address), mine.byteOffset);
    assert.throws(() => heap.free(mine), /was freed before/);
    // More allocations than the device has blocks.
    const many = Array.from({ length: 5000 }, () => heap.malloc(64));
    assert.is(new Set(many).size, 5000);
  } finally {
    await member.close();
    await context.close();
  }
});

test('memory of a killed process is free, what it shared stays, and so does the key', async () => {
  const { name, context, pd } = await openShared();
  const creator = await joinDomain(name);
  const key = await creator.run(({ kept }, reserve) => {
    const heap = kept.pd.heap({ reserve });
    heap.alloc(100_000);
    for (let count = 0; count < 100; count++) heap.malloc(1000);
    heap.share(heap.alloc(3000).fill(9));
    return heap.key;
  }, RESERVE);
  const heap = pd.heap();
  assert.is(heap.key, key);
  assert.is(heap.usage().processes[0]!.objects, 101);
  creator.kill();
  await creator.ended;
  await until(() => heap.usage().processes.length === 0, 20_000);
  assert.is(heap.usage().commonObjects, 1);
  // Another process still finds heap and key.
  const member = await joinDomain(name);
  try {
    assert.is(await member.run(({ kept }) => kept.pd.heap().key), key);
    const peer = await openDevice({ port: 0 });
    await peer.close();
  } finally {
    await member.close();
    await context.close();
  }
});

test('a heap ends with the last process that has opened it, its memory is the device’s', async () => {
  const { name, context, pd } = await openShared();
  const free = context.device.arena.userHeap.bytesFree;
  const member = await joinDomain(name);
  const key = await member.run(({ kept }) => kept.pd.heap({ reserve: 2 ** 20 }).key);
  assert.ok(context.device.arena.userHeap.bytesFree < free - 2 ** 20);
  member.kill();
  await member.ended;
  await until(() => context.device.arena.userHeap.bytesFree === free, 20_000);
  const { arena, engine } = context.device;
  assert.is(arena.exports.mrNote(engine.context, key), 0);
  assert.is(pd.heap({ reserve: 2 ** 20 }).usage().grownBytes, 0);
  await context.close();
});

test('a heap larger than the device is refused, and leaves nothing', async () => {
  const { context, pd } = await openShared();
  assert.throws(
    () => pd.heap({ reserve: 2 ** 30 }),
    /^heap: no 1\d{9} bytes in a row are left .*; pass a smaller reserve, .*ENOMEM/,
  );
  assert.throws(() => pd.heap({ reserve: 0 }), /reserve/);
  assert.throws(() => pd.heap({ access: 2 }), /LOCAL_WRITE.*EINVAL/);
  pd.heap({ reserve: 2 ** 20 });
  await context.close();
});

test('allocations beyond the table of the device are refused, and say so', async () => {
  const { context } = await openShared();
  const full = /^alloc: the device has 4096 allocations, the most there are; free some/;
  const addresses: number[] = [];
  assert.throws(() => {
    for (;;) addresses.push(context.alloc(64).byteOffset);
  }, full);
  assert.ok(addresses.length > 4000, String(addresses.length));
  await context.close();
});

test('a root that another one replaces is never read as the other', async () => {
  const { context, pd } = await openShared();
  const { device, roots } = context;
  roots.put('one', { pd, address: 1, length: 1, key: 1 });
  const locked = device.locked.bind(device);
  let [depth, isReplaced] = [0, false];
  // As soon as the lock is free, as another process may.
  device.locked = (work) => {
    depth++;
    const result = locked(work);
    if (--depth > 0 || isReplaced) return result;
    isReplaced = true;
    roots.remove('one');
    roots.put('two', { pd, address: 2, length: 2, key: 2 });
    return result;
  };
  const found = roots.find('one');
  device.locked = locked;
  assert.is(found?.address, 1);
  assert.is(roots.find('one'), undefined);
  assert.is(roots.find('two')?.address, 2);
  await context.close();
});

test('a heap without a root is refused, and leaves neither memory nor a key', async () => {
  await using context = await openDevice({
    name: freshName(),
    port: 0,
    processesMax: 1,
    regionsMax: 16,
  });
  const pd = context.allocPd();
  for (let count = 0; count < 8; count++) context.roots.put(`${count}`, { pd });
  const { userHeap } = context.device.arena;
  const { bytesFree } = userHeap;
  for (let count = 0; count < 40; count++) {
    assert.throws(() => pd.heap(), /heap: all 8 roots of the device are taken.*ENOMEM/);
  }
  assert.is(userHeap.bytesFree, bytesFree);
  pd.regMr(context.alloc(64), 1);
});

test('the lock of a dead process in a heap keeps no process from the tables', async () => {
  const { name, context, pd } = await openShared();
  const heap = pd.heap({ reserve: 2 ** 20 });
  const { arena } = context.device;
  const root = context.roots.entry('heap', RootKind.HEAP, pd.handle)!;
  const words = new Int32Array(arena.memory.buffer);
  const table = new HeapTable(words, root.address, heap.length / SPAN_BYTES);
  const holder = await joinDomain(name);
  const waiter = await joinDomain(name);
  const slot = await holder.run(({ context }) => context.device.slot);
  const { contextSlots } = structAt(arena.memory, ArenaLayout, arena.address);
  const at = contextSlots + slot * CONTEXT_SLOT_SIZE;
  const { incarnation } = structAt(arena.memory, ContextSlotLayout, at);
  table.set(Header.LOCK, (slot + 1) | (incarnation << 16));
  // As a process that opens the device: it keeps all others from reclaiming the dead one.
  const fd = openSync(context.device.shared!.segment.path, 'r+');
  const { posix } = await loadPosix();
  assert.ok(posix!.lockByte(fd, JOIN_LOCK));
  try {
    holder.kill();
    await holder.ended;
    const opened = waiter.run(({ kept }) => void kept.pd.heap());
    await new Promise((resolve) => setTimeout(resolve, 300));
    const start = performance.now();
    context.allocPd();
    assert.ok(performance.now() - start < 5000, 'the tables were locked');
    posix!.unlockByte(fd, JOIN_LOCK);
    await opened;
  } finally {
    closeSync(fd);
    await waiter.close();
    await context.close();
  }
});

test('a quota is for a slot that the device has', async () => {
  const { context, pd } = await openShared();
  const heap = pd.heap();
  assert.throws(() => heap.setQuota(2 ** 20, 32), /slot: must be a whole number from 0 to 31/);
  heap.setQuota(2 ** 20, 31);
  await context.close();
});

test('a heap takes storage of a device that grows when it needs it', async () => {
  const name = freshName();
  const directory = mkdtempSync(join(tmpdir(), 'verbena-heap-'));
  const MIB = 2 ** 20;
  const sizes = { memoryBytes: 24 * MIB, memoryBytesMax: 512 * MIB };
  const context = await openDevice({ name, directory, port: 0, ...sizes });
  const used = (): number => statSync(join(directory, `verbena-${name}`)).blocks * 512;
  try {
    const before = used();
    assert.ok(before < 64 * MIB, `${before}`);
    const pd = context.allocPd();
    const heap = pd.heap({ reserve: 256 * MIB });
    heap.malloc(64);
    assert.ok(used() < before + 4 * MIB, `${used() - before}`);
    const large = heap.alloc(100 * MIB);
    assert.ok(used() > before + 100 * MIB, `${used() - before}`);
    assert.ok(used() < before + 120 * MIB, `${used() - before}`);
    heap.free(large);
    const other = await Member.open({ name, directory });
    try {
      await other.run(({ context, kept }, handle) => {
        kept.pd = context.importPd(handle);
        kept.pd
          .heap()
          .alloc(120 * 2 ** 20)
          .fill(1);
        context.alloc(50 * 2 ** 20).fill(1);
      }, pd.handle);
    } finally {
      await other.close();
    }
    assert.throws(() => context.alloc(2 ** 31), /ENOMEM/);
  } finally {
    await context.close();
    rmSync(directory, { recursive: true });
  }
});

test('a root appears in another process, ends with its process, or with its domain', async () => {
  const { name, context, pd } = await openShared();
  const member = await joinDomain(name);
  const waiting = context.roots.wait('table', { timeout: 10_000 });
  await member.run(({ context, kept }) => {
    context.roots.put('table', { pd: kept.pd, address: 4096, length: 100, key: 0x1234 });
    context.roots.put('common', { pd: kept.pd, common: true });
  });
  const { address, length, key, shpd } = await waiting;
  assert.equal([address, length, key, shpd], [4096, 100, 0x1234, undefined]);
  assert.throws(() => context.roots.put('table', { pd }), /EEXIST/);
  assert.throws(() => context.roots.put('', { pd }), /1 to 64 bytes/);
  member.kill();
  await member.ended;
  await until(() => context.roots.find('table') === undefined, 20_000);
  assert.equal(
    context.roots.list().map(({ name }) => name),
    ['domain', 'common'],
  );
  assert.is(context.roots.remove('common'), true);
  assert.is(context.roots.remove('common'), false);
  await context.close();
});

test('a wait for a root ends by its timeout or signal', async () => {
  const { context } = await openShared();
  const rejected = async (work: Promise<unknown>): Promise<string> =>
    work.then(
      () => 'resolved',
      (error: Error) => error.message,
    );
  assert.match(
    await rejected(context.roots.wait('no', { timeout: 20 })),
    /within 20 ms.*ETIMEDOUT/,
  );
  const controller = new AbortController();
  const waiting = rejected(context.roots.wait('no', { signal: controller.signal }));
  controller.abort(new Error('enough'));
  assert.is(await waiting, 'enough');
  const closed = rejected(context.roots.wait('no', { timeout: 5000 }));
  await context.close();
  assert.match(await closed, /closed/);
});

test('a write of another process wakes a wait for a word', async () => {
  const { name, context, pd } = await openShared();
  const heap = pd.heap({ reserve: 2 ** 20 });
  const member = await joinDomain(name);
  const { byteOffset } = heap.alloc(64);
  const took: number[] = [];
  for (let turn = 0; turn < 20; turn++) {
    const waiting = heap.wait(byteOffset, turn, { timeout: 10_000 });
    const writtenAt = await member.run(
      async ({ kept }, address, value) => {
        // The other process sleeps by now.
        await new Promise((resolve) => setTimeout(resolve, 5));
        kept.pd.heap().store(address, value);
        return performance.timeOrigin + performance.now();
      },
      byteOffset,
      turn + 1,
    );
    assert.is(await waiting, turn + 1);
    took.push(performance.timeOrigin + performance.now() - writtenAt);
  }
  assert.ok(took.length === 20);
  await member.close();
  await context.close();
});

test('threads of a device share its heap, and a thread that ended leaves nothing', async () => {
  const context = await openDevice({ port: 0, threadsMax: 2 });
  const pd = context.allocPd();
  const heap = pd.heap({ reserve: 2 ** 20 });
  const share = context.share();
  const other = await openDevice({ threadShare: share });
  const theirs = other.importPd(pd.handle).heap();
  assert.is(theirs.key, heap.key);
  theirs.alloc(1000);
  assert.throws(() => other.allocPd().heap(), /create "heap" in the first thread/);
  assert.is(heap.usage().processes.length, 1);
  await other.close();
  context.unshare(share);
  assert.equal(heap.usage().processes, []);
  await context.close();
});

test('a device of one process has heaps, too', async () => {
  const context = await openDevice({ port: 0 });
  const heap = context.allocPd().heap({ reserve: 2 ** 20 });
  const bytes = heap.alloc(100, { alignment: 4096 });
  assert.is(bytes.byteOffset % 4096, 0);
  heap.free(bytes);
  assert.throws(() => context.free(bytes), /must be a buffer of alloc|use heap.free/);
  await context.close();
});

test('a heap ends with its domain, and its memory is the device’s again', async () => {
  for (const shared of [{}, { name: freshName() }]) {
    const memoryBytes = 32 * 2 ** 20;
    await using context = await openDevice({ ...shared, port: 0, memoryBytes });
    for (let cycle = 0; cycle < 12; cycle++) {
      const pd = context.allocPd();
      const heap = pd.heap({ reserve: RESERVE });
      heap.alloc(64).fill(1);
      if (cycle % 2 === 0) pd.dealloc();
      else heap.close();
      expectMisuse(() => heap.malloc(64), /heap: is closed, or its domain has ended/);
      if (cycle % 2 === 0) continue;
      const next = pd.heap({ reserve: RESERVE });
      assert.is(next.alloc(64)[0], 0);
      pd.dealloc();
      expectMisuse(() => next.free(next.address), /call pd\.heap again/);
    }
    for (let cycle = 0; cycle < 12; cycle++) {
      const sibling = context.openDevice();
      sibling.allocPd().heap({ reserve: RESERVE }).alloc(64);
      await sibling.close();
    }
    assert.is(context.alloc(20 * 2 ** 20).length, 20 * 2 ** 20);
  }
});

test('a process that leaves a heap frees what it held, and the others go on', async () => {
  const { name, context, pd } = await openShared();
  const heap = pd.heap({ reserve: RESERVE });
  const member = await joinDomain(name);
  try {
    const common = heap.alloc(4096, { common: true });
    common.fill(3);
    heap.alloc(1000);
    heap.alloc(100_000);
    const { key } = heap;
    assert.is(await member.run(({ kept }) => kept.pd.heap().key), key);
    heap.close();
    const left = await member.run(({ kept }, address) => {
      const heap = kept.pd.heap();
      const { processes, commonBytes } = heap.usage();
      const isWhole = heap.bytes(address, 4096).every((byte) => byte === 3);
      heap.alloc(5000);
      return [processes.length, commonBytes, isWhole, heap.usage().processes.length];
    }, common.byteOffset);
    assert.equal(left, [0, 4096, true, 1]);
    // It may come back, and finds the same heap.
    assert.is(pd.heap().key, key);
    pd.dealloc();
    await member.run(({ kept }) => kept.pd.dealloc());
    assert.is(context.alloc(RESERVE).length, RESERVE);
  } finally {
    await member.close();
    await context.close();
  }
});

test('processes that leave a heap at the same time end its key and free its memory', async () => {
  const { name, context } = await openShared();
  const members = await Promise.all([1, 2, 3].map(() => joinDomain(name)));
  const { arena, engine } = context.device;
  try {
    const free = arena.userHeap.bytesFree;
    for (let round = 0; round < 40; round++) {
      const all = <Result>(work: (member: Member) => Promise<Result>): Promise<Result[]> =>
        Promise.all(members.map(work));
      const keys = await all((member) =>
        member.run(({ kept }) => {
          const heap = kept.pd.heap({ reserve: 4 * 2 ** 20 });
          for (let count = 0; count < 200; count++) heap.malloc(4096);
          return heap.key;
        }),
      );
      await all((member) => member.run(({ kept }) => kept.pd.heap().close()));
      assert.is(new Set(keys).size, 1);
      assert.is(arena.exports.mrNote(engine.context, keys[0]!), 0, `key of round ${round}`);
      assert.is(arena.userHeap.bytesFree, free, `memory after round ${round}`);
    }
  } finally {
    for (const member of members) await member.close();
    await context.close();
  }
});

test('a heap in which a region lies is not closed, nor is its domain', async () => {
  await using context = await openDevice({ port: 0 });
  const [pd, other] = [context.allocPd(), context.allocPd()];
  const heap = pd.heap({ reserve: RESERVE });
  const region = other.regMr(heap.alloc(4096), 0);
  const rule = /a region or queue lies in a heap of the domain; end that first/;
  expectRefusal(() => heap.close(), 'EBUSY', rule);
  expectRefusal(() => pd.dealloc(), 'EBUSY', rule);
  assert.is(heap.sizeOf(Number(region.addr)), 4096);
  region.dereg();
  pd.dealloc();
});

test.run();
