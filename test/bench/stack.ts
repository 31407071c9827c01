/**
 * The whole stack between two processes over UDP loopback: WRITEs and READs of any size, and SENDs
 * to and fro. The other process is this module once more (partner.ts).
 */
import {
  Endpoint,
  Mtu,
  QpState,
  SendFlag,
  WcStatus,
  WrOpcode,
  openDevice,
  type CompletionQueue,
  type Context,
  type MemoryRegion,
  type QueuePair,
  type SendWorkRequest,
} from '../../host/index.js';
import { ALL_ACCESS } from '../support/pair.js';
import { percentiles, type SpinResult } from './bare.js';
import { Stopwatch, type Figures } from './harness.js';
import { partnerTask, startPartner, tell } from './partner.js';

export type Progress = 'thread' | 'poll';

/** What one side tells the other. */
interface Address {
  readonly port: number;
  readonly qpn: number;
  readonly addr: string;
  readonly rkey: number;
  readonly receiveBufferBytes: number;
}

interface Task extends Address {
  readonly progress: Progress;
  readonly bytes: number;
  /** Length of the messages that are answered; 0: none are. */
  readonly echo: number;
  /** Does it sleep until a completion queue calls? */
  readonly waits: boolean;
}

const PSN = 1000;
const REORDER = 64;
const DEPTH = 256;
const SIGNALLED_EVERY = 16;
const WARM_UP_MILLIS = 200;
const IN_LIST = 16;

class End {
  readonly context: Context;
  readonly cq: CompletionQueue;
  readonly qp: QueuePair;
  readonly buffer: Uint8Array;
  readonly mr: MemoryRegion;

  private constructor(context: Context, bytes: number) {
    this.context = context;
    const pd = context.allocPd();
    this.cq = context.createCq(4 * DEPTH);
    const cap = { maxSendWr: DEPTH, maxRecvWr: DEPTH, reorderPackets: REORDER };
    this.qp = pd.createQp({ sendCq: this.cq, recvCq: this.cq, cap });
    this.buffer = context.alloc(bytes);
    this.mr = pd.regMr(this.buffer, ALL_ACCESS);
  }

  static async open(progress: Progress, bytes: number): Promise<End> {
    const memoryBytes = bytes + 32 * 2 ** 20;
    const options = { address: '127.0.0.1', port: 0, progress, memoryBytes };
    return new End(await openDevice({ ...options, windowPackets: 128 }), bytes);
  }

  get address(): Address {
    const { context, qp, mr } = this;
    return {
      port: context.local.port,
      qpn: qp.qpNum,
      addr: String(mr.addr),
      rkey: mr.rkey,
      receiveBufferBytes: context.device.info.receiveBufferBytes,
    };
  }

  connect({ port, qpn, receiveBufferBytes }: Address): void {
    const { gid } = Endpoint.parse('127.0.0.1', port);
    const access = { qpAccessFlags: ALL_ACCESS };
    this.qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, ...access });
    this.qp.modify({
      qpState: QpState.RTR,
      ahAttr: { dgid: gid, port, receiveBufferBytes, reorderPackets: REORDER, ownKind: true },
      pathMtu: Mtu.MTU_4096,
      destQpNum: qpn,
      rqPsn: PSN,
      maxDestRdAtomic: 16,
      minRnrTimer: 1,
    });
    const patience = { timeout: 14, retryCnt: 7, rnrRetry: 7 };
    this.qp.modify({ qpState: QpState.RTS, sqPsn: PSN, ...patience, maxRdAtomic: 16 });
  }

  /** A message of `length` bytes, or of none: the end. */
  send(length: number): void {
    const sgList = length === 0 ? [] : [{ addr: this.mr.addr, length, lkey: this.mr.lkey }];
    this.qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED, sgList });
  }

  receive(length: number): void {
    const sgList = [{ addr: this.mr.addr, length: Math.max(length, 1), lkey: this.mr.lkey }];
    this.qp.postRecv({ wrId: 1, sgList });
  }

  /** Lengths of the messages that came. */
  async received(waits: boolean): Promise<number[]> {
    const completions = waits ? await this.cq.wait() : this.cq.poll(16);
    for (const { status } of completions) {
      if (status !== WcStatus.SUCCESS) throw new Error(`a request ended with ${status}`);
    }
    return completions.filter(({ wrId }) => wrId === 1n).map(({ byteLen }) => byteLen);
  }
}

/** The other process: serves, answers, and ends when an empty message comes. */
async function serve(task: Task): Promise<void> {
  const end = await End.open(task.progress, task.bytes);
  end.connect(task);
  for (let index = 0; index < 16; index++) end.receive(task.echo);
  tell(end.address);
  const watch = new Stopwatch();
  // Where nobody is answered, nothing is looked at: peers are served by the other thread.
  const waits = task.waits || (task.echo === 0 && task.progress === 'thread');
  for (let ended = false; !ended;) {
    for (const length of await end.received(waits)) {
      if (length === 0) ended = true;
      else {
        end.receive(task.echo);
        end.send(length);
      }
    }
  }
  tell({ busy: watch.cpuSeconds() / watch.seconds() });
  // The last acknowledgement leaves before the device goes.
  await new Promise((resolve) => setTimeout(resolve, 50));
  await end.context.close();
}

