/**
 * The local path within one thread: WRITEs and READs between two queue pairs of one device, lists
 * of 64 requests (pump.ts), beside the machine's own copy of as many bytes over as much memory. And
 * between two processes of a device: a SEND to and fro, both polling, and threads that wait.
 */
import type { AnyRequest } from '../support/any-request.js';
import { QpType, SendFlag, WrOpcode, type SendWorkRequest } from '../../host/index.js';
import { ALL_ACCESS } from '../support/pair.js';
import { Stopwatch, atLeast, atMost, interleave, medianOf, medians } from './harness.js';
import type { Bar, Bench, BenchResult, Figures, Pace } from './harness.js';
import { makeLists, openWorld, pump, type World } from './pump.js';
import { localTrips, type Together } from './local-trips.js';
import { Yardsticks } from './programs.js';

const SECONDS = 0.5;
const TRIPS = 5000;
const MIB = 2 ** 20;
const KEYS = 10_000;
/** Distance of two regions: each has a page of its own. */
const KEY_BYTES = 4096;

/** UCX copies one message again and again: the large one is what WRITEs of 1 MiB walk over. */
const UCX_LARGE = 'ucx_posix_put_bw_33554432_gbps';
const UCX_65536 = 'ucx_posix_put_bw_65536_gbps';

/** Shapes: `size` bytes a request, over `bytes` of both sides. */
const MOVES = [
  { name: '1mib_cold', size: MIB, bytes: 32 * MIB },
  { name: '65536_hot', size: 65536, bytes: 512 * 1024 },
  // As UCX does: the same bytes to the same place.
  { name: '65536_same', size: 65536, bytes: 65536 },
  { name: '65536_cold', size: 65536, bytes: 32 * MIB },
] as const;

/**
 * Lists of makeLists (pump.ts), changed in place: all requests are made by one literal then, as an
 * application's are. With copies of many shapes V8 reads each field by a search.
 */
function changed(
  lists: SendWorkRequest[][],
  change: (one: Changeable, place: number) => void,
): AnyRequest[][] {
  lists.flat().forEach((one, place) => change(one as unknown as Changeable, place));
  return lists;
}

interface Changeable {
  opcode: number;
  sendFlags: number;
  rdma: { remoteAddr: number; rkey: number };
}

function reading(lists: SendWorkRequest[][]): AnyRequest[][] {
  return changed(lists, (one) => (one.opcode = WrOpcode.RDMA_READ));
}

/** WRITEs of 64 bytes to regions with a key for each. */
function toManyKeys(world: World): AnyRequest[][] {
  const { b } = world;
  const regions = Array.from({ length: KEYS }, (_, index) =>
    b.pd.regMr(b.buffer.subarray(index * KEY_BYTES, index * KEY_BYTES + 64), ALL_ACCESS),
  );
  return changed(makeLists(world, 64, KEYS * 64 * 2), ({ rdma }, place) => {
    const mr = regions[(Math.imul(place, 0x9e3779b1) >>> 0) % KEYS]!;
    Object.assign(rdma, { remoteAddr: Number(mr.addr), rkey: mr.rkey });
  });
}

/** Copy speed of the machine between two parts of one memory, in the same round. */
function copy(name: string, { a, b }: World, size: number, bytes: number): Figures {
  const [from, to] = [a.buffer.subarray(0, bytes), b.buffer.subarray(0, bytes)];
  const watch = new Stopwatch();
  let count = 0;
  while (watch.seconds() < SECONDS / 2) {
    for (let at = 0; at < bytes; at += size) to.set(from.subarray(at, at + size), at);
    count += bytes;
  }
  return { [`copy_${name}_gbps`]: count / 1e9 / watch.seconds() };
}

/** One WRITE of 64 KiB at a time: posted, and polled for. */
function singly({ a }: World, lists: readonly AnyRequest[][], seconds: number): Figures {
  const requests = lists.flat().map((one) => [one]);
  const watch = new Stopwatch();
  let count = 0;
  while (watch.seconds() < seconds) {
    for (const request of requests) {
      a.qp.postSend(request);
      while (a.cq.poll(1).length === 0);
      count++;
    }
  }
  return { write_65536_singly_gbps: (count * 65536) / 1e9 / watch.seconds() };
}

/** Packets of UC that do not leave their context. */
async function unreliable(seconds: number): Promise<() => Promise<Figures>> {
  const world = await openWorld(512 * 1024, true, QpType.UC);
  const lists = makeLists(world, 64, 512 * 1024);
  return async () => {
    const { count, seconds: took } = await pump(world, lists, seconds);
    if (world.a.context.counters().sentPkts > 0n) throw new Error('packets were sent');
    return { write_64_uc_mps: count / 1e6 / took };
  };
}

