/**
 * FLUSH: remote WRITE and FLUSH against local writes and fdatasync, a FLUSH for visibility against
 * a small READ, and what a slow disk does to queue pairs that do not use it. Two devices of one
 * process, each with a thread of its own, and the store with another.
 */
import { closeSync, fdatasyncSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { AccessFlag, PlacementType, SendFlag, WcStatus, WrOpcode } from '../../host/index.js';
import type { MemoryRegion, QueuePair, SendWorkRequest } from '../../host/index.js';
import { FLUSH_ACCESS } from '../support/durable.js';
import { connect, openSide, type Side } from '../support/pair.js';
import type { SlowStoreData } from '../support/slow-store.js';
import { atLeast, atMost, interleave, median, medianOf, medians, Stopwatch } from './harness.js';
import type { Bar, Bench, BenchResult, Figures, Pace } from './harness.js';

const LOCAL_AND_REMOTE = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ;

const { GLOBAL, PERSISTENT } = PlacementType;
const SLOW_STORE = new URL('../support/slow-store.js', import.meta.url);
/** Beside the build: temporary folders may be memory. */
const FOLDER = fileURLToPath(new URL('../../', import.meta.url));
const BYTES = 1024;
const AREA = 2 ** 20;
const PLACES = AREA / BYTES;
const DEPTH = 32;
const SECONDS = 1;
const SLOW_MILLIS = 50;
/** Round trips that are not measured; TRIPS more are, and end before the slow store does. */
const WARM = 200;
const TRIPS = 1000;

interface Kept {
  readonly a: Side;
  readonly b: Side;
  /** Of memory that the file keeps. */
  readonly mr: MemoryRegion;
  /** Another queue pair between the two. */
  readonly other: QueuePair;
  /** Turns of the store so far. */
  readonly turns: () => number;
  close(): Promise<void>;
}

function openAt(address: string): Promise<Side> {
  const device = { address, port: 0, progress: 'thread', rdAtomicMax: DEPTH } as const;
  return openSide(device, { bytes: AREA, access: LOCAL_AND_REMOTE, cqe: 1024 });
}

async function open(path: string, millis: number): Promise<Kept> {
  const [a, b] = [await openAt('127.0.0.1'), await openAt('127.0.0.2')];
  const attributes = {
    timeout: 16,
    qpAccessFlags: FLUSH_ACCESS,
    maxRdAtomic: DEPTH,
    maxDestRdAtomic: DEPTH,
  };
  // As the connection manager would connect them.
  const options = { attributes, acquainted: true };
  connect(a.qp, b, 1, 2, options);
  connect(b.qp, a, 2, 1, options);
  const cq = a.context.createCq(64);
  const other = a.pd.createQp({ sendCq: cq, recvCq: cq });
  const far = b.pd.createQp({ sendCq: b.cq, recvCq: b.cq });
  connect(other, { ...b, qp: far }, 1, 2, options);
  connect(far, { ...a, qp: other }, 2, 1, options);
  const memory = b.context.alloc(AREA);
  const data: SlowStoreData = { path, millis, counts: new Int32Array(new SharedArrayBuffer(8)) };
  const { byteOffset: address, length } = memory;
  await b.context.addDurable({ address, length, store: { module: SLOW_STORE, data } });
  const mr = b.pd.regMr(memory, FLUSH_ACCESS);
  const close = async (): Promise<void> => {
    await a.context.close();
    await b.context.close();
  };
  return { a, b, mr, other, turns: () => data.counts[0]!, close };
}

interface Placed {
  readonly write: SendWorkRequest;
  readonly flush: SendWorkRequest;
}

/** A WRITE of BYTES, and a FLUSH of the same range; `index` selects the place. */
function placed({ a, mr }: Kept, index: number): Placed {
  const offset = BigInt(placeOf(index));
  const where = { remoteAddr: mr.addr + offset, rkey: mr.rkey };
  const sgList = [{ addr: a.mr.addr + offset, length: BYTES, lkey: a.mr.lkey }];
  const flush = { ...where, length: BYTES, type: PERSISTENT };
  return {
    write: { opcode: WrOpcode.RDMA_WRITE, sgList, rdma: where },
    flush: { opcode: WrOpcode.FLUSH, sendFlags: SendFlag.SIGNALED, flush },
  };
}

/** The same places for both sides: all there are, and no two in a row. */
function placeOf(index: number): number {
  return (Math.imul(index, 40503) & (PLACES - 1)) * BYTES;
}

/**
 * Of WRITE and FLUSH with `depth` of them pending, thousands a second. What is posted together is
 * first all WRITEs, then a FLUSH for each: as `local` first writes all of a group. The requests are
 * made before, as its bytes are.
 */
async function remote(kept: Kept, depth: number, seconds: number): Promise<number> {
  const all = Array.from({ length: PLACES }, (_, index) => placed(kept, index));
  const watch = new Stopwatch();
  let posted = 0;
  let done = 0;
  while (watch.seconds() < seconds || done < posted) {
    if (watch.seconds() < seconds) {
      const writes: SendWorkRequest[] = [];
      const flushes: SendWorkRequest[] = [];
      for (; posted - done < depth; posted++) {
        const { write, flush } = all[posted % PLACES]!;
        writes.push(write);
        flushes.push(flush);
      }
      kept.a.qp.postSend([...writes, ...flushes]);
    }
    for (const { status } of await kept.a.cq.wait()) {
      if (status !== WcStatus.SUCCESS) throw new Error(`a FLUSH ended with status ${status}`);
      done++;
    }
  }
  return done / watch.seconds() / 1000;
}

/** The same by this process itself: `group` writes, then one fdatasync. */
function local(path: string, group: number, seconds: number): number {
  const file = openSync(path, 'w');
  const bytes = new Uint8Array(BYTES).fill(7);
  const watch = new Stopwatch();
  let done = 0;
  while (watch.seconds() < seconds) {
    for (let index = 0; index < group; index++, done++) {
      writeSync(file, bytes, 0, BYTES, placeOf(done));
    }
    fdatasyncSync(file);
  }
  closeSync(file);
  return done / watch.seconds() / 1000;
}

/** Microseconds of a round trip, polled. */
function trips(qp: QueuePair, request: Parameters<QueuePair['postSend']>[0], count: number) {
  const times: number[] = [];
  for (let index = -WARM; index < count; index++) {
    const start = performance.now();
    qp.postSend(request);
    while (qp.sendCq.poll(1).length === 0);
    if (index >= 0) times.push((performance.now() - start) * 1000);
  }
  return median(times);
}

function read({ a, b }: Kept, length: number) {
  return {
    opcode: WrOpcode.RDMA_READ,
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr: a.mr.addr, length, lkey: a.mr.lkey }],
    rdma: { remoteAddr: b.mr.addr, rkey: b.mr.rkey },
  };
}

