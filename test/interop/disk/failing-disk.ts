/** The test's side of a disk that fails on command, with a file system on a loop device. */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { run } from '../tools.js';
import type { DiskCommand, DiskError, DiskState } from './fuse-disk.js';

export interface FileSystem {
  readonly name: string;
  /** Name of the file system, as in /proc/filesystems. */
  readonly type: string;
  readonly megabytes: number;
  /** Bytes of a thin disk: enough for the file system itself and a region. */
  readonly storageMegabytes: number;
  /** Command that repairs it after a power cut, if mounting does not. */
  readonly repair?: readonly [string, ...string[]];
  /** True: the file system has no mapped regions. */
  readonly copiesOnWrite?: boolean;
  /** The mkfs command, with its arguments before the device. */
  readonly make: readonly [string, ...string[]];
  /** Its package in Debian and Ubuntu. */
  readonly aptPackage: string;
}

/** Exit code 1: the file system was repaired. */
const REPAIR = 'e2fsck -f -y "$0" || [ $? -eq 1 ]';

const EXT4 = {
  type: 'ext4',
  megabytes: 64,
  storageMegabytes: 24,
  aptPackage: 'e2fsprogs',
} as const;

export const FILE_SYSTEMS: readonly FileSystem[] = [
  { ...EXT4, name: 'ext4', make: ['mke2fs', '-q', '-F', '-t', 'ext4'] },
  {
    ...EXT4,
    name: 'ext4 without journal',
    make: ['mke2fs', '-q', '-F', '-t', 'ext4', '-O', '^has_journal'],
    repair: ['sh', '-c', REPAIR],
  },
  {
    name: 'xfs',
    type: 'xfs',
    megabytes: 320,
    storageMegabytes: 100,
    make: ['mkfs.xfs', '-q', '-f'],
    aptPackage: 'xfsprogs',
  },
  {
    name: 'btrfs',
    type: 'btrfs',
    megabytes: 128,
    storageMegabytes: 48,
    make: ['mkfs.btrfs', '-q', '-f'],
    copiesOnWrite: true,
    aptPackage: 'btrfs-progs',
  },
];

const program = fileURLToPath(new URL('./fuse-disk.js', import.meta.url));

export class FailingDisk {
  /** Mount point of the file system. */
  readonly directory: string;
  readonly #fileSystem: FileSystem;
  readonly #image: string;
  readonly #server: ChildProcess;
  readonly #ended: Promise<unknown>;
  #isMounted = false;

  private constructor(
    directory: string,
    image: string,
    fileSystem: FileSystem,
    server: ChildProcess,
  ) {
    this.directory = directory;
    this.#image = image;
    this.#fileSystem = fileSystem;
    this.#server = server;
    this.#ended = once(server, 'close');
  }

  /** Creates and mounts the file system. `folder`: an empty directory for this disk. */
  static async open(folder: string, fileSystem: FileSystem): Promise<FailingDisk> {
    const [image, directory] = [join(folder, 'disk'), join(folder, 'mounted')];
    mkdirSync(directory, { recursive: true });
    writeFileSync(image, '');
    const size = `${fileSystem.megabytes * 2 ** 20}`;
    const server = fork(program, [image, size], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    const disk = new FailingDisk(directory, image, fileSystem, server);
    await disk.#answer();
    const [command, ...words] = fileSystem.make;
    await run(command, [...words, image]);
    await disk.mount();
    return disk;
  }

  async mount(): Promise<void> {
    const { type } = this.#fileSystem;
    await run('mount', ['-t', type, '-o', 'loop', this.#image, this.directory]);
    this.#isMounted = true;
  }

  async unmount(): Promise<void> {
    if (!this.#isMounted) return;
    await run('umount', [this.directory]);
    this.#isMounted = false;
  }

  /** From now on writes that contain `tag` fail; without `tag` all writes and flushes fail. */
  fail(code: DiskError, tag?: string): Promise<DiskState> {
    const words = { kind: 'fail', code } as const;
    return this.#tell(tag === undefined ? { ...words, sync: true } : { ...words, tag });
  }

  heal(): Promise<DiskState> {
    return this.#tell({ kind: 'heal' });
  }

  /** Cuts the power: later writes and the contents of the disk's cache are lost. */
  cut(): Promise<DiskState> {
    return this.#tell({ kind: 'cut' });
  }

  /** After a power cut, and the end of all processes that use it: mounts the file system again. */
  async powerOn(): Promise<void> {
    await this.unmount();
    await this.#tell({ kind: 'restore' });
    const { repair } = this.#fileSystem;
    if (repair) await run(repair[0], [...repair.slice(1), this.#image]);
    await this.mount();
  }

  async close(): Promise<void> {
    try {
      await this.unmount();
      await run('umount', [this.#image]);
    } finally {
      this.#server.kill('SIGKILL');
      await this.#ended;
    }
  }

  async #tell(command: DiskCommand): Promise<DiskState> {
    this.#server.send(command);
    return this.#answer();
  }

  async #answer(): Promise<DiskState> {
    const server = this.#server;
    const answered = new Promise<DiskState>((resolve) =>
      server.once('message', resolve as () => void),
    );
    const state = await Promise.race([answered, this.#ended.then(() => undefined)]);
    if (!state) throw new Error('the FUSE server of the disk has ended');
    return state;
  }
}
