/** `verbena serve --pmem`: a region of persistent memory that one client at a time appends to. */
import type { PersistentMemory } from '../../index.js';
import * as rpma from '../../rpma/index.js';
import { RefusalError } from '../../errors/errors.js';
import { formatBytes, formatCount } from '../base/format.js';
import { openLocalDevice } from '../base/open-device.js';
import { faultsOf } from '../base/options.js';
import type { ServerAccess } from '../file-transfer/access.js';
import { FILE_SERVICE } from '../../transfer/channel.js';
import { refuseClients } from './other-service.js';
import { takeClients } from './pmem-clients.js';
import { FlushAnswerer } from '../file-transfer/pmem-messages.js';
import { PMEM_SERVICE, filesIn } from '../file-transfer/pmem-records.js';
import { authOption } from '../base/psk-file.js';
import { Exit, printLine } from '../base/report.js';
import type { ServeOptions } from './options.js';
import { describeStorage, openDurable } from '../base/storage.js';

const BYTES = 64 * 2 ** 20;
/** Of a connection, under way at a time. */
const FLUSHES_MAX = 128;
const MEMORY_BASE_BYTES = 16 * 2 ** 20;
const WITH_PMEM =
  'this server stores files in persistent memory: put --pmem, or start "verbena serve --dir DIR"';
/** Interval at which a server checks whether its region has failed. */
const WATCH_MILLIS = 250;

export async function servePmem(
  options: ServeOptions & { pmem: string },
  { auth, made }: ServerAccess,
): Promise<number> {
  const { pmem: path, json, bind, port, dscp, pcap } = options;
  const bytes = options.pmemBytes;
  const place = { address: bind, port, dscp, faults: faultsOf(options) };
  const context = await openLocalDevice(pcap === undefined ? place : { ...place, pcap }, {
    memoryBytes: MEMORY_BASE_BYTES + Math.max(bytes ?? 0, BYTES) + 2 ** 20,
    rdAtomicMax: FLUSHES_MAX,
  });
  try {
    // An existing file keeps its size; otherwise the size of the option.
    const opening = context
      .openPmem(path, bytes === undefined ? {} : { bytes })
      .catch((error: unknown) => {
        if (bytes !== undefined || error instanceof RefusalError) throw error;
        return context.openPmem(path, { bytes: BYTES });
      });
    const pmem = await openDurable(opening);
    const files = filesIn(pmem.buffer);
    const peer = rpma.peerNew(context);
    const { WRITE_DST, READ_SRC, FLUSH_TYPE_PERSISTENT } = rpma.MrUsage;
    const mr = peer.mrReg(pmem.buffer, WRITE_DST | READ_SRC | FLUSH_TYPE_PERSISTENT);
    const pcfg = rpma.peerCfgNew();
    pcfg.setDirectWriteToPmem(true);
    const privateData = Buffer.concat([mr.getDescriptor(), pcfg.getDescriptor()]);
    const ep = await peer.epListen(bind, PMEM_SERVICE, authOption(auth));
    await refuseClients(context, { address: bind, port: FILE_SERVICE }, auth, WITH_PMEM);
    // A program that reads the line `serving` may end this process at once.
    const stopped = new Promise<void>((resolve) => {
      process.once('SIGINT', () => resolve()).once('SIGTERM', () => resolve());
    });
    const { local } = context;
    const what = `${formatCount(files.length, 'file')} in ${formatBytes(pmem.length)}`;
    const { durability, durabilityReason: reason } = pmem;
    const event = {
      ...{ event: 'serving', pmem: path, address: `${local}`, pid: process.pid, files },
      ...{ kind: pmem.kind, durability, durabilityReason: reason },
      ...{ wantsKey: auth !== undefined, ...(made === undefined ? {} : { token: made }) },
    };
    const line = `serving ${path} on ${local}: ${what} of persistent memory (${pmem.kind}); ctrl-C ends`;
    await printLine(json ? JSON.stringify(event) : line);
    if (!json) await printLine(`  durability: ${describeStorage({ durability, reason })}`);
    if (!json && made !== undefined) await printLine(`  clients need: --token ${made}`);
    if (!json)
      for (const { name, sha256 } of files) await printLine(`  ${name}  SHA-256 ${sha256}`);
    const persist = (offset: number, length: number): Promise<void> => pmem.flush(offset, length);
    void takeClients(ep, privateData, new FlushAnswerer(peer, context, pmem.length, persist));
    const failure = await Promise.race([stopped, failureOf(pmem)]);
    ep.shutdown();
    if (failure) {
      const sentence = `a sync of ${path} has failed (${failure.message}): nothing more is durable`;
      throw new RefusalError('EIO', `${sentence}; check the disk, then start the server again`);
    }
    return Exit.OK;
  } finally {
    await context.close();
  }
}

/** Resolves when a sync of the region fails. */
async function failureOf(pmem: PersistentMemory): Promise<Error> {
  for (;;) {
    if (pmem.failure) return pmem.failure;
    await new Promise((resolve) => setTimeout(resolve, WATCH_MILLIS).unref());
  }
}
