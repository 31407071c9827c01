/** The directory of device files: the user's own, whatever other users created before. */
import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  deviceDirectory,
  findDeviceDirectory,
} from '../../../../host/device/sharing/device-directory.js';
import { RefusalError } from '../../../../host/index.js';

const test = suite<{ place: string }>('device/sharing/device-directory');
const user = process.geteuid!();
const mode = (path: string): number => statSync(path).mode & 0o777;

test.before.each((world) => {
  world.place = mkdtempSync(join(tmpdir(), 'verbena-directory-'));
});
test.after.each(({ place }) => rmSync(place, { recursive: true, force: true }));

test('the directory is created once, for its user alone', ({ place }) => {
  assert.is(findDeviceDirectory(user, place), undefined);
  const path = deviceDirectory(user, place);
  assert.is(path, join(place, `verbena-${user}`));
  assert.is(mode(path), 0o700);
  assert.is(deviceDirectory(user, place), path);
  assert.is(findDeviceDirectory(user, place), path);
  chmodSync(path, 0o777);
  assert.is(deviceDirectory(user, place), path);
  assert.is(mode(path), 0o700, 'it was open to others');
});

test('a name that is taken gets a suffix, which all processes find', ({ place }) => {
  const base = join(place, `verbena-${user}`);
  const target = join(place, 'target');
  mkdirSync(target);
  for (const take of [
    () => writeFileSync(base, ''),
    () => symlinkSync(target, base),
    ...(user === 0 ? [() => (mkdirSync(base), chownSync(base, 65534, 65534))] : []),
  ]) {
    take();
    const path = deviceDirectory(user, place);
    assert.match(basename(path), new RegExp(`^verbena-${user}\\.\\w{6}$`));
    assert.is(deviceDirectory(user, place), path);
    // The name is free again: the directory in use stays the same.
    rmSync(base, { recursive: true });
    assert.is(deviceDirectory(user, place), path);
    rmSync(path, { recursive: true });
  }
});

test('of two the older one counts', ({ place }) => {
  const older = join(place, `verbena-${user}.zzzzzz`);
  mkdirSync(older, 0o700);
  if (statSync(older).birthtimeMs === 0) throw new Error('this file system keeps no birth times');
  const until = performance.now() + 20;
  while (performance.now() < until);
  mkdirSync(join(place, `verbena-${user}`), 0o700);
  assert.is(deviceDirectory(user, place), older);
});

test('names of others do not count', ({ place }) => {
  for (const name of [
    `verbena-${user}0`,
    `verbena-${user}.x-yzab`,
    `xverbena-${user}`,
    'verbena-',
  ]) {
    mkdirSync(join(place, name), 0o700);
  }
  assert.is(deviceDirectory(user, place), join(place, `verbena-${user}`));
  assert.is(readdirSync(place).length, 5);
});

test('a place that does not exist is refused', ({ place }) => {
  try {
    deviceDirectory(user, join(place, 'nowhere'));
    assert.unreachable();
  } catch (error) {
    assert.instance(error, RefusalError);
    assert.is((error as RefusalError).code, 'ENOENT');
    assert.match((error as Error).message, 'option directory');
  }
});

test.run();
