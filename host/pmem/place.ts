/** What kind of storage a file lies on, so what of it survives. */
import { readFileSync, statSync } from 'node:fs';

/**
 * `dax`: a file system that maps persistent memory itself (fsdax): a flush writes processor caches
 * back. `disk`: everything else that has a medium (sector, raw, any drive): a flush ends when the
 * drive says that it is done. `none`: memory of the kernel: it survives processes, and no power
 * cut. `browser`: the origin's own files, as `disk` as far as the browser passes a flush on; it may
 * remove them all when room gets scarce, unless `navigator.storage.persist()` was granted.
 */
export type Durability = 'dax' | 'disk' | 'none' | 'browser';

export interface Place {
  readonly durability: Durability;
  /** The file system's name; '' where nobody tells. */
  readonly fileSystem: string;
}

const VOLATILE = new Set(['tmpfs', 'ramfs', 'devtmpfs', 'hugetlbfs', 'rootfs']);

/** Of a file or directory that exists. Without Linux every place is taken for a disk. */
export function placeOf(path: string): Place {
  let mounts: string;
  try {
    mounts = readFileSync('/proc/self/mountinfo', 'utf8');
  } catch {
    return { durability: 'disk', fileSystem: '' };
  }
  return placeIn(mounts, deviceName(statSync(path).dev));
}

/** In the text of /proc/self/mountinfo; `device` as MAJOR:MINOR. */
export function placeIn(mounts: string, device: string): Place {
  // The last one lies on top of the others.
  const line = mounts
    .trimEnd()
    .split('\n')
    .filter((text) => text.split(' ')[2] === device)
    .at(-1);
  const [mount = '', source = ''] = line?.split(' - ') ?? [];
  const [fileSystem = '', , superOptions = ''] = source.split(' ');
  if (VOLATILE.has(fileSystem)) return { durability: 'none', fileSystem };
  const options = [...(mount.split(' ')[5] ?? '').split(','), ...superOptions.split(',')];
  const isDax = options.some((option) => option === 'dax' || option === 'dax=always');
  return { durability: isDax ? 'dax' : 'disk', fileSystem };
}

function deviceName(dev: number): string {
  const major = Math.floor(dev / 256) % 4096;
  const minor = (dev % 256) + Math.floor(dev / 2 ** 20) * 256;
  return `${major}:${minor}`;
}
