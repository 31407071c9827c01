/**
 * The whole stack between two processes over UDP loopback. The other process is this module once
 * more (partner.ts): it serves one-sided operations, answers SENDs, or is kept busy.
 */
import {
  AccessFlag,
  Endpoint,
  Mtu,
  QpState,
  SendFlag,
  WcStatus,
  WrOpcode,
  openDevice,
  type Clock,
  type CompletionQueue,
  type Context,
  type LayoutMemoryRegion,
  type Link,
  type MemoryRegion,
  type QueuePair,
  type ReceiveWorkRequest,
  type SendWorkRequest,
  type WorkCompletion,
} from '../../host/index.js';
import { ALL_ACCESS } from '../support/pair.js';
import { allocPageAligned } from './page-aligned.js';
import { Partner, endOrphan, partnerTask, tell } from './partner.js';

export type Progress = 'thread' | 'poll' | 'inline';

export interface EndOptions {
  readonly progress: Progress;
  /** Registered memory. */
  readonly bytes: number;
  /** The number of regions that it is registered as. Default 1. */
  readonly regions?: number;
  /** Default 1. */
  readonly queuePairs?: number;
  /** Requests of a queue pair. Default 256. */
  readonly depth?: number;
  /** Unacknowledged packets of a queue pair. Default 128. */
  readonly windowPackets?: number;
  /** Packets that are kept when they come ahead: they bound the window. Default 64; 0: none. */
  readonly reorderPackets?: number;
  /** 4.096 us * 2^timeout until something is sent again. Default 14: 67 ms. */
  readonly timeout?: number;
  /** Default: the device's. */
  readonly socketBufferBytes?: number;
  /** Name of a device that both sides share. Default: each has its own. */
  readonly name?: string;
  /** Packets have no ICRC, as the connection manager agrees for loopback interfaces. */
  readonly skipIcrc?: boolean;
}

/** In place of a UDP link of its own: the measuring code runs this side. */
export interface OwnLink {
  readonly link: Link;
  readonly clock: Clock;
  readonly sendBuffers: number;
}

/** Address of one side, sent to the other. */
export interface Address {
  readonly port: number;
  readonly qpns: readonly number[];
  readonly receiveBufferBytes: number;
}

export interface There extends Address {
  readonly regions: readonly { readonly addr: number; readonly rkey: number }[];
}

interface Task extends Address {
  readonly end: EndOptions;
  /** Memory is filled with bytes that repeat with this period. */
  readonly period: number;
  /** Length of the messages that are answered; 0: none are. */
  readonly echo: number;
  /** Does it sleep until a completion queue calls? */
  readonly waits: boolean;
}

/** Asks the other process to do nothing else for a while: to sleep, or to compute. */
export interface Keep {
  readonly millis: number;
  readonly how: 'blocked' | 'computing';
}

const ADDRESS = '127.0.0.1';
/** Of a device that both sides share: no two of them live at the same time. */
const SHARED_PORT = 47_917;
const PSN = 1000;
const RECEIVES = 16;
const SIGNALED_EVERY = 32;
const NOTHING: number[] = [];
const RD_ATOMIC = 16;
const HEADROOM_BYTES = 32 * 2 ** 20;
/** wrId of receives. */
const RECEIVED = 0xffffn;

/** `datum` bytes of every `stride`. */
export interface Pieces {
  readonly datum: number;
  readonly stride: number;
}

export class End {
  readonly context: Context;
  readonly cq: CompletionQueue;
  readonly qps: readonly QueuePair[];
  readonly buffer: Uint8Array;
  readonly mrs: readonly MemoryRegion[];

  readonly #reorderPackets: number;
  readonly #timeout: number;
  readonly #skipIcrc: boolean;
  readonly #made = new Map<number, Requests>();
  #sent = 0;

