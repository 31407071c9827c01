/**
 * One side of a meeting of two versions of Node: `lend ADDRESS NAME FILE` makes a device that
 * processes share and lends memory, a file among it; `use ADDRESS NAME PORT` connects to it, sends,
 * writes, flushes, and then takes part in the device itself. Each prints what it found.
 */
import { once } from 'node:events';
import {
  AccessFlag,
  PlacementType,
  SelectivityLevel,
  SendFlag,
  WcStatusName,
  WrOpcode,
  connect,
  listen,
  openDevice,
  type MemoryRegion,
  type RdmaConnection,
} from '../../../host/index.js';

const SHARE_KEY = 0x20_22_24;
const BYTES = 4096;
const SERVICE = 7471;
/** A description of memory, and of persistent memory, in private data. */
const DESCRIPTION_BYTES = 12;
const ACCESS = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE;

/** Where a peer may write, for private data. */
function describe({ addr, rkey }: MemoryRegion): Uint8Array {
  const bytes = new DataView(new ArrayBuffer(DESCRIPTION_BYTES));
  bytes.setBigUint64(0, addr);
  bytes.setUint32(8, rkey);
  return new Uint8Array(bytes.buffer);
}

function parseDescription(privateData: Uint8Array, index: number) {
  const at = privateData.byteOffset + index * DESCRIPTION_BYTES;
  const bytes = new DataView(privateData.buffer, at);
  return { remoteAddr: bytes.getBigUint64(0), rkey: bytes.getUint32(8) };
}

/** Up to the first zero byte. */
const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString().replace(/\0.*$/s, '');

async function lend(address: string, name: string, file: string): Promise<void> {
  const context = await openDevice({ name, address, memoryBytes: 16 * 2 ** 20 });
  const pd = context.allocPd();
  const memory = context.alloc(BYTES);
  const pmem = await context.openPmem(file, { bytes: 65536 });
  const inbox = pd.regMr(context.alloc(BYTES), AccessFlag.LOCAL_WRITE);
  const volatile = pd.regMr(memory, ACCESS);
  const durable = pd.regMr(pmem.buffer, ACCESS | AccessFlag.FLUSH_PERSISTENT);
  const shpd = Buffer.from(pd.allocShpd(SHARE_KEY)).toString('hex');
  const privateData = Buffer.concat([describe(volatile), describe(durable)]);
  const listener = await listen(`${address}:${SERVICE}`, { context });
  console.log(`lends ${context.local.port} ${shpd} ${memory.byteOffset}`);
  const request = (await listener.getRequest())!;
  const sgList = [{ addr: inbox.addr, length: BYTES, lkey: inbox.lkey }];
  const accepted = await request.accept({ pd, privateData }, (qp) => qp.postRecv({ sgList }));
  const [message] = await accepted.recvCq.wait(1);
  console.log(`received ${message!.byteLen} bytes: ${WcStatusName[message!.status]}`);
  await accepted.disconnected;
  console.log(`found in memory: ${textOf(memory)}`);
  await once(process, 'SIGTERM');
  await accepted.close();
  await listener.close();
  await context.close();
}

/** Posts one request and waits for it: the name of its status. */
async function complete(
  { qp, sendCq }: RdmaConnection,
  request: Parameters<RdmaConnection['qp']['postSend']>[0],
): Promise<string> {
  qp.postSend({ ...request, sendFlags: SendFlag.SIGNALED });
  const [completion] = await sendCq.wait(1);
  return WcStatusName[completion!.status] ?? `${completion!.status}`;
}

function words(mr: MemoryRegion, memory: Uint8Array, text: string) {
  memory.set(Buffer.from(text));
  return [{ addr: mr.addr, length: text.length, lkey: mr.lkey }];
}

async function use(
  [address, local, name, shpd]: readonly string[],
  [udpPort, at]: readonly number[],
): Promise<void> {
  const context = await openDevice({ address: local!, port: 0 });
  const options = { context, udpPort: udpPort! };
  const connection = await connect(`${address!}:${SERVICE}`, options);
  const memory = context.alloc(BYTES);
  const mr = connection.pd.regMr(memory, 0);
  const told = connection.privateData;
  const volatile = parseDescription(told, 0);
  const durable = parseDescription(told, 1);
  const send = words(mr, memory, 'sent');
  console.log(`SEND ${await complete(connection, { opcode: WrOpcode.SEND, sgList: send })}`);
  for (const [kind, rdma] of Object.entries({ volatile, durable })) {
    const sgList = words(mr, memory, `written by Node ${process.version}`);
    const status = await complete(connection, { opcode: WrOpcode.RDMA_WRITE, sgList, rdma });
    console.log(`WRITE ${kind} ${status}`);
  }
  const { PERSISTENT } = PlacementType;
  const flush = { ...durable, length: BYTES, type: PERSISTENT, level: SelectivityLevel.RANGE };
  console.log(`FLUSH ${await complete(connection, { opcode: WrOpcode.FLUSH, flush })}`);
  await connection.close();
  await context.close();
  // The same device, from within.
  const shared = await openDevice({ name: name! });
  const pd = shared.sharePd(Buffer.from(shpd!, 'hex'), SHARE_KEY);
  const attached = shared.attach(at!, BYTES);
  console.log(`shares: ${textOf(attached)}`);
  pd.regMr(attached, ACCESS).dereg();
  pd.dealloc();
  await shared.close();
}

const [role, ...args] = process.argv.slice(2);
if (role === 'lend') await lend(args[0]!, args[1]!, args[2]!);
else await use(args.slice(0, 4), args.slice(4).map(Number));
