/** What of a file survives, by what it lies on. */
import { readFileSync, statSync } from 'node:fs';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { placeIn, placeOf } from '../../../host/pmem/place.js';

const test = suite('pmem/place');
const MOUNTS = [
  '27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard',
  '30 25 0:27 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=24684096k',
  '40 27 259:1 / /mnt/pmem0 rw,relatime - ext4 /dev/pmem0 rw,dax=always',
  '41 27 259:2 / /mnt/pmem1 rw,relatime - xfs /dev/pmem1s rw,attr2,dax=never',
  '42 27 0:50 / /mnt/over rw - overlay overlay rw',
  '43 27 0:50 / /mnt/over rw - tmpfs tmpfs rw',
].join('\n');

test('a disk, memory of the kernel, and persistent memory are told apart', () => {
  assert.equal(placeIn(MOUNTS, '254:0'), { durability: 'disk', fileSystem: 'ext4' });
  assert.equal(placeIn(MOUNTS, '0:27'), { durability: 'none', fileSystem: 'tmpfs' });
  assert.equal(placeIn(MOUNTS, '259:1'), { durability: 'dax', fileSystem: 'ext4' });
  assert.is(placeIn(MOUNTS, '259:2').durability, 'disk');
  // What was mounted last lies on top.
  assert.is(placeIn(MOUNTS, '0:50').durability, 'none');
  assert.equal(placeIn(MOUNTS, '9:9'), { durability: 'disk', fileSystem: '' });
});

test('of this machine: /dev/shm is lost, as its mount says', () => {
  if (!readFileSync('/proc/self/mountinfo', 'utf8').includes(' /dev/shm ')) return;
  assert.ok(statSync('/dev/shm').isDirectory());
  assert.is(placeOf('/dev/shm').durability, 'none');
});

test.run();
