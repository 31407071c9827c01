/**
 * Private parts of a heap that all processes have at the same addresses, under one key. A peer
 * elsewhere reads what each of them has by one connection. One process is killed: its part is free
 * again, and the key still opens what the others have.
 *
 * `node heaps.js` starts the processes.
 */
import {
  AccessFlag,
  RefusalError,
  SendFlag,
  WcStatusName,
  WrOpcode,
  connect,
  listen,
  openDevice,
  type DomainHeap,
} from '../index.js';
import { Processes, dismissed, member, say, nextMessage } from './processes.js';

const PROCESSES = 3;
const PIECES = 4;
const PIECE_BYTES = 2 ** 20;
const SHARE_KEY = 0x4ea9;
const NAME = 'example-heaps';
const ROOT = 'heaps';
/** Bytes of the heap: each process takes a quarter. */
const RESERVE = 16 * 2 ** 20;

interface Piece {
  readonly address: number;
}
interface Start {
  readonly name: string;
}

/** One of the processes: its heap grows piece by piece. */
async function live(number: number): Promise<void> {
  const { name } = await nextMessage<Start>();
  await using context = await openDevice({ name });
  const { shpd } = await context.roots.wait(ROOT, { timeout: 10_000 });
  const heap = context.sharePd(shpd!, SHARE_KEY).heap();
  const pieces: Piece[] = [];
  while (pieces.length < PIECES) {
    const memory = heap.alloc(PIECE_BYTES);
    memory.fill(16 * number + pieces.length);
    pieces.push({ address: memory.byteOffset });
  }
  say(pieces);
  await dismissed();
}

/** Waits for `count` more pieces: the memory of a dead process is reclaimed by the survivors. */
async function awaitPieces(heap: DomainHeap, count: number): Promise<number> {
  const start = performance.now();
  for (let taken = 0; taken < count;) {
    try {
      heap.malloc(PIECE_BYTES);
      taken++;
    } catch (error) {
      if (!(error instanceof RefusalError) || performance.now() - start > 30_000) throw error;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
  return performance.now() - start;
}

async function startAll(): Promise<void> {
  const name = `${NAME}-${process.pid}`;
  await using context = await openDevice({ name, port: 0, memoryBytes: 32 * 2 ** 20 });
  const pd = context.allocPd();
  const heap = pd.heap({ reserve: RESERVE });
  context.roots.put(ROOT, { pd, shpd: pd.allocShpd(SHARE_KEY) });
  const processes = Processes.start(import.meta.url, PROCESSES);
  processes.tell({ name });
  const heaps = await processes.hear<Piece[]>();

  // A peer elsewhere: its one connection is to this process, and reads what the others have.
  const listener = await listen('127.0.0.1:7471', { context });
  await using peer = await openDevice({ port: 0 });
  const accepting = listener.getRequest().then((request) => request!.accept({ pd }));
  const udpPort = context.local.port;
  const connection = await connect('127.0.0.1:7471', { context: peer, udpPort });
  const accepted = await accepting;
  const memory = peer.alloc(PIECE_BYTES);
  const { addr, lkey } = connection.pd.regMr(memory, AccessFlag.LOCAL_WRITE);
  const read = async ({ address }: Piece): Promise<string> => {
    connection.qp.postSend({
      opcode: WrOpcode.RDMA_READ,
      sendFlags: SendFlag.SIGNALED,
      sgList: [{ addr, length: PIECE_BYTES, lkey }],
      rdma: { remoteAddr: address, rkey: heap.key },
    });
    const [{ status } = { status: -1 }] = await connection.sendCq.wait(1);
    return WcStatusName[status] ?? `${status}`;
  };
  let wrong = 0;
  for (const [number, pieces] of heaps.entries()) {
    for (const [index, piece] of pieces.entries()) {
      await read(piece);
      wrong += memory.reduce((sum, byte) => sum + Number(byte !== 16 * number + index), 0);
    }
  }
  console.log(
    `${PROCESSES} heaps of ${PIECES} pieces read by one connection: ${wrong} bytes wrong`,
  );

  let rest = 0;
  try {
    for (; ; rest++) heap.malloc(PIECE_BYTES);
  } catch (error) {
    console.log(`${rest} more pieces are left, then ${(error as RefusalError).code}`);
  }
  await processes.kill(0);
  const millis = await awaitPieces(heap, PIECES);
  console.log(`one was killed: its ${PIECES} pieces were free after ${millis.toFixed(0)} ms`);
  console.log(`what another process has: ${await read(heaps[1]![0]!)}`);
  await connection.close();
  await accepted.close();
  await listener.close();
  await processes.end();
}

if (member === undefined) await startAll();
else await live(member);
