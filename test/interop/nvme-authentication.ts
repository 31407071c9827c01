/**
 * DH-HMAC-CHAP with Linux: its initiator (nvme-rdma) on our target, and our initiator on its target
 * (nvmet), each hash, groups up to ffdhe4096, one way and both ways, wrong secrets.
 * An emulated guest takes longer than the target's 10 s for an exchange with ffdhe8192.
 */
import assert from 'node:assert/strict';
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  connectNvme,
  makeDhchapSecret,
  openDevice,
  type DhchapGroup,
  type DhchapHash,
  type NvmeHostDhchap,
} from '../../host/index.js';
import type { Program } from '../support/processes.js';
import type { GuestGroup, Report } from './group.js';
import { guestTools } from './rxe/image.js';
import type { Lab } from './rxe/lab.js';

const NQN = 'nqn.2026-01.dev.verbena:interop';
const LINUX_NQN = 'nqn.2026-01.test:nvmet';
const UUID = '00000000-0000-0000-0000-000000000088';
const HOST_NQN = `nqn.2014-08.org.nvmexpress:uuid:${UUID}`;
const DISK = '/dev/nvme0n1';
const SECONDS = 120;
const NVMET = '/sys/kernel/config/nvmet';

/** A hash, a group, and how the secrets of host and controller are transformed. */
const COMBINATIONS: readonly {
  readonly hash: DhchapHash;
  readonly group: DhchapGroup;
  readonly transform: DhchapHash | 'none';
}[] = [
  { hash: 'sha256', group: 'null', transform: 'none' },
  { hash: 'sha256', group: 'ffdhe2048', transform: 'sha256' },
  { hash: 'sha384', group: 'ffdhe3072', transform: 'sha384' },
  { hash: 'sha512', group: 'ffdhe4096', transform: 'sha512' },
];

export const nvmeAuthenticationGroup: GuestGroup = {
  name: 'nvme-auth',
  tools: guestTools,
  guests: 1,
  async run(report, lab) {
    await lab.guest.run('modprobe nvme_rdma && modprobe nvmet_rdma && mkdir -p /mnt');
    for (const { hash, group, transform } of COMBINATIONS) {
      for (const isMutual of [false, true]) {
        const ways = isMutual ? 'both ways' : 'one way';
        const terms = `${hash}, ${group}, secrets of transform ${transform}, ${ways}`;
        const secret = makeDhchapSecret(transform);
        const controllerSecret = isMutual ? makeDhchapSecret(transform) : undefined;
        await authenticates(report, lab, terms, { secret, controllerSecret, hash, group });
      }
    }
    await refuses(report, lab);
  },
};

interface Terms {
  readonly secret: string;
  readonly controllerSecret?: string | undefined;
  readonly hash: DhchapHash;
  readonly group: DhchapGroup;
}

/** Linux to our target and ours to nvmet, by these terms, which `name` says. */
async function authenticates(report: Report, lab: Lab, name: string, terms: Terms): Promise<void> {
  const { secret, controllerSecret, hash, group } = terms;
  const isMutual = controllerSecret !== undefined;
  await report.check(`Linux authenticates to our target: ${name}`, () =>
    withTarget(lab, terms, async (target) => {
      const own = isMutual ? ` --dhchap-ctrl-secret=${controllerSecret}` : '';
      await attach(lab, ` --dhchap-secret=${secret}${own}`);
      await lab.guest.run(
        `dd if=/dev/urandom of=/tmp/data bs=64k count=4 2>/dev/null
         dd if=/tmp/data of=${DISK} bs=64k oflag=direct 2>/dev/null &&
         dd if=${DISK} bs=64k count=4 iflag=direct 2>/dev/null | cmp - /tmp/data`,
        SECONDS,
      );
      const log = await lab.guest.run('dmesg | tail -20');
      assert.match(log, new RegExp(`authenticated with hash hmac\\(${hash}\\) dhgroup ${group}`));
      if (isMutual) assert.match(log, /controller authenticated/);
      assert.match(target.stdout, /queue 1/);
      await detach(lab);
    }),
  );
  await report.check(`our initiator authenticates to nvmet: ${name}`, async () => {
    await serve(lab, terms);
    const dhchap = { secret, ...(controllerSecret !== undefined && { controllerSecret }) };
    await readAndWrite(lab, dhchap);
  });
}

/** Wrong secrets, on either side. */
async function refuses(report: Report, lab: Lab): Promise<void> {
  await report.check('a wrong secret, or none, is refused by our target, and Linux says so', () => {
    const terms = { secret: makeDhchapSecret(), hash: 'sha256', group: 'ffdhe2048' } as const;
    return withTarget(lab, terms, async (target) => {
      const wrong = ` --dhchap-secret=${makeDhchapSecret()}`;
      for (const words of ['', wrong]) {
        await assert.rejects(attach(lab, words), 'connected');
      }
      assert.match(target.stderr, /the host does not have the secret/);
      await attach(lab, ` --dhchap-secret=${terms.secret}`);
      await detach(lab);
    });
  });
  await report.check('Linux refuses our target when the controller has another secret', () => {
    const secret = makeDhchapSecret();
    const controllerSecret = makeDhchapSecret();
    const terms = { secret, controllerSecret, hash: 'sha256', group: 'ffdhe2048' } as const;
    return withTarget(lab, terms, async (target) => {
      const other = `--dhchap-ctrl-secret=${makeDhchapSecret()}`;
      await assert.rejects(attach(lab, ` --dhchap-secret=${secret} ${other}`));
      assert.match(target.stderr, /the host refuses the controller/);
    });
  });
  await report.check(
    'nvmet refuses a wrong secret; we refuse an nvmet with another one',
    async () => {
      const secret = makeDhchapSecret();
      const controllerSecret = makeDhchapSecret();
      await serve(lab, { secret, controllerSecret, hash: 'sha256', group: 'ffdhe2048' });
      await assert.rejects(readAndWrite(lab, { secret: makeDhchapSecret() }), /refuses this host/);
      await assert.rejects(readAndWrite(lab, undefined), /asks .* for authentication/);
      const other = { secret, controllerSecret: makeDhchapSecret() };
      await assert.rejects(readAndWrite(lab, other), /does not have its secret/);
      await readAndWrite(lab, { secret, controllerSecret });
    },
  );
}

