/**
 * File systems that are mounted for the test: the kernel's view of them, and the durability of a
 * region on them.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { placeOfPath } from '../../../host/pmem/place.js';
import { Workspace } from '../../support/processes.js';

const reporter = fileURLToPath(new URL('../../support/place-reporter.js', import.meta.url));
const fileSystems = readFileSync('/proc/filesystems', 'utf8');

interface Reported {
  readonly path: string;
  readonly durability: string;
  readonly reason: string;
  readonly opened: string;
}

function run(command: string, words: readonly string[]) {
  return spawnSync(command, words, { encoding: 'utf8', timeout: 60_000 });
}

/** Why the tests cannot run; undefined: they can. */
function obstacle(): string | undefined {
  if (run('unshare', ['--mount', 'true']).status !== 0) return 'this user may mount nothing';
  if (run('losetup', ['--find']).status !== 0) return 'there are no loop devices';
  if (run('mke2fs', ['-V']).status !== 0) return 'mke2fs is missing (apt-get install e2fsprogs)';
  return undefined;
}

/** In a mount namespace: `script` mounts below its folder; reports on the directories `names`. */
async function mounted(
  script: string,
  names: readonly string[],
  check: (found: Reported[], folder: string) => void,
): Promise<void> {
  await Workspace.use((workspace) => {
    const folder = workspace.directory;
    const paths = names.map((name) => `${folder}/${name}`).join(' ');
    const all = `set -e; cd ${folder}\n${script}\n'${process.execPath}' '${reporter}' ${paths}`;
    const words = ['--mount', '--propagation', 'private', 'sh', '-c', all];
    const { stdout, stderr, status } = run('unshare', words);
    assert.is(status, 0, stderr);
    const lines = stdout.trim().split('\n');
    check(
      lines.map((line) => JSON.parse(line) as Reported),
      folder,
    );
    return Promise.resolve();
  });
}

const EXT4 = 'mke2fs -q -F -t ext4';

const TESTS: readonly [name: string, fileSystem: string, work: () => Promise<void>][] = [
  [
    'a loop device on a file in memory, and one on a file on that device, are refused',
    'tmpfs',
    () =>
      mounted(
        `mkdir memory one two
         mount -t tmpfs -o size=64m tmpfs memory
         truncate -s 32M memory/image && ${EXT4} memory/image && mount -o loop memory/image one
         truncate -s 8M one/image && ${EXT4} one/image && mount -o loop one/image two`,
        ['memory', 'one', 'two'],
        (found, folder) => {
          for (const { durability, opened } of found) {
            assert.equal([durability, opened], ['none', 'EOPNOTSUPP']);
          }
          assert.is(found[0]!.reason, 'tmpfs (a power cut empties it)');
          assert.match(found[1]!.reason, `${folder}/memory/image on tmpfs`);
          assert.match(found[2]!.reason, /^ext4 on loop\d+ \(file .* on loop\d+ \(file /);
        },
      ),
  ],
  [
    'a disk without barriers is refused, where its device has a cache; with them it is a disk',
    'ext4',
    () =>
      mounted(
        `mkdir with without
         for name in with without; do truncate -s 16M $name.image; ${EXT4} $name.image; done
         mount -o loop with.image with
         mount -o loop,nobarrier without.image without`,
        ['with', 'without'],
        ([plain, bare], folder) => {
          // The storage below it is that of this machine.
          const below = placeOfPath(folder);
          assert.is(plain!.durability, below.durability);
          assert.match(plain!.reason, `with.image on ${below.reason}`);
          assert.is(bare!.durability, 'none');
          assert.match(
            bare!.reason,
            /^ext4 on loop\d+ \(never flushed: "(nobarrier|barrier=0)"\)$/,
          );
          assert.is(bare!.opened, 'EOPNOTSUPP');
        },
      ),
  ],
  [
    'an overlay that omits syncs is refused, another one is judged by its upper directory',
    'overlay',
    () =>
      mounted(
        `mkdir lower a b
         truncate -s 16M image && ${EXT4} image && mkdir disk && mount -o loop image disk
         mkdir disk/upper disk/work disk/upper2 disk/work2
         mount -t overlay -o lowerdir=lower,upperdir=disk/upper,workdir=disk/work,volatile none a
         mount -t overlay -o lowerdir=lower,upperdir=$PWD/disk/upper2,workdir=$PWD/disk/work2 none b`,
        ['disk', 'a', 'b'],
        ([disk, leaving, plain]) => {
          assert.is(leaving!.durability, 'none');
          assert.match(leaving!.reason, /^overlay \(omits syncs: "(fsync=)?volatile"\)$/);
          assert.is(leaving!.opened, 'EOPNOTSUPP');
          assert.is(plain!.durability, disk!.durability);
          assert.is(plain!.reason, `overlay over ${disk!.reason}`);
          assert.is(plain!.opened, disk!.opened);
        },
      ),
  ],
  [
    'if a later mount hides an upper directory or a loop file, the durability is unknown',
    'overlay',
    () =>
      mounted(
        `mkdir lower merged memory file cover
         truncate -s 16M image && ${EXT4} image && mount -o loop image cover
         mkdir cover/upper cover/work && truncate -s 8M cover/inner
         mount -t tmpfs -o size=64m tmpfs memory
         mkdir memory/upper memory/work && truncate -s 8M memory/inner && ${EXT4} memory/inner
         at=$PWD/memory
         mount -t overlay -o lowerdir=lower,upperdir=$at/upper,workdir=$at/work none merged
         mount -o loop memory/inner file
         mount --bind cover memory`,
        ['merged', 'file'],
        ([merged, file]) => {
          assert.is(merged!.durability, 'unknown');
          assert.is(merged!.reason, 'overlay (upper directory not visible)');
          assert.is(file!.durability, 'unknown');
          assert.match(file!.reason, 'a file system that is not in /proc/self/mountinfo');
        },
      ),
  ],
];

/** As libeatmydata does. */
const SYNCLESS =
  'int fsync(int fd) { (void)fd; return 0; } int fdatasync(int fd) { return fsync(fd); }';

if (run('gcc', ['--version']).status !== 0) console.log('not run: LD_PRELOAD: gcc is missing');
else {
  test('with a preloaded library that omits syncs a region is refused', () =>
    Workspace.use((workspace) => {
      const library = workspace.path('libeatmydata.so');
      const words = ['-shared', '-fPIC', '-o', library, '-x', 'c', '-'];
      assert.is(spawnSync('gcc', words, { input: SYNCLESS }).status, 0);
      const { stdout } = spawnSync(process.execPath, [reporter, workspace.directory], {
        encoding: 'utf8',
        env: { ...process.env, LD_PRELOAD: library },
      });
      const { durability, reason, opened } = JSON.parse(stdout) as Reported;
      assert.equal([durability, opened], ['none', 'EOPNOTSUPP']);
      assert.match(reason, '(libeatmydata.so in this process omits syncs)');
      return Promise.resolve();
    }));
}

const why = obstacle();
for (const [name, fileSystem, work] of TESTS) {
  if (why !== undefined) console.log(`not run: ${name}: ${why}`);
  else if (!new RegExp(`\\t${fileSystem}$`, 'm').test(fileSystems)) {
    console.log(`not run: ${name}: this kernel has no ${fileSystem}`);
  } else test(name, work);
}

test.run();
