/**
 * `verbena put --pmem`: appends a file to the log in the server's persistent memory. The server's
 * processor does nothing for it; what is reported as done survives its power cut.
 */
import * as rpma from '../../rpma/index.js';
import { RefusalError } from '../../errors/errors.js';
import { WcStatus } from '../../verbs/enums.js';
import { wcStatusStr } from '../../verbs/queries/strings.js';
import type { AuthOptions, Context } from '../../index.js';
import { lookUp } from '../../cm/address-info.js';
import { localAddressTowards } from '../../link/interface.js';
import { formatBytes, formatRate, formatSeconds } from '../base/format.js';
import { openLocalDevice } from '../base/open-device.js';
import { faultsOf } from '../base/options.js';
import { connectRefusal } from '../file-transfer/connect-refusal.js';
import {
  DATA_RECORD_BYTES,
  END_RECORD_BYTES,
  PIECE_BYTES,
  PMEM_SERVICE,
  dataRecord,
  endRecord,
  fileRecord,
} from '../file-transfer/pmem-records.js';
import { Progress } from '../base/progress.js';
import type { PutOptions } from './options.js';
import { Exit, printLine } from '../base/report.js';
import {
  formatServerAddress,
  parseServerAddress,
  whileUnanswered,
  type ServerAddress,
} from '../base/server-address.js';
import { hexOf } from '../../transfer/bytes.js';
import { SourceFile } from '../../transfer/source-file.js';

/** Appends under way at a time. */
const DEPTH = 8;
/** Flushes, and atomic writes: three of each append. */
const FLUSHES_MAX = 32;
const MEMORY_BASE_BYTES = 16 * 2 ** 20;
/** The largest log of `serve --pmem`; untouched pages use no memory. */
const LOG_BYTES_MAX = 2 ** 31;
const SERVER_COMMAND = 'verbena serve --pmem';

export async function putPmem(
  path: string,
  address: string,
  options: PutOptions,
  auth: AuthOptions | undefined,
): Promise<number> {
  const named = parseServerAddress(address);
  const host = await lookUp(named.host);
  const local = options.bind ?? (await localAddressTowards(host));
  const { pcap, localPort: port, dscp } = options;
  const place = { address: local, port, dscp, faults: faultsOf(options) };
  const file = await SourceFile.open(path, PIECE_BYTES);
  let context: Context | undefined;
  let progress: Progress | undefined;
  try {
    const started = performance.now();
    context = await openLocalDevice(pcap === undefined ? place : { ...place, pcap }, {
      memoryBytes: MEMORY_BASE_BYTES + LOG_BYTES_MAX,
      rdAtomicMax: FLUSHES_MAX,
    });
    const server = { host, port: named.port };
    const { log, conn, freeBytes } = await openLog(context, server, auth);
    checkRoom(file, freeBytes, address);
    const { name, size: bytes } = file;
    const bar = (progress = new Progress('put', bytes));
    const appends: Promise<number>[] = [];
    let done = 0;
    const append = (record: Uint8Array, length = 0): void => {
      const appended = log.append(record);
      // The code that awaits `appended` receives its error.
      appended.then(() => bar.update((done += length))).catch(() => {});
      appends.push(appended);
    };
    append(fileRecord(name));
    for (let index = 0; index < file.pieceCount; index++) {
      const piece = new Uint8Array(file.lengthOf(index));
      await file.read(index, piece);
      append(dataRecord(piece), piece.length);
      if (appends.length > 4 * DEPTH) await appends.shift();
    }
    await file.checkUnchanged();
    const sha256 = file.digest();
    append(endRecord(sha256));
    await Promise.all(appends);
    bar.stop();
    const seconds = (performance.now() - started) / 1000;
    await close(conn);
    const report = { file: path, name, server: address, bytes, sha256: hexOf(sha256) };
    const line = `${name} is in the persistent memory of ${address}: ${formatBytes(bytes)} in `;
    const speed = `${formatSeconds(seconds)}, ${formatRate(bytes, seconds)}, flushed`;
    await printLine(options.json ? JSON.stringify({ ...report, seconds }) : line + speed);
    if (!options.json) await printLine(`  SHA-256 ${report.sha256}`);
    return Exit.OK;
  } finally {
    progress?.stop();
    await context?.close();
    await file.close();
  }
}

/** Throws RefusalError ENOSPC, before a byte is sent, for a file that the log has no room for. */
function checkRoom(file: SourceFile, freeBytes: number, address: string): void {
  const { name, size, pieceCount } = file;
  let needed = rpma.logRecordSize(fileRecord(name).length);
  for (let index = 0; index < pieceCount; index++) {
    needed += rpma.logRecordSize(DATA_RECORD_BYTES + file.lengthOf(index));
  }
  needed += rpma.logRecordSize(END_RECORD_BYTES);
  if (needed <= freeBytes) return;
  throw new RefusalError(
    'ENOSPC',
    `${name} has ${formatBytes(size)} and needs ${formatBytes(needed)} of the log at ${address}, ` +
      `which has ${formatBytes(freeBytes)} left; start "${SERVER_COMMAND}" with a new file and ` +
      'a larger --pmem-bytes',
  );
}

interface OpenedLog {
  readonly log: rpma.ReplicatedLog;
  readonly conn: rpma.Conn;
  readonly freeBytes: number;
}

/** Connects, and finds where the log ends. Rejects with RefusalError. */
async function openLog(
  context: Context,
  server: ServerAddress,
  auth: AuthOptions | undefined,
): Promise<OpenedLog> {
  const peer = rpma.peerNew(context);
  const cfg = rpma.connCfgNew();
  cfg.setSqSize(rpma.logQueueSize(DEPTH));
  cfg.setCqSize(rpma.logQueueSize(DEPTH));
  cfg.setAuth(auth);
  const conn = (await peer.connReqNew(server.host, PMEM_SERVICE, cfg, server.port)).connect();
  const place = formatServerAddress(server);
  const event = await whileUnanswered('put', place, SERVER_COMMAND, conn.nextEvent());
  if (event !== rpma.ConnEvent.ESTABLISHED) {
    const lost = new RefusalError(
      'ECONNRESET',
      `${place} closed the connection; see its error line`,
    );
    throw connectRefusal(conn.getRefusal() ?? lost, server, SERVER_COMMAND);
  }
  const privateData = conn.getPrivateData();
  const mr = rpma.mrRemoteFromDescriptor(privateData);
  conn.applyRemotePeerCfg(
    rpma.peerCfgFromDescriptor(privateData.subarray(rpma.MR_DESCRIPTOR_SIZE)),
  );
  const header = context.alloc(8);
  const dst = peer.mrReg(header, rpma.MrUsage.READ_DST);
  conn.read(dst, 0, mr, 0, header.length, rpma.Flag.COMPLETION_ALWAYS);
  const { status } = await conn.getCq().next();
  if (status !== WcStatus.SUCCESS) {
    throw new RefusalError('EIO', `the log's end cannot be read: ${wcStatusStr(status)}`);
  }
  const bytes = mr.getSize();
  const end = rpma.logEnd(header, bytes);
  const replicas = [{ conn, mr, offset: 0 }];
  const log = new rpma.ReplicatedLog(peer, replicas, { bytes, end, depth: DEPTH });
  return { log, conn, freeBytes: bytes - end };
}

async function close(conn: rpma.Conn): Promise<void> {
  conn.disconnect();
  await conn.nextEvent();
}