async function openBoth(task: Omit<Task, keyof Address>, own = task.progress) {
  const end = await End.open(own, task.bytes);
  const partner = await startPartner<Address, { readonly busy: number }>(import.meta.url, {
    ...task,
    ...end.address,
  });
  end.connect(partner.ready);
  const close = async (): Promise<number> => {
    end.send(0);
    while ((await end.cq.wait()).length === 0);
    const { busy } = await partner.result;
    await end.context.close();
    return busy;
  };
  return { end, there: partner.ready, close };
}

export interface StreamOptions {
  readonly opcode: number;
  readonly size: number;
  /** Memory that requests walk over, on both sides. */
  readonly bytes: number;
  readonly seconds: number;
  /** Of this side; the other one has a thread. */
  readonly progress: Progress;
}

export interface StreamResult {
  readonly gbps: number;
  readonly mps: number;
  readonly cpuSeconds: number;
  readonly seconds: number;
  readonly retransmitted: number;
}

/** One request after another, as many under way as the queue takes. */
export async function stream(options: StreamOptions): Promise<StreamResult> {
  const { opcode, size, bytes, seconds, progress } = options;
  const { end, there, close } = await openBoth(
    { progress: 'thread', bytes, echo: 0, waits: false },
    progress,
  );
  const places = Math.floor(bytes / size);
  const lists = Array.from({ length: Math.ceil(Math.min(places, 4096) / IN_LIST) }, (_, list) =>
    Array.from({ length: IN_LIST }, (_, index): SendWorkRequest => {
      const number = list * IN_LIST + index;
      const offset = ((Math.imul(number, 0x9e3779b1) >>> 0) % places) * size;
      return {
        wrId: 2,
        opcode,
        sendFlags: (index + 1) % SIGNALLED_EVERY === 0 ? SendFlag.SIGNALED : 0,
        sgList: [{ addr: Number(end.mr.addr) + offset, length: size, lkey: end.mr.lkey }],
        rdma: { remoteAddr: Number(there.addr) + offset, rkey: there.rkey },
      };
    }),
  );
  const under = Math.max(2 * IN_LIST, Math.min(DEPTH, Math.ceil((4 * 2 ** 20) / size)));
  let posted = 0;
  let done = 0;
  let list = 0;
  const pump = (until: () => boolean): void => {
    while (!until()) {
      while (posted - done + IN_LIST <= under) {
        end.qp.postSend(lists[list]!);
        list = (list + 1) % lists.length;
        posted += IN_LIST;
      }
      for (const { status } of end.cq.poll(32)) {
        if (status !== WcStatus.SUCCESS) throw new Error(`a request ended with ${status}`);
        done += SIGNALLED_EVERY;
      }
    }
  };
  const warm = performance.now() + WARM_UP_MILLIS;
  pump(() => performance.now() >= warm);
  const before = done;
  const watch = new Stopwatch();
  const finish = performance.now() + seconds * 1000;
  pump(() => performance.now() >= finish);
  const measured = watch.seconds();
  const ownCpu = watch.cpuSeconds();
  const count = done - before;
  while (done < posted) {
    for (const { status } of end.cq.poll(32)) if (status === WcStatus.SUCCESS) done += IN_LIST;
  }
  const { retransmittedPkts } = end.context.counters();
  const busy = await close();
  return {
    gbps: (count * size) / measured / 1e9,
    mps: count / measured / 1e6,
    cpuSeconds: ownCpu + busy * measured,
    seconds: measured,
    retransmitted: Number(retransmittedPkts),
  };
}

export function streamFigures(name: string, result: StreamResult): Figures {
  return {
    [`${name}_gbps`]: result.gbps,
    [`${name}_mps`]: result.mps,
    [`${name}_cpu_seconds_per_second`]: result.cpuSeconds / result.seconds,
    [`${name}_packets_sent_again`]: result.retransmitted,
  };
}

export interface TripOptions {
  readonly bytes: number;
  readonly count: number;
  readonly progress: Progress;
  /** Both sides sleep until their completion queue calls, instead of polling it. */
  readonly waits: boolean;
}

/** SENDs to and fro, one at a time. */
export async function sendTrips(options: TripOptions): Promise<SpinResult> {
  const { bytes, count, progress, waits } = options;
  const { end, close } = await openBoth({ progress, bytes: 65536, echo: bytes, waits });
  const micros = new Float64Array(count);
  for (let index = 0; index < 16; index++) end.receive(bytes);
  // As long as it takes the compilers of both sides to be done.
  const warmUp = Math.max(Math.ceil(count / 10), 10_000);
  for (let trip = -warmUp; trip < count; trip++) {
    const start = performance.now();
    end.send(bytes);
    while ((await end.received(waits)).length === 0);
    if (trip >= 0) micros[trip] = (performance.now() - start) * 1000;
    end.receive(bytes);
  }
  await close();
  return percentiles(micros);
}

const task = partnerTask<Task>(import.meta.url);
if (task) await serve(task);
