/** WRITEs and READs between two processes, as many under way as the queues take. */
import { SendFlag, WrOpcode } from '../../host/index.js';
import { FlowWatch, type Flow } from './flow.js';
import { Requests, ofRegion, type RequestsOptions } from './requests.js';
import { check, openBoth, type Both, type End, type Pieces, type Progress } from './stack.js';

/** Ends of two connected processes, as a stream uses them. */
export interface Ends extends Pick<Both, 'there' | 'partner' | 'close'> {
  readonly end: Pick<
    End,
    'context' | 'cq' | 'qps' | 'qp' | 'buffer' | 'mr' | 'address' | 'fill' | 'layOut'
  >;
}

export interface StreamOptions {
  /** RDMA_WRITE or RDMA_READ. */
  readonly opcode: number;
  readonly size: number;
  /** The peer's memory, which requests walk over in no order. */
  readonly bytes: number;
  /** Our own. Default: as much. */
  readonly localBytes?: number;
  /** The number of regions that the peer's memory is registered as. Default 1. */
  readonly regions?: number;
  readonly queuePairs?: number;
  readonly seconds: number;
  /** Of this side. */
  readonly progress: Progress;
  /** Of the other one. Default: a thread. */
  readonly thereProgress?: Progress;
  /** Node's options there. */
  readonly thereOptions?: readonly string[];
  readonly windowPackets?: number;
  readonly reorderPackets?: number;
  readonly socketBufferBytes?: number;
  /** Packets have no ICRC. */
  readonly skipIcrc?: boolean;
  /** The source lies in pieces, and goes through a memory layout. */
  readonly pieces?: Pieces;
}

const MTU_BYTES = 4096;
const WARM_UP_MILLIS = 200;
const SMALL_BYTES = 1024;
/** Of requests that are posted together. */
const LIST_BYTES = 2 ** 20;
const UNDER_WAY_BYTES = 4 * 2 ** 20;

/** Keeps the queues full. */
class Pump {
  readonly #both: Ends;
  readonly #requests: Requests;
  readonly #length: number;
  readonly #deep: number;
  readonly #waits: boolean;
  /** Under way, by queue pair. */
  readonly #under: Uint32Array;
  #turn = 0;
  done = 0;

  constructor(both: Ends, requests: Requests, length: number, deep: number, waits: boolean) {
    this.#both = both;
    this.#requests = requests;
    this.#length = length;
    this.#deep = deep;
    this.#waits = waits;
    this.#under = new Uint32Array(both.end.qps.length);
  }

