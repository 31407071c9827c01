/** The file of a browser's region, cut after every step of what is done to it. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { MisuseError, type RefusalError } from '../../../host/index.js';
import { DATA_OFFSET } from '../../../host/pmem/header.js';
import { OpfsFile, codeOf, type Origin } from '../../../host/pmem/opfs-file.js';
import type { SyncAccessHandle } from '../../../host/pmem/sync-access.js';

const ID = 0x1234n;
const SECTOR = 4096;

/** As the browser throws. */
function fault(name: string): Error {
  return Object.assign(new Error(name), { name });
}

interface Stored {
  bytes: Uint8Array;
  /** Bytes that survive any cut. */
  durable: Uint8Array;
  isOpen: boolean;
}

/** A file system that stops at a step of its own choosing. */
class Disk {
  readonly files = new Map<string, Stored>();
  steps = 0;
  stopsAt = Infinity;
  /** Bytes that all files may have together. */
  quota = Infinity;
  isLocked = false;

  readonly origin: Origin = {
    storage: {
      getDirectory: () =>
        Promise.resolve({
          getFileHandle: (name: string, options?: { readonly create: boolean }) =>
            this.#handleOf(name, options?.create ?? false),
          removeEntry: (name: string) => {
            this.step();
            this.files.delete(name);
            return Promise.resolve();
          },
        }),
    },
    locks: {
      request: (_name, _options, action) => action(this.isLocked ? null : {}),
    },
  };

  step(): void {
    if (++this.steps > this.stopsAt) throw fault('PowerCut');
  }

  /** Disk after a power cut: any sectors of the unflushed bytes survive; `kept` chooses. */
  cut(kept: (sector: number) => boolean): Disk {
    const found = new Disk();
    for (const [name, { bytes, durable }] of this.files) {
      const length = kept(-1) ? bytes.length : durable.length;
      const left = new Uint8Array(length);
      left.set(durable.subarray(0, length));
      for (let at = 0; at < length; at += SECTOR) {
        if (kept(at / SECTOR)) left.set(bytes.subarray(at, Math.min(at + SECTOR, length)), at);
      }
      found.files.set(name, { bytes: left, durable: left.slice(), isOpen: false });
    }
    return found;
  }

  async #handleOf(name: string, create: boolean) {
    if (!this.files.has(name)) {
      if (!create) throw fault('NotFoundError');
      this.step();
      const none = new Uint8Array(0);
      this.files.set(name, { bytes: none, durable: none, isOpen: false });
    }
    return {
      createSyncAccessHandle: () => Promise.resolve(this.#open(this.files.get(name)!)),
      move: (to: string) => {
        this.step();
        this.files.set(to, this.files.get(name)!);
        this.files.delete(name);
        return Promise.resolve();
      },
    };
  }

  #open(file: Stored): SyncAccessHandle {
    if (file.isOpen) throw fault('NoModificationAllowedError');
    file.isOpen = true;
    const resize = (length: number): void => {
      const longer = new Uint8Array(length);
      longer.set(file.bytes.subarray(0, length));
      file.bytes = longer;
    };
    return {
      read: (bytes, { at }) => {
        const part = file.bytes.subarray(at, at + bytes.length);
        bytes.set(part);
        return part.length;
      },
      write: (bytes, { at }) => {
        this.step();
        if (at + bytes.length > this.quota) throw fault('QuotaExceededError');
        if (at + bytes.length > file.bytes.length) resize(at + bytes.length);
        file.bytes.set(bytes, at);
        return bytes.length;
      },
      truncate: (length) => {
        this.step();
        resize(length);
      },
      getSize: () => file.bytes.length,
      flush: () => {
        this.step();
        file.durable = file.bytes.slice();
      },
      close: () => {
        file.isOpen = false;
      },
    };
  }
}

const open = (disk: Disk, bytes?: number, name = 'region'): Promise<OpfsFile> =>
  OpfsFile.open(disk.origin, name, bytes, ID);

async function codeOfOpening(disk: Disk, bytes?: number, name?: string): Promise<string> {
  return open(disk, bytes, name).then(
    () => 'none',
    (error: RefusalError) => error.code ?? error.name,
  );
}

/** Which sectors come through: none, all, every other one, or only the first. */
const SUBSETS: readonly ((sector: number) => boolean)[] = [
  () => false,
  () => true,
  (sector) => sector % 2 === 0,
  (sector) => sector <= 0,
  (sector) => sector === 1 || sector === -1,
];

/** Runs `work` again and again, cut after its first step, its second …, until it gets through. */
async function cutAnywhere(
  prepare: () => Promise<Disk>,
  work: (disk: Disk) => Promise<void>,
  check: (found: Disk, isThrough: boolean) => Promise<void>,
): Promise<number> {
  for (let stopsAt = 0; ; stopsAt++) {
    const disk = await prepare();
    disk.steps = 0;
    disk.stopsAt = stopsAt;
    const isThrough = await work(disk).then(
      () => true,
      () => false,
    );
    for (const kept of SUBSETS) await check(disk.cut(kept), isThrough);
    if (isThrough) return stopsAt;
  }
}

