/** `verbena put FILE ADDR`: sends a file to `verbena serve` by one-sided RDMA writes. */
import type { Context, CounterValues, PathState } from '../../index.js';
import { localAddressTowards } from '../../link/interface.js';
import { clientAccess } from '../file-transfer/access.js';
import {
  describePath,
  formatBytes,
  formatCount,
  formatRate,
  formatSeconds,
} from '../base/format.js';
import { openLocalDevice } from '../base/open-device.js';
import { faultsOf } from '../base/options.js';
import { SLOTS_MAX } from '../../transfer/messages.js';
import type { PutOptions } from './options.js';
import { putPmem } from './pmem-put.js';
import { connectRefusal } from '../file-transfer/connect-refusal.js';
import { Progress } from '../base/progress.js';
import { Exit, Interrupted, printLine } from '../base/report.js';
import { parseServerAddress, resolveServer } from '../base/server-address.js';
import { SourceFile } from '../../transfer/source-file.js';
import { Transfer, type TransferResult } from '../../transfer/transfer.js';

/** What `--json` prints. */
export interface PutReport {
  readonly file: string;
  readonly name: string;
  readonly server: string;
  readonly bytes: number;
  readonly sha256: string;
  readonly seconds: number;
  readonly pieces: number;
  readonly piecesSent: number;
  readonly piecesSkipped: number;
  readonly reconnects: number;
  readonly packetsSent: number;
  readonly packetsReceived: number;
  readonly packetsRetransmitted: number;
  readonly timeouts: number;
  readonly path: PathState | undefined;
}

/** Device memory besides the pieces under way. */
const MEMORY_BASE_BYTES = 16 * 2 ** 20;
const RETRIES = 5;
const OUTAGE_SECONDS = 60;

export async function put(path: string, address: string, options: PutOptions): Promise<number> {
  const auth = await clientAccess(options);
  if (options.pmem) return putPmem(path, address, options, auth);
  const named = parseServerAddress(address);
  const file = await SourceFile.open(path, options.pieceBytes);
  let context: Context | undefined;
  const interrupt = new AbortController();
  const onSignal = (): void => interrupt.abort(new Interrupted('interrupted'));
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
  let progress: Progress | undefined;
  try {
    const server = await resolveServer(named);
    const localAddress = options.bind ?? (await localAddressTowards(server.host));
    context = await openLocalDevice(
      {
        address: localAddress,
        port: options.localPort,
        dscp: options.dscp,
        faults: faultsOf(options),
        ...(options.pcap === undefined ? {} : { pcap: options.pcap }),
      },
      { memoryBytes: MEMORY_BASE_BYTES + SLOTS_MAX * options.pieceBytes },
    );
    const bar = (progress = new Progress('put', file.size));
    const { retries = RETRIES } = options;
    const { outage = options.retries === undefined ? OUTAGE_SECONDS : 0 } = options;
    const retrying = { retries, outageMillis: outage * 1000 };
    const result = await new Transfer(
      {
        ...{ context, file, auth, ...retrying, signal: interrupt.signal },
        server: () => server,
        explain: (error, place) => connectRefusal(error, place, 'verbena serve'),
        remedy: 'check that "verbena serve" still runs there',
      },
      {
        progress: (bytes) => bar.update(bytes),
        verifying: () => undefined,
        note: (text) => bar.note(text),
      },
    ).run();
    bar.stop();
    await printReport(makeReport(path, address, file, result, context.counters()), options);
    return Exit.OK;
  } catch (error) {
    if (!(error instanceof Interrupted)) throw error;
    throw new Interrupted(`interrupted; to go on: verbena put ${path} ${address}`);
  } finally {
    progress?.stop();
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
    await context?.close();
    await file.close();
  }
}

function makeReport(
  path: string,
  server: string,
  file: SourceFile,
  result: TransferResult,
  counters: CounterValues,
): PutReport {
  return {
    file: path,
    name: file.name,
    server,
    bytes: file.size,
    sha256: result.sha256,
    seconds: result.seconds,
    pieces: file.pieceCount,
    piecesSent: result.piecesSent,
    piecesSkipped: result.piecesSkipped,
    reconnects: result.reconnects,
    packetsSent: Number(counters.sentPkts),
    packetsReceived: Number(counters.rcvdPkts),
    packetsRetransmitted: Number(counters.retransmittedPkts),
    timeouts: Number(counters.timeouts),
    path: result.path,
  };
}

async function printReport(report: PutReport, { json }: PutOptions): Promise<void> {
  if (json) {
    await printLine(JSON.stringify(report));
    return;
  }
  const { name, server, bytes, seconds, pieces, piecesSkipped } = report;
  const rate = piecesSkipped > 0 ? '' : `, ${formatRate(bytes, seconds)}`;
  await printLine(
    `${name} is on ${server}: ${formatBytes(bytes)} in ${formatSeconds(seconds)}${rate}`,
  );
  if (piecesSkipped > 0) {
    await printLine(`  ${piecesSkipped} of ${formatCount(pieces, 'piece')} were there already`);
  }
  await printLine(
    `  ${formatCount(report.packetsSent, 'packet')} sent, ${report.packetsReceived} received, ` +
      `${report.packetsRetransmitted} sent again` +
      (report.reconnects > 0 ? `, ${formatCount(report.reconnects, 'reconnect')}` : ''),
  );
  if (report.path) await printLine(`  path: ${describePath(report.path)}`);
  await printLine(`  SHA-256 ${report.sha256}, read back by the server`);
}