  private constructor(context: Context, options: EndOptions) {
    const { bytes, regions = 1, queuePairs = 1, depth = 256, reorderPackets = 64 } = options;
    this.context = context;
    this.#reorderPackets = reorderPackets;
    this.#timeout = options.timeout ?? 14;
    this.#skipIcrc = options.skipIcrc ?? false;
    const pd = context.allocPd();
    this.cq = context.createCq(4 * depth);
    const cap = { maxSendWr: depth, maxRecvWr: RECEIVES, reorderPackets };
    this.qps = Array.from({ length: queuePairs }, () =>
      pd.createQp({ sendCq: this.cq, recvCq: this.cq, cap }),
    );
    this.buffer = allocPageAligned(context, bytes);
    const part = bytes / regions;
    this.mrs = Array.from({ length: regions }, (_, index) =>
      pd.regMr(this.buffer.subarray(index * part, (index + 1) * part), ALL_ACCESS),
    );
  }

  static async open(options: EndOptions, own?: OwnLink): Promise<End> {
    const { progress, bytes, regions = 1, socketBufferBytes } = options;
    const limits = {
      memoryBytes: bytes + HEADROOM_BYTES,
      regionsMax: regions + 16,
      ...(options.windowPackets !== undefined && { windowPackets: options.windowPackets }),
    };
    const { name } = options;
    const udp = {
      ...(name === undefined
        ? { address: ADDRESS, port: 0 }
        : { name, address: ADDRESS, port: SHARED_PORT, localMemoryBytes: HEADROOM_BYTES }),
      progress,
      ...(socketBufferBytes !== undefined && { socketBufferBytes }),
    };
    return new End(await openDevice({ ...limits, ...(own ?? udp) }), options);
  }

  get qp(): QueuePair {
    return this.qps[0]!;
  }

  /** Of the first region. */
  get mr(): MemoryRegion {
    return this.mrs[0]!;
  }

  /** All of the buffer, `datum` of every `stride` bytes. */
  layOut({ datum, stride }: Pieces): LayoutMemoryRegion {
    const { mr } = this;
    const layout = mr.pd.regMr(null, 0, AccessFlag.ZERO_BASED);
    const firstDatum = { addr: mr.addr, length: datum, lkey: mr.lkey };
    const datumCount = Math.floor(mr.length / stride);
    layout.setLayoutInterleaved(0, [{ firstDatum, dims: [{ offsetStride: stride, datumCount }] }]);
    return layout;
  }

  get address(): Address {
    const { context, qps } = this;
    return {
      port: context.local.port,
      qpns: qps.map(({ qpNum }) => qpNum),
      receiveBufferBytes: context.device.info.receiveBufferBytes,
    };
  }

  /** The queue pairs from `first` on, one for each of the peer's. */
  connect({ port, qpns, receiveBufferBytes }: Address, first = 0): void {
    const reorderPackets = this.#reorderPackets;
    const { gid } = Endpoint.parse(ADDRESS, port);
    for (const [index, destQpNum] of qpns.entries()) {
      const qp = this.qps[first + index]!;
      const access = { qpAccessFlags: ALL_ACCESS };
      qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, ...access });
      qp.modify({
        qpState: QpState.RTR,
        ahAttr: {
          dgid: gid,
          port,
          receiveBufferBytes,
          reorderPackets,
          ownKind: true,
          skipIcrc: this.#skipIcrc,
        },
        pathMtu: Mtu.MTU_4096,
        destQpNum,
        rqPsn: PSN,
        maxDestRdAtomic: RD_ATOMIC,
        minRnrTimer: 1,
      });
      const patience = { timeout: this.#timeout, retryCnt: 7, rnrRetry: 7 };
      qp.modify({ qpState: QpState.RTS, sqPsn: PSN, ...patience, maxRdAtomic: RD_ATOMIC });
    }
  }

  fill(period: number): void {
    const { buffer } = this;
    for (let at = 0; at < period; at++) buffer[at] = Math.imul(at, 167) >> 3;
    for (let filled = period; filled < buffer.length; filled *= 2) {
      buffer.copyWithin(filled, 0, Math.min(filled, buffer.length - filled));
    }
  }

  /**
   * A message of `length` bytes; an empty one is the end. Few are signaled, as in programs that
   * wait for the answer: a completion for each would be requested, and polled, for nothing.
   */
  send(length: number): void {
    const signaled = length === 0 || this.#sent++ % SIGNALED_EVERY === 0;
    this.qp.postSend(this.#requests(length)[signaled ? 'signaled' : 'silent']);
  }

  receive(length: number): void {
    this.qp.postRecv(this.#requests(length).receive);
  }

  /** Lengths of the messages that came; it sleeps until there is a completion. */
  async received(): Promise<number[]> {
    return lengths(await this.cq.wait());
  }

  /** The same, by looking once. */
  polled(): number[] {
    const completions = this.cq.poll(16);
    return completions.length === 0 ? NOTHING : lengths(completions);
  }

  /** Made once for each length, as the fields of a request hardly ever change. */
  #requests(length: number): Requests {
    let requests = this.#made.get(length);
    if (!requests) {
      const { addr, lkey } = this.mr;
      const sgList = length === 0 ? [] : [{ addr, length, lkey }];
      requests = {
        silent: { opcode: WrOpcode.SEND, sendFlags: 0, sgList },
        signaled: { opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED, sgList },
        receive: { wrId: RECEIVED, sgList: [{ addr, length: Math.max(length, 1), lkey }] },
      };
      this.#made.set(length, requests);
    }
    return requests;
  }
}

