/** Linux's view of mounts and devices (/proc, /sys); tests replace it with a recorded machine. */
import { closeSync, openSync, readFileSync, readdirSync, realpathSync, statSync } from 'node:fs';

export interface Kernel {
  /** Text of a file without its last line end; undefined: it does not exist or is not readable. */
  read(path: string): string | undefined;
  /** Names in a directory; empty if the directory does not exist. */
  list(path: string): string[];
  /** The path with all symbolic links resolved; undefined: the target does not exist. */
  real(path: string): string | undefined;
  /** Id of the mount that contains a path, as in mountinfo. */
  mountOf(path: string): number | undefined;
  /** Id of the mount that contains an open file. */
  mountOfDescriptor(fd: number): number | undefined;
  /** MAJOR:MINOR of a device file. */
  numberOf(path: string): string | undefined;
}

/** O_PATH of open(2): refers to the file without opening it. */
const O_PATH = 0o10000000;

function tried<Value>(look: () => Value): Value | undefined {
  try {
    return look();
  } catch {
    return undefined;
  }
}

function mountOfDescriptor(fd: number): number | undefined {
  const info = tried(() => readFileSync(`/proc/self/fdinfo/${fd}`, 'latin1')) ?? '';
  const id = /^mnt_id:\s*(\d+)$/m.exec(info)?.[1];
  return id === undefined ? undefined : Number(id);
}

export const thisKernel: Kernel = {
  read: (path) => tried(() => readFileSync(path, 'utf8').replace(/\n$/, '')),
  list: (path) => tried(() => readdirSync(path)) ?? [],
  real: (path) => tried(() => realpathSync(path)),
  mountOf: (path) =>
    tried(() => {
      const fd = openSync(path, O_PATH);
      try {
        return mountOfDescriptor(fd);
      } finally {
        closeSync(fd);
      }
    }),
  mountOfDescriptor,
  numberOf: (path) =>
    tried(() => {
      const stat = statSync(path);
      return stat.isBlockDevice() ? deviceNumber(stat.rdev) : undefined;
    }),
};

/** Splits a device number as makedev(3) of glibc and musl composes it. */
function deviceNumber(device: number): string {
  const wide = BigInt(device);
  const major = ((wide >> 8n) & 0xfffn) | ((wide >> 32n) & 0xfffff000n);
  const minor = (wide & 0xffn) | ((wide >> 12n) & 0xffffff00n);
  return `${major}:${minor}`;
}
