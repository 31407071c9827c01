/** Where blocks lie: memory, a file, a region of persistent memory; and how long they take. */
import { existsSync, readdirSync } from 'node:fs';
import { chmod, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  MisuseError,
  NvmeFileStore,
  NvmePmemStore,
  NvmeRamStore,
  NvmeTarget,
  createLoopbackPair,
  nvmeResponseTimes,
  openDevice,
  NvmeError,
  NvmeStatus,
  type Context,
  type FmrPoolUser,
  type StoreRequest,
} from '../../../host/index.js';
import { Completions } from '../../../host/nvme/completions.js';
import { Association } from '../../../host/nvme/host-association.js';
import { NQN, TARGET, inNvmeWorld, type Ask } from '../../support/nvme-world.js';
import { placeOfPath } from '../../../host/pmem/place.js';
import { give, openToAll, testOfTwoUsers } from '../../support/other-user.js';
import { Workspace, noise } from '../../support/processes.js';
import { WITHOUT_KOFFI } from '../../support/without-koffi.js';
import { expectRejected } from '../../support/refusal.js';

const fileStore = new URL('../../../host/nvme/file-store.js', import.meta.url).href;

/** An I/O queue into which any command may be put. */
async function ioQueue(
  host: Context,
  user: FmrPoolUser,
): Promise<{ ask: Ask; association: Association }> {
  const counters = { submitted: 0, completed: 0, depthWaits: 0, regionWaits: 0, inCapsule: 0 };
  const association = await Association.open(host.allocPd(), new Completions(host), {
    ...{ address: TARGET, port: 4420, nqn: NQN, hostNqn: 'nqn.2026-01.test:host' },
    ...{ hostId: new Uint8Array(16), keepAliveMillis: 0, ackTimeout: 14, onEnd: () => {} },
  });
  await association.setQueueCount(1);
  const queue = await association.ioQueue({
    ...{ qid: 1, depth: 7, user, ended: () => {} },
    counters: { ...counters, registrations: 0, remoteInvalidations: 0, localInvalidations: 0 },
  });
  const ask: Ask = (name, fields, more = {}) =>
    new Promise((resolve, reject) => queue.submit({ name, fields, resolve, reject, ...more }));
  return { ask, association };
}

async function withDevice(work: (context: Context) => Promise<void>): Promise<void> {
  await using context = await openDevice({
    link: createLoopbackPair().a,
    memoryBytes: 32 * 2 ** 20,
  });

  await work(context);
}

test('a file holds the bytes that were written to it, and grows on request', () =>
  Workspace.use(async (workspace) => {
    const path = workspace.path('disk.img');
    await expectRejected(NvmeFileStore.open(path), 'ENOENT');
    const store = await NvmeFileStore.open(path, 65536);
    assert.is(store.length, 65536);
    const data = noise(5000);
    await store.write(1000, data);
    await store.writeZeroes(2000, 500);
    await store.flush();
    const into = new Uint8Array(5000);
    await store.read(1000, into);
    data.fill(0, 1000, 1500);
    assert.is(Buffer.compare(data, into), 0);
    await expectRejected(NvmeFileStore.open(path), 'EBUSY');
    await store.close();
    assert.is(Buffer.compare((await readFile(path)).subarray(1000, 6000), data), 0);
    const again = await NvmeFileStore.open(path, 2 ** 20);
    assert.is(again.length, 2 ** 20);
    await again.close();
    assert.is((await stat(path)).size, 2 ** 20);
    await writeFile(path, new Uint8Array(1000));
    const odd = await NvmeFileStore.open(path);
    assert.is(odd.length, 512);
    await odd.close();
    await writeFile(path, new Uint8Array(511));
    await expectRejected(NvmeFileStore.open(path), 'EINVAL');
    await expectRejected(NvmeFileStore.open('/dev/null'), 'EINVAL');
  }));

