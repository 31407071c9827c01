/**
 * The write cache of a Linux block device, and the devices below it (/sys/dev/block).
 */
import { basename } from 'node:path';
import type { Kernel } from './kernel-view.js';
import { worst, type Verdict } from './verdict.js';

/** Block devices in memory. */
const MEMORY = /^(ram|zram|nullb|brd)\d/;
/** A program or another machine decides what a flush does. */
const ELSEWHERE = /^(nbd|rbd|drbd|ublkb|etherd|rnbd)/;
/** Drives, including virtual ones of a virtual machine; arrays of drives have `slaves`. */
const DRIVES = /^(sd|hd|vd|xvd|nvme|mmcblk|pmem|dasd|cciss|md|dm-|bcache)/;
/** The SCSI test driver scsi_debug keeps its blocks in memory. */
const FAKE_MODEL = /scsi_debug/;

/** Judges the backing file of a loop device. */
export type JudgePath = (path: string) => Verdict;

/**
 * Judges a block device. `device`: MAJOR:MINOR. `barrier`: the mount option with which the file
 * system above omits flushes. `judge`: judges the backing file of a loop device.
 */
export function judgeDevice(
  kernel: Kernel,
  device: string,
  barrier: string | undefined,
  judge: JudgePath,
): Verdict {
  const found = kernel.real(`/sys/dev/block/${device}`);
  if (found === undefined) {
    return { durability: 'unknown', reason: `device ${device} (not in /sys/dev/block)` };
  }
  const isPartition = kernel.read(`${found}/partition`) !== undefined;
  const path = isPartition ? found.slice(0, found.lastIndexOf('/')) : found;
  const name = basename(found);
  const disk = basename(path);
  if (MEMORY.test(disk)) {
    return { durability: 'none', reason: `${name} (a block device in memory)` };
  }
  const backing = kernel.read(`${path}/loop/backing_file`);
  // A flush of these devices is a sync of a file, or a request to a server: without it their caches
  // are never written back.
  if (barrier !== undefined && (backing !== undefined || ELSEWHERE.test(disk))) {
    return { durability: 'none', reason: `${name} (never flushed: "${barrier}")` };
  }
  if (ELSEWHERE.test(disk)) {
    return { durability: 'unknown', reason: `${name} (its server decides what a flush does)` };
  }
  if (backing !== undefined) {
    const { durability, reason } = judge(backing);
    return { durability, reason: `${name} (file ${backing} on ${reason})` };
  }
  const slaves = kernel.list(`${path}/slaves`);
  if (slaves.length > 0) {
    const all = slaves.map((slave) => {
      const number = kernel.read(`${path}/slaves/${slave}/dev`) ?? '';
      return judgeDevice(kernel, number, barrier, judge);
    });
    const { durability, reason } = worst(all);
    return { durability, reason: `${name} over ${reason}` };
  }
  if (FAKE_MODEL.test(kernel.read(`${path}/device/model`) ?? '')) {
    return { durability: 'none', reason: `${name} (a test device in memory)` };
  }
  if (!DRIVES.test(disk)) {
    return { durability: 'unknown', reason: `${name} (unknown kind of device)` };
  }
  return judgeCache(name, kernel.read(`${path}/queue/write_cache`), barrier);
}

function judgeCache(name: string, cache: string | undefined, barrier: string | undefined): Verdict {
  if (cache === 'write through') {
    return { durability: 'disk', reason: `${name} (no volatile write cache)` };
  }
  if (barrier !== undefined) {
    const reason = `${name} (write cache is never flushed: "${barrier}")`;
    return { durability: 'none', reason };
  }
  if (cache === 'write back') {
    return { durability: 'disk', reason: `${name} (write cache is flushed)` };
  }
  return { durability: 'unknown', reason: `${name} (write cache unknown)` };
}
