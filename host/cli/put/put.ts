/** `verbena put FILE ADDR`: sends a file to `verbena serve` by one-sided RDMA writes. */
import { RejectReason } from '../../cm/enums.js';
import { MisuseError } from '../../errors/errors.js';
import type { ConnectError, Context, CounterValues, PathState } from '../../index.js';
import { clientAccess } from '../file-transfer/access.js';
import {
  describePath,
  formatBytes,
  formatCount,
  formatRate,
  formatSeconds,
} from '../base/format.js';
import { hasFaults } from '../base/open-device.js';
import { faultsOf } from '../base/options.js';
import { SLOTS_MAX } from '../../transfer/messages.js';
import type { PutOptions } from './options.js';
import { connectRefusal } from '../file-transfer/connect-refusal.js';
import { Progress } from '../base/progress.js';
import { Exit, Interrupted, printLine } from '../base/report.js';
import { RoamingDevice } from '../base/roaming-device.js';
import { isRoomAddress, parseRoomAddress } from '../base/room-address.js';
import { parseServerAddress, resolveServer } from '../base/server-address.js';
import type { ServerAddress } from '../base/server-address.js';
import { ROCE_PORT } from '../../link/link.js';
import { ConnectionLost } from '../../transfer/channel.js';
import { SourceFile } from '../../transfer/source-file.js';
import { Transfer, type TransferOptions, type TransferResult } from '../../transfer/transfer.js';

/** Output of `--json`. */
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
  if (options.pmem) {
    const { putPmem } = await import('./pmem-put.js');
    return putPmem(path, address, options, auth);
  }
  if (isRoomAddress(address)) parseRoomAddress(address);
  else parseServerAddress(address);
  const file = await SourceFile.open(path, options.pieceBytes);
  let way: Way | undefined;
  const interrupt = new AbortController();
  const onSignal = (): void => interrupt.abort(new Interrupted('interrupted'));
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
  let progress: Progress | undefined;
  try {
    const { signal } = interrupt;
    const memoryBytes = MEMORY_BASE_BYTES + SLOTS_MAX * options.pieceBytes;
    way = isRoomAddress(address)
      ? await roomWay(address, options, memoryBytes, signal)
      : await udpWay(address, options, memoryBytes);
    const { context, device } = way;
    const bar = (progress = new Progress('put', file.size));
    const { retries = RETRIES } = options;
    const { outage = options.retries === undefined ? OUTAGE_SECONDS : 0 } = options;
    const retrying = { retries, outageMillis: outage * 1000 };
    const result = await new Transfer(
      {
        ...{ context, file, auth, ...retrying, signal },
        server: way.server,
        explain: way.explain,
        ...(device && { contextAgain: () => followed(device, (text) => bar.note(text)) }),
        remedy: 'check that "verbena serve" still runs there',
      },
      {
        progress: (bytes) => bar.update(bytes),
        verifying: () => undefined,
        note: (text) => bar.note(text),
      },
    ).run();
    bar.stop();
    const counters = (device ?? context).counters();
    await printReport(makeReport(path, address, file, result, counters), options);
    return Exit.OK;
  } catch (error) {
    if (!(error instanceof Interrupted)) throw error;
    throw new Interrupted(`interrupted; to go on: verbena put ${path} ${address}`);
  } finally {
    progress?.stop();
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
    await (way?.device ?? way?.context)?.close();
    await file.close();
  }
}

/** How the server is reached. */
type Way = Pick<TransferOptions, 'context' | 'server' | 'explain'> & {
  /** Over UDP. */
  readonly device?: RoamingDevice;
};

async function udpWay(address: string, options: PutOptions, memoryBytes: number): Promise<Way> {
  const server = await resolveServer(parseServerAddress(address));
  const { bind, localPort: port, dscp, pcap } = options;
  const place = { address: bind, port, dscp, faults: faultsOf(options) };
  const wanted = pcap === undefined ? place : { ...place, pcap };
  const device = await RoamingDevice.open(server.host, wanted, memoryBytes);
  return { device, context: device.context, server: () => server, explain: explainRefusal };
}

/** The context of the next attempt. */
async function followed(device: RoamingDevice, note: (text: string) => void): Promise<Context> {
  const address = await device.follow();
  if (address !== undefined) note(`this machine has another address: going on from ${address}`);
  return device.context;
}

/** Over data channels, to a member of a room that receives files. */
async function roomWay(
  address: string,
  options: PutOptions,
  memoryBytes: number,
  signal: AbortSignal,
): Promise<Way> {
  if (options.bind !== undefined || options.pcap !== undefined || hasFaults(options)) {
    throw new MisuseError(
      'address',
      'is not valid with --bind, --pcap and faults, which are for UDP: omit them ' +
        'to put into a room',
    );
  }
  const { RoomDevice } = await import('../base/room-device.js');
  const device = await RoomDevice.open(parseRoomAddress(address), memoryBytes);
  return {
    context: device.context,
    server: async () => ({ host: await device.findMember(signal), port: ROCE_PORT }),
    explain: (error, server) => {
      // A member without any listener does not answer.
      const isOther =
        error.reason === RejectReason.INVALID_SERVICE_ID || error.code === 'ETIMEDOUT';
      if (!isOther) return explainRefusal(error, server);
      device.exclude(server.host);
      return new ConnectionLost(`${server.host} receives no files`);
    },
  };
}

function explainRefusal(error: ConnectError, server: ServerAddress): unknown {
  return connectRefusal(error, server, 'verbena serve');
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
