/** What the examples share: who this process is, and bytes that a peer may be told of. */
import {
  AccessFlag,
  connect,
  listen,
  type CmId,
  type MemoryRegion,
  type RdmaConnection,
  type RdmaRequest,
  type Sge,
} from '../index.js';

const ALL_ACCESS =
  AccessFlag.LOCAL_WRITE |
  AccessFlag.REMOTE_WRITE |
  AccessFlag.REMOTE_READ |
  AccessFlag.REMOTE_ATOMIC;

/** Registered memory of an id's device. */
export interface Registered {
  readonly memory: Uint8Array;
  readonly mr: MemoryRegion;
  readonly sge: Sge;
}

export function register({ id }: { readonly id: CmId }, bytes: number): Registered {
  const memory = id.context.alloc(bytes);
  const mr = id.pd.regMr(memory, ALL_ACCESS);
  return { memory, mr, sge: { addr: mr.addr, length: bytes, lkey: mr.lkey } };
}

/** What a peer needs to know of memory. */
export interface Description {
  readonly remoteAddr: bigint;
  readonly rkey: number;
}

/** Where a peer may read and write, as 16 bytes of private data. */
export function describe({
  mr,
}: {
  readonly mr: Pick<MemoryRegion, 'addr' | 'rkey' | 'length'>;
}): Uint8Array {
  const bytes = new DataView(new ArrayBuffer(16));
  bytes.setBigUint64(0, mr.addr);
  bytes.setUint32(8, mr.rkey);
  bytes.setUint32(12, mr.length);
  return new Uint8Array(bytes.buffer);
}

export function parseDescription(privateData: Uint8Array): Description {
  const bytes = new DataView(privateData.buffer, privateData.byteOffset);
  return { remoteAddr: bytes.getBigUint64(0), rkey: bytes.getUint32(8) };
}

export const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
/** Up to the first zero byte. */
export function decode(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes.slice()).replace(/\0.*$/s, '');
}

/** Runs one side: `server HOST:PORT` serves one connection, `client HOST:PORT` makes it. */
export async function run(
  serve: (request: RdmaRequest) => Promise<void>,
  use: (server: string) => Promise<void>,
): Promise<void> {
  const [role, target = '127.0.0.1:7471', udpPort] = process.argv.slice(2);
  if (role === 'client') return use(target);
  if (role !== 'server') throw new Error('usage: server|client HOST:PORT [UDP-PORT]');
  const device = udpPort === undefined ? {} : { port: Number(udpPort) };
  const listener = await listen(target, { device });
  console.log(`listening on ${target}`);
  await serve((await listener.getRequest())!);
  await listener.close();
}

/** Connects to the server; its device may have a UDP port of its own. */
export function connectTo(target: string): Promise<RdmaConnection> {
  const udpPort = process.argv[4];
  return connect(
    target,
    udpPort === undefined ? {} : { udpPort: Number(udpPort), device: { port: 0 } },
  );
}
