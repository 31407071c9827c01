/**
 * Huge pages under the file of a device: what its file system offers. hugetlbfs has nothing else;
 * tmpfs has them by its mount option `huge`, and for `huge=advise` after madvise(2).
 */
import { readFileSync, statSync, statfsSync } from 'node:fs';
import { RefusalError } from '../../errors/errors.js';

/** Magic numbers of statfs(2). */
const HUGETLBFS = 0x958458f6;
const TMPFS = 0x01021994;
const SHMEM_ENABLED = '/sys/kernel/mm/transparent_hugepage/shmem_enabled';
const KIB = 1024;

export interface HugePages {
  readonly kind: 'hugetlbfs' | 'tmpfs';
  /** Bytes of a page: files and addresses are multiples. */
  readonly bytes: number;
  /** Has the mapping to be advised (MADV_HUGEPAGE)? */
  readonly isAdvised: boolean;
}

/** Huge pages of the file system of a directory; a sentence with the reason if it has none. */
export function hugePagesOf(directory: string): HugePages | string {
  const { type, bsize } = statfsSync(directory);
  if (type === HUGETLBFS) return { kind: 'hugetlbfs', bytes: bsize, isAdvised: false };
  if (type !== TMPFS) return `the file system of ${directory} is neither hugetlbfs nor tmpfs`;
  const forced = wordIn(readOr(SHMEM_ENABLED));
  if (forced === 'deny') return `${SHMEM_ENABLED} says deny`;
  const huge = forced === 'force' ? 'always' : mountOption(directory);
  if (huge === undefined || huge === 'never') {
    return `the tmpfs of ${directory} is mounted without huge=always, within_size or advise`;
  }
  return { kind: 'tmpfs', bytes: transparentBytes(), isAdvised: huge === 'advise' };
}

/** Throws RefusalError EOPNOTSUPP with the reason and a remedy. */
export function requireHugePages(directory: string): HugePages {
  const found = hugePagesOf(directory);
  if (typeof found !== 'string') return found;
  const remedy =
    'choose a directory on hugetlbfs or on tmpfs with huge=always (directory), or omit hugePages';
  throw new RefusalError('EOPNOTSUPP', `hugePages: ${found}; ${remedy}`);
}

/** The value of the option `huge` of the mount that a directory lies on. */
function mountOption(directory: string): string | undefined {
  const { dev } = statSync(directory);
  // makedev(3) of glibc, as Node reports it.
  const major = Math.floor(dev / 256) & 0xfff;
  const minor = (dev & 0xff) | (Math.floor(dev / 2 ** 12) & 0xfff00);
  const line = readOr('/proc/self/mountinfo')
    .split('\n')
    .find((one) => one.split(' ')[2] === `${major}:${minor}`);
  return /[ ,]huge=([a-z_]+)/.exec(line?.split(' - ')[1] ?? '')?.[1];
}

/** Bytes of a transparent huge page: 2 MiB on x86-64. */
function transparentBytes(): number {
  const found = /Hugepagesize:\s+(\d+) kB/.exec(readOr('/proc/meminfo'));
  return found ? Number(found[1]) * KIB : 2 * KIB * KIB;
}

/** The chosen word of a file of sysfs: `always [never]`. */
function wordIn(text: string): string | undefined {
  return /\[(\w+)\]/.exec(text)?.[1];
}

function readOr(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