async function run(pace: Pace): Promise<BenchResult> {
  const folder = mkdtempSync(join(FOLDER, 'flush-'));
  const fast = await open(join(folder, 'fast'), 0);
  const slow = await open(join(folder, 'slow'), SLOW_MILLIS);
  const seconds = SECONDS * pace.share;
  const count = Math.ceil(TRIPS * pace.share);
  const flush = {
    opcode: WrOpcode.FLUSH,
    sendFlags: SendFlag.SIGNALED,
    flush: { remoteAddr: fast.mr.addr, rkey: fast.mr.rkey, length: 8, type: GLOBAL },
  };
  let grouping = 1;
  try {
    const rounds = await interleave(
      'flush',
      [
        async (): Promise<Figures> => {
          const before = fast.turns();
          const watch = new Stopwatch();
          const cpu = process.cpuUsage();
          const kps = await remote(fast, DEPTH, seconds);
          const count = kps * 1000 * watch.seconds();
          const { user, system } = process.cpuUsage(cpu);
          grouping = count / (fast.turns() - before);
          return {
            [`remote_${DEPTH}_kps`]: kps,
            [`remote_${DEPTH}_flushes_per_sync`]: grouping,
            [`remote_${DEPTH}_cpu_us`]: (user + system) / count,
          };
        },
        () => {
          const group = Math.max(1, Math.round(grouping));
          return { local_same_grouping_kps: local(join(folder, 'local'), group, seconds) };
        },
        () => ({ [`local_${DEPTH}_kps`]: local(join(folder, 'local'), DEPTH, seconds) }),
        () => ({ local_1_kps: local(join(folder, 'local'), 1, seconds) }),
        async () => ({ remote_1_kps: await remote(fast, 1, seconds) }),
        (): Figures => ({
          read_8_p50_us: trips(fast.other, read(fast, 8), count),
          flush_global_p50_us: trips(fast.other, flush, count),
        }),
        (): Figures => ({ read_alone_p50_us: trips(slow.other, read(slow, 8), count) }),
        async (): Promise<Figures> => {
          const { write, flush } = placed(slow, 1);
          slow.a.qp.postSend([write, flush]);
          const beside = trips(slow.other, read(slow, 8), count);
          await slow.a.cq.wait();
          return { read_beside_slow_store_p50_us: beside };
        },
      ],
      pace,
    );
    return { rounds, figures: medians(rounds), bars: barsOf(rounds) };
  } finally {
    await fast.close();
    await slow.close();
    rmSync(folder, { recursive: true });
  }
}

function barsOf(rounds: readonly Figures[]): Bar[] {
  const ratio = (one: string, other: string): number =>
    medianOf(rounds, (figures) => figures[one]! / figures[other]!);
  const depth = `remote_${DEPTH}_kps`;
  return [
    atLeast(
      `remote WRITE and FLUSH of ${BYTES} B, ${DEPTH} pending, against local, as many a sync`,
      ratio(depth, 'local_same_grouping_kps'),
      0.7,
    ),
    atLeast(`the same against local, ${DEPTH} a sync`, ratio(depth, `local_${DEPTH}_kps`), 0.7),
    atLeast(`${DEPTH} pending against one`, ratio(depth, 'remote_1_kps'), 8),
    atMost(
      'FLUSH for visibility against a READ of 8 B, p50',
      ratio('flush_global_p50_us', 'read_8_p50_us'),
      1.2,
    ),
    atMost(
      `READ of another queue pair beside a store that takes ${SLOW_MILLIS} ms, p50`,
      ratio('read_beside_slow_store_p50_us', 'read_alone_p50_us'),
      1.2,
    ),
  ];
}

export const bench: Bench = {
  name: 'flush',
  description: 'remote WRITE and FLUSH against local write and fdatasync; FLUSH against READ',
  run,
};