async function withTarget(
  lab: Lab,
  { secret, controllerSecret = '', hash, group }: Terms,
  use: (target: Program) => Promise<void>,
): Promise<void> {
  const file = join(lab.folder, 'secrets');
  writeFileSync(file, `${HOST_NQN} ${secret} ${controllerSecret}\n`);
  chmodSync(file, 0o600);
  const words = ['--dhchap-file', file, '--dhchap-hash', hash, '--dhchap-group', group];
  const bound = ['--bind', lab.ipv4, '--nqn', NQN];
  const target = lab.verbena('nvme-target', '--ram', '1m', ...words, ...bound);
  try {
    await target.printed('stdout', /serving/);
    await use(target);
  } catch (error) {
    const log = await lab.guest.run('dmesg | tail -25').catch(() => '');
    await lab.guest.run(`nvme disconnect -n ${NQN}; true`).catch(() => '');
    throw new Error(`${(error as Error).message}\n${target.stdout}${target.stderr}${log}`);
  } finally {
    target.kill('SIGTERM');
    await target.ended;
  }
}

async function attach({ guest, ipv4 }: Lab, words: string): Promise<void> {
  await guest.run(
    `nvme connect -t rdma -a ${ipv4} -s 4420 -n ${NQN} -i 1 -Q 32 --reconnect-delay=1 --hostnqn=${HOST_NQN} --hostid=${UUID}${words} 2>&1 &&
     until [ -b ${DISK} ]; do sleep 0.1; done`,
    SECONDS,
  );
}

async function detach({ guest }: Lab): Promise<void> {
  const said = await guest.run(`nvme disconnect -n ${NQN}`);
  assert.match(said, /disconnected 1 controller/);
}

/** The guest serves a disk of 4 MiB, anew with each call. */
async function serve(lab: Lab, { secret, controllerSecret, hash, group }: Terms): Promise<void> {
  const { ipv4 } = lab.guest;
  await lab.guest.run(
    `mount | grep -q configfs || mount -t configfs none /sys/kernel/config
     cd ${NVMET}
     rm -f ports/1/subsystems/* subsystems/*/allowed_hosts/*
     rmdir hosts/* ports/1 subsystems/*/namespaces/1 subsystems/* 2>/dev/null
     [ -e /dev/shm/disk ] || dd if=/dev/zero of=/dev/shm/disk bs=1M count=4 2>/dev/null
     set -e
     mkdir hosts/${HOST_NQN}
     echo ${secret} >hosts/${HOST_NQN}/dhchap_key
     ${controllerSecret === undefined ? '' : `echo ${controllerSecret} >hosts/${HOST_NQN}/dhchap_ctrl_key`}
     echo 'hmac(${hash})' >hosts/${HOST_NQN}/dhchap_hash
     echo ${group} >hosts/${HOST_NQN}/dhchap_dhgroup
     mkdir -p subsystems/${LINUX_NQN}/namespaces/1 ports/1
     echo 0 >subsystems/${LINUX_NQN}/attr_allow_any_host
     ln -s ${NVMET}/hosts/${HOST_NQN} subsystems/${LINUX_NQN}/allowed_hosts/
     echo /dev/shm/disk >subsystems/${LINUX_NQN}/namespaces/1/device_path
     echo 1 >subsystems/${LINUX_NQN}/namespaces/1/buffered_io
     echo 1 >subsystems/${LINUX_NQN}/namespaces/1/enable
     echo rdma >ports/1/addr_trtype; echo ipv4 >ports/1/addr_adrfam
     echo ${ipv4} >ports/1/addr_traddr; echo 4420 >ports/1/addr_trsvcid
     ln -s ${NVMET}/subsystems/${LINUX_NQN} ports/1/subsystems/`,
    SECONDS,
  );
}

async function readAndWrite(lab: Lab, dhchap: NvmeHostDhchap | undefined): Promise<void> {
  const context = await openDevice({ address: lab.ipv4 });
  try {
    const volume = await connectNvme(lab.guest.ipv4, {
      ...{ nqn: LINUX_NQN, context, hostNqn: HOST_NQN },
      ...(dhchap && { dhchap }),
    });
    const memory = context.alloc(65536);
    memory.forEach((_, at) => (memory[at] = (at * 13) & 255));
    const wanted = memory.slice();
    await volume.write(8, memory);
    memory.fill(0);
    await volume.read(8, memory);
    assert.equal(Buffer.compare(memory, wanted), 0);
    await volume.close();
  } finally {
    await context.close();
  }
}
