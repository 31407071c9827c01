/** A disk that is larger than its storage: a sparse image in a tmpfs that can be filled up. */
import assert from 'node:assert/strict';
import { mkdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from '../tools.js';
import type { FileSystem } from './failing-disk.js';

const PIECE = Buffer.alloc(65536, 1);

export class ThinDisk {
  /** Mount point of the file system. */
  readonly directory: string;
  readonly #backing: string;
  readonly #type: string;

  private constructor(directory: string, backing: string, type: string) {
    this.directory = directory;
    this.#backing = backing;
    this.#type = type;
  }

  static async open(folder: string, fileSystem: FileSystem): Promise<ThinDisk> {
    const [backing, directory] = [join(folder, 'backing'), join(folder, 'mounted')];
    mkdirSync(backing);
    mkdirSync(directory);
    const { megabytes, storageMegabytes, type, make } = fileSystem;
    await run('mount', ['-t', 'tmpfs', '-o', `size=${storageMegabytes}m`, 'tmpfs', backing]);
    const disk = new ThinDisk(directory, backing, type);
    writeFileSync(disk.#image, '');
    truncateSync(disk.#image, megabytes * 2 ** 20);
    await run(make[0], [...make.slice(1), disk.#image]);
    await disk.#mount();
    return disk;
  }

  /** Uses up all remaining storage. */
  fill(): void {
    try {
      for (;;) writeFileSync(this.#junk, PIECE, { flag: 'a' });
    } catch (error) {
      assert.equal((error as NodeJS.ErrnoException).code, 'ENOSPC');
    }
  }

  empty(): void {
    rmSync(this.#junk);
  }

  async remount(): Promise<void> {
    await run('umount', [this.directory]);
    await this.#mount();
  }

  async close(): Promise<void> {
    await run('umount', [this.directory]);
    await run('umount', [this.#backing]);
  }

  get #image(): string {
    return join(this.#backing, 'image');
  }

  get #junk(): string {
    return join(this.#backing, 'junk');
  }

  async #mount(): Promise<void> {
    await run('mount', ['-t', this.#type, '-o', 'loop', this.#image, this.directory]);
  }
}
