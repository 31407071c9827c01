/** Common to the numbered examples: arguments, output, connections. */
import { argv } from 'node:process';
import { pathToFileURL } from 'node:url';
import { WcStatus, rpma } from '../../index.js';
import type { Context, PersistentMemory, WorkCompletion } from '../../index.js';
import { sentenceOf } from '../end.js';
import { main as guarded, met } from '../roles.js';

export const { ConnEvent, FlushType, LogLevel, MrUsage, UtilIbvContext } = rpma;
export const { COMPLETION_ALWAYS, COMPLETION_ON_ERROR } = rpma.Flag;
export const KILOBYTE = 1024;
/** A message of the ping-pongs; all ones ends one. */
export const MSG_SIZE = 8;
export const I_M_DONE = 2n ** 64n - 1n;

/** Body of one program. */
export type Role = (addr: string, port: string, words: readonly string[]) => Promise<void>;

/** `node NN-name.js server|client ADDR PORT …`, when it is that file which was started. */
export async function main(url: string, roles: { server: Role; client: Role }): Promise<void> {
  if (argv[1] === undefined || pathToFileURL(argv[1]).href !== url) return;
  const [role, addr, port, ...words] = argv.slice(2);
  if ((role !== 'server' && role !== 'client') || addr === undefined || port === undefined) {
    console.error(`usage: node ${argv[1]} server|client ADDR PORT …`);
    process.exitCode = 2;
    return;
  }
  if (role === 'client') met();
  await guarded(() => roles[role](addr, port, words));
}

/** A device with a peer, and all that is closed at the end. */
export interface RpmaDevice extends AsyncDisposable {
  readonly context: Context;
  readonly peer: rpma.Peer;
}

async function device(addr: string, type: number): Promise<RpmaDevice> {
  const context = await rpma.utilsGetIbvContext(addr, type);
  const close = () => context.close();
  return { context, peer: rpma.peerNew(context), [Symbol.asyncDispose]: close };
}

export const serverDevice = (addr: string) => device(addr, UtilIbvContext.LOCAL);
export const clientDevice = (addr: string) => device(addr, UtilIbvContext.REMOTE);

/** Listens, prints the address, and returns the first request. */
export async function listen(peer: rpma.Peer, addr: string, port: string): Promise<rpma.Ep> {
  const ep = await peer.epListen(addr, port);
  console.log(`listening on ${addr}:${ep.port}`);
  return ep;
}

/** The connection, once it is established. */
export async function established(conn: rpma.Conn): Promise<rpma.Conn> {
  met();
  const event = await conn.nextEvent();
  if (event !== ConnEvent.ESTABLISHED) {
    conn.delete();
    throw new Error(rpma.utilsConnEvent2str(event));
  }
  return conn;
}

export async function clientConnect(
  { peer }: RpmaDevice,
  addr: string,
  port: string,
  privateData?: Uint8Array,
  cfg?: rpma.ConnCfg,
): Promise<rpma.Conn> {
  const request = await peer.connReqNew(addr, port, cfg);
  return established(request.connect(privateData));
}

export async function serverAccept(
  ep: rpma.Ep,
  privateData?: Uint8Array,
  cfg?: rpma.ConnCfg,
): Promise<rpma.Conn> {
  const request = await ep.nextConnReq(cfg);
  return established(request.connect(privateData));
}

/** The other side ends it. */
export async function waitForClose(conn: rpma.Conn): Promise<void> {
  await conn.nextEvent();
  conn.delete();
}

export async function disconnect(conn: rpma.Conn): Promise<void> {
  conn.disconnect();
  await conn.nextEvent();
  conn.delete();
}

/** Returns a successful completion; throws for a failed one. */
export function checked(wc: WorkCompletion): WorkCompletion {
  if (wc.status !== WcStatus.SUCCESS) throw new Error(sentenceOf(wc.status));
  return wc;
}

