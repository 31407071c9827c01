/** Regions over real files: what is there again, what is refused, what a failing disk does. */
import { spawnSync } from 'node:child_process';
import { copyFileSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  MisuseError,
  RefusalError,
  openDevice,
  type Context,
} from '../../../host/index.js';
import { createLoopbackPair } from '../../../host/link/loopback.js';
import { loadPosix } from '../../../host/link/posix.js';
import { DATA_OFFSET } from '../../../host/pmem/header.js';
import { Workspace } from '../../support/processes.js';

const test = suite('pmem/persistent-memory');
const { posix } = await loadPosix();
const writer = fileURLToPath(new URL('../../support/pmem-writer.js', import.meta.url));
const BYTES = 100_000;

/** Kinds of region, by the memory of their device. */
const KINDS = [
  ...(posix ? ([['mapped', true]] as const) : []),
  ...(posix ? ([['mapped', false]] as const) : []),
  ['file', true],
  ['file', false],
] as const;

async function using(sharedArrayBuffer: boolean, work: (context: Context) => Promise<void>) {
  await using context = await openDevice({ link: createLoopbackPair().a, sharedArrayBuffer });
  await work(context);
}

async function code(work: Promise<unknown>): Promise<string> {
  try {
    await work;
  } catch (error) {
    assert.instance(error, RefusalError);
    return (error as RefusalError).code;
  }
  return 'none';
}

for (const [store, shared] of KINDS) {
  const name = `${store}, ${shared ? 'shared' : 'unshared'} memory`;

  test(`${name}: what was flushed is in the file, and there when it is opened again`, () =>
    Workspace.use(async (workspace) => {
      const path = workspace.path('a.pmem');
      let id = 0n;
      await using(shared, async (context) => {
        const pmem = await context.openPmem(path, { bytes: BYTES, store });
        id = pmem.id;
        assert.is(pmem.kind, store);
        assert.is(pmem.length, BYTES);
        assert.is(pmem.buffer.length, BYTES);
        assert.ok(pmem.buffer.every((byte) => byte === 0));
        pmem.buffer.fill(7, 5000, 5100);
        pmem.buffer[BYTES - 1] = 9;
        await pmem.flush(5000, 100);
        const file = readFileSync(path).subarray(DATA_OFFSET);
        assert.ok(file.subarray(5000, 5100).every((byte) => byte === 7));
        assert.is(file[4999], 0);
        // The end of the device makes the rest durable.
      });
      await using(shared, async (context) => {
        const pmem = await context.openPmem(path, { store });
        assert.is(pmem.id, id);
        assert.is(pmem.length, BYTES);
        assert.is(pmem.buffer[5099], 7);
        assert.is(pmem.buffer[BYTES - 1], 9);
        // The memory is zero again when the region is gone from it.
        const { byteOffset } = pmem.buffer;
        await pmem.close();
        const again = context.alloc(BYTES);
        assert.ok(again.every((byte) => byte === 0));
        assert.ok(again.byteOffset <= byteOffset);
      });
    }));
}

test('a region grows, keeps its bytes and its id, and is never made smaller', () =>
  Workspace.use(async (workspace) => {
    const path = workspace.path('a.pmem');
    await using(true, async (context) => {
      const small = await context.openPmem(path, { bytes: 1000 });
      small.buffer.fill(3);
      const { id } = small;
      await small.close();
      const large = await context.openPmem(path, { bytes: 200_000 });
      assert.is(large.length, 200_000);
      assert.is(large.id, id);
      assert.ok(large.buffer.subarray(0, 1000).every((byte) => byte === 3));
      await large.close();
      const same = await context.openPmem(path, { bytes: 1000 });
      assert.is(same.length, 200_000);
    });
  }));

test('registered memory, and memory that free does not own, stays', () =>
  Workspace.use(async (workspace) => {
    await using(true, async (context) => {
      const pmem = await context.openPmem(workspace.path('a.pmem'), { bytes: 4096 });
      const mr = context.allocPd().regMr(pmem.buffer, AccessFlag.LOCAL_WRITE);
      assert.is(await code(pmem.close()), 'EBUSY');
      assert.throws(() => context.free(pmem.buffer), /pmem\.close/);
      mr.dereg();
      await pmem.close();
      await pmem.close();
      assert.throws(() => context.free(pmem.buffer));
    });
  }));