test('a created file has mode 0600, a mark beside it, and a durable name', () =>
  Workspace.use(async (workspace) => {
    const path = workspace.path('disk.img');
    const umask = process.umask(0);
    try {
      const store = await NvmeFileStore.open(path, 65536);
      const { isMemory, durability } = placeOfPath(path);
      assert.is(store.durability, durability);
      assert.equal(
        readdirSync(workspace.directory),
        isMemory ? ['disk.img'] : ['disk.img', 'disk.img.open'],
      );
      for (const name of readdirSync(workspace.directory)) {
        assert.is((await stat(workspace.path(name))).mode & 0o7777, 0o600);
      }
      await store.close();
    } finally {
      process.umask(umask);
    }
    assert.equal(readdirSync(workspace.directory), ['disk.img']);
  }));

test('a link without a target creates no file, a link of this user is followed', () =>
  Workspace.use(async (workspace) => {
    const [path, link] = [workspace.path('disk.img'), workspace.path('link')];
    await symlink(path, link);
    await expectRejected(NvmeFileStore.open(link, 65536), 'ENOENT');
    assert.not.ok(existsSync(path));
    await (await NvmeFileStore.open(path, 65536)).close();
    const store = await NvmeFileStore.open(link, 65536);
    await expectRejected(NvmeFileStore.open(path), 'EBUSY');
    await store.close();
    await chmod(path, 0o602);
    await expectRejected(NvmeFileStore.open(path), 'EACCES');
  }));

testOfTwoUsers(test, 'a file, a link or a mark of another user is refused', () =>
  Workspace.use(async (workspace) => {
    openToAll(workspace.directory);
    const [path, link] = [workspace.path('disk.img'), workspace.path('link')];
    await (await NvmeFileStore.open(path, 65536)).close();
    await symlink(path, link);
    give(link);
    await expectRejected(NvmeFileStore.open(link), 'EACCES');
    await writeFile(`${path}.open`, '');
    give(`${path}.open`);
    if (!placeOfPath(path).isMemory) await expectRejected(NvmeFileStore.open(path), 'EACCES');
    await rm(`${path}.open`);
    give(path);
    await expectRejected(NvmeFileStore.open(path), 'EACCES');
  }),
);

test('without koffi a file that was not closed in order is refused: its pages may differ from the disk', () =>
  Workspace.use(async (workspace) => {
    const path = workspace.path('disk.img');
    if (placeOfPath(workspace.directory).isMemory) return;
    const opened = async (words: readonly string[], last = 'await store.close();') => {
      const script = `
        const { FileStore } = await import(${JSON.stringify(fileStore)});
        try {
          const store = await FileStore.open(${JSON.stringify(path)}, 65536);
          console.log('open');
          ${last}
        } catch ({ code }) {
          console.log(code);
        }`;
      const all = [...words, '--input-type=module', '-e', script];
      return (await workspace.startProcess(process.execPath, all).ended).stdout.trim();
    };
    assert.is(await opened(WITHOUT_KOFFI), 'open');
    assert.is(await opened(WITHOUT_KOFFI), 'open');
    assert.is(await opened([], 'process.exit();'), 'open');
    assert.is(await opened(WITHOUT_KOFFI), 'EIO');
    assert.is(await opened([]), 'open');
    assert.is(await opened(WITHOUT_KOFFI), 'open');
  }));

test('flushes that come while one is under way share the next', () =>
  Workspace.use(async (workspace) => {
    const store = await NvmeFileStore.open(workspace.path('disk.img'), 65536);
    const first = store.flush();
    const second = store.flush();
    const third = store.flush();
    assert.is.not(first, second);
    assert.is(second, third);
    await Promise.all([first, second, third]);
    await store.close();
  }));

