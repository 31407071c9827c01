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
  type FmrPool,
  type FmrPoolUser,
  type MemoryRegion,
  type SendWorkRequest,
} from '../../host/index.js';
import { makePair, type Pair, type Side } from '../support/pair.js';
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
const ACCESS = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE;

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

/** One adapter's requests with regions of a pool, and what the same costs without the pool. */
class PoolLoad {
  readonly #pair: Pair;
  readonly #pool: FmrPool;
  readonly #turns: number;
  readonly #requests: number;
  readonly #memory: Uint8Array;
  readonly #command = new Uint8Array(COMMAND_BYTES);
  readonly #held: FmrDesc[] = [];
  readonly #registered: MemoryRegion[] = [];
  readonly rich: FmrPoolUser;
  readonly poor: FmrPoolUser;

  constructor(pair: Pair, { share }: Pace) {
    this.#pair = pair;
    this.#pool = createFmrPool(pair.a.context, undefined, {
      maxLength: BYTES,
      mrsMax: 256,
      mrsMin: 64,
    });
    this.rich = this.#pool.createUser(8);
    this.poor = this.#pool.createUser(0);
    this.#turns = Math.round(TURNS * share);
    this.#requests = Math.round(REGISTRATIONS * share);
    this.#memory = pair.a.buffer.subarray(0, BYTES);
    for (let index = 0; index < 2 * BATCH; index++) [pair.a, pair.b].forEach(receive);
  }

  getAndPut(name: string, user: FmrPoolUser): Figures {
    const watch = new Stopwatch();
    for (let turn = 0; turn < this.#turns; turn++) user.putMr(user.getMr()!);
    return { [`get_put_${name}_ns`]: (watch.cpuSeconds() * 1e9) / this.#turns };
  }

  /** A command without a registration. */
  readonly bare: Registration = {
    begin: () => {
      this.#pair.a.qp.postSend(this.#send());
      return 0;
    },
    end: () => {},
  };

  readonly byWorkRequest: Registration = {
    begin: (index) => {
      const desc = (this.#held[index] = this.rich.getMr()!);
      const regMr = desc.regMr(this.#memory, ACCESS);
      this.#pair.a.qp.postSend([{ opcode: WrOpcode.REG_MR, sendFlags: 0, regMr }, this.#send()]);
      return regMr.key;
    },
    end: (index) => this.rich.putMr(this.#held[index]!),
  };

  readonly byVerbs: Registration = {
    begin: (index) => {
      const { pd, qp } = this.#pair.a;
      const mr = (this.#registered[index] = pd.regMr(this.#memory, ACCESS));
      qp.postSend(this.#send());
      return mr.rkey;
    },
    end: (index) => this.#registered[index]!.dereg(),
  };

  #send(): SendWorkRequest {
    return {
      opcode: WrOpcode.SEND,
      inline: this.#command,
      sendFlags: SendFlag.SIGNALED | SendFlag.INLINE,
    };
  }

  /** Commands and their answers, a batch at a time; microseconds for one. */
  exchange(name: string, { begin, end }: Registration, invalidates: boolean): Figures {
    const { a, b } = this.#pair;
    const watch = new Stopwatch();
    const keys: number[] = [];
    for (let done = 0; done < this.#requests; done += BATCH) {
      for (let index = 0; index < BATCH; index++) keys[index] = begin(index);
      this.#pair.settle();
      if (drain(b) !== BATCH) throw new Error('a command did not arrive');
      for (const key of keys) {
        b.qp.postSend(
          invalidates
            ? { ...this.#send(), opcode: WrOpcode.SEND_WITH_INV, invalidateRkey: key }
            : this.#send(),
        );
      }
      this.#pair.settle();
      if (drain(a) !== BATCH) throw new Error('an answer did not arrive');
      drain(b);
      for (let index = 0; index < BATCH; index++) end(index);
    }
    return { [`request_${name}_us`]: (watch.cpuSeconds() * 1e6) / this.#requests };
  }

  /** REG_MR and LOCAL_INV of one region; the last of a batch has a completion. */
  #registerAndInvalidate(index: number): SendWorkRequest[] {
    const desc = (this.#held[index] = this.rich.getMr()!);
    const regMr = desc.regMr(this.#memory, ACCESS);
    const sendFlags = index === BATCH - 1 ? SendFlag.SIGNALED : 0;
    return [
      { opcode: WrOpcode.REG_MR, sendFlags: 0, regMr },
      { opcode: WrOpcode.LOCAL_INV, sendFlags, invalidateRkey: regMr.key },
    ];
  }

  /** Waits for the completion of a batch. */
  #awaitBatch(): void {
    for (let seen = 0; seen === 0;) {
      for (const { status } of this.#pair.a.cq.poll(BATCH)) {
        if (status !== WcStatus.SUCCESS) throw new Error(`a request ended with ${status}`);
        seen++;
      }
    }
  }

  /** Without a peer: REG_MR, LOCAL_INV, and the completion of the last of a batch. */
  turnOver(): Figures {
    const { qp } = this.#pair.a;
    const watch = new Stopwatch();
    for (let done = 0; done < this.#requests; done += BATCH) {
      for (let index = 0; index < BATCH; index++) {
        qp.postSend(this.#registerAndInvalidate(index));
        this.rich.putMr(this.#held[index]!);
      }
      this.#awaitBatch();
    }
    return { reg_mr_local_inv_us: (watch.cpuSeconds() * 1e6) / this.#requests };
  }

  /** The same, each batch posted as one list. */
  turnOverInLists(): Figures {
    const { qp } = this.#pair.a;
    const watch = new Stopwatch();
    for (let done = 0; done < this.#requests; done += BATCH) {
      const list: SendWorkRequest[] = [];
      for (let index = 0; index < BATCH; index++) {
        list.push(...this.#registerAndInvalidate(index));
      }
      qp.postSend(list);
      for (let index = 0; index < BATCH; index++) this.rich.putMr(this.#held[index]!);
      this.#awaitBatch();
    }
    return { reg_mr_local_inv_list_us: (watch.cpuSeconds() * 1e6) / this.#requests };
  }

  turnOverByVerbs(): Figures {
    const { pd } = this.#pair.a;
    const watch = new Stopwatch();
    for (let done = 0; done < this.#requests; done++) pd.regMr(this.#memory, ACCESS).dereg();
    return { reg_mr_dereg_mr_us: (watch.cpuSeconds() * 1e6) / this.#requests };
  }
}

function receive({ qp, mr }: Side): void {
  const sgList = [{ addr: Number(mr.addr) + BYTES, length: COMMAND_BYTES, lkey: mr.lkey }];
  qp.postRecv({ sgList });
}

/** How many messages arrived; their receives are posted anew. */
function drain(side: Side): number {
  let received = 0;
  for (const { status, opcode } of side.cq.poll(4 * BATCH)) {
    if (status !== WcStatus.SUCCESS) throw new Error(`a request ended with ${status}`);
    if (opcode !== WcOpcode.RECV) continue;
    received++;
    receive(side);
  }
  return received;
}

async function run(pace: Pace): Promise<BenchResult> {
  const pair = await makePair({ qp: { cap: { maxInlineData: COMMAND_BYTES } } });
  const load = new PoolLoad(pair, pace);
  const many = Math.round((TURNS / 10) * pace.share);
  const rounds = await interleave(
    'pool',
    [
      () => load.getAndPut('l1', load.rich),
      () => load.getAndPut('l2', load.poor),
      async () => ({
        get_put_4_threads_bucket_ns: await contended(16, many),
        get_put_4_threads_pool_ns: await contended(0, many),
      }),
      () => load.exchange('bare', load.bare, false),
      () => load.exchange('reg_mr', load.byWorkRequest, true),
      () => load.exchange('verbs', load.byVerbs, false),
      () => load.turnOver(),
      () => load.turnOverInLists(),
      () => load.turnOverByVerbs(),
    ],
    pace,
  );
  await pair.a.context.close();
  await pair.b.context.close();
  return judged(rounds);
}

/** Medians of the rounds, and the bars that they meet or miss. */
function judged(rounds: readonly Figures[]): BenchResult {
  // Time that a registration adds: the exchange itself is the same.
  const added = (f: Figures, name: string): number =>
    f[`request_${name}_us`]! - f['request_bare_us']!;
  const ratio = medianOf(rounds, (f) => added(f, 'verbs') / added(f, 'reg_mr'));
  const figures: Figures = {
    ...medians(rounds),
    registration_reg_mr_us: medianOf(rounds, (f) => added(f, 'reg_mr')),
    registration_verbs_us: medianOf(rounds, (f) => added(f, 'verbs')),
    verbs_to_work_requests_ratio: ratio,
  };
  const ofVerbs = (name: string): number =>
    medianOf(rounds, (f) => f['reg_mr_dereg_mr_us']! / f[name]!);
  const bars = [
    atMost('get and put, the user’s own (L1), ns', figures['get_put_l1_ns']!, 60),
    atMost('get and put, of a bucket (L2), ns', figures['get_put_l2_ns']!, 150),
    atMost(
      'get and put, 4 threads, each its bucket, ns',
      figures['get_put_4_threads_bucket_ns']!,
      400,
    ),
    atMost('get and put, 4 threads, one list, ns', figures['get_put_4_threads_pool_ns']!, 400),
    atLeast('REG_MR in the path of a request against regMr and deregMr', ratio, 10),
    atLeast('REG_MR and LOCAL_INV against regMr and deregMr', ofVerbs('reg_mr_local_inv_us'), 10),
    atLeast(
      'REG_MR and LOCAL_INV, a list of 8 of each, against regMr and deregMr',
      ofVerbs('reg_mr_local_inv_list_us'),
      10,
    ),
  ];
  return { rounds, figures, bars };
}

export const bench: Bench = {
  name: 'pool',
  description: 'regions of a pool: getMr and putMr by tier, REG_MR against regMr and deregMr',
  run,
};
