/** Common parts of the examples: connections and memory. */
import {
  AccessFlag,
  WcStatus,
  connect,
  listen,
  wcStatusStr,
  type CompletionQueue,
  type CmId,
  type MemoryRegion,
  type RdmaConnection,
  type RdmaRequest,
  type Sge,
  type WorkCompletion,
} from '../index.js';
import { announce, met, play, type Place } from './roles.js';

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

/** `bytes` of the device's memory, open to the peer for everything. */
export function register(
  { id }: { readonly id: Pick<CmId, 'context' | 'pd'> },
  bytes: number,
): Registered {
  const memory = id.context.alloc(bytes);
  const mr = id.pd.regMr(memory, ALL_ACCESS);
  return { memory, mr, sge: { addr: mr.addr, length: bytes, lkey: mr.lkey } };
}

/** The next completion, which is no failure. */
export async function completed(cq: CompletionQueue): Promise<WorkCompletion> {
  const [completion] = await cq.wait(1);
  if (!completion) throw new Error(`the device is gone: ${cq.context.failure ?? 'it was closed'}`);
  if (completion.status !== WcStatus.SUCCESS) throw new Error(sentenceOf(completion.status));
  return completion;
}

/** A sentence about the peer for the status of a failed request. */
export function sentenceOf(status: number): string {
  const text = wcStatusStr(status);
  if (status === WcStatus.WR_FLUSH_ERR)
    return `the connection ended before the request did: ${text}`;
  if (status === WcStatus.RETRY_EXC_ERR) return `the peer does not answer any more: ${text}`;
  return text;
}

/** Runs an example of one connection: `serve` has the server's end, `use` the client's. */
export function run(
  serve: (request: RdmaRequest) => Promise<void>,
  use: (server: Place) => Promise<void>,
): Promise<void> {
  return play(async ({ target, udpPort }) => {
    const device = udpPort === undefined ? {} : { port: udpPort };
    await using listener = await listen(target, { device });
    announce(listener.port, listener.context);
    const request = await listener.getRequest();
    if (!request) throw new Error('the device was closed before a client connected');
    met();
    await serve(request);
  }, use);
}

/** Connects to the server; its device may have a UDP port of its own. */
export function connectTo({ target, udpPort }: Place): Promise<RdmaConnection> {
  return connect(target, udpPort === undefined ? {} : { udpPort, device: { port: 0 } });
}
