/** A thread of a test that has a context of a device which another thread has opened. */
import { parentPort, workerData } from 'node:worker_threads';
import { QpState, SendFlag, WcOpcode, WcStatus, WrOpcode, openDevice } from '../../host/index.js';
import type { CompletionQueue, DeviceShare, MemoryRegion, Sge } from '../../host/index.js';
import { ALL_ACCESS, connect } from './pair.js';

interface Join {
  readonly shpd: Uint8Array;
  readonly shareKey: number;
}

interface Flood {
  readonly connect: { readonly qpNum: number };
  /** Where WRITEs go until one fails. */
  readonly flood: { readonly remoteAddr: bigint; readonly rkey: number; readonly length: number };
}

/** `progress`: default inline. */
type Task = DeviceShare & { readonly progress?: 'inline' | 'thread' };

const { progress = 'inline', ...threadShare } = workerData as Task;
const context = await openDevice({ threadShare, progress });
let qp: ReturnType<ReturnType<typeof context.allocPd>['createQp']> | undefined;

let cq: CompletionQueue | undefined;
let source: { readonly mr: MemoryRegion; readonly bytes: Uint8Array } | undefined;

/** WRITEs as many as succeed; the status of the one that does not. */
async function flood({ flood: { length, ...rdma } }: Flood): Promise<void> {
  const bytes = source?.bytes ?? context.alloc(length);
  source ??= { mr: qp!.pd.regMr(bytes, ALL_ACCESS), bytes };
  bytes.fill(0xee);
  const sgList: Sge[] = [{ addr: source.mr.addr, length, lkey: source.mr.lkey }];
  let count = 0;
  for (;;) {
    qp!.postSend({ opcode: WrOpcode.RDMA_WRITE, sendFlags: SendFlag.SIGNALED, sgList, rdma });
    const [wc] = cq!.poll(1);
    const { status } = wc ?? (await cq!.wait(1))[0]!;
    if (status !== WcStatus.SUCCESS) break;
    count++;
  }
  parentPort!.postMessage({ count, local: context.counters().localRequests });
}

interface Echo {
  /** As many SENDs are received and answered, one by one. */
  readonly echo: number;
}

/** Sends each message of 64 bytes back. */
async function echo({ echo: count }: Echo): Promise<void> {
  const bytes = context.alloc(4096);
  const { addr, lkey } = qp!.pd.regMr(bytes, ALL_ACCESS);
  const receive = (slot: number): void => {
    qp!.postRecv({ wrId: slot, sgList: [{ addr: addr + BigInt(64 * slot), length: 64, lkey }] });
  };
  for (let slot = 0; slot < 8; slot++) receive(slot);
  parentPort!.postMessage({});
  for (let done = 0; done < count;) {
    for (const { wrId, opcode } of await cq!.wait(8)) {
      if (opcode !== WcOpcode.RECV) continue;
      const slot = Number(wrId);
      const sgList = [{ addr: addr + BigInt(64 * slot), length: 64, lkey }];
      qp!.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED, sgList });
      receive((slot + 8) % 64);
      done++;
    }
  }
  parentPort!.postMessage({ local: context.counters().localRequests });
}

parentPort!.on('message', (message: Join | Flood | Echo | { readonly connect: object }) => {
  if ('echo' in message) {
    void echo(message);
    return;
  }
  if ('connect' in message) {
    const { qpNum, ...local } = message.connect as { qpNum: number };
    qp!.modify({ qpState: QpState.RESET });
    // A second: a busy machine makes no thread too late. WRITEs by the local path need no answer.
    const attributes = { timeout: 'flood' in message ? 10 : 18 };
    connect(qp!, { context: { local }, qp: { qpNum } } as never, 1, 1, { attributes });
    if ('flood' in message) void flood(message);
    else parentPort!.postMessage({});
    return;
  }
  const pd = context.sharePd(message.shpd, message.shareKey);
  cq = context.createCq(16);
  qp = pd.createQp({ sendCq: cq, recvCq: cq });
  const { addr, rkey } = pd.regMr(context.alloc(4096), ALL_ACCESS);
  const { gid, port } = context.local;
  parentPort!.postMessage({ address: `${gid}`, port, qpNum: qp.qpNum, addr, rkey });
});