interface Requests {
  readonly silent: SendWorkRequest;
  readonly signaled: SendWorkRequest;
  readonly receive: ReceiveWorkRequest;
}

function lengths(completions: readonly WorkCompletion[]): number[] {
  for (const { status } of completions) check(status);
  return completions.filter(({ wrId }) => wrId === RECEIVED).map(({ byteLen }) => byteLen);
}

export function check(status: number): void {
  if (status !== WcStatus.SUCCESS) throw new Error(`a request ended with status ${status}`);
}

export interface BothOptions extends EndOptions {
  /** Registered memory of this side, in one part. Default: as much as there. */
  readonly localBytes?: number;
  /** The progress mode of the other side. Default: as here. */
  readonly thereProgress?: Progress;
  /** Node's options there. */
  readonly thereOptions?: readonly string[];
  readonly period?: number;
  readonly echo?: number;
  readonly waits?: boolean;
}

export interface Both {
  readonly end: End;
  readonly there: There;
  readonly partner: Partner<There>;
  /** Ends both sides. */
  close(): Promise<void>;
}

/** This side, and the other one in a process of its own, connected. */
export async function openBoth(options: BothOptions): Promise<Both> {
  const { thereProgress, thereOptions, localBytes, ...others } = options;
  const { period = 1, echo = 0, waits = false, ...there } = others;
  const end = await End.open({ ...there, bytes: localBytes ?? there.bytes, regions: 1 });
  const task: Task = {
    ...end.address,
    end: { ...there, progress: thereProgress ?? there.progress },
    period,
    echo,
    waits,
  };
  const partner = await Partner.start<There>(import.meta.url, task, thereOptions);
  end.connect(partner.ready);
  const close = async (): Promise<void> => {
    end.send(0);
    while ((await end.cq.wait()).length === 0);
    await partner.ended();
    await end.context.close();
  };
  return { end, there: partner.ready, partner, close };
}

function keep({ millis, how }: Keep): void {
  tell('kept');
  if (how === 'blocked') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, millis);
  else for (const end = performance.now() + millis; performance.now() < end;);
  tell('free');
}

/** The other process: serves, answers, and ends when an empty message comes. */
async function serve(task: Task): Promise<void> {
  const end = await End.open(task.end);
  end.fill(task.period);
  end.connect(task);
  for (let index = 0; index < RECEIVES; index++) end.receive(task.echo);
  const regions = end.mrs.map(({ addr, rkey }) => ({ addr: Number(addr), rkey }));
  process.on('message', keep);
  tell({ ...end.address, regions } satisfies There);
  // Without answers this process does not poll: the device's thread serves its peers.
  const waits = task.waits || (task.echo === 0 && task.end.progress !== 'poll');
  for (let ended = false; !ended;) {
    endOrphan();
    for (const length of waits ? await end.received() : end.polled()) {
      if (length === 0) ended = true;
      else {
        end.send(length);
        end.receive(task.echo);
      }
    }
  }
  // The last acknowledgement leaves before the device goes.
  await new Promise((resolve) => setTimeout(resolve, 50));
  await end.context.close();
  process.disconnect();
}

const task = partnerTask<Task>(import.meta.url);
if (task) await serve(task);