test('flushes that come together share one sync', () =>
  Workspace.use(async (workspace) => {
    await using(true, async (context) => {
      const pmem = await context.openPmem(workspace.path('a.pmem'), { bytes: 65536 });
      const flushes = Array.from({ length: 64 }, (_, index) => pmem.flush(index * 1024, 1024));
      await Promise.all(flushes);
      assert.is(pmem.syncs, 2);
    });
  }));

test('a range outside of the region is misuse', () =>
  Workspace.use(async (workspace) => {
    await using(true, async (context) => {
      const pmem = await context.openPmem(workspace.path('a.pmem'), { bytes: 4096 });
      for (const [offset, length] of [
        [-1, 1],
        [0, 4097],
        [4096, 1],
        [1, 2 ** 53],
        [0.5, 1],
      ]) {
        assert.throws(() => pmem.flush(offset, length), /exceed/);
      }
      for (const offset of [0n, Symbol('a'), {}])
        assert.throws(
          () => pmem.flush(offset as never),
          (error: unknown) => error instanceof MisuseError,
        );
      await pmem.flush(4096, 0);
    });
  }));

test('foreign, cut off, newer, open elsewhere, nowhere: refused, and the file stays as it is', () =>
  Workspace.use(async (workspace) => {
    const path = workspace.path('a.pmem');
    const foreign = workspace.path('foreign');
    writeFileSync(foreign, 'this is a diary');
    await using(true, async (context) => {
      const pmem = await context.openPmem(path, { bytes: BYTES });
      assert.is(await code(context.openPmem(path)), 'EBUSY');
      await pmem.close();
      assert.is(await code(context.openPmem(foreign, { bytes: 4096 })), 'EINVAL');
      assert.is(readFileSync(foreign, 'utf8'), 'this is a diary');
      const short = workspace.path('short');
      copyFileSync(path, short);
      truncateSync(short, DATA_OFFSET + BYTES - 1);
      assert.is(await code(context.openPmem(short, { bytes: BYTES * 2 })), 'EIO');
      assert.is(statSync(short).size, DATA_OFFSET + BYTES - 1);
      const directory = context.openPmem(workspace.directory);
      assert.is(await code(directory), 'EISDIR');
      await directory.catch(({ message }: Error) => assert.match(message, 'name a file in it'));
      assert.is(
        await code(context.openPmem(workspace.path('no', 'where'), { bytes: 1 })),
        'ENOENT',
      );
      assert.is(await code(context.openPmem('/dev/null', { bytes: 1, volatile: true })), 'EINVAL');
      const more = context.openPmem(workspace.path('b'), { bytes: 2 ** 30 });
      assert.is(await code(more), 'ENOMEM');
    });
  }));

test('a file whose creation was interrupted is replaced', () =>
  Workspace.use(async (workspace) => {
    const path = workspace.path('a.pmem');
    writeFileSync(`${path}.new`, Buffer.alloc(3 * BYTES, 1));
    // An empty one may belong to the user.
    writeFileSync(path, '');
    await using(true, async (context) => {
      const pmem = await context.openPmem(path, { bytes: BYTES });
      assert.ok(pmem.buffer.every((byte) => byte === 0));
      assert.is(statSync(path).size, DATA_OFFSET + BYTES);
      assert.is(statSync(`${path}.new`, { throwIfNoEntry: false }), undefined);
    });
  }));

test('where a power cut takes everything it is refused, unless that is meant', async () => {
  if (!statSync('/dev/shm', { throwIfNoEntry: false })) return;
  await using(true, async (context) => {
    const path = `/dev/shm/verbena-test-${process.pid}.pmem`;
    assert.is(await code(context.openPmem(path, { bytes: 4096 })), 'EOPNOTSUPP');
    const pmem = await context.openPmem(path, { bytes: 4096, volatile: true });
    try {
      assert.is(pmem.durability, 'none');
      await pmem.flush();
    } finally {
      (await import('node:fs')).unlinkSync(path);
    }
  });
});

test('another process has it until it is killed, and then it is free at once', () =>
  Workspace.use(async (workspace) => {
    const path = workspace.path('a.pmem');
    for (const store of posix ? ['mapped', 'file'] : ['file']) {
      const holder = workspace.startProcess(process.execPath, [
        writer,
        path,
        '4096',
        store,
        'hold',
      ]);
      await holder.printed('stdout', /open 4096/);
      await using(true, async (context) => {
        assert.is(await code(context.openPmem(path)), 'EBUSY');
        holder.kill('SIGKILL');
        await holder.ended;
        await context.openPmem(path);
      });
    }
  }));

