/**
 * A real `verbena serve --pmem` that is killed, or loses its power, while a client appends: every
 * record acknowledged to the client is there, and the next server continues with it.
 */
import { readFileSync } from 'node:fs';
import { WcStatus, openDevice, rpma, type Context } from '../../host/index.js';
import { PMEM_SERVICE } from '../../host/cli/file-transfer/pmem-records.js';
import { DATA_OFFSET, HEADER_BYTES, decodeHeader } from '../../host/pmem/header.js';
import { Random } from '../simulation/random.js';
import { Workspace } from './processes.js';

/** Of no other test. */
const SERVER = '127.0.86.2';
const CLIENT = '127.0.86.3';
const BYTES = 8 * 2 ** 20;
const DEPTH = 4;
/** On a machine that does other things, too. */
const START_MILLIS = 600_000;
/** A machine that does other things may stand still for longer than a connection does. */
const CONNECTIONS_MAX = 5;

/** An acknowledged record is missing: no other connection can restore it. */
class LostRecords extends Error {}

/** The bytes of record `index`. */
function recordOf(index: number): Uint8Array {
  const bytes = new Uint8Array(8 + (index % 200));
  new DataView(bytes.buffer).setUint32(0, index);
  return bytes.fill(index, 8);
}

export function recordsIn(path: string): readonly Uint8Array[] {
  const file = readFileSync(path);
  const { length } = decodeHeader(file.subarray(0, HEADER_BYTES), file.length, path);
  return rpma.recoverLog(file.subarray(DATA_OFFSET, DATA_OFFSET + length)).records;
}

/** Addresses of the server and of its client. */
export interface Place {
  readonly server: string;
  readonly client: string;
}

/** Kills it `kills` times; returns how many records there are. Rejects when one is lost. */
export async function killServers(kills: number, seed = 1): Promise<number> {
  const random = new Random(seed);
  let told = 0;
  let records = 0;
  await Workspace.use(async (workspace) => {
    const path = workspace.path('log.pmem');
    for (let kill = 0; kill < kills; kill++) {
      const words = ['serve', '--pmem', path, '--pmem-bytes', BYTES, '--bind', SERVER];
      const server = workspace.start(...words);
      await server.printed('stdout', /serving/, START_MILLIS);
      const place = { server: SERVER, client: CLIENT };
      told = await appendUntilCut(place, told, random.between(1, 30), () => server.kill());
      await server.ended;
      records = checkRecords(recordsIn(path), told);
    }
  });
  return records;
}

/** Checks that all acknowledged records are intact. Returns the number of records. */
function checkRecords(records: readonly Uint8Array[], told: number): number {
  if (records.length < told) throw new LostRecords(`${records.length} records are left of ${told}`);
  records.forEach((record, index) => {
    if (Buffer.compare(record, recordOf(index)) !== 0) {
      throw new LostRecords(`record ${index} is another one`);
    }
  });
  return records.length;
}

/** Progress at the client, also after the connection is lost. */
export interface Progress {
  acknowledged: number;
  isCut: boolean;
}

/**
 * Reads the log, which must have the first `told` records, and appends until `count` more were
 * acknowledged; then calls `cut`, under load. Returns how many were acknowledged, those that came
 * in its last moments as well. Should a connection be lost before, another one goes on.
 */
export async function appendUntilCut(
  place: Place,
  told: number,
  count: number,
  cut: () => void,
): Promise<number> {
  const progress: Progress = { acknowledged: told, isCut: count === 0 };
  const wanted = told + count;
  const cutOnce = (): void => {
    progress.isCut = true;
    cut();
  };
  for (let connections = 1; ; connections++) {
    try {
      await appendOnce(place, progress, wanted, cutOnce);
      return progress.acknowledged;
    } catch (error) {
      const isLast = connections === CONNECTIONS_MAX || (progress.isCut && count > 0);
      if (isLast || error instanceof LostRecords) throw error;
    }
  }
}

/**
 * The same over one connection: rejects when it is lost, and `progress` says how many were
 * acknowledged. `wanted`: with those that were there before.
 */
export async function appendOnce(
  { server, client }: Place,
  progress: Progress,
  wanted: number,
  cut: () => void,
): Promise<void> {
  // Little patience: the peer is dead.
  const context = await openDevice({ address: client, port: 0 });
  try {
    const { peer, conn, mr } = await connect(context, server);
    const bytes = mr.getSize();
    const image = context.alloc(bytes);
    const dst = peer.mrReg(image, rpma.MrUsage.READ_DST);
    conn.read(dst, 0, mr, 0, bytes, rpma.Flag.COMPLETION_ALWAYS);
    const { status } = await conn.getCq().next();
    if (status !== WcStatus.SUCCESS) throw new Error(`the log: status ${status}`);
    const { records } = rpma.recoverLog(image);
    let next = checkRecords(records, progress.acknowledged);
    progress.acknowledged = next;
    dst.dereg();
    const options = { bytes, end: rpma.logEnd(image, bytes), depth: DEPTH };
    context.free(image);
    const log = new rpma.ReplicatedLog(peer, [{ conn, mr, offset: 0 }], options);
    // Several are always under way; each one that ends begins another.
    const appendMore = async (): Promise<void> => {
      while (!progress.isCut) {
        await log.append(recordOf(next++));
        progress.acknowledged++;
        if (progress.acknowledged >= wanted && !progress.isCut) cut();
      }
    };
    let trouble: unknown;
    const work = Array.from({ length: 2 * DEPTH }, () =>
      appendMore().catch((error: unknown) => (trouble ??= error)),
    );
    while (!progress.isCut && trouble === undefined) await wait(1);
    // Acknowledgements until the process is really gone count, too.
    if (progress.isCut) await wait(20);
    log.close();
    await Promise.all(work);
    if (!progress.isCut) throw trouble;
  } finally {
    await context.close();
  }
}

async function connect(
  context: Context,
  server: string,
): Promise<{ peer: rpma.Peer; conn: rpma.Conn; mr: rpma.MrRemote }> {
  const peer = rpma.peerNew(context);
  const cfg = rpma.connCfgNew();
  cfg.setSqSize(rpma.logQueueSize(DEPTH));
  const conn = (await peer.connReqNew(server, PMEM_SERVICE, cfg)).connect();
  const event = await conn.nextEvent();
  if (event !== rpma.ConnEvent.ESTABLISHED) throw new Error(rpma.utilsConnEvent2str(event));
  const told = conn.getPrivateData();
  conn.applyRemotePeerCfg(rpma.peerCfgFromDescriptor(told.subarray(rpma.MR_DESCRIPTOR_SIZE)));
  return { peer, conn, mr: rpma.mrRemoteFromDescriptor(told) };
}

function wait(millis: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, millis));
}