async function run(pace: Pace): Promise<BenchResult> {
  const yardsticks = new Yardsticks([UCX_LARGE, UCX_65536]);
  const seconds = SECONDS * pace.share;
  const world = await openWorld(KEYS * KEY_BYTES, true);
  const large = async (name: string, lists: AnyRequest[][], size: number) => {
    const { count, seconds: took } = await pump(world, lists, seconds);
    return { [`${name}_gbps`]: (count * size) / 1e9 / took };
  };
  const small = async (name: string, lists: AnyRequest[][]) => {
    const { count, seconds: took } = await pump(world, lists, seconds);
    return { [`${name}_mps`]: count / 1e6 / took };
  };
  const together = (kind: Together): Promise<Figures> =>
    localTrips({ kind, count: TRIPS * pace.share, seconds });
  const hot = makeLists(world, 64, 512 * 1024);
  const random = toManyKeys(world);
  const block = changed(makeLists(world, 65536, 512 * 1024), (one) => {
    one.sendFlags = SendFlag.SIGNALED;
  });
  const rounds = await interleave(
    'local',
    [
      ...MOVES.flatMap(({ name, size, bytes }) => {
        const lists = makeLists(world, size, bytes);
        const reads = reading(makeLists(world, size, bytes));
        return [
          () => large(`write_${name}`, lists, size),
          () => large(`read_${name}`, reads, size),
          () => Promise.resolve(copy(name, world, size, bytes)),
        ];
      }),
      () => small('write_64_hot', hot),
      () => small('write_64_random', random),
      await unreliable(seconds),
      () => Promise.resolve(singly(world, block, seconds / 2)),
      () => together('write_poll'),
      () => together('fetch_add'),
      ...yardsticks.variants,
      () => together('send_poll'),
      () => together('send_waits'),
    ],
    pace,
  );
  if (world.a.context.counters().sentPkts > 0n) throw new Error('requests went by packets');
  return { rounds, figures: medians(rounds), bars: barsOf(rounds, yardsticks) };
}

function barsOf(rounds: readonly Figures[], yardsticks: Yardsticks): Bar[] {
  const figures = medians(rounds);
  const of = (what: string, yardstick: string): number =>
    medianOf(rounds, (round) => round[`${what}_gbps`]! / round[yardstick]!);
  const ratio = (what: string, name: string): number => of(`${what}_${name}`, `copy_${name}_gbps`);
  const ucx = (what: string, name: string, yardstick: string, least: number): Bar =>
    yardsticks.bar(what, yardstick, () => atLeast(what, of(name, yardstick), least));
  return [
    atLeast('WRITE of 1 MiB over 32 MiB, of memory.copy', ratio('write', '1mib_cold'), 0.9),
    atLeast('READ of 1 MiB over 32 MiB, of memory.copy', ratio('read', '1mib_cold'), 0.9),
    ucx('WRITE of 1 MiB over 32 MiB, of UCX_TLS=posix', 'write_1mib_cold', UCX_LARGE, 0.85),
    ucx('READ of 1 MiB over 32 MiB, of UCX_TLS=posix', 'read_1mib_cold', UCX_LARGE, 0.85),
    atLeast('WRITE of 64 KiB in lists, of memory.copy', ratio('write', '65536_hot'), 0.85),
    ucx('WRITE of the same 64 KiB in lists, of UCX_TLS=posix', 'write_65536_same', UCX_65536, 0.75),
    atLeast(
      'WRITE of 64 KiB, one at a time, of memory.copy',
      of('write_65536_singly', 'copy_65536_hot_gbps'),
      0.7,
    ),
    atLeast('WRITEs of 64 bytes, one key, millions/s', figures['write_64_hot_mps']!, 12),
    atLeast('WRITEs of 64 bytes, 10,000 keys, millions/s', figures['write_64_random_mps']!, 8),
    atMost('WRITE to and fro, two processes that poll, us', figures['write_poll_p50_us']!, 0.8),
    atLeast('fetch-adds of four processes to one word, millions/s', figures['fetch_add_mps']!, 1),
    atMost('SEND to and fro, two processes that poll, us', figures['send_poll_p50_us']!, 1.7),
    atMost('SEND to and fro, threads that wait, us', figures['send_waits_p50_us']!, 15),
  ];
}

export const bench: Bench = {
  name: 'local',
  description: 'queue pairs of one device, in one thread and in two processes: without packets',
  run,
};
