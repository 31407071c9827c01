/**
 * A real `verbena serve --pmem` that is killed while a client appends: what the client was told to be
 * appended is in the file, every time, and the next server goes on with it.
 */
import { readFileSync } from 'node:fs';
import { WcStatus, openDevice, rpma } from '../../host/index.js';
import { PMEM_SERVICE } from '../../host/cli/pmem-records.js';
import { DATA_OFFSET, HEADER_BYTES, decodeHeader } from '../../host/pmem/header.js';
import { Random } from '../simulation/random.js';
import { Workspace } from './processes.js';

/** Of no other test. */
const SERVER = '127.0.86.2';
const CLIENT = '127.0.86.3';
const BYTES = 8 * 2 ** 20;
const DEPTH = 4;

/** Record `index`: known to whoever checks. */
function recordOf(index: number): Uint8Array {
  const bytes = new Uint8Array(8 + (index % 200));
  new DataView(bytes.buffer).setUint32(0, index);
  return bytes.fill(index, 8);
}

function recordsIn(path: string): readonly Uint8Array[] {
  const file = readFileSync(path);
  const { length } = decodeHeader(file.subarray(0, HEADER_BYTES), file.length, path);
  return rpma.recoverLog(file.subarray(DATA_OFFSET, DATA_OFFSET + length)).records;
}

/** Kills it `kills` times; returns how many records there are. Rejects when one is lost. */
export async function killServers(kills: number, seed = 1): Promise<number> {
  const random = new Random(seed);
  let there = 0;
  await Workspace.use(async (workspace) => {
    const path = workspace.path('log.pmem');
    for (let kill = 0; kill < kills; kill++) {
      const words = ['serve', '--pmem', path, '--pmem-bytes', BYTES, '--bind', SERVER];
      const server = workspace.start(...words);
      await server.printed('stdout', /serving/);
      const told = await appendUntilKilled(there, random.between(1, 30), () => server.kill());
      await server.ended;
      const records = recordsIn(path);
      if (records.length < told) {
        throw new Error(`kill ${kill}: ${records.length} records are left of ${told}`);
      }
      records.forEach((record, index) => {
        if (Buffer.compare(record, recordOf(index)) !== 0) {
          throw new Error(`kill ${kill}: record ${index} is another one`);
        }
      });
      there = records.length;
    }
  });
  return there;
}

/** Appends from record `first` on; `kill` is called when `count` more are there. How many are. */
async function appendUntilKilled(first: number, count: number, kill: () => void): Promise<number> {
  // Little patience: the peer is dead.
  const context = await openDevice({ address: CLIENT, port: 0 });
  try {
    const peer = rpma.peerNew(context);
    const cfg = rpma.connCfgNew();
    cfg.setSqSize(rpma.logQueueSize(DEPTH));
    const conn = (await peer.connReqNew(SERVER, PMEM_SERVICE, cfg)).connect();
    const event = await conn.nextEvent();
    if (event !== rpma.ConnEvent.ESTABLISHED) throw new Error(rpma.utilsConnEvent2str(event));
    const told = conn.getPrivateData();
    const mr = rpma.mrRemoteFromDescriptor(told);
    conn.applyRemotePeerCfg(rpma.peerCfgFromDescriptor(told.subarray(rpma.MR_DESCRIPTOR_SIZE)));
    const header = context.alloc(8);
    const dst = peer.mrReg(header, rpma.MrUsage.READ_DST);
    conn.read(dst, 0, mr, 0, 8, rpma.Flag.COMPLETION_ALWAYS);
    const { status } = await conn.getCq().next();
    if (status !== WcStatus.SUCCESS) throw new Error(`status ${status}`);
    const bytes = mr.getSize();
    const end = rpma.logEnd(header, bytes);
    const options = { bytes, end, depth: DEPTH };
    const log = new rpma.ReplicatedLog(peer, [{ conn, mr, offset: 0 }], options);
    let acknowledged = first;
    let next = first;
    let isKilled = false;
    // Several are always under way; each one that ends begins another.
    const appendMore = async (): Promise<void> => {
      while (!isKilled) {
        await log.append(recordOf(next++));
        acknowledged++;
        if (acknowledged >= first + count && !isKilled) {
          isKilled = true;
          kill();
        }
      }
    };
    const work = Array.from({ length: 2 * DEPTH }, () => appendMore().catch(() => {}));
    while (!isKilled) await new Promise((resolve) => setTimeout(resolve, 1));
    // What is told in the moments until it is really gone counts, too.
    await new Promise((resolve) => setTimeout(resolve, 20));
    log.close();
    await Promise.all(work);
    return acknowledged;
  } finally {
    await context.close();
  }
}