/** The next completion, which is no failure. */
export async function completed(cq: rpma.Cq): Promise<WorkCompletion> {
  const wc = await cq.next();
  return checked(wc);
}

/** Where a region lies, for the private data of a connection: 28 bytes, as librpma's examples. */
export interface CommonData {
  readonly dataOffset: number;
  readonly mr: Uint8Array;
  readonly pcfg: Uint8Array;
}

const COMMON_DATA_SIZE = 28;
const DESCRIPTORS_AT = 4;

export function encodeCommonData(data: Partial<CommonData> & { mr: Uint8Array }): Uint8Array {
  const { dataOffset = 0, mr, pcfg = new Uint8Array(0) } = data;
  const bytes = new Uint8Array(COMMON_DATA_SIZE);
  new DataView(bytes.buffer).setUint16(0, dataOffset, true);
  bytes.set([mr.length, pcfg.length], 2);
  bytes.set(mr, DESCRIPTORS_AT);
  bytes.set(pcfg, DESCRIPTORS_AT + mr.length);
  return bytes;
}

export function decodeCommonData(bytes: Uint8Array): CommonData {
  const [, , mrSize = 0, pcfgSize = 0] = bytes;
  const end = DESCRIPTORS_AT + mrSize + pcfgSize;
  if (bytes.length < COMMON_DATA_SIZE || end > COMMON_DATA_SIZE) {
    throw new Error('the other side has not said where its memory is');
  }
  return {
    dataOffset: bytes[0]! + bytes[1]! * 256,
    mr: bytes.slice(DESCRIPTORS_AT, DESCRIPTORS_AT + mrSize),
    pcfg: bytes.slice(DESCRIPTORS_AT + mrSize, end),
  };
}

/** Memory of a file where one is named, and of the device where none is. */
export async function memory(
  context: Context,
  path: string | undefined,
  bytes: number,
): Promise<{ readonly buffer: Uint8Array; readonly pmem: PersistentMemory | undefined }> {
  if (path === undefined) return { buffer: context.alloc(bytes), pmem: undefined };
  const pmem = await context.openPmem(path, { bytes });
  return { buffer: pmem.buffer, pmem };
}

const HELLOS = ['Hello world!', '¡Hola Mundo!'] as const;
/** Of `struct hello_t`: a language, and the greeting in it. */
export const HELLO_STR_OFFSET = 4;
export const HELLO_STR_SIZE = KILOBYTE;
export const HELLO_T_SIZE = HELLO_STR_OFFSET + HELLO_STR_SIZE;

function writeHello(hello: Uint8Array, language: number): void {
  hello.fill(0, 0, HELLO_T_SIZE);
  hello[0] = language;
  putText(hello, HELLO_STR_OFFSET, HELLOS[language % 2]!);
}

/** So that the next greeting is a surprise. */
export function translate(hello: Uint8Array): string {
  writeHello(hello, (hello[0]! + 1) % 2);
  return textAt(hello, HELLO_STR_OFFSET);
}

/** A greeting that a client has: what was there, or the first one. */
export function firstHello(hello: Uint8Array): void {
  if (hello[HELLO_STR_OFFSET] === 0) writeHello(hello, 0);
}

export function putText(bytes: Uint8Array, offset: number, text: string): number {
  const encoded = new TextEncoder().encode(`${text}\0`);
  bytes.set(encoded, offset);
  return encoded.length;
}

/** Up to the first zero. */
export function textAt(bytes: Uint8Array, offset = 0): string {
  const end = bytes.indexOf(0, offset);
  return new TextDecoder().decode(bytes.slice(offset, end < 0 ? bytes.length : end));
}

export const u64At = (bytes: Uint8Array, offset = 0): bigint =>
  new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(offset, true);

export function putU64(bytes: Uint8Array, offset: number, value: bigint): void {
  new DataView(bytes.buffer, bytes.byteOffset).setBigUint64(offset, value, true);
}
