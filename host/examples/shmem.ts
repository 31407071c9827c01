/**
 * A symmetric heap with put and get, as in SHMEM: every process has a heap, and any process that
 * knows an offset reads and writes there in another's heap, whose code takes no part. All heaps
 * are one registration; every process puts and gets by a queue pair of its own that ends in itself.
 *
 * `node shmem.js` starts the processes, which add up by recursive doubling.
 */
import {
  AccessFlag,
  QpState,
  SendFlag,
  WcStatusName,
  WrOpcode,
  Mtu,
  openDevice,
  type Context,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
} from '../index.js';
import { Processes, dismissed, member, say, nextMessage } from './processes.js';

const PROCESSES = 4;
const HEAP_BYTES = 4096;
const VALUES = 100;
const SHARE_KEY = 0x5e4;
const NAME = 'example-shmem';
const ACCESS = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_READ | AccessFlag.REMOTE_WRITE;

interface Start {
  readonly name: string;
  readonly shpd: Uint8Array;
  /** All heaps, and the memory key of all of them. */
  readonly address: number;
  readonly key: number;
}

/** Puts and gets of one process; offsets count in its heap and in those of all others. */
class Shmem {
  readonly #heaps: Uint8Array;
  readonly #key: number;
  readonly #me: number;
  readonly #qp: QueuePair;
  readonly #scratch: MemoryRegion;

  constructor(
    context: Context,
    pd: ProtectionDomain,
    heaps: Uint8Array,
    { key, me }: { key: number; me: number },
  ) {
    this.#heaps = heaps;
    this.#key = key;
    this.#me = me;
    this.#scratch = pd.regMr(context.alloc(HEAP_BYTES), AccessFlag.LOCAL_WRITE);
    const cq = context.createCq(16);
    const make = (): QueuePair => pd.createQp({ sendCq: cq, recvCq: cq });
    const [here, there] = [make(), make()];
    connectPair(context, here, there);
    connectPair(context, there, here);
    this.#qp = here;
  }

  /** Numbers of this process's heap: where they lie for everybody. */
  numbers(offset: number, count: number): Float64Array {
    const start = this.#heaps.byteOffset + this.#me * HEAP_BYTES + offset;
    return new Float64Array(this.#heaps.buffer, start, count);
  }

  /** To the heap of process `to`; resolves when it is there. */
  put(to: number, offset: number, numbers: Float64Array): Promise<void> {
    new Float64Array(this.#scratch.buffer.buffer, this.#scratch.buffer.byteOffset).set(numbers);
    return this.#move(WrOpcode.RDMA_WRITE, to, offset, numbers.byteLength);
  }

  /** From the heap of process `from`. */
  async get(from: number, offset: number, count: number): Promise<Float64Array> {
    await this.#move(WrOpcode.RDMA_READ, from, offset, count * 8);
    const { buffer, byteOffset } = this.#scratch.buffer;
    return new Float64Array(buffer, byteOffset, count).slice();
  }

  /** Returns when all have called it `turn` times. */
  async barrier(turn: number): Promise<void> {
    const arrived = new Int32Array(this.#heaps.buffer, this.#heaps.byteOffset, 1);
    Atomics.add(arrived, 0, 1);
    while (Atomics.load(arrived, 0) < turn * PROCESSES) {
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }

  async #move(opcode: number, target: number, offset: number, length: number): Promise<void> {
    const { addr, lkey } = this.#scratch;
    this.#qp.postSend({
      opcode,
      sendFlags: SendFlag.SIGNALED,
      sgList: [{ addr, length, lkey }],
      rdma: {
        remoteAddr: this.#heaps.byteOffset + target * HEAP_BYTES + offset,
        rkey: this.#key,
      },
    });
    const [{ status } = { status: -1 }] = await this.#qp.sendCq.wait(1);
    if (status !== 0) throw new Error(WcStatusName[status]);
  }
}

function connectPair({ local }: Context, qp: QueuePair, peer: QueuePair): void {
  qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: ACCESS });
  qp.modify({
    qpState: QpState.RTR,
    ahAttr: { dgid: local.gid, port: local.port },
    pathMtu: Mtu.MTU_4096,
    destQpNum: peer.qpNum,
    rqPsn: 1,
    maxDestRdAtomic: 4,
    minRnrTimer: 12,
  });
  const retries = { timeout: 14, retryCnt: 7, rnrRetry: 7, maxRdAtomic: 4 };
  qp.modify({ qpState: QpState.RTS, sqPsn: 1, ...retries });
}

async function live(me: number): Promise<void> {
  const { name, shpd, address, key } = await nextMessage<Start>();
  await using context = await openDevice({ name });
  const pd = context.sharePd(shpd, SHARE_KEY);
  const heaps = context.attach(address, (PROCESSES + 1) * HEAP_BYTES).subarray(0);
  // The first page is the barrier's.
  const shmem = new Shmem(context, pd, heaps, { key, me: me + 1 });
  const sums = shmem.numbers(0, VALUES);
  sums.forEach((_, index) => (sums[index] = (me + 1) * index));
  let turn = 1;
  await shmem.barrier(turn++);
  // Each doubling: what the partner has, and both have the sum.
  for (let distance = 1; distance < PROCESSES; distance *= 2) {
    const partner = me ^ distance;
    await shmem.put(partner + 1, VALUES * 8, sums);
    await shmem.barrier(turn++);
    const theirs = shmem.numbers(VALUES * 8, VALUES);
    sums.forEach((sum, index) => (sums[index] = sum + theirs[index]!));
    await shmem.barrier(turn++);
  }
  const neighbour = await shmem.get(((me + 1) % PROCESSES) + 1, 0, VALUES);
  const factor = (PROCESSES * (PROCESSES + 1)) / 2;
  const wrong = [...sums, ...neighbour].filter((sum, at) => sum !== factor * (at % VALUES)).length;
  await shmem.barrier(turn++);
  say({ wrong });
  await dismissed();
}

async function startAll(): Promise<void> {
  const name = `${NAME}-${process.pid}`;
  await using context = await openDevice({ name, port: 0 });
  const pd = context.allocPd();
  const shpd = pd.allocShpd(SHARE_KEY);
  const heaps = context.alloc((PROCESSES + 1) * HEAP_BYTES);
  const { rkey } = pd.regMr(heaps, ACCESS);
  const processes = Processes.start(import.meta.url, PROCESSES);
  processes.tell({ name, shpd, address: heaps.byteOffset, key: rkey });
  for (const [number, { wrong }] of (await processes.hear<{ wrong: number }>()).entries()) {
    console.log(`process ${number}: ${2 * VALUES} sums, ${wrong} of them wrong`);
  }
  await processes.end();
}

if (member === undefined) await startAll();
else await live(member);