test('a cut while it is made leaves none, or a whole one', async () => {
  const steps = await cutAnywhere(
    () => Promise.resolve(new Disk()),
    async (disk) => void (await open(disk, 100_000)),
    async (found, isThrough) => {
      const exists = found.files.has('region');
      if (isThrough) assert.ok(exists);
      const file = await open(found, exists ? undefined : 50_000);
      assert.is(file.header.id, ID);
      assert.is(file.header.length, exists ? 100_000 : 50_000);
      assert.ok(file.contents().every((byte) => byte === 0));
    },
  );
  assert.ok(steps >= 6, `${steps}`);
});

test('a cut while it grows leaves the old length or the new one, and all that was flushed', async () => {
  await cutAnywhere(
    async () => {
      const disk = new Disk();
      const file = await open(disk, 10_000);
      file.write(new Uint8Array(10_000).fill(7), 0);
      file.flush();
      file.close();
      return disk;
    },
    async (disk) => (await open(disk, 30_000)).close(),
    async (found, isThrough) => {
      const file = await open(found);
      const { length } = file.header;
      assert.ok(length === 30_000 || (length === 10_000 && !isThrough), `${length}`);
      const contents = file.contents();
      assert.ok(contents.subarray(0, 10_000).every((byte) => byte === 7));
      assert.ok(contents.subarray(10_000).every((byte) => byte === 0));
    },
  );
});

test('a cut while it is written leaves what was flushed before', async () => {
  await cutAnywhere(
    async () => {
      const disk = new Disk();
      (await open(disk, 20_000)).close();
      return disk;
    },
    async (disk) => {
      const file = await open(disk);
      file.write(new Uint8Array(100).fill(1), 0);
      file.flush();
      file.write(new Uint8Array(100).fill(2), 8192);
      file.flush();
      file.close();
    },
    async (found, isThrough) => {
      const contents = (await open(found)).contents();
      if (contents[8192] === 2) assert.is(contents[0], 1, 'the second never without the first');
      if (isThrough) assert.equal([contents[99], contents[8291]], [1, 2]);
    },
  );
});

test('a region without room is refused, and leaves no file', async () => {
  const disk = new Disk();
  disk.quota = 100_000;
  assert.is(await codeOfOpening(disk, 50_000), 'ENOSPC');
  assert.equal([...disk.files.keys()], []);
  const file = await open(disk, 20_000);
  file.close();
  assert.is(await codeOfOpening(disk, 80_000), 'ENOSPC');
  assert.is((await open(disk)).header.length, 20_000);
  assert.is(codeOf(fault('QuotaExceededError')), 'ENOSPC');
  assert.is(codeOf(fault('InvalidStateError')), 'EIO');
});

test('a file that is open, incomplete, foreign, truncated or damaged is refused and unchanged', async () => {
  const disk = new Disk();
  const file = await open(disk, 10_000);
  assert.is(await codeOfOpening(disk), 'EBUSY');
  file.close();
  disk.isLocked = true;
  assert.is(await codeOfOpening(disk, 10_000, 'another'), 'EBUSY');
  const { bytes } = disk.files.get('region')!;
  const put = (name: string, content: Uint8Array): void =>
    void disk.files.set(name, { bytes: content, durable: content, isOpen: false });
  put('foreign', new Uint8Array(9000).fill(1));
  put('truncated', bytes.slice(0, DATA_OFFSET + 9999));
  put(
    'damaged',
    bytes.map((byte, at) => (at === 20 ? byte ^ 1 : byte)),
  );
  for (const [name, code] of [
    ['foreign', 'EINVAL'],
    ['truncated', 'EIO'],
    ['damaged', 'EIO'],
  ] as const) {
    const before = disk.files.get(name)!.bytes.slice();
    assert.is(await codeOfOpening(disk, 10_000, name), code);
    assert.equal(disk.files.get(name)!.bytes, before);
    assert.not.ok(disk.files.get(name)!.isOpen, 'it is closed again');
  }
});

test('invalid names and lengths are misuse; without the file system the error says so', async () => {
  const disk = new Disk();
  for (const name of ['a/b', '..', '.', 'a\\b']) {
    assert.is(await codeOfOpening(disk, 100, name), 'MisuseError', name);
  }
  assert.instance(await open(disk).catch((error: Error) => error), MisuseError);
  assert.equal([...disk.files.keys()], []);
  const { locks } = disk.origin;
  const code = async (origin: Origin): Promise<string> =>
    OpfsFile.open(origin, 'a', 1, ID).then(
      () => 'none',
      (error: RefusalError) => error.code,
    );
  assert.is(await code({}), 'EOPNOTSUPP');
  assert.is(await code({ locks: locks!, storage: {} }), 'EOPNOTSUPP');
  const getDirectory = () => Promise.reject(fault('SecurityError'));
  assert.is(await code({ locks: locks!, storage: { getDirectory } }), 'EACCES');
});

test.run();
