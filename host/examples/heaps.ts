/**
 * Private heaps on memory that all processes have at the same addresses. Every process grows its
 * own, and registers each new piece when it needs it, in a protection domain that all share: the
 * keys serve the queue pairs of all. One process is killed: its heap is free again, its keys open
 * nothing.
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
  type Context,
} from '../index.js';
import { Processes, dismissed, member, say, nextMessage } from './processes.js';

const PROCESSES = 3;
const PIECES = 4;
const PIECE_BYTES = 2 ** 20;
const SHARE_KEY = 0x4ea9;
const NAME = 'example-heaps';
const ACCESS = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_READ | AccessFlag.REMOTE_WRITE;

interface Piece {
  readonly address: number;
  readonly rkey: number;
}
interface Start {
  readonly name: string;
  readonly shpd: Uint8Array;
}

/** One of the processes: its heap grows piece by piece. */
async function live(number: number): Promise<void> {
  const { name, shpd } = await nextMessage<Start>();
  await using context = await openDevice({ name });
  const pd = context.sharePd(shpd, SHARE_KEY);
  const pieces: Piece[] = [];
  while (pieces.length < PIECES) {
    const memory = context.alloc(PIECE_BYTES);
    memory.fill(16 * number + pieces.length);
    pieces.push({ address: memory.byteOffset, rkey: pd.regMr(memory, ACCESS).rkey });
  }
  say(pieces);
  await dismissed();
}

/** Waits for `count` more pieces: the memory of a dead process is reclaimed by the survivors. */
async function awaitPieces(context: Context, count: number): Promise<number> {
  const start = performance.now();
  for (let taken = 0; taken < count;) {
    try {
      context.alloc(PIECE_BYTES);
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
  const shpd = pd.allocShpd(SHARE_KEY);
  const processes = Processes.start(import.meta.url, PROCESSES);
  processes.tell({ name, shpd });
  const heaps = await processes.hear<Piece[]>();

  // A peer elsewhere: its one connection is to this process, and reads what the others have.
  const listener = await listen('127.0.0.1:7471', { context });
  await using peer = await openDevice({ port: 0 });
  const accepting = listener.getRequest().then((request) => request!.accept({ pd }));
  const udpPort = context.local.port;
  const connection = await connect('127.0.0.1:7471', { context: peer, udpPort });
  const accepted = await accepting;
  const memory = peer.alloc(PIECE_BYTES);
  const { addr, lkey } = connection.pd.regMr(memory, ACCESS);
  const read = async ({ address, rkey }: Piece): Promise<string> => {
    connection.qp.postSend({
      opcode: WrOpcode.RDMA_READ,
      sendFlags: SendFlag.SIGNALED,
      sgList: [{ addr, length: PIECE_BYTES, lkey }],
      rdma: { remoteAddr: address, rkey },
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
    for (; ; rest++) context.alloc(PIECE_BYTES);
  } catch (error) {
    console.log(`${rest} more pieces are left, then ${(error as RefusalError).code}`);
  }
  await processes.kill(0);
  const millis = await awaitPieces(context, PIECES);
  console.log(`one was killed: its ${PIECES} pieces were free after ${millis.toFixed(0)} ms`);
  console.log(`its key: ${await read(heaps[0]![0]!)}`);
  await connection.close();
  await accepted.close();
  await listener.close();
  await processes.end();
}

if (member === undefined) await startAll();
else await live(member);
