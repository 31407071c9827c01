/** A disk of a soak's own, small enough to be filled. */
import { execFileSync } from 'node:child_process';
import { closeSync, openSync, rmSync, writeSync } from 'node:fs';

const MEBIBYTES = 48;
const PIECE = Buffer.alloc(256 * 1024);

export class SmallDisk {
  readonly #directory: string;
  /** Why the disk cannot be filled: the directory is not a file system of its own. */
  readonly missing: string | undefined;

  constructor(directory: string) {
    this.#directory = directory;
    this.missing = mount(directory);
  }

  /** Until nothing more fits. */
  fill(): void {
    const fd = openSync(`${this.#directory}/ballast`, 'w');
    try {
      for (;;) writeSync(fd, PIECE);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
    } finally {
      closeSync(fd);
    }
  }

  empty(): void {
    rmSync(`${this.#directory}/ballast`, { force: true });
  }

  remove(): void {
    if (this.missing === undefined) execFileSync('umount', [this.#directory]);
  }
}

function mount(directory: string): string | undefined {
  try {
    const options = ['-t', 'tmpfs', '-o', `size=${MEBIBYTES}m`, 'verbena-soak', directory];
    execFileSync('mount', options, { stdio: 'pipe' });
    return undefined;
  } catch (error) {
    return `mount is not permitted (${(error as Error).message.trim().split('\n').at(-1)})`;
  }
}
