/**
 * Processes that compute, and one that communicates for them. Workers leave requests in shared
 * memory and go on computing, without a break and without a queue pair of their own; the proxy
 * posts them, by its one connection, straight into the workers' memory. How much of the
 * communication disappears behind the computing is measured.
 *
 * `node proxy.js` starts the processes, and is the far end itself.
 */
import {
  AccessFlag,
  SendFlag,
  WcStatusName,
  WrOpcode,
  connect,
  listen,
  openDevice,
} from '../index.js';
import { Processes, dismissed, member, say, nextMessage } from './processes.js';

const WORKERS = 2;
const BLOCK_BYTES = 2 ** 20;
const BLOCKS = 24;
const SHARE_KEY = 0x9407;
const NAME = 'example-proxy';
const { LOCAL_WRITE, REMOTE_READ } = AccessFlag;

/** A line of the board, one for each worker: words of 32 bits. */
const WORDS = 16;
const WANTED = 0;
const DONE = 1;
const ADDRESS = 2;
const KEY = 3;

interface Start {
  readonly name: string;
  readonly shpd: Uint8Array;
  readonly board: number;
  /** The far end: its UDP port, and the memory that is read. */
  readonly udpPort: number;
  readonly remoteAddr: bigint;
  readonly rkey: number;
}
interface Result {
  /** Milliseconds: to communicate, to compute, and both together. */
  readonly apart: readonly [number, number];
  readonly together: number;
  /** How much of the communication was over when the computing was. */
  readonly overlap: number;
  readonly wrong: number;
}

/** Posts what workers want until it is dismissed. */
async function beProxy(): Promise<void> {
  const start = await nextMessage<Start>();
  await using context = await openDevice({ name: start.name });
  const pd = context.sharePd(start.shpd, SHARE_KEY);
  const bytes = context.attach(start.board, WORKERS * WORDS * 4);
  const board = new Int32Array(bytes.buffer, bytes.byteOffset, WORKERS * WORDS);
  const { udpPort } = start;
  const connection = await connect('127.0.0.1:7471', { context, pd, udpPort });
  say({});
  const posted = new Array<number>(WORKERS).fill(0);
  let dismiss = false;
  void dismissed().then(() => (dismiss = true));
  while (!dismiss) {
    for (let worker = 0; worker < WORKERS; worker++) {
      const line = worker * WORDS;
      while (posted[worker]! < Atomics.load(board, line + WANTED)) {
        const block = posted[worker]!++;
        connection.qp.postSend({
          wrId: worker,
          opcode: WrOpcode.RDMA_READ,
          sendFlags: SendFlag.SIGNALED,
          sgList: [
            {
              addr: (board[line + ADDRESS]! >>> 0) + block * BLOCK_BYTES,
              length: BLOCK_BYTES,
              lkey: board[line + KEY]! >>> 0,
            },
          ],
          rdma: { remoteAddr: start.remoteAddr + BigInt(block * BLOCK_BYTES), rkey: start.rkey },
        });
      }
    }
    for (const { wrId, status } of connection.sendCq.poll(16)) {
      if (status !== 0) throw new Error(WcStatusName[status]);
      Atomics.add(board, Number(wrId) * WORDS + DONE, 1);
    }
    await new Promise((resolve) => setImmediate(resolve));
  }
  await connection.close();
}

/** Computes for `millis` of processor time, without a break. */
function compute(millis: number): void {
  const end = process.cpuUsage().user + millis * 1000;
  for (let value = 1; process.cpuUsage().user < end;) {
    for (let step = 0; step < 100_000; step++) value = (value * 1103515245 + 12345) >>> 0;
  }
}

async function beWorker(number: number): Promise<void> {
  const { name, shpd, board: address } = await nextMessage<Start>();
  await using context = await openDevice({ name });
  const pd = context.sharePd(shpd, SHARE_KEY);
  const bytes = context.attach(address, WORKERS * WORDS * 4);
  const board = new Int32Array(bytes.buffer, bytes.byteOffset + number * WORDS * 4, WORDS);
  const memory = context.alloc(2 * BLOCKS * BLOCK_BYTES);
  board[ADDRESS] = memory.byteOffset;
  board[KEY] = pd.regMr(memory, LOCAL_WRITE).lkey;
  say({});
  await nextMessage();
  const timed = async (work: () => void | Promise<void>): Promise<number> => {
    const start = performance.now();
    await work();
    return performance.now() - start;
  };
  const communicate = (upTo: number): void => void Atomics.store(board, WANTED, upTo);
  const arrived = async (upTo: number): Promise<void> => {
    while (Atomics.load(board, DONE) < upTo) await new Promise((next) => setTimeout(next, 1));
  };
  const alone = await timed(() => {
    communicate(BLOCKS);
    return arrived(BLOCKS);
  });
  const millis = Math.min(Math.max(50, alone), 300);
  const computing = await timed(() => compute(millis));
  let overlap = 0;
  const together = await timed(() => {
    communicate(2 * BLOCKS);
    compute(millis);
    overlap = Atomics.load(board, DONE) / BLOCKS - 1;
    return arrived(2 * BLOCKS);
  });
  let wrong = 0;
  memory.forEach((byte, at) => {
    if (byte !== contentOf(Math.floor(at / BLOCK_BYTES))) wrong++;
  });
  say({ apart: [alone, computing], together, overlap, wrong });
  await dismissed();
}

const contentOf = (block: number): number => (block * 7) & 0xff;

async function startAll(): Promise<void> {
  const name = `${NAME}-${process.pid}`;
  await using context = await openDevice({ name, port: 0, memoryBytes: 160 * 2 ** 20 });
  const pd = context.allocPd();
  const shpd = pd.allocShpd(SHARE_KEY);
  const board = context.alloc(WORKERS * WORDS * 4).byteOffset;
  await using far = await openDevice({ port: 0, memoryBytes: 80 * 2 ** 20 });
  const memory = far.alloc(2 * BLOCKS * BLOCK_BYTES);
  memory.forEach((_, at) => (memory[at] = contentOf(Math.floor(at / BLOCK_BYTES))));
  const farPd = far.allocPd();
  const { addr, rkey } = farPd.regMr(memory, REMOTE_READ);
  const listener = await listen('127.0.0.1:7471', { context: far });
  const accepting = listener.getRequest().then((request) => request!.accept({ pd: farPd }));
  const udpPort = far.local.port;
  const start: Start = { name, shpd, board, udpPort, remoteAddr: addr, rkey };

  // The last of them is the proxy.
  const processes = Processes.start(import.meta.url, WORKERS + 1);
  processes.tell(start);
  await processes.hear();
  const results = processes.hear<Result>(WORKERS);
  processes.tell({});
  for (const [worker, { apart, together, overlap, wrong }] of (await results).entries()) {
    const said = [...apart, together].map((millis) => millis.toFixed(0));
    console.log(`worker ${worker}: ${said[0]} ms and ${said[1]} ms apart, ${said[2]} ms together`);
    console.log(`worker ${worker}: overlap ${(overlap * 100).toFixed(0)} %, ${wrong} bytes wrong`);
  }
  await processes.end();
  await (await accepting).close();
  await listener.close();
}

if (member === undefined) await startAll();
else if (member === WORKERS) await beProxy();
else await beWorker(member);
