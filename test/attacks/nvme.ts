/** Attacks on `verbena nvme-target`, as a process. */
import { setTimeout as sleep } from 'node:timers/promises';
import * as assert from 'uvu/assert';
import { connectNvme, openDevice, type NvmeVolume } from '../../host/index.js';
import { buildIpCm, serviceIdOf } from '../../host/cm/address.js';
import { PortSpace } from '../../host/cm/enums.js';
import { Gid } from '../../host/link/endpoint.js';
import { RdmaRequestData } from '../../host/nvme/structures.js';
import { Workspace } from '../support/processes.js';
import { Attacker, request } from './attacker.js';
import type { Attack } from './attack.js';

const PORT = 4420;
const RANGES = 256;
const NQN = 'nqn.2026-01.dev.verbena:target';

async function withTarget(
  address: string,
  ram: string,
  work: () => Promise<number>,
): Promise<number> {
  let count = 0;
  await Workspace.use(async (space) => {
    const target = space.start('nvme-target', '--ram', ram, '--bind', address);
    await target.printed('stdout', /serving memory/);
    count = await work();
  });
  return count;
}

/** A host at `from`, until `work` ends. */
async function withHost(
  address: string,
  from: string,
  work: (volume: NvmeVolume) => Promise<void>,
): Promise<void> {
  await using context = await openDevice({ address: from, port: 0, memoryBytes: 2 ** 25 });
  const volume = await connectNvme(`${address}:${PORT}`, { context, nqn: NQN });
  await work(volume);
  await volume.close();
}

export const NVME_ATTACKS: readonly Attack[] = [
  {
    name: '256 REQs from one address keep no other host from the NVMe target',
    position: 'any host',
    run: () =>
      withTarget('127.1.24.1', '16M', async () => {
        const address = '127.1.24.1';
        const attacker = await Attacker.open('127.1.24.2');
        const privateData = new Uint8Array(92);
        const [source, target] = [Gid.parse(attacker.address), Gid.parse(address)];
        privateData.set(buildIpCm({ source, target, sourcePort: 50000 }));
        privateData.set(RdmaRequestData.build({ recfmt: 0, qid: 0, hrqsize: 32, hsqsize: 31 }), 36);
        for (let index = 0; index < 256; index++) {
          const fields = {
            ...request(attacker.address, { address, port: PORT }),
            serviceId: serviceIdOf(PortSpace.TCP, PORT),
            localCommId: 0x1000 + index,
            localQpn: 0x2000 + index,
            privateData,
          };
          await attacker.send(attacker.message(address, 'REQ', fields, BigInt(index + 1)), address);
        }
        await sleep(500);
        const began = performance.now();
        await withHost(address, '127.1.24.3', async (volume) => {
          await volume.read(0, volume.context.alloc(4096));
        });
        const seconds = (performance.now() - began) / 1000;
        attacker.close();
        assert.ok(seconds < 5, `another host took ${seconds.toFixed(1)} s`);
        return attacker.sent;
      }),
  },
  {
    name: 'one Dataset Management of 256 ranges blocks no other host of the NVMe target',
    position: 'peer',
    unit: 'commands',
    run: () =>
      withTarget('127.1.24.4', '1G', async () => {
        const address = '127.1.24.4';
        await withHost(address, '127.1.24.5', async (honest) => {
          const memory = honest.context.alloc(4096);
          await honest.read(0, memory);
          let longest = 0;
          await withHost(address, '127.1.24.6', async (hostile) => {
            const all = { lba: 0, blocks: Number(hostile.blocks) };
            let isOver = false;
            const asked = Array.from({ length: 4 }, () =>
              hostile.deallocate(Array.from({ length: RANGES }, () => all)).catch(() => {}),
            );
            const done = Promise.all(asked).then(() => (isOver = true));
            await sleep(50);
            for (let turn = 0; turn < 50 && !isOver; turn++) {
              const began = performance.now();
              await honest.read(0, memory);
              longest = Math.max(longest, performance.now() - began);
            }
            await done;
          });
          assert.ok(longest > 0 && longest < 250, `a READ took ${longest.toFixed(0)} ms`);
        });
        return 4;
      }),
  },
];
