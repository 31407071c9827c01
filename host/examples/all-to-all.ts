/**
 * Bruck's all-to-all: every rank has a block for every other one, and in log2(ranks) steps each has
 * its own. In step k the blocks whose number has bit k set go 2^k ranks on, all by one SEND: they
 * lie apart in memory, in a pattern that is described once and applied to one buffer after the
 * other.
 *
 * `node all-to-all.js` starts the ranks as processes of their own.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import {
  AccessFlag,
  SendFlag,
  WcStatusName,
  WrOpcode,
  connect,
  listen,
  openDevice,
  type LayoutMemoryRegion,
  type MemoryRegion,
  type ProtectionDomain,
  type RdmaConnection,
} from '../index.js';

const RANKS = 4;
const STEPS = Math.log2(RANKS);
const BLOCK_BYTES = 1000;
const BUFFER_BYTES = RANKS * BLOCK_BYTES;
const PORT = 7471;

/** Value that rank `from` sends to rank `to`. */
const content = (from: number, to: number): number => 16 * from + to;
const onwards = (rank: number, by: number): number => (rank + by + RANKS) % RANKS;

/** A region for each step, with the blocks that move in it: every other run of 2^step blocks. */
function makeStencils(pd: ProtectionDomain, mr: MemoryRegion): readonly LayoutMemoryRegion[] {
  return Array.from({ length: STEPS }, (_, step) => {
    const length = BLOCK_BYTES << step;
    const stencil = pd.regMr(null, 0, AccessFlag.LOCAL_WRITE);
    stencil.setLayoutInterleaved(0, [
      {
        firstDatum: { addr: length, length, lkey: mr.lkey },
        dims: [{ offsetStride: 2 * length, datumCount: RANKS >> (step + 1) }],
      },
    ]);
    return stencil;
  });
}

/** Bytes of the last buffer that are not those that every rank had for this one. */
function countWrong(buffer: Uint8Array, rank: number): number {
  let wrong = 0;
  buffer.forEach((byte, at) => {
    const from = onwards(rank, -Math.floor(at / BLOCK_BYTES));
    if (byte !== content(from, rank)) wrong++;
  });
  return wrong;
}

async function play(rank: number): Promise<void> {
  await using context = await openDevice({ address: '127.0.0.1', port: 0 });
  const pd = context.allocPd();
  // One buffer for each step, and one for the result of the last.
  const memory = context.alloc((STEPS + 1) * BUFFER_BYTES);
  const mr = pd.regMr(memory, AccessFlag.LOCAL_WRITE);
  const blocksOf = (buffer: number) =>
    memory.subarray(buffer * BUFFER_BYTES, (buffer + 1) * BUFFER_BYTES);
  const stencils = makeStencils(pd, mr);
  /** The blocks of step `step`, of the buffer at that number. */
  const sgList = (step: number, buffer: number) => [
    {
      addr: mr.addr + BigInt(buffer * BUFFER_BYTES),
      length: stencils[step]!.length,
      lkey: stencils[step]!.lkey,
    },
  ];

  // For step k the rank 2^k behind connects to this one, whose receive is posted already.
  const listener = await listen(`127.0.0.1:${PORT}`, { context });
  process.send!(context.local.port);
  const [ports] = (await once(process, 'message')) as [readonly number[]];
  const accepted = new Map<number, RdmaConnection>();
  const accepting = (async () => {
    while (accepted.size < STEPS) {
      const request = (await listener.getRequest())!;
      const step = request.privateData[0]!;
      const receive = { sgList: sgList(step, step + 1) };
      accepted.set(step, await request.accept({ pd }, (qp) => qp.postRecv(receive)));
    }
  })();
  const connections: RdmaConnection[] = [];
  for (let step = 0; step < STEPS; step++) {
    const udpPort = ports[onwards(rank, 1 << step)]!;
    const privateData = Uint8Array.of(step);
    connections.push(await connect(`127.0.0.1:${PORT}`, { context, pd, udpPort, privateData }));
  }
  await accepting;

  for (let block = 0; block < RANKS; block++) {
    const to = onwards(rank, block);
    blocksOf(0).fill(content(rank, to), block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
  }
  for (let step = 0; step < STEPS; step++) {
    const { qp, sendCq } = connections[step]!;
    qp.postSend({
      opcode: WrOpcode.SEND,
      sendFlags: SendFlag.SIGNALED,
      sgList: sgList(step, step),
    });
    for (const queue of [accepted.get(step)!.recvCq, sendCq]) {
      const [{ status } = { status: -1 }] = await queue.wait(1);
      if (status !== 0) throw new Error(WcStatusName[status]);
    }
    // Blocks that do not move in this step are copied to the next one.
    for (let block = 0; block < RANKS; block++) {
      if (block & (1 << step)) continue;
      const bytes = blocksOf(step).subarray(block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
      blocksOf(step + 1).set(bytes, block * BLOCK_BYTES);
    }
  }
  const wrong = countWrong(blocksOf(STEPS), rank);
  process.send!(`rank ${rank}: ${BUFFER_BYTES} bytes, ${wrong} of them wrong`);
  // Each process waits until all are done.
  await once(process, 'message');
  for (const connection of [...connections, ...accepted.values()]) await connection.close();
  await listener.close();
  process.disconnect();
}

async function startAll(): Promise<void> {
  const file = fileURLToPath(import.meta.url);
  const ranks = Array.from({ length: RANKS }, (_, rank) => fork(file, [`${rank}`]));
  const said = async (): Promise<unknown[]> =>
    Promise.all(ranks.map(async (rank: ChildProcess) => (await once(rank, 'message'))[0]));
  const ports = await said();
  const results = said();
  for (const rank of ranks) rank.send(ports as number[]);
  for (const line of await results) console.log(line);
  for (const rank of ranks) rank.send('done');
  await Promise.all(ranks.map((rank) => once(rank, 'close')));
}

const rank = process.argv[2];
if (rank === undefined) await startAll();
else await play(Number(rank));
