/**
 * Persistent memory of a process that is killed: data that a peer has flushed are in its file. The
 * record comes first, then the word that marks it valid: a reader finds a whole record or none.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AccessFlag, PlacementType, SendFlag, WrOpcode } from '../index.js';
import { connect, listen, type SendWorkRequest } from '../index.js';
import { Processes, dismissed, member, say, nextMessage } from './processes.js';
import { completed, register } from './end.js';
import { main } from './roles.js';
import { decode, describe, encode, parseDescription } from './private-data.js';

const BYTES = 4096;
const RECORD = { offset: 64, bytes: 64 };
const { LOCAL_WRITE, REMOTE_WRITE, FLUSH_GLOBAL, FLUSH_PERSISTENT } = AccessFlag;
/** The temporary directory may be memory, which survives processes, but no power cut. */
const OPTIONS = { bytes: BYTES, volatile: true };

/** Has the memory, and does nothing for it. */
async function serve(): Promise<void> {
  const { path } = await nextMessage<{ path: string }>();
  await using listener = await listen('127.0.0.1:0', { device: { port: 0 } });
  const { context } = listener;
  const pd = context.allocPd();
  await using pmem = await context.openPmem(path, OPTIONS);
  const access = LOCAL_WRITE | REMOTE_WRITE | FLUSH_GLOBAL | FLUSH_PERSISTENT;
  const privateData = describe({ mr: pd.regMr(pmem.buffer, access) });
  say({ port: listener.port, udpPort: context.local.port });
  const request = await Promise.race([listener.getRequest(), dismissed()]);
  await request?.accept({ pd, privateData });
  await dismissed();
}

async function use(path: string): Promise<void> {
  await using processes = Processes.start(import.meta.url, 1);
  processes.tell({ path });
  const [{ port, udpPort }] = (await processes.hear()) as [{ port: number; udpPort: number }];
  const device = { port: 0 };
  await using connection = await connect(`127.0.0.1:${port}`, { udpPort, device });
  const { remoteAddr, rkey } = parseDescription(connection.privateData);
  const { memory, sge } = register(connection, RECORD.bytes);
  memory.set(encode('flushed, then killed'));
  const word = register(connection, 8);
  word.memory[0] = 1;
  const at = remoteAddr + BigInt(RECORD.offset);
  const flush = (addr: bigint, length: number, sendFlags = 0): SendWorkRequest => {
    const type = PlacementType.PERSISTENT;
    return { opcode: WrOpcode.FLUSH, flush: { remoteAddr: addr, rkey, length, type }, sendFlags };
  };
  connection.qp.postSend([
    { opcode: WrOpcode.RDMA_WRITE, sgList: [sge], rdma: { remoteAddr: at, rkey } },
    flush(at, RECORD.bytes),
    { opcode: WrOpcode.ATOMIC_WRITE, sgList: [word.sge], rdma: { remoteAddr, rkey } },
    flush(remoteAddr, 8, SendFlag.SIGNALED),
  ]);
  await completed(connection.sendCq);
  await processes.kill(0);
  await using pmem = await connection.context.openPmem(path, OPTIONS);
  const text = decode(pmem.buffer.subarray(RECORD.offset, RECORD.offset + RECORD.bytes));
  console.log(`${pmem.buffer[0]} record, in a file that its process did not close: ${text}`);
}

async function start(): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'verbena-example-'));
  try {
    await use(join(directory, 'region.pmem'));
  } finally {
    rmSync(directory, { recursive: true });
  }
}

await main(member === undefined ? start : serve);
