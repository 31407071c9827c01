/** `verbena nvme-target`: a file, memory or persistent memory as an NVMe namespace over RDMA. */
import type {
  Context,
  DhchapGroup,
  DhchapHash,
  NvmeMedium,
  NvmeTargetDhchap,
  NvmeTargetEvent,
} from '../../index.js';
import { MisuseError } from '../../errors/errors.js';
import { FileStore as NvmeFileStore } from '../../nvme/file-store.js';
import { PmemStore as NvmePmemStore } from '../../nvme/pmem-store.js';
import { RamStore as NvmeRamStore } from '../../nvme/store.js';
import { NvmeTarget } from '../../nvme/target.js';
import { nvmeResponseTimes } from '../../nvme/response-times.js';
import { readDhchapFile } from './dhchap-file.js';
import { formatBytes } from '../base/format.js';
import { openLocalDevice, type FaultPercents } from '../base/open-device.js';
import { faultsOf } from '../base/options.js';
import { authOption, readAuth, type PskOptions } from '../base/psk-file.js';
import { Exit, complain, printLine } from '../base/report.js';
import { describeStorage, openDurable } from '../base/storage.js';

export interface NvmeTargetCliOptions extends FaultPercents, PskOptions {
  readonly ram?: number;
  readonly size?: number;
  readonly pmem?: boolean;
  readonly bind: string;
  readonly nqn?: string;
  readonly hostNqn?: readonly string[];
  readonly dhchapFile?: string;
  readonly dhchapHash?: DhchapHash;
  readonly dhchapGroup?: DhchapGroup;
  readonly blockBytes: number;
  readonly medium?: NvmeMedium;
  readonly port: number;
  readonly udpPort: number;
  readonly pcap?: string;
  readonly json?: boolean;
}

/** For queues and data in flight, besides the blocks themselves. */
const WORKING_BYTES = 256 * 2 ** 20;
const RD_ATOMIC_MAX = 128;

export async function nvmeTarget(
  file: string | undefined,
  options: NvmeTargetCliOptions,
): Promise<number> {
  const { ram, pmem, bind, udpPort, nqn, hostNqn, blockBytes, medium, port, json } = options;
  if ((file === undefined) === (ram === undefined)) {
    throw new MisuseError(
      'FILE or --ram',
      'is required: the storage of the namespace (verbena nvme-target --help)',
    );
  }
  const dhchap = await dhchapOf(options);
  const auth = await readAuth(options);
  const blocks = pmem ? (options.size ?? 2 ** 30) : (ram ?? 0);
  const context = await openLocalDevice(
    {
      address: bind,
      port: udpPort,
      faults: faultsOf(options),
      ...(options.pcap !== undefined && { pcap: options.pcap }),
    },
    { memoryBytes: WORKING_BYTES + blocks, rdAtomicMax: RD_ATOMIC_MAX },
  );
  try {
    const store = await openStore(context, file, options);
    const target = await NvmeTarget.open(context, {
      store,
      blockBytes,
      port,
      ...(nqn !== undefined && { nqn }),
      ...(hostNqn !== undefined && { hosts: hostNqn }),
      ...(dhchap && { dhchap }),
      ...authOption(auth),
      ...(medium !== undefined && { delayMicros: nvmeResponseTimes(medium) }),
      onEvent: (event) => void tell(json, event),
    }).catch(async (error: unknown) => {
      await store.close();
      throw error;
    });
    const stopped = new Promise<void>((resolve) => {
      process.once('SIGINT', () => resolve()).once('SIGTERM', () => resolve());
    });
    const what = file ?? 'memory';
    const at = `${bind}:${target.port}`;
    const size = formatBytes(store.length);
    const serving = { event: 'serving', nqn: target.nqn, address: bind, port: target.port };
    const { durability, durabilityReason } = store;
    const report = { what, bytes: store.length, pid: process.pid, durability, durabilityReason };
    await printLine(
      json
        ? JSON.stringify({ ...serving, ...report })
        : `serving ${what} (${size}) as ${target.nqn} on ${at}; ctrl-C ends`,
    );
    if (!json) {
      const storage = { durability, reason: durabilityReason };
      await printLine(`  durability: ${describeStorage(storage)}`);
    }
    await stopped;
    await target.close();
    return Exit.OK;
  } finally {
    await context.close();
  }
}

async function dhchapOf(options: NvmeTargetCliOptions): Promise<NvmeTargetDhchap | undefined> {
  const { dhchapFile, dhchapHash, dhchapGroup } = options;
  if (dhchapFile === undefined) {
    if (dhchapHash === undefined && dhchapGroup === undefined) return undefined;
    throw new MisuseError('--dhchap-hash, --dhchap-group', 'require --dhchap-file');
  }
  return {
    hosts: await readDhchapFile(dhchapFile),
    ...(dhchapHash !== undefined && { hash: dhchapHash }),
    ...(dhchapGroup !== undefined && { group: dhchapGroup }),
  };
}

function openStore(
  context: Context,
  file: string | undefined,
  { ram, size, pmem }: NvmeTargetCliOptions,
): Promise<NvmeRamStore | NvmeFileStore | NvmePmemStore> {
  if (file === undefined) return Promise.resolve(new NvmeRamStore(context, ram!));
  if (!pmem) return NvmeFileStore.open(file, size);
  const opening = NvmePmemStore.open(context, file, size === undefined ? {} : { bytes: size });
  return openDurable(opening, 'name a file on a disk, or omit --pmem');
}

async function tell(json: boolean | undefined, event: NvmeTargetEvent): Promise<void> {
  const { kind, peer, hostNqn, cntlid, qid, reason } = event;
  if (json) return printLine(JSON.stringify({ event: kind, peer, hostNqn, cntlid, qid, reason }));
  const host = `${hostNqn || 'a host'} at ${peer}, controller ${cntlid}, queue ${qid}`;
  if (kind === 'connected') return printLine(`connected: ${host}`);
  complain('nvme-target', `${kind}: ${kind === 'failed' ? '' : `${host}: `}${reason}`);
}
