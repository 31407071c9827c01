/**
 * A log in the persistent memory of three peers, which do nothing for it: two must have a record
 * before it counts. One is killed in between; what was appended is in the files of both others.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openDevice, rpma } from '../index.js';
import { Processes, dismissed, member, say, nextMessage } from './processes.js';
import { main } from './roles.js';
import { decode, encode } from './private-data.js';

const REPLICAS = 3;
const QUORUM = 2;
const RECORDS = 20;
const OPTIONS = { bytes: 4096, volatile: true };

interface Announcement {
  readonly port: number;
  readonly udpPort: number;
  readonly descriptor: Uint8Array;
}

async function keep(): Promise<void> {
  const { directory } = await nextMessage<{ directory: string }>();
  await using context = await openDevice({ port: 0 });
  await using pmem = await context.openPmem(join(directory, `${member}`), OPTIONS);
  const peer = rpma.peerNew(context);
  const { WRITE_DST, FLUSH_TYPE_PERSISTENT } = rpma.MrUsage;
  const mr = peer.mrReg(pmem.buffer, WRITE_DST | FLUSH_TYPE_PERSISTENT);
  using ep = await peer.epListen('127.0.0.1', 0);
  say({ port: ep.port, udpPort: context.local.port, descriptor: mr.getDescriptor() });
  (await Promise.race([ep.nextConnReq(), dismissed()]))?.connect();
  await dismissed();
  mr.dereg();
}

async function use(directory: string): Promise<void> {
  await using processes = Processes.start(import.meta.url, REPLICAS);
  processes.tell({ directory });
  await using context = await openDevice({ port: 0 });
  const peer = rpma.peerNew(context);
  const cfg = rpma.connCfgNew();
  cfg.setSqSize(rpma.logQueueSize());
  const pcfg = rpma.peerCfgNew();
  pcfg.setDirectWriteToPmem(true);
  const replicas: rpma.LogReplica[] = [];
  for (const { port, udpPort, descriptor } of await processes.hear<Announcement>()) {
    const conn = (await peer.connReqNew('127.0.0.1', port, cfg, udpPort)).connect();
    const event = await conn.nextEvent();
    if (event !== rpma.ConnEvent.ESTABLISHED) throw new Error(rpma.utilsConnEvent2str(event));
    conn.applyRemotePeerCfg(pcfg);
    replicas.push({ conn, mr: rpma.mrRemoteFromDescriptor(descriptor), offset: 0 });
  }
  const log = new rpma.ReplicatedLog(peer, replicas, { bytes: OPTIONS.bytes, quorum: QUORUM });
  for (let number = 1; number <= RECORDS; number++) {
    if (number === RECORDS / 2) await processes.kill(0);
    await log.append(encode(`record ${number}`));
  }
  await processes.end();
  for (let number = 1; number < REPLICAS; number++) {
    await using pmem = await context.openPmem(join(directory, `${number}`), OPTIONS);
    const { records } = rpma.recoverLog(pmem.buffer);
    console.log(`replica ${number}: ${records.length}, the last: ${decode(records.at(-1)!)}`);
  }
}

async function start(): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'verbena-example-'));
  try {
    await use(directory);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

await main(member === undefined ? start : keep);
