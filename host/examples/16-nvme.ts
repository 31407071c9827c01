/** A disk over RDMA: the server's memory is an NVMe namespace, which the client reads and writes. */
import { NvmeRamStore, NvmeTarget, connectNvme, openDevice } from '../index.js';
import { announce, play } from './roles.js';
import { decode, encode } from './private-data.js';

const NQN = 'nqn.2026-01.dev.verbena:example';
const DISK_BYTES = 2 ** 20;

await play(
  async ({ target, udpPort }) => {
    const [address = '', port = ''] = target.split(':');
    await using context = await openDevice({
      address,
      ...(udpPort !== undefined && { port: udpPort }),
    });
    const left = new Promise<void>((resolve) => {
      void NvmeTarget.open(context, {
        store: new NvmeRamStore(context, DISK_BYTES),
        nqn: NQN,
        port: Number(port),
        onEvent: ({ kind, qid, hostNqn }) => {
          console.log(`${kind}: queue ${qid} of ${hostNqn}`);
          if (kind === 'disconnected' && qid === 0) resolve();
        },
      }).then((served) => announce(served.port, context));
    });
    await left;
  },
  async ({ target, udpPort }) => {
    const device = { port: 0 };
    const where = udpPort === undefined ? {} : { udpPort };
    const volume = await connectNvme(target, { nqn: NQN, device, ...where });
    console.log(`${volume.blocks} blocks of ${volume.blockBytes} bytes`);
    const block = volume.context.alloc(volume.blockBytes);
    block.set(encode('sector seven'));
    await volume.write(7, block);
    await volume.flush();
    block.fill(0);
    await volume.read(7, block);
    console.log(`read back: ${decode(block)}`);
    await volume.close();
  },
);