test('a file under a target: read and write through memory that is a quota', () =>
  Workspace.use((workspace) =>
    inNvmeWorld(
      { store: () => NvmeFileStore.open(workspace.path('disk.img'), 2 ** 20) },
      async ({ connect, host }) => {
        const volume = await connect();
        assert.is(volume.isVolatile, true);
        const source = host.alloc(2 ** 19);
        source.set(noise(source.length));
        await volume.write(0, source);
        await volume.writeZeroes(1024, 1024);
        await volume.flush();
        const there = await readFile(workspace.path('disk.img'));
        assert.is(Buffer.compare(there.subarray(0, source.length), source), 0);
        const sink = host.alloc(2 ** 20);
        await volume.read(0, sink);
        assert.is(Buffer.compare(there, sink), 0);
        await volume.close();
      },
    ),
  ));

for (const kind of ['memory', 'a file'] as const) {
  test(`blocks that are deallocated read as zeros, and no others: ${kind}`, () =>
    Workspace.use((workspace) =>
      inNvmeWorld(
        {
          target: { inCapsuleBytes: 1024 },
          ...(kind === 'a file' && {
            store: () => NvmeFileStore.open(workspace.path('disk.img'), 2 ** 20),
          }),
        },
        async ({ connect, host, target }) => {
          const volume = await connect();
          const source = host.alloc(2 ** 20);
          source.set(noise(source.length));
          await volume.write(0, source);
          const expected = source.slice();
          const ranges = [
            { lba: 3, blocks: 1 },
            { lba: 64n, blocks: 256 },
            { lba: 2047, blocks: 1 },
          ];
          await volume.deallocate(ranges);
          for (const { lba, blocks } of ranges) {
            expected.fill(0, Number(lba) * 512, (Number(lba) + blocks) * 512);
          }
          const sink = host.alloc(2 ** 20);
          await volume.read(0, sink);
          assert.is(Buffer.compare(sink, expected), 0);
          assert.is(target.stats.deallocated, 3);
          // Too many for the capsule of this target: the target fetches the list.
          const many = Array.from({ length: 256 }, (_, at) => ({ lba: 8 * at, blocks: 4 }));
          await volume.deallocate(many);
          for (const { lba, blocks } of many) {
            expected.fill(0, lba * 512, (lba + blocks) * 512);
          }
          await volume.read(0, sink);
          assert.is(Buffer.compare(sink, expected), 0);
          // One that is not there, and nothing of the others has happened.
          await volume
            .deallocate([
              { lba: 5, blocks: 1 },
              { lba: 2047, blocks: 2 },
            ])
            .then(
              () => assert.unreachable(),
              (error: NvmeError) => assert.match(error.message, /LBA_OUT_OF_RANGE/),
            );
          await volume.read(0, sink);
          assert.is(Buffer.compare(sink, expected), 0);
          assert.is(volume.stats.regions.inUse, 0);
          await volume.close();
          if (kind === 'memory') return;
          const path = workspace.path('disk.img');
          await target.close();
          assert.is(Buffer.compare(await readFile(path), expected), 0, 'its length is as it was');
        },
      ),
    ));
}

test('dataset management changes no block, and requires its list', () =>
  inNvmeWorld({}, async ({ host, connect, target }) => {
    const volume = await connect();
    const { ask, association } = await ioQueue(host, volume.pool.createUser(1));
    const list = host.alloc(16);
    new DataView(list.buffer, list.byteOffset).setUint32(4, 8, true);
    const from = { buffer: list, direction: 'write' } as const;
    const said = await ask('DATASET_MANAGEMENT', { nsid: 1, nr: 0, ad: 0 }, from);
    assert.is(said.status, NvmeStatus.SUCCESS);
    assert.is(target.stats.deallocated, 0);
    const short = await ask('DATASET_MANAGEMENT', { nsid: 1, nr: 1, ad: 1 }, from);
    assert.is(short.status & 0x7ff, NvmeStatus.DATA_SGL_LENGTH_INVALID);
    const none = await ask('DATASET_MANAGEMENT', { nsid: 1, nr: 0, ad: 1 });
    assert.is(none.status & 0x7ff, NvmeStatus.DATA_SGL_LENGTH_INVALID);
    await association.shutdown();
    await volume.close();
  }));

