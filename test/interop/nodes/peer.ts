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
const KEPT_SERVICE = 7472;
/** Of memory, in private data. */
const DESCRIPTION_BYTES = 12;
const ACCESS = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE;

/** Where a peer may write, for private data. */
function describe({ addr, rkey }: MemoryRegion): Uint8Array {
  const bytes = new DataView(new ArrayBuffer(DESCRIPTION_BYTES));
  bytes.setBigUint64(0, addr);
  bytes.setUint32(8, rkey);
  return new Uint8Array(bytes.buffer);
}

function parseDescription({ privateData }: RdmaConnection) {
  const bytes = new DataView(privateData.buffer, privateData.byteOffset);
  return { remoteAddr: bytes.getBigUint64(0), rkey: bytes.getUint32(8) };
}

/** Up to the first zero byte. */
const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString().replace(/\0.*$/s, '');

async function lend(address: string, name: string, file: string): Promise<void> {
  const context = await openDevice({ name, address, memoryBytes: 16 * 2 ** 20 });
  const pd = context.allocPd();
  const memory = context.alloc(BYTES);
  // A device with a name has no persistent memory: another one, for itself.
  const kept = await openDevice({ address, port: 0 });
  const keptPd = kept.allocPd();
  const pmem = await kept.openPmem(file, { bytes: 65536 });
  const inbox = pd.regMr(context.alloc(BYTES), AccessFlag.LOCAL_WRITE);
  const volatile = pd.regMr(memory, ACCESS);
  const durable = keptPd.regMr(pmem.buffer, ACCESS | AccessFlag.FLUSH_PERSISTENT);
  const shpd = Buffer.from(pd.allocShpd(SHARE_KEY)).toString('hex');
  const listener = await listen(`${address}:${SERVICE}`, { context });
  const keptListener = await listen(`${address}:${KEPT_SERVICE}`, { context: kept });
  const ports = `${context.local.port} ${kept.local.port}`;
  console.log(`lends ${shpd} ${memory.byteOffset} ${ports}`);
  const request = (await listener.getRequest())!;
  const sgList = [{ addr: inbox.addr, length: BYTES, lkey: inbox.lkey }];
  const answer = { pd, privateData: describe(volatile) };
  const accepted = await request.accept(answer, (qp) => qp.postRecv({ sgList }));
  const keeper = (await keptListener.getRequest())!;
  const keeping = await keeper.accept({ pd: keptPd, privateData: describe(durable) });
  const [message] = await accepted.recvCq.wait(1);
  console.log(`received ${message!.byteLen} bytes: ${WcStatusName[message!.status]}`);
  await accepted.disconnected;
  console.log(`found in memory: ${textOf(memory)}`);
  await once(process, 'SIGTERM');
  for (const end of [accepted, keeping, listener, keptListener, kept, context]) await end.close();
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
  [at, udpPort, keptPort]: readonly number[],
): Promise<void> {
  const context = await openDevice({ address: local!, port: 0 });
  const memory = context.alloc(BYTES);
  const to = (service: number, udpPort: number): Promise<RdmaConnection> =>
    connect(`${address!}:${service}`, { context, udpPort });
  const connection = await to(SERVICE, udpPort!);
  const keeping = await to(KEPT_SERVICE, keptPort!);
  const mr = connection.pd.regMr(memory, 0);
  const send = words(mr, memory, 'sent');
  console.log(`SEND ${await complete(connection, { opcode: WrOpcode.SEND, sgList: send })}`);
  for (const [kind, end] of Object.entries({ volatile: connection, durable: keeping })) {
    const rdma = parseDescription(end);
    const sgList = words(end.pd.regMr(memory, 0), memory, `written by Node ${process.version}`);
    const status = await complete(end, { opcode: WrOpcode.RDMA_WRITE, sgList, rdma });
    console.log(`WRITE ${kind} ${status}`);
  }
  const { PERSISTENT } = PlacementType;
  const place = { length: BYTES, type: PERSISTENT, level: SelectivityLevel.RANGE };
  const flush = { ...parseDescription(keeping), ...place };
  console.log(`FLUSH ${await complete(keeping, { opcode: WrOpcode.FLUSH, flush })}`);
  await keeping.close();
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
