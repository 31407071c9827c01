/**
 * OpenSHMEM: every process reads and writes the symmetric memory of every other one, whose code
 * takes no part. Here they add up by recursive doubling, beside the library's own reduction.
 *
 * `node shmem.js` starts the processes; programs of their own are started by `verbena shmem run`.
 */
import { init } from '../shmem/index.js';
import { Processes, dismissed, member, nextMessage, say } from './processes.js';

const PROCESSES = 4;
const VALUES = 100;

interface Start {
  readonly id: string;
}

async function live(rank: number): Promise<void> {
  const { id } = await nextMessage<Start>();
  const shmem = await init({ job: { id, rank, size: PROCESSES }, size: 2 ** 20 });
  const sums = await shmem.array(Float64Array, VALUES);
  const theirs = await shmem.array(Float64Array, VALUES);
  const all = await shmem.array(Float64Array, VALUES);
  sums.forEach((_, index) => (sums[index] = (rank + 1) * index));
  await shmem.world.sumReduce(all, sums);
  // Each doubling: what the partner has, and both have the sum.
  for (let distance = 1; distance < PROCESSES; distance *= 2) {
    shmem.put(theirs, sums, rank ^ distance);
    await shmem.barrierAll();
    sums.forEach((sum, index) => (sums[index] = sum + theirs[index]!));
    await shmem.barrierAll();
  }
  const neighbour = new Float64Array(VALUES);
  shmem.get(neighbour, sums, (rank + 1) % PROCESSES);
  const factor = (PROCESSES * (PROCESSES + 1)) / 2;
  const isWrong = (sum: number, at: number): boolean =>
    sum !== factor * (at % VALUES) || sum !== all[at % VALUES];
  say({ wrong: [...sums, ...neighbour].filter(isWrong).length });
  await shmem.finalize();
  await dismissed();
}

async function startAll(): Promise<void> {
  await using processes = Processes.start(import.meta.url, PROCESSES);
  processes.tell({ id: `example-${process.pid}` });
  for (const [number, { wrong }] of (await processes.hear<{ wrong: number }>()).entries()) {
    console.log(`process ${number}: ${2 * VALUES} sums, ${wrong} of them wrong`);
  }
}

if (member === undefined) await startAll();
else await live(member);
