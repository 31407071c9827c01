/**
 * Processes that share a device share protection domains as well: one registers memory, the others
 * use it, by the same key and at the same address, and count in it together.
 */
import { AccessFlag, SendFlag, WrOpcode, connect, listen, openDevice } from '../index.js';
import { Processes, dismissed, member, say, nextMessage } from './processes.js';
import { completed } from './end.js';
import { main } from './roles.js';

const PROCESSES = 3;
const TURNS = 50;
const SHARE_KEY = 0x5ead;
const { LOCAL_WRITE, REMOTE_ATOMIC } = AccessFlag;

interface Start {
  readonly name: string;
  readonly shpd: Uint8Array;
  readonly addr: bigint;
  readonly rkey: number;
}

/** One of those that count, each over a connection of its own to the device that all share. */
async function count(): Promise<void> {
  const { name, shpd, addr, rkey } = await nextMessage<Start>();
  await using context = await openDevice({ name });
  const pd = context.sharePd(shpd, SHARE_KEY);
  await using listener = await listen('127.0.0.1:0', { context });
  const accepting = listener.getRequest().then((request) => request!.accept({ pd }));
  const udpPort = context.local.port;
  const target = `127.0.0.1:${listener.port}`;
  await using connection = await connect(target, { context, pd, udpPort });
  await using accepted = await accepting;
  const local = pd.regMr(context.alloc(8), LOCAL_WRITE);
  for (let turn = 0; turn < TURNS; turn++) {
    accepted.qp.postSend({
      opcode: WrOpcode.ATOMIC_FETCH_AND_ADD,
      sgList: [{ addr: local.addr, length: 8, lkey: local.lkey }],
      atomic: { remoteAddr: addr, rkey, compareAdd: 1n },
      sendFlags: SendFlag.SIGNALED,
    });
    await completed(accepted.sendCq);
  }
  await connection.disconnect();
  say({});
  await dismissed();
}

async function start(): Promise<void> {
  const name = `example-shared-domain-${process.pid}`;
  await using context = await openDevice({ name, port: 0, memoryBytes: 32 * 2 ** 20 });
  const pd = context.allocPd();
  const shpd = pd.allocShpd(SHARE_KEY);
  const mr = pd.regMr(context.alloc(8), LOCAL_WRITE | REMOTE_ATOMIC);
  await using processes = Processes.start(import.meta.url, PROCESSES);
  processes.tell({ name, shpd, addr: mr.addr, rkey: mr.rkey });
  await processes.hear();
  const counted = new BigUint64Array(mr.buffer.buffer, mr.buffer.byteOffset, 1)[0];
  console.log(`${PROCESSES} processes counted to ${counted} by one key`);
}

await main(member === undefined ? start : count);
