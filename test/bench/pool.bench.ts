/**
 * Pools of memory regions: what taking one and giving it back costs, by tier, alone and with four
 * threads at one pool; and what a registration adds to a request that a peer answers: by a work
 * request with a region of the pool, which the answer invalidates, and by regMr and deregMr.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import {
  AccessFlag,
  SendFlag,
  WcOpcode,
  WcStatus,
  WrOpcode,
  createFmrPool,
  openDevice,
  type FmrDesc,
  type FmrPoolUser,
  type MemoryRegion,
  type SendWorkRequest,
} from '../../host/index.js';
import { makePair, type Side } from '../support/pair.js';
import type { PoolThreadData } from '../support/pool-thread.js';
import {
  Stopwatch,
  atLeast,
  atMost,
  interleave,
  medianOf,
  medians,
  type Bench,
  type BenchResult,
  type Figures,
  type Pace,
} from './harness.js';

const TURNS = 2_000_000;
const REGISTRATIONS = 20_000;
const BATCH = 8;
const BYTES = 4096;
const THREADS = 4;
const COMMAND_BYTES = 16;

/** Nanoseconds of processor time for a turn, when four threads take from one pool and give back. */
async function contended(bucketMrs: number, turns: number): Promise<number> {
  const device = await openDevice({
    progress: 'inline',
    address: '127.0.0.1',
    port: 0,
    threadsMax: THREADS + 1,
    memoryBytes: 128 * 2 ** 20,
  });
  const params = {
    ulp: 'bench',
    maxLength: BYTES,
    mrsMax: 256,
    mrsMin: 64,
    lowWater: 0,
    bucketMrs,
  };
  const pool = createFmrPool(device, undefined, params);
  const gate = new SharedArrayBuffer(16);
  const workers: Worker[] = [];
  for (let seed = 0; seed < THREADS; seed++) {
    const share = device.share();
    const workerData: PoolThreadData = { share, params, numMr: 0, gate, turns, seed };
    const file = new URL('../support/pool-thread.js', import.meta.url);
    workers.push(new Worker(file, { workerData }));
  }
  const words = new Int32Array(gate);
  while (Atomics.load(words, 1) < THREADS) await new Promise((go) => setTimeout(go, 5));
  const done = workers.map((worker) => once(worker, 'message'));
  const ended = workers.map((worker) => once(worker, 'exit'));
  const watch = new Stopwatch();
  Atomics.store(words, 0, 1);
  Atomics.notify(words, 0);
  await Promise.all(done);
  const seconds = watch.cpuSeconds();
  await Promise.all(ended);
  pool.destroy();
  await device.close();
  return (seconds * 1e9) / (THREADS * turns);
}

/** How a request's memory is registered, and is not any more. */
interface Registration {
  /** Posts the registration with the command; returns the key for the peer. */
  begin(index: number): number;
  end(index: number): void;
}

