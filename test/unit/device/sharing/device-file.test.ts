/** The kernel gives no locks, for a moment or for long: what becomes of a shared device then. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { ArenaLock, FileLock } from '../../../../host/device/sharing/arena-lock.js';
import { DeviceFile, removeDeadFiles } from '../../../../host/device/sharing/device-file.js';
import { EngineMemory } from '../../../../host/engine/memory.js';
import { RefusalError, openDevice } from '../../../../host/index.js';
import { PosixError, loadPosix, type Posix } from '../../../../host/link/posix.js';
import { rejection } from '../../../support/refusal.js';

const test = suite('unit/device/sharing/device-file');

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

test('a lock that the kernel refuses for a moment is requested again', () =>
  opened('moment', async (file) => {
    await refusing('lockByte', 2, () => assert.ok(file.tryLockTables()));
    await refusing('unlockByte', 2, () => file.unlockTables());
    await refusing('isLocked', 2, () => assert.not(file.isShared));
  }));

test('a lock that the kernel refuses for long is a refusal, and not counted as held', () =>
  opened('long', async (file) => {
    const memory = EngineMemory.create(65536, true);
    const never = (): never => assert.unreachable() as never;
    const on = { repair: never, look: never, explainHeld: never, explainBusy: never };
    const lock = new ArenaLock(new FileLock(file, memory, 0, 1), on);
    await refusing('lockByte', Infinity, () => {
      assert.throws(() => lock.run(() => assert.unreachable()), isNoLock);
    });
    file.leave();
    await opened('long', async (other) => {
      lock.run(() => assert.not(other.tryLockTables()));
      assert.ok(other.tryLockTables());
    });
  }));

test('a file that cannot be locked is not created', async () => {
  await refusing('lockByte', Infinity, async () => {
    const device = { name: 'unlocked', directory, address: '127.1.2.5', memoryBytes: 2 ** 23 };
    const error = await rejection(openDevice(device));
    assert.ok(isNoLock(error as Error), String(error));
  });
  assert.not(readdirSync(directory).includes('verbena-unlocked'));
});

test('a process that cannot query locks warns once, and tries again', async () => {
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

test('the next process of any name removes the files of dead processes, and no others', async () => {
  const place = mkdtempSync(join(tmpdir(), 'verbena-dead-'));
  const owned = (name: string): string => join(place, `verbena-${name}`);
  try {
    // A live process, a killed one, and files that are not of devices.
    const living = await openDevice({
      ...{ name: 'living', directory: place, address: '127.1.2.6', port: 0 },
      memoryBytes: 2 ** 23,
    });
    const source = `
      import { openDevice } from ${JSON.stringify(new URL('../../../../host/index.js', import.meta.url).href)};
      const where = { name: 'dead', directory: ${JSON.stringify(place)}, address: '127.1.2.7' };
      await openDevice({ ...where, port: 0, memoryBytes: 2 ** 23 });
      process.kill(process.pid, 'SIGKILL');
    `;
    spawnSync(process.execPath, ['--input-type=module', '-e', source]);
    writeFileSync(owned('foreign'), 'a file of another program', { mode: 0o600 });
    writeFileSync(owned('open-to-others'), Buffer.alloc(4096), { mode: 0o644 });
    writeFileSync(owned('new'), '', { mode: 0o600 });
    symlinkSync(owned('foreign'), owned('link'));
    assert.ok(
      readdirSync(place).includes('verbena-dead'),
      'the process was killed with its device open',
    );
    const next = await openDevice({
      ...{ name: 'next', directory: place, address: '127.1.2.8', port: 0 },
      memoryBytes: 2 ** 23,
    });
    const left = readdirSync(place).sort();
    await next.close();
    await living.close();
    const names = ['foreign', 'link', 'living', 'new', 'next', 'open-to-others'];
    assert.equal(
      left,
      names.map((name) => `verbena-${name}`),
    );
    assert.equal(removeDeadFiles(posix, join(place, 'nowhere')), [], 'no such directory');
  } finally {
    rmSync(place, { recursive: true });
  }
});

test.run();
