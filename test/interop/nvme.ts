/**
 * Linux's own NVMe initiator (nvme-rdma, nvme-cli) on our target: a disk that it makes a file system
 * on, that it finds again, that loses packets, and whose target is killed under it.
 */
import assert from 'node:assert/strict';
import { readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Program } from '../support/processes.js';
import type { GuestGroup, Report } from './group.js';
import { guestTools } from './rxe/image.js';
import type { Lab } from './rxe/lab.js';

const NQN = 'nqn.2026-01.dev.verbena:interop';
const UUID = '00000000-0000-0000-0000-000000000088';
const HOST = `--hostnqn=nqn.2014-08.org.nvmexpress:uuid:${UUID} --hostid=${UUID}`;
const DISK = '/dev/nvme0n1';
/** Seconds until Linux notices that a target is gone, and between its attempts to find it. */
const IMPATIENT = '--keep-alive-tmo=4 --reconnect-delay=1 --ctrl-loss-tmo=120';
const TREE = '/usr/sbin';
const SECONDS = 120;

export const nvmeGroup: GuestGroup = {
  name: 'nvme',
  tools: guestTools,
  guests: 1,
  async run(report, lab) {
    const file = join(lab.share, 'disk.img');
    await lab.guest.run('modprobe nvme_rdma && modprobe ext4 && mkdir -p /mnt');
    await discoversAndReads({ report, lab, file });
    await refusesAndFrees({ report, lab, file });
    await keepsThroughResets({ report, lab, file });
    await keepsThroughFaults({ report, lab, file });
  },
};

interface Scene {
  readonly report: Report;
  readonly lab: Lab;
  /** File that the target serves where it serves one. */
  readonly file: string;
}

/** Linux finds the target, and reads what it wrote. */
async function discoversAndReads({ report, lab }: Scene): Promise<void> {
  const { guest, ipv4, ipv6 } = lab;
  await report.check('nvme discover finds it, though an interface has joined us', async () => {
    // As a guest of an earlier group may: it must not change the address that Linux knows.
    const known = `ping -c 1 ${ipv6} >/tmp/said && ip neigh show ${ipv6} | cut -d' ' -f3-5`;
    const before = await guest.run(known);
    await lab.join();
    for (const address of [ipv4, ipv6]) {
      await withTarget(lab, ['--ram', '1m'], address, async () => {
        const found = await guest.run(`nvme discover -t rdma -a ${address} -s 4420 ${HOST}`);
        assert.match(found, /Number of Records 1/);
        assert.match(found, new RegExp(`subnqn: +${NQN}\n`));
        assert.match(found, new RegExp(`traddr: +${address}\n`));
        assert.match(found, /rdma_prtype: roce-v2/);
      });
    }
    assert.equal(await guest.run(known), before);
  });
  await report.check('blocks that Linux writes are read as they were, in memory', () =>
    withTarget(lab, ['--ram', '16m'], ipv4, async (target) => {
      await attach(lab);
      // In the capsule, fetched, several commands; and what was not written is zero.
      await guest.run(
        `dd if=/dev/urandom of=/tmp/data bs=1M count=2 2>/dev/null
         for bytes in 512 4096 8192 131072 2097152; do
           head -c $bytes /tmp/data >/tmp/part
           dd if=/tmp/part of=${DISK} bs=$bytes seek=1 conv=notrunc oflag=direct 2>/dev/null
           dd if=${DISK} bs=$bytes skip=1 count=1 iflag=direct 2>/dev/null | cmp - /tmp/part || exit 1
         done
         dd if=${DISK} bs=1M skip=8 count=1 iflag=direct 2>/dev/null | cmp -n 1048576 - /dev/zero`,
        SECONDS,
      );
      const identity = await guest.run(`nvme id-ctrl /dev/nvme0; nvme smart-log /dev/nvme0`);
      assert.match(identity, /mn +: Verbena/);
      assert.match(identity, /critical_warning\s+: 0/);
      await detach(lab);
      assert.match(target.stderr, /disconnected/);
    }),
  );
}

