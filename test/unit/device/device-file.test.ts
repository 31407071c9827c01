/** The kernel gives no locks, for a moment or for long: what becomes of a shared device then. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { ArenaLock } from '../../../host/device/arena-lock.js';
import { DeviceFile } from '../../../host/device/device-file.js';
import { EngineMemory } from '../../../host/engine/memory.js';
import { RefusalError, openDevice } from '../../../host/index.js';
import { PosixError, loadPosix, type Posix } from '../../../host/link/posix.js';

const test = suite('unit/device/device-file');

const directory = mkdtempSync(join(tmpdir(), 'verbena-locks-'));
const posix = (await loadPosix()).posix!;
type LockCall = 'lockByte' | 'unlockByte' | 'isLocked';

/** While `work` runs the next `times` of these calls are refused. */
async function refusing(
  call: LockCall,
  times: number,
  work: () => void | Promise<void>,
): Promise<void> {
  let left = times;
  const real = posix[call].bind(posix) as (...args: number[]) => boolean;
  const refuse = (...args: number[]): boolean => {
    if (left-- > 0) throw new PosixError('fcntl', 'ENOLCK');
    return real(...args);
  };
  Object.assign(posix, { [call]: refuse });
  try {
    await work();
  } finally {
    delete (posix as Partial<Pick<Posix, LockCall>>)[call];
  }
}

const isNoLock = (error: Error): boolean =>
  error instanceof RefusalError && error.code === 'ENOLCK' && error.message.includes(directory);

async function opened(name: string, work: (file: DeviceFile) => Promise<void>): Promise<void> {
  const file = await DeviceFile.open(posix, name, directory);
  try {
    await work(file);
  } finally {
    file.close();
  }
}

test.after(() => rmSync(directory, { recursive: true }));

test('what the kernel refuses for a moment is asked for again', () =>
  opened('moment', async (file) => {
    await refusing('lockByte', 2, () => assert.ok(file.tryLockTables()));
    await refusing('unlockByte', 2, () => file.unlockTables());
    await refusing('isLocked', 2, () => assert.not(file.isShared));
  }));

test('what it refuses for long is a refusal, and the lock is not thought to be held', () =>
  opened('long', async (file) => {
    const memory = EngineMemory.create(65536, true);
    const on = { repair: () => assert.unreachable(), look: () => assert.unreachable() };
    const lock = new ArenaLock(file, memory, 0, 1, on);
    await refusing('lockByte', Infinity, () => {
      assert.throws(() => lock.run(() => assert.unreachable()), isNoLock);
    });
    file.leave();
    await opened('long', async (other) => {
      lock.run(() => assert.not(other.tryLockTables()));
      assert.ok(other.tryLockTables());
    });
  }));

test('a file that cannot be locked is made by nobody', async () => {
  await refusing('lockByte', Infinity, async () => {
    const device = { name: 'nobody', directory, address: '127.1.2.5', memoryBytes: 2 ** 23 };
    try {
      await openDevice(device);
      assert.unreachable();
    } catch (error) {
      assert.ok(isNoLock(error as Error), String(error));
    }
  });
  assert.not(readdirSync(directory).includes('verbena-nobody'));
});

test('who cannot see who lives says so once, and looks again', async () => {
  const place = { name: 'two', directory };
  const one = await openDevice({ ...place, address: '127.1.2.5', port: 0, memoryBytes: 2 ** 23 });
  const other = await openDevice(place);
  try {
    const { members } = one.device.shared!;
    const warnings: string[] = [];
    const hear = ({ message }: Error): void => void warnings.push(message);
    process.on('warning', hear);
    await refusing('isLocked', Infinity, async () => {
      members.look();
      members.look();
      await new Promise((resolve) => setImmediate(resolve));
    });
    process.off('warning', hear);
    assert.is(warnings.filter((warning) => /taken back now: .*ENOLCK/.test(warning)).length, 1);
    assert.is(members.list().filter(({ alive }) => alive).length, 2);
  } finally {
    await other.close();
    await one.close();
  }
  assert.not(readdirSync(directory).includes('verbena-two'));
});

test.run();