  async until(over: () => boolean): Promise<void> {
    while (!over()) {
      this.#fill();
      if (this.#waits) this.#take(await this.#both.end.cq.wait(64));
      else this.#take(this.#both.end.cq.poll(64));
    }
  }

  async drain(): Promise<void> {
    while (this.#under.some((count) => count > 0)) this.#take(await this.#both.end.cq.wait(64));
  }

  #fill(): void {
    const { qps } = this.#both.end;
    for (let full = 0; full < qps.length;) {
      const turn = this.#turn;
      this.#turn = turn + 1 === qps.length ? 0 : turn + 1;
      if (this.#under[turn]! + this.#length > this.#deep) full++;
      else {
        qps[turn]!.postSend(this.#requests.aim(turn));
        this.#under[turn]! += this.#length;
        full = 0;
      }
    }
  }

  #take(completions: readonly { readonly status: number; readonly wrId: bigint }[]): void {
    for (const { status, wrId } of completions) {
      check(status);
      this.#under[Number(wrId)]! -= this.#length;
      this.done += this.#length;
    }
  }
}

/** Requests of a list, and requests of a queue pair under way. */
export function depthOf(size: number, queuePairs = 1): { length: number; deep: number } {
  const small = size <= SMALL_BYTES;
  const length = small ? 64 : Math.max(1, Math.min(16, LIST_BYTES / size));
  const under = Math.max(2 * length, Math.min(small ? 2048 : 256, UNDER_WAY_BYTES / size));
  return { length, deep: Math.max(2 * length, under / queuePairs) };
}

/** One way for `seconds`; what came last is compared byte by byte. */
export async function stream(options: StreamOptions): Promise<Flow> {
  const { opcode, size, bytes, localBytes = bytes, regions = 1, queuePairs = 1 } = options;
  const { deep } = depthOf(size, queuePairs);
  const { socketBufferBytes, windowPackets, reorderPackets } = options;
  const both = await openBoth({
    progress: options.progress,
    thereProgress: options.thereProgress ?? 'thread',
    ...(options.thereOptions && { thereOptions: options.thereOptions }),
    bytes,
    regions,
    queuePairs,
    depth: deep,
    period: opcode === WrOpcode.RDMA_READ ? size : 1,
    ...(localBytes !== bytes && { localBytes }),
    ...(socketBufferBytes !== undefined && { socketBufferBytes }),
    ...(windowPackets !== undefined && { windowPackets }),
    ...(reorderPackets !== undefined && { reorderPackets }),
    ...(options.skipIcrc && { skipIcrc: true }),
  });
  return streamOver(both, options);
}

/** The same over connected processes; closes them. */
export async function streamOver(both: Ends, options: StreamOptions): Promise<Flow> {
  const { opcode, size, bytes, queuePairs = 1 } = options;
  const { length, deep } = depthOf(size, queuePairs);
  const { end, partner } = both;
  if (opcode === WrOpcode.RDMA_WRITE) end.fill(size);
  const { regions: there } = both.there;
  const local = options.pieces ? layOut(end, options.pieces) : ofRegion(end);
  const requests = new Requests({ opcode, size, length, local, regions: there, bytes });
  const pump = new Pump(both, requests, length, deep, options.progress === 'inline');
  const warm = performance.now() + WARM_UP_MILLIS;
  await pump.until(() => performance.now() >= warm);
  const before = pump.done;
  const sentAgain = end.context.counters().retransmittedPkts;
  const watch = new FlowWatch(partner);
  const finish = performance.now() + options.seconds * 1000;
  await pump.until(() => performance.now() >= finish);
  const spent = watch.read();
  const messages = pump.done - before;
  const again = Number(end.context.counters().retransmittedPkts - sentAgain);
  await pump.drain();
  // Transfers through layouts are compared in their own tests.
  if (!options.pieces) await compare(both, requests, size, opcode);
  await both.close();
  return {
    ...spent,
    messages,
    packets: messages * Math.max(1, Math.ceil(size / MTU_BYTES)),
    bytes: messages * size,
    sentAgain: again,
    receiveBufferBytes: end.address.receiveBufferBytes,
  };
}

function layOut(end: Ends['end'], pieces: Pieces): RequestsOptions['local'] {
  const { addr, lkey } = end.layOut(pieces);
  return { addr, length: Math.floor(end.mr.length / pieces.stride) * pieces.datum, lkey };
}

/** Reads back what was written, and looks at what was read: bytes that come again after `size`. */
async function compare({ end }: Ends, requests: Requests, size: number, opcode: number) {
  const { mr, buffer } = end;
  for (const { local, remote, rkey } of requests.aimed()) {
    if (opcode === WrOpcode.RDMA_WRITE) {
      const at = local - Number(mr.addr);
      buffer.fill(0, at, at + size);
      end.qp.postSend({
        opcode: WrOpcode.RDMA_READ,
        sendFlags: SendFlag.SIGNALED,
        sgList: [{ addr: local, length: size, lkey: mr.lkey }],
        rdma: { remoteAddr: remote, rkey },
      });
      const [completion] = await end.cq.wait(1);
      check(completion!.status);
    }
    const at = local - Number(mr.addr);
    const wrong = buffer
      .subarray(at, at + size)
      .findIndex((byte, index) => byte !== ((Math.imul(index, 167) >> 3) & 0xff));
    if (wrong >= 0) throw new Error(`byte ${wrong} of ${size} is not what it should be`);
  }
}
