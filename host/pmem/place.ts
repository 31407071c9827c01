/** The storage under a file, and its durability. */
import type { Kernel } from './kernel-view.js';
import { thisKernel } from './kernel-view.js';
import { judgeDevice } from './block-device.js';
import {
  COPIES_ON_WRITE,
  MEMORY,
  NETWORK,
  ON_DEVICES,
  barrierOption,
  isDax,
  isFuse,
  mountIn,
  optionOf,
  type Mount,
} from './mount.js';
import { worst, type Verdict } from './verdict.js';

export type { Durability } from './verdict.js';

export interface Place extends Verdict {
  /** The file system's name; '' if the system does not report it. */
  readonly fileSystem: string;
  /** Every write needs free space on the disk, also a write to bytes that were written before. */
  readonly copiesOnWrite: boolean;
  /** The file's pages are its storage (tmpfs, DAX): no medium can differ from them. */
  readonly isMemory: boolean;
}

/** Limit for loop devices on files on loop devices. */
const DEPTH_MAX = 8;
/** Libraries that replace fsync by a no-op (LD_PRELOAD, /etc/ld.so.preload). */
const SYNCLESS = /\/(lib(?:eatmydata|nosync|fakesync)[^/\s]*)$/m;

/** The storage under an open file or directory. */
export function placeOf(fd: number, kernel = thisKernel): Place {
  return placeIn(kernel, kernel.mountOfDescriptor(fd));
}

/** The storage under an existing file or directory. */
export function placeOfPath(path: string, kernel = thisKernel): Place {
  return placeIn(kernel, kernel.mountOf(path));
}

function placeIn(kernel: Kernel, id: number | undefined): Place {
  const mount = findMount(kernel, id);
  const fileSystem = mount?.fileSystem ?? '';
  const lowest = mount && storageOf(kernel, mount, 0);
  const copiesOnWrite = COPIES_ON_WRITE.has(lowest?.fileSystem ?? '');
  const isMemory = lowest !== undefined && (MEMORY.has(lowest.fileSystem) || isDax(lowest));
  const library = SYNCLESS.exec(kernel.read('/proc/self/maps') ?? '')?.[1];
  if (library !== undefined) {
    const reason = `${fileSystem} (${library} in this process omits syncs)`;
    return { durability: 'none', reason, fileSystem, copiesOnWrite, isMemory };
  }
  return { ...judgeMount(kernel, mount, 0), fileSystem, copiesOnWrite, isMemory };
}

function findMount(kernel: Kernel, id: number | undefined): Mount | undefined {
  const mounts = kernel.read('/proc/self/mountinfo');
  return mounts === undefined || id === undefined ? undefined : mountIn(mounts, id);
}

function judgeMount(kernel: Kernel, mount: Mount | undefined, depth: number): Verdict {
  if (!mount || depth > DEPTH_MAX) {
    const reason = 'a file system that is not in /proc/self/mountinfo';
    return { durability: 'unknown', reason };
  }
  const { fileSystem } = mount;
  if (MEMORY.has(fileSystem)) {
    return { durability: 'none', reason: `${fileSystem} (a power cut empties it)` };
  }
  if (isFuse(fileSystem)) {
    const reason = `${fileSystem} (its program decides what a sync does)`;
    return { durability: 'unknown', reason };
  }
  if (NETWORK.has(fileSystem)) {
    const reason = `${fileSystem} (its server decides what a sync does)`;
    return { durability: 'unknown', reason };
  }
  if (fileSystem === 'overlay') return judgeOverlay(kernel, mount, depth);
  if (!ON_DEVICES.has(fileSystem)) {
    const reason = `${fileSystem} (the effect of a sync is unknown)`;
    return { durability: 'unknown', reason };
  }
  const verdict = judgeDevices(kernel, mount, depth);
  const reason = `${fileSystem} on ${verdict.reason}`;
  if (verdict.durability !== 'none' && isDax(mount)) return { durability: 'dax', reason };
  return { durability: verdict.durability, reason };
}

/**
 * The mount that contained a path when `above` was mounted: the upper directory of an overlay, or
 * the file of a loop device. Undefined: the path is not visible, or a later mount hides it, and the
 * path names another file than the kernel uses.
 */
function mountBelow(kernel: Kernel, above: Mount, path: string): Mount | undefined {
  const below = findMount(kernel, kernel.mountOf(path));
  return below !== undefined && below.order < above.order ? below : undefined;
}

function judgeDevices(kernel: Kernel, mount: Mount, depth: number): Verdict {
  const judgePath = (path: string): Verdict =>
    judgeMount(kernel, mountBelow(kernel, mount, path), depth + 1);
  const barrier = barrierOption(mount);
  return worst(
    devicesOf(kernel, mount).map((device) => judgeDevice(kernel, device, barrier, judgePath)),
  );
}

/** Btrfs has a device number of its own; its devices are in /sys/fs/btrfs/UUID/devices. */
function devicesOf(kernel: Kernel, { device, fileSystem, source }: Mount): string[] {
  if (kernel.real(`/sys/dev/block/${device}`) !== undefined) return [device];
  const number = kernel.numberOf(source);
  if (number === undefined) return [device];
  if (fileSystem !== 'btrfs') return [number];
  for (const uuid of kernel.list('/sys/fs/btrfs')) {
    const names = kernel.list(`/sys/fs/btrfs/${uuid}/devices`);
    const numbers = names.map((name) => kernel.read(`/sys/fs/btrfs/${uuid}/devices/${name}/dev`));
    const known = numbers.filter((one) => one !== undefined);
    if (known.includes(number)) return known;
  }
  return [number];
}

/** Judges an overlay by its upper directory, which receives all writes. */
function judgeOverlay(kernel: Kernel, mount: Mount, depth: number): Verdict {
  const leaving = mount.options.find((option) => /^(fsync=)?volatile$/.test(option));
  if (leaving !== undefined) {
    return { durability: 'none', reason: `overlay (omits syncs: "${leaving}")` };
  }
  const upper = upperOf(mount);
  const below = upper === undefined ? undefined : mountBelow(kernel, mount, upper);
  if (below === undefined) {
    const reason = 'overlay (upper directory not visible)';
    return { durability: 'unknown', reason };
  }
  const { durability, reason } = judgeMount(kernel, below, depth + 1);
  return { durability, reason: `overlay over ${reason}` };
}

/** A relative path depends on the working directory of mount(8), which is unknown. */
function upperOf(mount: Mount): string | undefined {
  const upper = optionOf(mount, 'upperdir');
  return upper?.startsWith('/') ? upper : undefined;
}

/** The mount that stores a file's pages: for an overlay the mount of its upper directory. */
function storageOf(kernel: Kernel, mount: Mount, depth: number): Mount {
  const upper = mount.fileSystem === 'overlay' ? upperOf(mount) : undefined;
  if (upper === undefined || depth > DEPTH_MAX) return mount;
  const below = mountBelow(kernel, mount, upper);
  return below ? storageOf(kernel, below, depth + 1) : mount;
}
