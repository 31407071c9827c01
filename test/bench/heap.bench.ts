/**
 * The heap of a domain: allocation and free by one process, and by four that allocate and free at
 * the same time; and what is left when processes are killed in the middle.
 */
import { openDevice } from '../../host/index.js';
import { Member, freshName } from '../support/member.js';
import { atMost, interleave, medians } from './harness.js';
import type { Bench, BenchResult, Figures, Pace } from './harness.js';

const KEY = 0x4ea9;
const RESERVE = 32 * 2 ** 20;
const PROCESSES = 4;
const KILLS = 300;
/** Between two readings of the clock: a reading costs as much as an allocation. */
const BURST = 16;

interface Samples {
  readonly alloc: number;
  readonly free: number;
}

/** Medians of nanoseconds per call, over `seconds`; runs in a member. */
async function load(member: Member, seconds: number): Promise<Samples> {
  return member.run(
    ({ kept }, seconds, burst) => {
      const heap = kept.pd.heap();
      const [allocs, frees]: number[][] = [[], []];
      const taken: number[] = [];
      const end = performance.now() + seconds * 1000;
      for (let turn = 0; performance.now() < end; turn++) {
        const from = process.hrtime.bigint();
        for (let count = 0; count < burst; count++) taken.push(heap.malloc(64 << (turn & 3)));
        const middle = process.hrtime.bigint();
        for (const address of taken) heap.free(address);
        const to = process.hrtime.bigint();
        taken.length = 0;
        allocs!.push(Number(middle - from) / burst);
        frees!.push(Number(to - middle) / burst);
      }
      const median = (values: number[]): number =>
        values.sort((a, b) => a - b)[values.length >> 1]!;
      return { alloc: median(allocs!), free: median(frees!) };
    },
    seconds,
    BURST,
  );
}

async function join(name: string): Promise<Member> {
  const member = await Member.open({ name });
  await member.run(async ({ context, kept }, key) => {
    const { shpd } = await context.roots.wait('domain', { timeout: 30_000 });
    kept.pd = context.sharePd(shpd!, key);
    kept.pd.heap();
  }, KEY);
  return member;
}

/** Kills processes while they allocate and free. Returns the bytes that are not free then. */
async function killMany(name: string, kills: number, used: () => number): Promise<number> {
  for (let left = kills; left > 0; left -= PROCESSES) {
    const members = await Promise.all(
      Array.from({ length: Math.min(left, PROCESSES) }, () => join(name)),
    );
    for (const [index, member] of members.entries()) {
      void load(member, 60).catch(() => undefined);
      // Not all at the same step.
      await new Promise((resolve) => setTimeout(resolve, 5 + ((left * 7 + index * 13) % 23)));
      member.kill();
    }
    await Promise.all(members.map(({ ended }) => ended));
  }
  const end = performance.now() + 10_000;
  while (used() > 0 && performance.now() < end) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return used();
}

async function run(pace: Pace): Promise<BenchResult> {
  const name = freshName();
  await using context = await openDevice({ name, port: 0, memoryBytes: 64 * 2 ** 20 });
  const pd = context.allocPd();
  context.roots.put('domain', { pd, shpd: pd.allocShpd(KEY), common: true });
  const heap = pd.heap({ reserve: RESERVE });
  const members = await Promise.all(Array.from({ length: PROCESSES }, () => join(name)));
  const seconds = 0.5 * pace.share;
  const own = async (): Promise<Figures> => {
    const { alloc, free } = await load(members[0]!, seconds);
    return { alloc_own_ns: alloc, free_own_ns: free };
  };
  const contended = async (): Promise<Figures> => {
    const all = await Promise.all(members.map((member) => load(member, seconds)));
    return {
      alloc_contended_ns: Math.max(...all.map(({ alloc }) => alloc)),
      free_contended_ns: Math.max(...all.map(({ free }) => free)),
    };
  };
  const rounds = await interleave('heap', [own, contended], pace);
  for (const member of members) await member.close();
  const kills = Math.ceil(KILLS * pace.share);
  const used = (): number => {
    const { processes, commonBytes } = heap.usage();
    return processes.reduce((sum, one) => sum + one.heldBytes + one.cachedBytes, commonBytes);
  };
  const leaked = await killMany(name, kills, used);
  const figures: Figures = { ...medians(rounds), kills, leaked_bytes: leaked };
  return {
    figures,
    rounds,
    bars: [
      atMost('an allocation of one process, ns', figures['alloc_own_ns']!, 100),
      atMost(
        'an allocation while four processes allocate, ns',
        figures['alloc_contended_ns']!,
        400,
      ),
      atMost(`bytes that are lost after ${kills} kills`, leaked, 0),
    ],
  };
}

export const bench: Bench = {
  name: 'heap',
  description: 'heap of a domain: allocation alone and by four processes, and 300 kills.',
  run,
};