test('persistent memory under a target is durable when a flush says so', () =>
  Workspace.use(async (workspace) => {
    const path = workspace.path('disk.pmem');
    const options = { bytes: 2 ** 20, volatile: true };
    const source = noise(100_352);
    await inNvmeWorld(
      { store: (context) => NvmePmemStore.open(context, path, options) },
      async ({ connect, host }) => {
        const volume = await connect();
        assert.is(volume.isVolatile, true);
        const memory = host.alloc(source.length);
        memory.set(source);
        await volume.write(5, memory);
        await volume.write(300, memory.subarray(0, 512), { fua: true });
        await volume.flush();
        await volume.close();
      },
    );
    await withDevice(async (context) => {
      const store = await NvmePmemStore.open(context, path, { volatile: true });
      const found = store.memory.slice(5 * 512, 5 * 512 + source.length);
      assert.is(Buffer.compare(found.subarray(0, 295 * 512), source.subarray(0, 295 * 512)), 0);
      await store.close();
    });
  }));

test('the options of a target are checked', () =>
  withDevice(async (context) => {
    const store = new NvmeRamStore(context, 65536);
    const wrong = [
      { nqn: 'disk' },
      { nqn: 'nqn.2014-08.org.nvmexpress.discovery' },
      { blockBytes: 1024 },
      { queueDepthMax: 1025 },
      { inCapsuleBytes: 100 },
      { dataBytes: 4096 },
      { delayMicros: 5 },
      { onEvent: 'x' },
      { hosts: [5] },
    ];
    for (const options of wrong) {
      try {
        await NvmeTarget.open(context, { store, ...(options as object) });
        throw new Error('no misuse');
      } catch (error) {
        assert.ok(error instanceof MisuseError, `${String(error)} of ${JSON.stringify(options)}`);
      }
    }
    const target = await NvmeTarget.open(context, { store, port: 0, blockBytes: 4096 });
    await expectRejected(
      NvmeTarget.open(context, { store: new NvmeRamStore(context, 4096), port: target.port }),
      'EADDRINUSE',
    );
    await target.close();
    await target.close();
  }));

test('response times are those of their medium, and the same for the same seed', () => {
  const request = { kind: 'read', offset: 0, length: 65536 } as const;
  const times = (medium: 'ram' | 'ssd' | 'disk' | 'hybrid', seed = 1): number[] => {
    const next = nvmeResponseTimes(medium, seed);
    return Array.from({ length: 4000 }, () => next(request));
  };
  const mean = (list: readonly number[]): number =>
    list.reduce((sum, value) => sum + value, 0) / list.length;
  assert.is(mean(times('ram')), 0);
  assert.ok(Math.abs(mean(times('ssd')) - 145) < 10, `${mean(times('ssd'))}`);
  assert.ok(Math.abs(mean(times('disk')) - 8375) < 400, `${mean(times('disk'))}`);
  assert.ok(mean(times('hybrid')) > 1200 && mean(times('hybrid')) < 2600);
  assert.equal(times('hybrid', 5), times('hybrid', 5));
  assert.not.equal(times('hybrid', 5), times('hybrid', 6));
  assert.throws(() => nvmeResponseTimes('tape' as never), /medium/);
});

test('a target sleeps for its configured response time', () => {
  const asked: string[] = [];
  const delayMicros = ({ kind, length }: StoreRequest): number => {
    asked.push(`${kind} ${length}`);
    return 20_000;
  };
  return inNvmeWorld({ target: { delayMicros } }, async ({ connect, host }) => {
    const volume = await connect();
    const memory = host.alloc(8192);
    const started = performance.now();
    await volume.write(0, memory);
    await volume.read(0, memory);
    await volume.flush();
    assert.ok(performance.now() - started >= 59);
    assert.equal(asked, ['write 8192', 'read 8192', 'flush 0']);
    await volume.close();
  });
});

test.run();
