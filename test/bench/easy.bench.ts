/**
 * Cost of `share` and `connect` over verbs, between two processes with a thread each for the
 * engine: 1 MiB WRITEs, one 64-byte READ at a time, 64-byte WRITEs in flight together.
 */
import { SendFlag, WrOpcode } from '../../host/index.js';
import { openEasy } from './easy-ends.js';
import { atLeast, atMost, interleave, medianOf, medians } from './harness.js';
import type { Bench, BenchResult, Figures, Pace } from './harness.js';
import { check, openBoth } from './stack.js';
import { percentiles } from './trips.js';

const MIB = 2 ** 20;
const SMALL = 64;
const TABLE_BYTES = 4 * MIB;
/** WRITEs of 1 MiB in flight. */
const LARGE_DEPTH = 8;
const READS = 5000;
const SECONDS = 1;
/** Small WRITEs that are made in one turn. */
const TOGETHER = 4096;
const PROGRESS = { progress: 'thread', bytes: TABLE_BYTES, depth: 512 } as const;

/** Calls `once` until the time is over; `count` of what it did, for each second. */
async function rate(seconds: number, once: () => Promise<number>): Promise<number> {
  for (const warm = performance.now() + 200; performance.now() < warm;) await once();
  const begin = performance.now();
  let count = 0;
  while (performance.now() - begin < seconds * 1000) count += await once();
  return count / ((performance.now() - begin) / 1000);
}

async function p50(count: number, once: () => Promise<void>): Promise<number> {
  const micros = new Float64Array(count);
  for (let trip = -Math.ceil(count / 10); trip < count; trip++) {
    const begin = performance.now();
    await once();
    if (trip >= 0) micros[trip] = (performance.now() - begin) * 1000;
  }
  return percentiles(micros).p50Micros;
}

async function verbs(pace: Pace): Promise<Figures> {
  const { end, there, close } = await openBoth(PROGRESS);
  const { qp, cq, mr } = end;
  const [{ addr: remoteAddr, rkey }] = there.regions as [{ addr: number; rkey: number }];
  const request = (opcode: number, length: number, sendFlags: number) => ({
    opcode,
    sendFlags,
    sgList: [{ addr: mr.addr, length, lkey: mr.lkey }],
    rdma: { remoteAddr, rkey },
  });
  const { SIGNALED } = SendFlag;
  const large = request(WrOpcode.RDMA_WRITE, MIB, SIGNALED);
  const read = request(WrOpcode.RDMA_READ, SMALL, SIGNALED);
  const list = Array.from({ length: 64 }, (_, at) =>
    request(WrOpcode.RDMA_WRITE, SMALL, at === 63 ? SIGNALED : 0),
  );
  let under = 0;
  const take = async (): Promise<number> => {
    const taken = await cq.wait();
    for (const { status } of taken) check(status);
    under -= taken.length;
    return taken.length;
  };
  const post = (what: typeof large | typeof list, most: number): void => {
    for (; under < most; under++) qp.postSend(what);
  };
  const bandwidth = await rate(SECONDS * pace.share, () => (post(large, LARGE_DEPTH), take()));
  while (under > 0) await take();
  const small = await rate(SECONDS * pace.share, () => (post(list, 8), take()));
  while (under > 0) await take();
  const latency = await p50(READS * pace.share, async () => {
    qp.postSend(read);
    const [completion] = await cq.wait(1);
    check(completion!.status);
  });
  await close();
  return {
    verbs_write_1mib_gbps: (bandwidth * MIB) / 1e9,
    verbs_write_64_mps: (small * 64) / 1e6,
    verbs_read_64_p50_us: latency,
  };
}

async function easy(pace: Pace): Promise<Figures> {
  const { remote, table, close } = await openEasy(TABLE_BYTES);
  /** As many calls at a time as the verbs have requests. */
  const writes = (source: Uint8Array): Promise<number> => {
    let isOver = false;
    const one = async (): Promise<number> => {
      let count = 0;
      for (; !isOver; count++) await table.write(0, source);
      return count;
    };
    setTimeout(() => (isOver = true), SECONDS * pace.share * 1000);
    const all = Promise.all(Array.from({ length: LARGE_DEPTH }, one));
    return all.then((counts) => counts.reduce((sum, count) => sum + count, 0));
  };
  const bandwidth = async (source: Uint8Array): Promise<number> => {
    for (const warm = performance.now() + 200; performance.now() < warm;) {
      await table.write(0, source);
    }
    const begin = performance.now();
    const count = await writes(source);
    return (count * MIB) / 1e9 / ((performance.now() - begin) / 1000);
  };
  const inPlace = await bandwidth(remote.alloc(MIB));
  const copied = await bandwidth(new Uint8Array(MIB));
  const bytes = new Uint8Array(SMALL);
  const small = await rate(SECONDS * pace.share, async () => {
    const calls = new Array<Promise<void>>(TOGETHER);
    for (let at = 0; at < TOGETHER; at++) calls[at] = table.write(at * SMALL, bytes);
    await Promise.all(calls);
    return TOGETHER;
  });
  const latency = await p50(READS * pace.share, async () => void (await table.read(0, SMALL)));
  await close();
  return {
    easy_write_1mib_gbps: inPlace,
    easy_write_1mib_copied_gbps: copied,
    easy_write_64_mps: small / 1e6,
    easy_read_64_p50_us: latency,
  };
}

async function run(pace: Pace): Promise<BenchResult> {
  const rounds = await interleave('easy', [() => verbs(pace), () => easy(pace)], pace);
  const figures = medians(rounds);
  const bandwidth = medianOf(
    rounds,
    (f) => f['easy_write_1mib_gbps']! / f['verbs_write_1mib_gbps']!,
  );
  const added = medianOf(rounds, (f) => f['easy_read_64_p50_us']! - f['verbs_read_64_p50_us']!);
  figures['write_1mib_ratio'] = bandwidth;
  figures['read_64_added_us'] = added;
  return {
    rounds,
    figures,
    bars: [
      atLeast('1 MiB WRITE bandwidth against verbs', bandwidth, 0.9),
      atMost('microseconds that a 64-byte read takes longer than with verbs', added, 2),
      atLeast(
        '64-byte writes in flight together, millions a second',
        figures['easy_write_64_mps']!,
        1,
      ),
    ],
  };
}

export const bench: Bench = {
  name: 'easy',
  description: 'share and connect beside verbs, two processes: bandwidth, latency, small writes',
  run,
};
