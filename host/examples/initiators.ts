/**
 * 30 storage initiators, each a process, share one pool that is registered once. An initiator reads
 * a block into a buffer of the pool, and passes it to another one by the same key, without a
 * copy.
 *
 * `node initiators.js [COUNT]` starts them, and is the target with the blocks itself.
 */
import {
  AccessFlag,
  SendFlag,
  WcStatusName,
  WrOpcode,
  connect,
  listen,
  openDevice,
  type RdmaConnection,
} from '../index.js';
import { Processes, dismissed, member, say, nextMessage } from './processes.js';

const INITIATORS = 30;
const BLOCK_BYTES = 8192;
const BLOCKS = 256;
const BUFFERS = 64;
const READS = 8;
const SHARE_KEY = 0x10b0;
const NAME = 'example-initiators';
const { LOCAL_WRITE, REMOTE_READ } = AccessFlag;

interface Start {
  readonly name: string;
  readonly shpd: Uint8Array;
  /** Where the pool lies, for all, and its key. */
  readonly pool: number;
  readonly lkey: number;
  readonly udpPort: number;
  readonly remoteAddr: bigint;
  readonly rkey: number;
}

/** Free buffers, one word each before them: 0 is free. Taken and given back by any process. */
class Pool {
  readonly #flags: Int32Array;
  readonly #bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    this.#flags = new Int32Array(bytes.buffer, bytes.byteOffset, BUFFERS);
    this.#bytes = bytes.subarray(BUFFERS * 4);
  }

  static readonly BYTES = BUFFERS * (4 + BLOCK_BYTES);

  async take(): Promise<number> {
    for (;;) {
      for (let index = 0; index < BUFFERS; index++) {
        if (Atomics.compareExchange(this.#flags, index, 0, 1) === 0) return index;
      }
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }

  giveBack(index: number): void {
    Atomics.store(this.#flags, index, 0);
  }

  buffer(index: number): Uint8Array {
    return this.#bytes.subarray(index * BLOCK_BYTES, (index + 1) * BLOCK_BYTES);
  }
}

const contentOf = (block: number): number => (block * 31 + 7) & 0xff;

async function initiate(number: number): Promise<void> {
  const start = await nextMessage<Start>();
  await using context = await openDevice({ name: start.name });
  const pd = context.sharePd(start.shpd, SHARE_KEY);
  const pool = new Pool(context.attach(start.pool, Pool.BYTES));
  const { udpPort } = start;
  const connection = await connect('127.0.0.1:7471', { context, pd, udpPort });
  say({});
  await nextMessage();
  let wrong = 0;
  for (let count = 0; count < READS; count++) {
    const block = (number * 17 + count * 29) % BLOCKS;
    const index = await pool.take();
    const buffer = pool.buffer(index);
    connection.qp.postSend({
      opcode: WrOpcode.RDMA_READ,
      sendFlags: SendFlag.SIGNALED,
      sgList: [{ addr: buffer.byteOffset, length: BLOCK_BYTES, lkey: start.lkey }],
      rdma: { remoteAddr: start.remoteAddr + BigInt(block * BLOCK_BYTES), rkey: start.rkey },
    });
    const [{ status } = { status: -1 }] = await connection.sendCq.wait(1);
    if (status !== 0) throw new Error(WcStatusName[status]);
    if (!buffer.every((byte) => byte === contentOf(block))) wrong++;
    pool.giveBack(index);
  }
  say({ wrong });
  await dismissed();
  await connection.close();
}

async function startAll(count: number): Promise<void> {
  const name = `${NAME}-${process.pid}`;
  const sizes = { processesMax: count + 1, memoryBytes: 64 * 2 ** 20 };
  await using context = await openDevice({
    name,
    port: 0,
    ...sizes,
    localMemoryBytes: 16 * 2 ** 20,
  });
  const pd = context.allocPd();
  const shpd = pd.allocShpd(SHARE_KEY);
  const pool = context.alloc(Pool.BYTES);
  const { lkey } = pd.regMr(pool, LOCAL_WRITE);

  await using target = await openDevice({ port: 0 });
  const blocks = target.alloc(BLOCKS * BLOCK_BYTES);
  blocks.forEach((_, at) => (blocks[at] = contentOf(Math.floor(at / BLOCK_BYTES))));
  const targetPd = target.allocPd();
  const { addr, rkey } = targetPd.regMr(blocks, REMOTE_READ);
  const listener = await listen('127.0.0.1:7471', { context: target });
  const connections: RdmaConnection[] = [];
  const accepting = (async () => {
    while (connections.length < count) {
      const request = (await listener.getRequest())!;
      connections.push(await request.accept({ pd: targetPd }));
    }
  })();
  const udpPort = target.local.port;
  const start: Start = {
    ...{ name, shpd, pool: pool.byteOffset, lkey },
    ...{ udpPort, remoteAddr: addr, rkey },
  };
  const processes = await Processes.startInTurn(import.meta.url, count, start);
  processes.tell({});
  const results = await processes.hear<{ wrong: number }>();
  await accepting;
  const wrong = results.reduce((sum, result) => sum + result.wrong, 0);
  console.log(`${count} initiators read ${count * READS} blocks, ${wrong} of them wrong`);
  console.log(`one pool, registered once: ${BUFFERS} buffers, key 0x${lkey.toString(16)}`);
  await processes.end();
  for (const connection of connections) await connection.close();
  await listener.close();
}

if (process.send === undefined) await startAll(Number(process.argv[2] ?? INITIATORS));
else await initiate(member!);
