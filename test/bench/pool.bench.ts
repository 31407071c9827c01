/**
 * Pools of memory regions: what taking one and giving it back costs, by tier, and what a
 * registration costs per request: by a work request with a region of the pool, and by regMr and
 * deregMr.
 */
import {
  AccessFlag,
  SendFlag,
  WcStatus,
  WrOpcode,
  createFmrPool,
  type FmrPoolUser,
} from '../../host/index.js';
import { makePair } from '../support/pair.js';
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

async function run(pace: Pace): Promise<BenchResult> {
  const pair = await makePair({});
  const { context, qp, cq, pd, buffer } = pair.a;
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
  /** REG_MR, LOCAL_INV, and the completion of the last of a batch. */
  const byWorkRequest = (): Figures => {
    const watch = new Stopwatch();
    for (let done = 0; done < requests; done += BATCH) {
      for (let index = 0; index < BATCH; index++) {
        const desc = rich.getMr()!;
        const regMr = desc.regMr(memory, access);
        const sendFlags = index === BATCH - 1 ? SendFlag.SIGNALED : 0;
        qp.postSend([
          { opcode: WrOpcode.REG_MR, sendFlags: 0, regMr },
          { opcode: WrOpcode.LOCAL_INV, sendFlags, invalidateRkey: regMr.key },
        ]);
        rich.putMr(desc);
      }
      for (let seen = 0; seen === 0;) {
        for (const { status } of cq.poll(BATCH)) {
          if (status !== WcStatus.SUCCESS) throw new Error(`a request ended with ${status}`);
          seen++;
        }
      }
    }
    return { reg_mr_local_inv_us: (watch.cpuSeconds() * 1e6) / requests };
  };
  const byVerbs = (): Figures => {
    const watch = new Stopwatch();
    for (let done = 0; done < requests; done++) pd.regMr(memory, access).dereg();
    return { reg_mr_dereg_mr_us: (watch.cpuSeconds() * 1e6) / requests };
  };
  const rounds = await interleave(
    'pool',
    [getAndPut('l1', rich), getAndPut('l2', poor), byWorkRequest, byVerbs],
    pace,
  );
  await pair.a.context.close();
  await pair.b.context.close();
  const ratio = medianOf(rounds, (f) => f['reg_mr_dereg_mr_us']! / f['reg_mr_local_inv_us']!);
  const figures: Figures = { ...medians(rounds), verbs_to_work_requests_ratio: ratio };
  return {
    rounds,
    figures,
    bars: [
      atMost('get and put, the user’s own (L1), ns', figures['get_put_l1_ns']!, 60),
      atMost('get and put, of a bucket (L2), ns', figures['get_put_l2_ns']!, 150),
      atLeast('REG_MR and LOCAL_INV against regMr and deregMr', ratio, 10),
    ],
  };
}

export const bench: Bench = {
  name: 'pool',
  description: 'regions of a pool: getMr and putMr by tier, REG_MR against regMr and deregMr',
  run,
};
