/**
 * A disk that cannot be written to any more, under a mapped region: ext4 on a loop device whose
 * file lies in memory that is full, so that the kernel's own write-back fails with EIO.
 */
import assert from 'node:assert/strict';
import { mkdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  PlacementType,
  SendFlag,
  WcStatusName,
  WrOpcode,
  openDevice,
  type MemoryRegion,
} from '../../host/index.js';
import { FLUSH_ACCESS } from '../support/durable.js';
import { connect, type Side } from '../support/pair.js';
import { run } from './tools.js';

const BACKING_MEGABYTES = 24;
const DISK_MEGABYTES = 64;
const REGION_BYTES = 32 * 2 ** 20;
const PAGE = 65536;
/** 2 s, eight times: a page of a mapped file is waited for as long as the disk takes. */
const TIMEOUT = 19;

async function openSide(address: string): Promise<Side> {
  const context = await openDevice({ address, port: 0 });
  const pd = context.allocPd();
  const cq = context.createCq(16);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq });
  const buffer = context.alloc(PAGE);
  return { context, pd, cq, qp, buffer, mr: pd.regMr(buffer, 7) };
}

/** WRITE and FLUSH of a page, from afar. */
async function writeThere({ qp, cq, mr }: Side, there: MemoryRegion, at: number): Promise<string> {
  const where = { remoteAddr: there.addr + BigInt(at), rkey: there.rkey };
  const sgList = [{ addr: mr.addr, length: PAGE, lkey: mr.lkey }];
  const flush = { ...where, length: PAGE, type: PlacementType.PERSISTENT };
  qp.postSend([
    { opcode: WrOpcode.RDMA_WRITE, sgList, rdma: where },
    { opcode: WrOpcode.FLUSH, sendFlags: SendFlag.SIGNALED, flush },
  ]);
  const [done] = await cq.wait();
  return WcStatusName[done!.status] ?? `${done!.status}`;
}

/** Opens the region at one device, and uses it from another. */
async function withRegion(
  path: string,
  use: (a: Side, there: MemoryRegion, flush: (at: number) => Promise<void>) => Promise<void>,
): Promise<void> {
  const [a, b] = [await openSide('127.0.0.1'), await openSide('127.0.0.2')];
  try {
    const attributes = { qpAccessFlags: FLUSH_ACCESS, timeout: TIMEOUT };
    connect(a.qp, b, 1, 2, { attributes });
    connect(b.qp, a, 2, 1, { attributes });
    const pmem = await b.context.openPmem(path, { bytes: REGION_BYTES, store: 'mapped' });
    a.buffer.fill(7);
    await use(a, b.pd.regMr(pmem.buffer, FLUSH_ACCESS), (at) => {
      pmem.buffer.fill(9, at, at + PAGE);
      return pmem.flush(at, PAGE);
    });
  } finally {
    await a.context.close();
    // Its last flush fails, as all do.
    await b.context.close().catch(() => {});
  }
}

/** In a mount namespace of its own. `folder`: for the mounts. */
export async function failingDisk(folder: string): Promise<void> {
  const [backing, disk] = [join(folder, 'backing'), join(folder, 'disk')];
  mkdirSync(backing, { recursive: true });
  mkdirSync(disk);
  await run('mount', ['-t', 'tmpfs', '-o', `size=${BACKING_MEGABYTES}m`, 'tmpfs', backing]);
  const image = join(backing, 'image');
  writeFileSync(image, '');
  truncateSync(image, DISK_MEGABYTES * 2 ** 20);
  await run('mke2fs', ['-q', '-F', '-t', 'ext4', '-O', '^has_journal', image]);
  await run('mount', ['-o', 'loop', image, disk]);
  try {
    const path = join(disk, 'region.pmem');
    const junk = join(backing, 'junk');
    await withRegion(path, async (a, there, flush) => {
      assert.equal(await writeThere(a, there, 0), 'SUCCESS');
      await flush(PAGE);
      fill(junk);
      assert.equal(
        await writeThere(a, there, 16 * 2 ** 20),
        'REM_OP_ERR',
        'a FLUSH on a full disk',
      );
      await assert.rejects(flush(17 * 2 ** 20), { code: 'EIO' });
      rmSync(junk);
      // There is room again; what was lost meanwhile nobody knows.
      await assert.rejects(flush(PAGE), { code: 'EIO' });
    });
    await withRegion(path, async (a, there, flush) => {
      assert.equal(await writeThere(a, there, 18 * 2 ** 20), 'SUCCESS', 'opened anew');
      await flush(19 * 2 ** 20);
    });
  } finally {
    await run('umount', [disk]);
    await run('umount', [backing]);
  }
}

/** Takes all the room that there is. */
function fill(path: string): void {
  const piece = Buffer.alloc(PAGE, 1);
  try {
    for (;;) writeFileSync(path, piece, { flag: 'a' });
  } catch (error) {
    assert.equal((error as NodeJS.ErrnoException).code, 'ENOSPC');
  }
}