/** Refusals of the target, and memory that it returns to the file. */
async function refusesAndFrees({ report, lab, file }: Scene): Promise<void> {
  const { guest, ipv4 } = lab;
  await report.check(
    'a host that is not allowed, and a wrong name, are refused with the reason',
    async () => {
      const connectTo = (nqn: string): string =>
        `nvme connect -t rdma -a ${ipv4} -s 4420 -n ${nqn} ${HOST}`;
      const alone = ['--ram', '1m', '--host-nqn', 'nqn.2026-01.test:another'];
      await withTarget(lab, alone, ipv4, async (target) => {
        await guest.run(`! ${connectTo(NQN)} 2>/tmp/said`);
        assert.match(target.stderr, /is not allowed/);
        assert.match(await guest.run('dmesg | tail -5'), /Connect for subsystem .* is not allowed/);
      });
      await withTarget(lab, ['--ram', '1m'], ipv4, async (target) => {
        await guest.run(`! ${connectTo(`${NQN}2`)} 2>/tmp/said`);
        assert.match(target.stderr, /there is no subsystem/);
      });
    },
  );
  await report.check('what Linux needs no more is zeros, and takes no place in the file', () =>
    withTarget(lab, [file, '--size', '16m'], ipv4, async () => {
      await attach(lab);
      await guest.run(
        `dd if=/tmp/data of=${DISK} bs=1M seek=0 oflag=direct conv=fsync 2>/dev/null
         dd if=/tmp/data of=${DISK} bs=1M seek=4 oflag=direct conv=fsync 2>/dev/null`,
      );
      const blocks = statSync(file).blocks;
      // The second MiB, and a block of 512 bytes.
      await guest.run(
        `nvme dsm ${DISK} --ad --slbs=2048,8195 --blocks=2048,1 &&
         dd if=${DISK} bs=1M skip=1 count=1 iflag=direct 2>/dev/null | cmp -n 1048576 - /dev/zero &&
         dd if=${DISK} bs=512 skip=8195 count=1 iflag=direct 2>/dev/null | cmp -n 512 - /dev/zero &&
         dd if=${DISK} bs=1M count=1 iflag=direct 2>/dev/null | cmp -n 1048576 - /tmp/data`,
        SECONDS,
      );
      assert.ok(statSync(file).blocks <= blocks - 2000, 'a MiB is 2048 of them');
      await detach(lab);
      rmSync(file);
    }),
  );
}

/** Resets of the controller, and a file system that is found again. */
async function keepsThroughResets({ report, lab, file }: Scene): Promise<void> {
  const { guest, ipv4 } = lab;
  await report.check(
    'four programs read and write while the controller is reset: all is there',
    () =>
      withTarget(lab, ['--ram', '16m'], ipv4, async (target) => {
        await attach(lab);
        // Each has a part and sizes of its own, and reads what it has written, until all is over.
        await guest.run(
          `rm -f /tmp/over
         part() { until [ -e /tmp/over ]; do
           dd if=/dev/urandom of=/tmp/p$1 bs=$2 count=$3 2>/dev/null
           dd if=/tmp/p$1 of=${DISK} bs=$2 seek=$4 oflag=direct conv=notrunc 2>/dev/null || exit 1
           dd if=${DISK} bs=$2 skip=$4 count=$3 iflag=direct 2>/dev/null | cmp - /tmp/p$1 || exit 1
         done; }
         part 1 512 16 0 & one=$!; part 2 4096 16 256 & two=$!
         part 3 65536 4 96 & three=$!; part 4 1048576 1 9 & four=$!
         for reset in 1 2; do sleep 0.7; nvme reset /dev/nvme0 || exit 1; done
         touch /tmp/over; wait $one && wait $two && wait $three && wait $four`,
          SECONDS,
        );
        assert.match(target.stdout, /controller 3, queue 1/);
        await detach(lab);
      }),
  );
  await report.check('mkfs.ext4, a tree of files, and the whole tree after a reconnect', () =>
    withTarget(lab, [file, '--size', '64m'], ipv4, async () => {
      await attach(lab);
      await makeTree(lab);
      await detach(lab);
      await attach(lab);
      await compareTree(lab);
      await detach(lab);
    }),
  );
  await report.check('what it wrote is in the file: an ext4 file system', () => {
    assert.deepEqual([...readFileSync(file).subarray(1080, 1082)], [0x53, 0xef]);
  });
}