test('after a kill at any time the file has every value reported as durable', () =>
  Workspace.use(async (workspace) => {
    const path = workspace.path('a.pmem');
    let last = 0n;
    for (const store of posix ? ['mapped', 'file', 'unshared'] : ['file', 'unshared']) {
      const args = [writer, path, '4096', store, 'write'];
      const process_ = workspace.startProcess(process.execPath, args);
      await process_.printed('stdout', new RegExp(`\n${last + 20n}\n`));
      process_.kill('SIGKILL');
      const { stdout } = await process_.ended;
      // A line cut off while it was printed does not count.
      const said = stdout.slice(0, stdout.lastIndexOf('\n')).split('\n').at(-1)!;
      await using(true, async (context) => {
        const { buffer } = await context.openPmem(path);
        const words = new BigUint64Array(buffer.buffer, buffer.byteOffset, 16);
        assert.ok(words[0]! >= BigInt(said), `${words[0]} after ${said}`);
        assert.ok(words[15]! >= words[0]!);
        last = words[0]!;
      });
    }
  }));

/** Runs the writer where files may have `kib` KiB at most. */
function limited(kib: number, ...args: string[]): string {
  const script = `ulimit -f ${kib}; exec "$@"`;
  const words = ['-c', script, 'bash', process.execPath, writer, ...args];
  return spawnSync('bash', words, { encoding: 'utf8' }).stdout;
}

test('a full disk is an error when a region is created or grows, and leaves nothing behind', () =>
  Workspace.use(async (workspace) => {
    const path = workspace.path('a.pmem');
    const stores = posix ? ['mapped', 'file'] : ['file'];
    for (const store of stores) {
      assert.match(limited(100, path, '1000000', store, 'open'), /^refused ENOSPC .*no room/);
      assert.is(statSync(path, { throwIfNoEntry: false }), undefined);
      assert.is(statSync(`${path}.new`, { throwIfNoEntry: false }), undefined);
    }
    await using(true, async (context) => {
      const pmem = await context.openPmem(path, { bytes: 4096 });
      pmem.buffer.fill(5);
    });
    for (const store of stores) {
      assert.match(limited(100, path, '1000000', store, 'open'), /^refused ENOSPC/, store);
    }
    await using(true, async (context) => {
      const pmem = await context.openPmem(path);
      assert.is(pmem.length, 4096);
      assert.ok(pmem.buffer.every((byte) => byte === 5));
    });
  }));

if (posix) {
  test('memory that cannot be unmapped is reported once: by its close, not by the context', () =>
    Workspace.use((space) =>
      using(true, async (context) => {
        const options = { bytes: BYTES, volatile: true };
        const pmem = await context.openPmem(space.path('region'), options);
        const { unmapFile } = posix;
        posix.unmapFile = () => {
          throw Object.assign(new Error('munmap ENOMEM'), { code: 'ENOMEM', syscall: 'mmap' });
        };
        try {
          assert.is(await code(pmem.close()), 'ENOMEM');
        } finally {
          posix.unmapFile = unmapFile;
        }
        assert.is(context.pmems.size, 0);
      }),
    ));
}

test('bytes that a flush cannot write are never reported as durable, nor later ones', () =>
  Workspace.use(async (workspace) => {
    const path = workspace.path('a.pmem');
    await using(true, async (context) => {
      await context.openPmem(path, { bytes: 400_000 });
    });
    for (const store of ['file', 'unshared']) {
      const said = limited(100, path, '0', store, 'limited');
      assert.match(said, /^open 400000 file .*\nEFBIG EFBIG\n$/, store);
    }
  }));

for (const [store, sharedArrayBuffer] of KINDS) {
  const which = `${store}, ${sharedArrayBuffer ? 'shared' : 'own'} memory`;
  test(`a context that closes while a region is being opened keeps no file: ${which}`, () =>
    Workspace.use(async (workspace) => {
      const path = workspace.path('region');
      const context = await openDevice({ link: createLoopbackPair().a, sharedArrayBuffer });
      const opening = context.openPmem(path, { bytes: BYTES, store, volatile: true });
      const closing = context.close();
      assert.is(context.close(), closing, 'a second close returns the first promise');
      const [opened] = await Promise.allSettled([opening, closing]);
      if (opened.status === 'rejected') assert.instance(opened.reason, MisuseError);
      await using(sharedArrayBuffer, async (other) => {
        const pmem = await other.openPmem(path, { bytes: BYTES, store, volatile: true });
        await pmem.close();
      });
    }));
}

test.run();
