/** The file of a device: foreign, damaged, another build's, another user's, too large. */
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
  writeSync,
  closeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { DEVICE_HEADER_SIZE, DeviceHeaderLayout } from '#build/abi.js';
import {
  MisuseError,
  RefusalError,
  openDevice,
  type Context,
  type OpenOptions,
} from '../../host/index.js';
import { PosixError, loadPosix } from '../../host/link/posix.js';
import { Member, freshName } from '../support/member.js';

const directory = mkdtempSync(join(tmpdir(), 'verbena-device-'));
const path = join(directory, 'verbena-bad');
const OPTIONS = {
  name: 'bad',
  directory,
  address: '127.1.2.1',
  memoryBytes: 8 * 2 ** 20,
  processesMax: 2,
} as const;

test.before.each(() => rmSync(path, { force: true }));
test.after(() => rmSync(directory, { recursive: true }));

async function refusal(options: Partial<OpenOptions> = {}): Promise<RefusalError> {
  let context: Context | undefined;
  try {
    context = await openDevice({ ...OPTIONS, ...options } as OpenOptions);
  } catch (error) {
    assert.instance(error, RefusalError, String(error));
    return error as RefusalError;
  }
  await context.close();
  throw new Error('it was not refused');
}

async function opened(work: (context: Context) => Promise<void>): Promise<void> {
  const context = await openDevice(OPTIONS);
  try {
    await work(context);
  } finally {
    await context.close();
  }
}

/** Changes a field of the header behind the device's back. */
function scribble(field: keyof typeof DeviceHeaderLayout.fields): void {
  const fd = openSync(path, 'r+');
  writeSync(fd, Buffer.from([0x5a, 0x5a]), 0, 2, DeviceHeaderLayout.fields[field][0]);
  closeSync(fd);
}

test('the file is its user’s alone, has its storage, and goes with the last process', async () => {
  await opened(async () => {
    const { mode, size, blocks } = statSync(path);
    assert.is(mode & 0o777, 0o600);
    assert.is(size, OPTIONS.memoryBytes);
    assert.ok(blocks * 512 >= size, 'the file has no hole: a full disk would kill its users');
    assert.ok(readFileSync(path).length > DEVICE_HEADER_SIZE);
    await Promise.resolve();
  });
  assert.not(existsSync(path));
});

test('a process that ends without close removes the file, if no other process uses it', async () => {
  const ends = ['process.exit(3)', 'throw new Error("an end")'];
  for (const end of ends) {
    const name = freshName();
    const file = join(directory, `verbena-${name}`);
    const options = { name, directory, port: 0, memoryBytes: 2 ** 22 };
    const first = await Member.open(options);
    const last = await Member.open(options);
    // A second context of the process is no other process.
    await last.run(async ({ verbena }, wanted) => void (await verbena.openDevice(wanted)), options);
    for (const member of [first, last]) {
      assert.ok(existsSync(file), end);
      await member.run((_, end) => void setImmediate(() => new Function(end)()), end);
      await member.ended;
    }
    assert.not(existsSync(file), end);
  }
});

test('two contexts of one thread can share a device, too', async () => {
  await opened(async (a) => {
    const b = await openDevice(OPTIONS);
    const memory = a.alloc(64);
    memory[3] = 42;
    assert.is(b.attach(memory.byteOffset, 64)[3], 42);
    const shpd = a.allocPd().allocShpd(9);
    b.sharePd(shpd, 9).dealloc();
    await b.close();
  });
});

test('a foreign file is left alone', async () => {
  writeFileSync(path, 'a novel, which is rather long and rather good'.repeat(3), {
    mode: 0o600,
  });
  const { code, message } = await refusal();
  assert.is(code, 'EINVAL');
  assert.match(message, path);
  assert.match(readFileSync(path, 'utf8'), 'novel');
});

test('a symbolic link is not followed', async () => {
  const target = join(directory, 'target');
  writeFileSync(target, '');
  symlinkSync(target, path);
  assert.is((await refusal()).code, 'EINVAL');
  assert.is(statSync(target).size, 0);
});

test('a file that others may open is refused', async () => {
  await opened(async () => {
    chmodSync(path, 0o644);
    const { code, message } = await refusal();
    assert.is(code, 'EACCES');
    assert.match(message, 'chmod 600');
  });
});

for (const [field, code] of [
  ['magic', 'EINVAL'],
  ['version', 'EPROTO'],
  ['build', 'EPROTO'],
  ['fileBytes', 'EIO'],
  ['contextsMax', 'EIO'],
  ['checksum', 'EIO'],
  ['ready', 'EIO'],
] as const) {
  test(`a header with another ${field} is refused`, async () => {
    await opened(async () => {
      const before = readFileSync(path).subarray(0, DEVICE_HEADER_SIZE);
      scribble(field);
      assert.is((await refusal()).code, code);
      const fd = openSync(path, 'r+');
      writeSync(fd, before, 0, before.length, 0);
      closeSync(fd);
    });
  });
}