async function run(pace: Pace): Promise<BenchResult> {
  const pair = await makePair({ qp: { cap: { maxInlineData: COMMAND_BYTES } } });
  const { context, qp, pd, buffer } = pair.a;
  const pool = createFmrPool(context, undefined, { maxLength: BYTES, mrsMax: 256, mrsMin: 64 });
  const rich = pool.createUser(8);
  const poor = pool.createUser(0);
  const turns = Math.round(TURNS * pace.share);
  const getAndPut = (name: string, user: FmrPoolUser) => (): Figures => {
    const watch = new Stopwatch();
    for (let turn = 0; turn < turns; turn++) user.putMr(user.getMr()!);
    return { [`get_put_${name}_ns`]: (watch.cpuSeconds() * 1e9) / turns };
  };
  const memory = buffer.subarray(0, BYTES);
  const access = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE;
  const requests = Math.round(REGISTRATIONS * pace.share);
  const receive = ({ qp, mr }: Side): void => {
    const sgList = [{ addr: Number(mr.addr) + BYTES, length: COMMAND_BYTES, lkey: mr.lkey }];
    qp.postRecv({ sgList });
  };
  for (let index = 0; index < 2 * BATCH; index++) [pair.a, pair.b].forEach(receive);
  const command = new Uint8Array(COMMAND_BYTES);
  const drain = (side: Side): number => {
    let received = 0;
    for (const { status, opcode } of side.cq.poll(4 * BATCH)) {
      if (status !== WcStatus.SUCCESS) throw new Error(`a request ended with ${status}`);
      if (opcode !== WcOpcode.RECV) continue;
      received++;
      receive(side);
    }
    return received;
  };
  /** Commands and their answers, a batch at a time; microseconds for one. */
  const exchange =
    (name: string, { begin, end }: Registration, invalidates: boolean) =>
    () => {
      const watch = new Stopwatch();
      const keys: number[] = [];
      for (let done = 0; done < requests; done += BATCH) {
        for (let index = 0; index < BATCH; index++) keys[index] = begin(index);
        pair.settle();
        if (drain(pair.b) !== BATCH) throw new Error('a command did not arrive');
        for (const key of keys) {
          const answer = { sendFlags: SendFlag.SIGNALED | SendFlag.INLINE, inline: command };
          pair.b.qp.postSend(
            invalidates
              ? { opcode: WrOpcode.SEND_WITH_INV, invalidateRkey: key, ...answer }
              : { opcode: WrOpcode.SEND, ...answer },
          );
        }
        pair.settle();
        if (drain(pair.a) !== BATCH) throw new Error('an answer did not arrive');
        drain(pair.b);
        for (let index = 0; index < BATCH; index++) end(index);
      }
      return { [`request_${name}_us`]: (watch.cpuSeconds() * 1e6) / requests };
    };
  const send = { opcode: WrOpcode.SEND, inline: command };
  const sendFlags = SendFlag.SIGNALED | SendFlag.INLINE;
  const held: FmrDesc[] = [];
  const registered: MemoryRegion[] = [];
  const bare = exchange(
    'bare',
    {
      begin: () => {
        qp.postSend({ ...send, sendFlags });
        return 0;
      },
      end: () => {},
    },
    false,
  );
  const byWorkRequest = exchange(
    'reg_mr',
    {
      begin: (index) => {
        const desc = (held[index] = rich.getMr()!);
        const regMr = desc.regMr(memory, access);
        qp.postSend([
          { opcode: WrOpcode.REG_MR, sendFlags: 0, regMr },
          { ...send, sendFlags },
        ]);
        return regMr.key;
      },
      end: (index) => rich.putMr(held[index]!),
    },
    true,
  );
  const byVerbs = exchange(
    'verbs',
    {
      begin: (index) => {
        const mr = (registered[index] = pd.regMr(memory, access));
        qp.postSend({ ...send, sendFlags });
        return mr.rkey;
      },
      end: (index) => registered[index]!.dereg(),
    },
    false,
  );
  /** Without a peer: REG_MR, LOCAL_INV, and the completion of the last of a batch. */
  const turnOver = (): Figures => {
    const watch = new Stopwatch();
    for (let done = 0; done < requests; done += BATCH) {
      for (let index = 0; index < BATCH; index++) {
        const desc = rich.getMr()!;
        const regMr = desc.regMr(memory, access);
        const last = index === BATCH - 1 ? SendFlag.SIGNALED : 0;
        qp.postSend([
          { opcode: WrOpcode.REG_MR, sendFlags: 0, regMr },
          { opcode: WrOpcode.LOCAL_INV, sendFlags: last, invalidateRkey: regMr.key },
        ]);
        rich.putMr(desc);
      }
      for (let seen = 0; seen === 0;) {
        for (const { status } of pair.a.cq.poll(BATCH)) {
          if (status !== WcStatus.SUCCESS) throw new Error(`a request ended with ${status}`);
          seen++;
        }
      }
    }
    return { reg_mr_local_inv_us: (watch.cpuSeconds() * 1e6) / requests };
  };
  /** The same, each batch posted as one list. */
  const turnOverInLists = (): Figures => {
    const watch = new Stopwatch();
    for (let done = 0; done < requests; done += BATCH) {
      const list: SendWorkRequest[] = [];
      for (let index = 0; index < BATCH; index++) {
        const desc = (held[index] = rich.getMr()!);
        const regMr = desc.regMr(memory, access);
        const last = index === BATCH - 1 ? SendFlag.SIGNALED : 0;
        list.push({ opcode: WrOpcode.REG_MR, sendFlags: 0, regMr });
        list.push({ opcode: WrOpcode.LOCAL_INV, sendFlags: last, invalidateRkey: regMr.key });
      }
      qp.postSend(list);
      for (let index = 0; index < BATCH; index++) rich.putMr(held[index]!);
      for (let seen = 0; seen === 0;) {
        for (const { status } of pair.a.cq.poll(BATCH)) {
          if (status !== WcStatus.SUCCESS) throw new Error(`a request ended with ${status}`);
          seen++;
        }
      }
    }
    return { reg_mr_local_inv_list_us: (watch.cpuSeconds() * 1e6) / requests };
  };
  const turnOverByVerbs = (): Figures => {
    const watch = new Stopwatch();
    for (let done = 0; done < requests; done++) pd.regMr(memory, access).dereg();
    return { reg_mr_dereg_mr_us: (watch.cpuSeconds() * 1e6) / requests };
  };
  const many = Math.round((TURNS / 10) * pace.share);
  const threads = async (): Promise<Figures> => ({
    get_put_4_threads_bucket_ns: await contended(16, many),
    get_put_4_threads_pool_ns: await contended(0, many),
  });
  const rounds = await interleave(
    'pool',
    [
      getAndPut('l1', rich),
      getAndPut('l2', poor),
      threads,
      bare,
      byWorkRequest,
      byVerbs,
      turnOver,
      turnOverInLists,
      turnOverByVerbs,
    ],
    pace,
  );
  await pair.a.context.close();
  await pair.b.context.close();
  // What a registration adds: the exchange itself is the same.
  const added = (f: Figures, name: string): number =>
    f[`request_${name}_us`]! - f['request_bare_us']!;
  const ratio = medianOf(rounds, (f) => added(f, 'verbs') / added(f, 'reg_mr'));
  const figures: Figures = {
    ...medians(rounds),
    registration_reg_mr_us: medianOf(rounds, (f) => added(f, 'reg_mr')),
    registration_verbs_us: medianOf(rounds, (f) => added(f, 'verbs')),
    verbs_to_work_requests_ratio: ratio,
  };
  return {
    rounds,
    figures,
    bars: [
      atMost('get and put, the user’s own (L1), ns', figures['get_put_l1_ns']!, 60),
      atMost('get and put, of a bucket (L2), ns', figures['get_put_l2_ns']!, 150),
      atMost(
        'get and put, 4 threads, each its bucket, ns',
        figures['get_put_4_threads_bucket_ns']!,
        400,
      ),
      atMost('get and put, 4 threads, one list, ns', figures['get_put_4_threads_pool_ns']!, 400),
      atLeast('REG_MR in the path of a request against regMr and deregMr', ratio, 10),
      atLeast(
        'REG_MR and LOCAL_INV against regMr and deregMr',
        medianOf(rounds, (f) => f['reg_mr_dereg_mr_us']! / f['reg_mr_local_inv_us']!),
        10,
      ),
      atLeast(
        'REG_MR and LOCAL_INV, a list of 8 of each, against regMr and deregMr',
        medianOf(rounds, (f) => f['reg_mr_dereg_mr_us']! / f['reg_mr_local_inv_list_us']!),
        10,
      ),
    ],
  };
}

export const bench: Bench = {
  name: 'pool',
  description: 'regions of a pool: getMr and putMr by tier, REG_MR against regMr and deregMr',
  run,
};
