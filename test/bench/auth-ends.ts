/**
 * Two processes that are connected by `connect` and `listen`, with and without authentication. The
 * other process is this module once more (partner.ts).
 */
import { connect, listen, openDevice, type AuthOptions } from '../../host/index.js';
import type { Context, MemoryRegion, RdmaConnection } from '../../host/index.js';
import { ALL_ACCESS } from '../support/pair.js';
import { Partner, partnerTask, tell } from './partner.js';
import type { Progress, There } from './stack.js';
import type { Ends } from './stream.js';

/** Protection of a connection. */
export type Protection = 'plain' | 'auth' | 'encrypt';
export const PROTECTIONS: readonly Protection[] = ['plain', 'auth', 'encrypt'];

const HERE = '127.1.60.1';
const THERE = '127.1.60.2';
const PORT = 7471;
const HEADROOM_BYTES = 32 * 2 ** 20;
const PSK = new Uint8Array(32).fill(0x5a);

export interface AuthEndsOptions {
  readonly protection: Protection;
  /** Registered memory of each side. */
  readonly bytes: number;
  /** Requests under way. */
  readonly depth: number;
  readonly progress: Progress;
  readonly windowPackets?: number;
  readonly reorderPackets?: number;
}

function authOf(protection: Protection): { readonly auth?: AuthOptions } {
  if (protection === 'plain') return {};
  return { auth: { psk: PSK, encrypt: protection === 'encrypt' } };
}

async function open(
  address: string,
  { bytes, progress, windowPackets }: AuthEndsOptions,
): Promise<Context> {
  const window = windowPackets === undefined ? {} : { windowPackets };
  return openDevice({ address, progress, memoryBytes: bytes + HEADROOM_BYTES, ...window });
}

/** One side, in the shape that streams have. */
class AuthEnd {
  readonly context: Context;
  readonly cq: RdmaConnection['sendCq'];
  readonly qps: Ends['end']['qps'];
  readonly buffer: Uint8Array;
  readonly mr: MemoryRegion;
  readonly connection: RdmaConnection;

  constructor(connection: RdmaConnection, bytes: number) {
    this.connection = connection;
    this.context = connection.context;
    this.cq = connection.sendCq;
    this.qps = [connection.qp];
    this.buffer = this.context.alloc(bytes);
    this.mr = connection.pd.regMr(this.buffer, ALL_ACCESS);
  }

  get qp(): Ends['end']['qp'] {
    return this.connection.qp;
  }

  get address(): Ends['end']['address'] {
    const { port } = this.context.local;
    const { receiveBufferBytes } = this.context.device.info;
    return { port, qpns: [this.qp.qpNum], receiveBufferBytes };
  }

  fill(period: number): void {
    for (let at = 0; at < this.buffer.length; at++) {
      this.buffer[at] = Math.imul(at % period, 167) >> 3;
    }
  }

  layOut(): never {
    throw new Error('not measured with layouts');
  }
}

function capOf({ depth, reorderPackets = 64 }: AuthEndsOptions) {
  return { cap: { maxSendWr: depth, maxRecvWr: 1, reorderPackets } };
}

/** This process, connected to another one that its thread serves. */
export async function openAuthEnds(options: AuthEndsOptions): Promise<Ends> {
  const partner = await Partner.start<unknown>(import.meta.url, options);
  const context = await open(HERE, options);
  const qp = capOf(options);
  const connection = await connect(`${THERE}:${PORT}`, {
    context,
    qp,
    cqe: 4 * options.depth,
    ...authOf(options.protection),
  });
  const end = new AuthEnd(connection, options.bytes);
  const there = await partner.next<There>();
  const close = async (): Promise<void> => {
    await connection.close();
    await partner.ended();
    await context.close();
  };
  return { end, there, partner: partner as Ends['partner'], close };
}

/** Milliseconds of `count` connections, each made and ended. */
export async function connectMillis(protection: Protection, count: number): Promise<number[]> {
  const options: AuthEndsOptions = { protection, bytes: 4096, depth: 2, progress: 'inline' };
  const partner = await Partner.start<unknown>(import.meta.url, { ...options, count: count + 1 });
  const context = await open(HERE, options);
  const millis: number[] = [];
  for (let index = 0; index <= count; index++) {
    const began = performance.now();
    const how = { context, qp: capOf(options), ...authOf(protection) };
    const connection = await connect(`${THERE}:${PORT}`, how);
    millis.push(performance.now() - began);
    await connection.close();
  }
  await partner.ended();
  await context.close();
  // The first one compiles.
  return millis.slice(1);
}

interface Task extends AuthEndsOptions {
  /** Connections until the end. Default: one, whose memory the process reports. */
  readonly count?: number;
}

/** The other process: ends when the last connection does. */
async function serve(task: Task): Promise<void> {
  const context = await open(THERE, task.count ? task : { ...task, progress: 'thread' });
  const { count = 1 } = task;
  const listener = await listen(`${THERE}:${PORT}`, { context, ...authOf(task.protection) });
  tell('ready');
  let left = count;
  for await (const connection of listener.connections({ qp: capOf(task) })) {
    if (task.count === undefined) {
      const end = new AuthEnd(connection, task.bytes);
      const { addr, rkey } = end.mr;
      tell({ ...end.address, regions: [{ addr: Number(addr), rkey }] } satisfies There);
    }
    await connection.disconnected;
    await connection.close();
    if (--left === 0) break;
  }
  await listener.close();
  await context.close();
  process.disconnect();
}

const task = partnerTask<Task>(import.meta.url);
if (task) await serve(task);