test('a file without a live process is created anew, whatever its content', async () => {
  await opened(async () => {
    const copy = readFileSync(path);
    copy.fill(0x77, DEVICE_HEADER_SIZE);
    writeFileSync(`${path}.copy`, copy);
    await Promise.resolve();
  });
  writeFileSync(path, readFileSync(`${path}.copy`), { mode: 0o600 });
  await opened(async (context) => {
    assert.ok(context.alloc(1 << 20).every((byte) => byte === 0));
    await Promise.resolve();
  });
  truncateSync(`${path}.copy`, 1000);
  writeFileSync(path, readFileSync(`${path}.copy`), { mode: 0o600 });
  await opened(() => Promise.resolve());
});

test('no room: the refusal names what to do, and leaves nothing behind', async () => {
  const { posix } = await loadPosix();
  const { allocateFile } = posix!;
  posix!.allocateFile = () => {
    throw new PosixError('posix_fallocate', 'ENOSPC');
  };
  try {
    const { code, message } = await refusal();
    assert.is(code, 'ENOSPC');
    assert.match(message, '--shm-size');
    assert.match(message, 'directory');
    assert.not(existsSync(path));
  } finally {
    posix!.allocateFile = allocateFile;
  }
});

test('storage that the file system does not have is refused by the kernel', async () => {
  const { posix } = await loadPosix();
  const fd = openSync(path, 'w+', 0o600);
  assert.throws(() => posix!.allocateFile(fd, 2 ** 53), /posix_fallocate E(NOSPC|FBIG)/);
  closeSync(fd);
});

test('memory above 2 GiB is memory like other', async () => {
  const sizes = { memoryBytes: 5 * 2 ** 28, localMemoryBytes: 2 ** 30 };
  const name = `high-${process.pid}`;
  const context = await openDevice({ ...OPTIONS, ...sizes, name, directory: '/dev/shm' });
  try {
    context.alloc(2 ** 30);
    const memory = context.alloc(1000);
    assert.ok(memory.byteOffset > 2 ** 31);
    const mr = context.allocPd().regMr(memory, 1);
    assert.is(Number(mr.addr), memory.byteOffset);
    context.free(context.alloc(100));
  } finally {
    await context.close();
  }
});

test('a missing directory, and invalid names, are refused', async () => {
  const nowhere = await refusal({ directory: join(directory, 'nowhere') });
  assert.is(nowhere.code, 'ENOENT');
  assert.match(nowhere.message, /the directory does not exist/);
  const noFiles = await refusal({ directory: '/proc' });
  assert.is(noFiles.code, 'ENOENT');
  assert.match(noFiles.message, /no file can be created there; pass another directory/);
  for (const name of ['', 'a/b', '../x', 'a b', 'x'.repeat(65)]) {
    let error: unknown;
    await openDevice({ ...OPTIONS, name }).catch((thrown: unknown) => (error = thrown));
    assert.instance(error, MisuseError, name);
  }
});

test('a refused open leaves no lock behind', async () => {
  await opened(async () => {
    const second = await openDevice(OPTIONS);
    await refusal();
    const start = performance.now();
    await second.close();
    await (await openDevice(OPTIONS)).close();
    assert.ok(performance.now() - start < 19_000, 'the refused open still held a lock');
  });
});

test('all places taken; more than the device was made with', async () => {
  await opened(async () => {
    const second = await openDevice(OPTIONS);
    const { code, message } = await refusal();
    assert.is(code, 'EBUSY');
    assert.match(message, 'processesMax');
    await second.close();
    assert.is((await refusal({ memoryBytes: 9 * 2 ** 20 })).code, 'EINVAL');
    assert.is((await refusal({ regionsMax: 5000 })).code, 'EINVAL');
    await (await openDevice({ name: 'bad', directory })).close();
  });
});

test('an address of another device cannot be shared', async () => {
  const other = await openDevice({ address: OPTIONS.address });
  try {
    assert.is((await refusal()).code, 'EADDRINUSE');
  } finally {
    await other.close();
  }
  await opened(async () => {
    const { code } = await refusal({ name: 'bad2' });
    assert.is(code, 'EADDRINUSE');
    assert.is((await refusal({ address: '127.1.2.9' })).code, 'EINVAL');
  });
});

test('full memory is refused, and freed memory can be allocated again', async () => {
  await opened(async (context) => {
    const taken: Uint8Array[] = [];
    let error: unknown;
    try {
      for (;;) taken.push(context.alloc(1 << 20));
    } catch (thrown) {
      error = thrown;
    }
    assert.instance(error, RefusalError);
    assert.is((error as RefusalError).code, 'ENOMEM');
    for (const memory of taken) {
      memory.fill(1);
      context.free(memory);
    }
    assert.ok(context.alloc(taken.length << 20).every((byte) => byte === 0));
    await Promise.resolve();
  });
});

test.run();
