/** Linux's own NVMe initiator, on our target: a disk that it makes a file system on. */
import type { GuestGroup } from './group.js';
import { guestTools } from './rxe/image.js';

export const nvmeGroup: GuestGroup = {
  name: 'nvme',
  tools: guestTools,
  guests: 1,
  async run(report, lab) {
    const { guest } = lab;
    await report.check('discover and connect', async () => {
      const target = lab.verbena('nvme-target', '--ram', '64m', '--bind', lab.ipv4, '--nqn', 'nqn.test');
      await target.printed('stdout', /serving/);
      try {
      await guest.run('modprobe nvme_rdma && modprobe ext4');
      report.note(await guest.run(`nvme discover -t rdma -a ${lab.ipv4} -s 4420`));
      report.note(await guest.run(`nvme connect -t rdma -a ${lab.ipv4} -s 4420 -n nqn.test -i 1 -Q 32; dmesg | tail -20; nvme list; lsblk || cat /proc/partitions`));
      report.note(await guest.run(`mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt && cp -r /usr/sbin /mnt/ && umount /mnt; dmesg | tail -3`));
      report.note(await guest.run(`mount /dev/nvme0n1 /mnt && diff -r /usr/sbin /mnt/sbin && umount /mnt && nvme disconnect -n nqn.test; dmesg | tail -3`));
      } finally {
      report.note(target.stdout + target.stderr);
      target.kill();
      }
    });
  },
};