/** Lost packets, and a target that is killed. */
async function keepsThroughFaults({ report, lab, file }: Scene): Promise<void> {
  const { guest, ipv4 } = lab;
  await report.check('the same with 1 % of the packets lost', async () => {
    rmSync(file, { force: true });
    await withTarget(lab, [file, '--size', '64m'], ipv4, async () => {
      const { lost } = await lab.withLoss(1, async () => {
        await attach(lab);
        await makeTree(lab);
        await compareTree(lab);
      });
      report.note(`${lost} packets were lost`);
      await detach(lab);
    });
  });
  await report.check('the target is killed and started again: what was flushed is there', () =>
    withTarget(lab, [file], ipv4, async (first) => {
      await attach(lab);
      await guest.run(
        `mount ${DISK} /mnt && head -c 2000000 /dev/urandom >/mnt/flushed && sync
         md5sum /mnt/flushed >/tmp/sum && echo 3 >/proc/sys/vm/drop_caches`,
      );
      first.kill('SIGKILL');
      await first.ended;
      const reading = guest.spawn('md5sum -c /tmp/sum && echo later >/mnt/later && sync');
      await withTarget(lab, [file], ipv4, async (second) => {
        await reading.finished(SECONDS);
        await guest.run(`umount /mnt && e2fsck -fn ${DISK} && dmesg | tail -20`, SECONDS);
        const log = await guest.run('dmesg | tail -30');
        assert.match(log, /Successfully reconnected/);
        assert.match(second.stdout, /controller 1, queue 1/);
        await detach(lab);
      });
    }),
  );
  await report.check('in persistent memory: written, flushed, and there after a kill', () => {
    // The region is this machine's; tmpfs would not do.
    const region = join(lab.share, 'disk.pmem');
    return withTarget(lab, [region, '--pmem', '--size', '16m'], ipv4, async (first) => {
      await attach(lab);
      await guest.run(
        `head -c 1000000 /dev/urandom >/tmp/data && dd if=/tmp/data of=${DISK} bs=64k conv=fsync 2>/dev/null`,
      );
      first.kill('SIGKILL');
      await first.ended;
      await withTarget(lab, [region, '--pmem'], ipv4, async () => {
        await guest.run(
          `dd if=${DISK} bs=64k iflag=direct 2>/dev/null | cmp -n 1000000 - /tmp/data`,
          SECONDS,
        );
        await detach(lab);
      });
    });
  });
}

/** While a target serves. It is ended by its own signal, unless it is dead. */
async function withTarget(
  lab: Lab,
  words: readonly string[],
  address: string,
  use: (target: Program) => Promise<void>,
): Promise<void> {
  const target = lab.verbena('nvme-target', ...words, '--bind', address, '--nqn', NQN);
  try {
    await target.printed('stdout', /serving/);
    await use(target);
  } catch (error) {
    const log = await lab.guest.run('dmesg | tail -15').catch(() => '');
    await lab.guest.run(`umount -l /mnt; nvme disconnect -n ${NQN}; true`).catch(() => '');
    throw new Error(`${(error as Error).message}\n${target.stdout}${target.stderr}${log}`);
  } finally {
    target.kill('SIGTERM');
    await target.ended;
  }
}

async function attach({ guest, ipv4 }: Lab): Promise<void> {
  await guest.run(
    `nvme connect -t rdma -a ${ipv4} -s 4420 -n ${NQN} -i 1 -Q 32 ${IMPATIENT} ${HOST} &&
     until [ -b ${DISK} ]; do sleep 0.1; done`,
  );
}

async function detach({ guest }: Lab): Promise<void> {
  const said = await guest.run(`umount /mnt 2>/dev/null; nvme disconnect -n ${NQN}`);
  assert.match(said, /disconnected 1 controller/);
}

async function makeTree({ guest }: Lab): Promise<void> {
  const copy = `mount ${DISK} /mnt && cp -r ${TREE} /mnt/tree && umount /mnt`;
  await guest.run(`mkfs.ext4 -q ${DISK} && ${copy}`, SECONDS);
}

async function compareTree({ guest }: Lab): Promise<void> {
  const compare = `mount ${DISK} /mnt && diff -r ${TREE} /mnt/tree`;
  await guest.run(`${compare} && umount /mnt && e2fsck -fn ${DISK}`, SECONDS);
}
