/** The durability of a file by its storage: recorded machines, and this one. */
import { readFileSync, statSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { Kernel } from '../../../host/pmem/kernel-view.js';
import { placeOfPath } from '../../../host/pmem/place.js';

/** /proc/self/mountinfo, merged from several machines. */
const MOUNTS = `
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 25 0:27 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=24684096k
31 27 0:28 / /huge rw - hugetlbfs nodev rw,pagesize=2M
40 27 259:1 / /mnt/pmem0 rw,relatime - ext4 /dev/pmem0 rw,dax=always
41 27 259:2 / /mnt/pmem1 rw,relatime - xfs /dev/pmem1s rw,attr2,dax=never
42 27 8:2 / /mnt/sata rw,relatime - ext4 /dev/sda2 rw,nobarrier
43 27 8:16 / /mnt/through rw,relatime - ext4 /dev/sdb rw,barrier=0
44 27 8:32 / /mnt/old-xfs rw - xfs /dev/sdc rw,nobarrier,noquota
45 27 0:60 / /mnt/btrfs rw - btrfs /dev/sdd rw,nobarrier,subvolid=5,subvol=/
46 27 0:61 /home /mnt/two rw - btrfs /dev/sde rw,space_cache=v2,subvol=/home
50 27 0:70 / /over/volatile rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w,volatile
51 27 0:71 / /over/fsync rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w,fsync=volatile
52 27 0:72 / /over/disk rw - overlay overlay rw,lowerdir=/l,upperdir=/upper,workdir=/w
53 27 0:73 / /over/hidden rw - overlay overlay rw,lowerdir=/l,upperdir=/var/lib/diff,workdir=/w
56 27 0:76 / /over/relative rw - overlay overlay rw,lowerdir=l,upperdir=upper,workdir=w
54 27 0:74 / /over/comma rw - overlay overlay rw,lowerdir=/l,upperdir=/a\\054b\\040c,workdir=/w
55 27 0:75 / /over/btrfs rw - overlay overlay rw,lowerdir=/l,upperdir=/mnt/two/u,workdir=/w
60 27 7:0 / /loop/memory rw - ext4 /dev/loop0 rw
61 27 7:1 / /loop/disk rw - xfs /dev/loop1 rw
62 27 7:2 / /loop/loop rw - ext4 /dev/loop2 rw
63 27 7:3 / /loop/gone rw - ext4 /dev/loop3 rw
64 27 7:4 / /loop/itself rw - ext4 /dev/loop4 rw
65 27 7:1 / /loop/bare rw - ext4 /dev/loop1 rw,nobarrier
66 27 43:0 / /net/bare rw - ext4 /dev/nbd0 rw,nobarrier
70 27 0:80 / /net/nfs rw - nfs4 server:/export rw,vers=4.2
71 27 0:81 / /net/cifs rw - cifs //server/share rw
72 27 0:82 / /net/9p rw - 9p share rw,cache=mmap
73 27 0:83 / /net/sshfs rw - fuse.sshfs host:/ rw,user_id=0
74 27 8:48 / /net/ntfs rw - fuseblk /dev/sdd1 rw
75 27 0:84 / /zfs rw - zfs tank rw,xattr
80 27 43:0 / /dev/nbd rw - ext4 /dev/nbd0 rw
81 27 253:0 / /dev/zram rw - ext4 /dev/zram0 rw
82 27 1:0 / /dev/brd rw - ext2 /dev/ram0 rw
83 27 253:1 / /dev/mapped rw - xfs /dev/mapper/vg-lv rw
84 27 253:2 / /dev/mixed rw - xfs /dev/mapper/mixed rw
85 27 9:0 / /dev/raid rw - ext4 /dev/md0 rw
86 27 250:0 / /dev/strange rw - ext4 /dev/strange0 rw
87 27 8:64 / /dev/scsi_debug rw - ext4 /dev/sdf rw
88 27 99:0 / /dev/hidden rw - ext4 /dev/hidden rw
89 27 259:9 / /dev/virtual rw - f2fs /dev/vdb rw,fsync_mode=nobarrier
`.trim();

const MOUNT_OF: Readonly<Record<string, number>> = {
  '/mnt/sata/u': 42,
  '/upper': 27,
  '/a,b c': 30,
  '/mnt/two/u': 46,
  '/dev/shm/image': 30,
  '/images/disk': 27,
  '/loop/memory/image': 60,
  // The storage of this process's directory.
  upper: 27,
  '/loop/itself/image': 64,
};

const SYSFS: Readonly<Record<string, string>> = {
  '254:0': '/sys/devices/pci/virtio1/block/vda',
  '8:2': '/sys/devices/ata1/block/sda/sda2',
  '8:16': '/sys/devices/ata2/block/sdb',
  '8:32': '/sys/devices/ata3/block/sdc',
  '8:48': '/sys/devices/ata4/block/sdd',
  '8:65': '/sys/devices/ata5/block/sde',
  '8:66': '/sys/devices/virtual/block/ram7',
  '8:64': '/sys/devices/pseudo/block/sdf',
  '259:1': '/sys/devices/nd/block/pmem0',
  '259:2': '/sys/devices/nd/block/pmem1s',
  '259:9': '/sys/devices/virtio2/block/vdb',
  ...Object.fromEntries(
    [0, 1, 2, 3, 4].map((n) => [`7:${n}`, `/sys/devices/virtual/block/loop${n}`]),
  ),
  '43:0': '/sys/devices/virtual/block/nbd0',
  '253:0': '/sys/devices/virtual/block/zram0',
  '1:0': '/sys/devices/virtual/block/ram0',
  '253:1': '/sys/devices/virtual/block/dm-1',
  '253:2': '/sys/devices/virtual/block/dm-2',
  '9:0': '/sys/devices/virtual/block/md0',
  '250:0': '/sys/devices/virtual/block/strange0',
};

const BLOCK = '/sys/devices/virtual/block';
const FILES: Readonly<Record<string, string>> = {
  '/proc/self/mountinfo': MOUNTS,
  '/proc/self/maps': '7f00-7f01 r-xp 00000000 fe:00 12 /usr/lib/libc.so.6\n',
  '/sys/devices/pci/virtio1/block/vda/queue/write_cache': 'write back',
  '/sys/devices/ata1/block/sda/sda2/partition': '2',
  '/sys/devices/ata1/block/sda/queue/write_cache': 'write back',
  '/sys/devices/ata2/block/sdb/queue/write_cache': 'write through',
  '/sys/devices/ata3/block/sdc/queue/write_cache': 'write back',
  '/sys/devices/ata4/block/sdd/queue/write_cache': 'write back',
  '/sys/devices/ata5/block/sde/queue/write_cache': 'write back',
  '/sys/devices/nd/block/pmem0/queue/write_cache': 'write through',
  '/sys/devices/nd/block/pmem1s/queue/write_cache': 'write back',
  '/sys/devices/virtio2/block/vdb/queue/write_cache': 'write back',
  '/sys/devices/pseudo/block/sdf/device/model': 'scsi_debug      ',
  '/sys/devices/pseudo/block/sdf/queue/write_cache': 'write back',
  [`${BLOCK}/loop0/loop/backing_file`]: '/dev/shm/image',
  [`${BLOCK}/loop1/loop/backing_file`]: '/images/disk',
  [`${BLOCK}/loop2/loop/backing_file`]: '/loop/memory/image',
  [`${BLOCK}/loop3/loop/backing_file`]: '/images/gone (deleted)',
  [`${BLOCK}/loop4/loop/backing_file`]: '/loop/itself/image',
  [`${BLOCK}/nbd0/queue/write_cache`]: 'write back',
  [`${BLOCK}/dm-1/slaves/sdc/dev`]: '8:32',
  [`${BLOCK}/dm-2/slaves/sdc/dev`]: '8:32',
  [`${BLOCK}/dm-2/slaves/zram0/dev`]: '253:0',
  [`${BLOCK}/md0/slaves/sdb/dev`]: '8:16',
  [`${BLOCK}/md0/slaves/sda2/dev`]: '8:2',
  '/sys/fs/btrfs/aaaa/devices/sde/dev': '8:65',
  '/sys/fs/btrfs/aaaa/devices/ram7/dev': '8:66',
  '/sys/fs/btrfs/bbbb/devices/sdd/dev': '8:48',
};
const NUMBERS: Readonly<Record<string, string>> = { '/dev/sdd': '8:48', '/dev/sde': '8:65' };

function recorded(changes: Readonly<Record<string, string>> = {}): Kernel {
  const files = { ...FILES, ...changes };
  const mountOf = (path: string): number | undefined => {
    if (path in MOUNT_OF) return MOUNT_OF[path];
    const line = MOUNTS.split('\n').find((text) => text.split(' ')[4] === path);
    return line === undefined ? undefined : Number(line.split(' ')[0]);
  };
  return {
    read: (path) => files[path],
    list: (path) => [
      ...new Set(
        Object.keys(files)
          .filter((name) => name.startsWith(`${path}/`))
          .map((name) => name.slice(path.length + 1).split('/')[0]!),
      ),
    ],
    real: (path) => SYSFS[path.replace('/sys/dev/block/', '')],
    mountOf,
    mountOfDescriptor: () => undefined,
    numberOf: (path) => NUMBERS[path],
  };
}

const CASES: readonly [path: string, durability: string, reason: string][] = [
  ['/', 'disk', 'ext4 on vda (write cache is flushed)'],
  ['/dev/shm', 'none', 'tmpfs (a power cut empties it)'],
  ['/huge', 'none', 'hugetlbfs (a power cut empties it)'],
  ['/mnt/pmem0', 'dax', 'ext4 on pmem0 (no volatile write cache)'],
  ['/mnt/pmem1', 'disk', 'xfs on pmem1s (write cache is flushed)'],
  ['/mnt/sata', 'none', 'ext4 on sda2 (write cache is never flushed: "nobarrier")'],
  ['/mnt/through', 'disk', 'ext4 on sdb (no volatile write cache)'],
  ['/mnt/old-xfs', 'none', 'xfs on sdc (write cache is never flushed: "nobarrier")'],
  ['/mnt/btrfs', 'none', 'btrfs on sdd (write cache is never flushed: "nobarrier")'],
  ['/mnt/two', 'none', 'btrfs on ram7 (a block device in memory)'],
  ['/over/volatile', 'none', 'overlay (omits syncs: "volatile")'],
  ['/over/fsync', 'none', 'overlay (omits syncs: "fsync=volatile")'],
  ['/over/disk', 'disk', 'overlay over ext4 on vda (write cache is flushed)'],
  ['/over/relative', 'unknown', 'overlay (upper directory not visible)'],
  ['/over/hidden', 'unknown', 'overlay (upper directory not visible)'],
  ['/over/comma', 'none', 'overlay over tmpfs (a power cut empties it)'],
  ['/loop/memory', 'none', 'ext4 on loop0 (file /dev/shm/image on tmpfs (a power cut empties it))'],
  [
    '/loop/disk',
    'disk',
    'xfs on loop1 (file /images/disk on ext4 on vda (write cache is flushed))',
  ],
  [
    '/loop/loop',
    'none',
    'ext4 on loop2 (file /loop/memory/image on ext4 on loop0 ' +
      '(file /dev/shm/image on tmpfs (a power cut empties it)))',
  ],
  ['/loop/bare', 'none', 'ext4 on loop1 (never flushed: "nobarrier")'],
  ['/net/bare', 'none', 'ext4 on nbd0 (never flushed: "nobarrier")'],
  ['/net/nfs', 'unknown', 'nfs4 (its server decides what a sync does)'],
  ['/net/cifs', 'unknown', 'cifs (its server decides what a sync does)'],
  ['/net/9p', 'unknown', '9p (its server decides what a sync does)'],
  ['/net/sshfs', 'unknown', 'fuse.sshfs (its program decides what a sync does)'],
  ['/net/ntfs', 'unknown', 'fuseblk (its program decides what a sync does)'],
  ['/zfs', 'unknown', 'zfs (the effect of a sync is unknown)'],
  ['/dev/nbd', 'unknown', 'ext4 on nbd0 (its server decides what a flush does)'],
  ['/dev/zram', 'none', 'ext4 on zram0 (a block device in memory)'],
  ['/dev/brd', 'none', 'ext2 on ram0 (a block device in memory)'],
  ['/dev/mapped', 'disk', 'xfs on dm-1 over sdc (write cache is flushed)'],
  ['/dev/mixed', 'none', 'xfs on dm-2 over zram0 (a block device in memory)'],
  ['/dev/raid', 'disk', 'ext4 on md0 over sdb (no volatile write cache)'],
  ['/dev/strange', 'unknown', 'ext4 on strange0 (unknown kind of device)'],
  ['/dev/scsi_debug', 'none', 'ext4 on sdf (a test device in memory)'],
  ['/dev/hidden', 'unknown', 'ext4 on device 99:0 (not in /sys/dev/block)'],
  ['/dev/virtual', 'none', 'f2fs on vdb (write cache is never flushed: "fsync_mode=nobarrier")'],
];

for (const [path, durability, reason] of CASES) {
  test(`a file on ${reason}: ${durability}`, () => {
    const place = placeOfPath(path, recorded());
    assert.equal([place.durability, place.reason], [durability, reason]);
  });
}

test('a loop device is unknown if its file was removed or lies on the device itself', () => {
  assert.is(placeOfPath('/loop/gone', recorded()).durability, 'unknown');
  assert.is(placeOfPath('/loop/itself', recorded()).durability, 'unknown');
});

test('with a library that omits syncs no storage is durable', () => {
  for (const library of ['libeatmydata.so', 'libeatmydata.so.1.1.1', 'libnosync.so']) {
    const maps = `7f00-7f01 r-xp 00000000 fe:00 12 /usr/lib/x86_64-linux-gnu/${library}\n7f02\n`;
    const place = placeOfPath('/', recorded({ '/proc/self/maps': maps }));
    assert.is(place.durability, 'none');
    assert.is(place.reason, `ext4 (${library} in this process omits syncs)`);
  }
});

test('copy-on-write file systems are detected, also under an overlay', () => {
  assert.ok(placeOfPath('/mnt/two', recorded()).copiesOnWrite);
  assert.ok(placeOfPath('/over/btrfs', recorded()).copiesOnWrite);
  assert.ok(placeOfPath('/zfs', recorded()).copiesOnWrite);
  assert.not.ok(placeOfPath('/', recorded()).copiesOnWrite);
});

test('if the system shows no mounts, the durability is unknown', () => {
  const place = placeOfPath('/nowhere', recorded());
  assert.is(place.durability, 'unknown');
  assert.match(place.reason, /not in \/proc/);
});

test('of this machine: /dev/shm is lost, as its mount says', () => {
  if (!readFileSync('/proc/self/mountinfo', 'utf8').includes(' /dev/shm ')) return;
  assert.ok(statSync('/dev/shm').isDirectory());
  assert.is(placeOfPath('/dev/shm').durability, 'none');
});

test.run();
