/**
 * Measured beside the model of `shared-pd`: four processes of one device reach the same memory by
 * one registration of a shared domain, or by their own. A requester writes 64 bytes by keys in
 * random order; time per request against the number of registrations, up to 10^6.
 */
import {
  SendFlag,
  WcStatus,
  WrOpcode,
  openDevice,
  type CompletionQueue,
  type Context,
  type ProtectionDomain,
  type QueuePair,
} from '../../host/index.js';
import { Member, freshName } from '../support/member.js';
import { ALL_ACCESS, connect, type Side } from '../support/pair.js';
import { Stopwatch, atMost, interleave, medianOf, medians } from './harness.js';
import type { Bench, BenchResult, Figures, Pace } from './harness.js';

const PROCESSES = 4;
const COUNTS = [PROCESSES, 1000, 10_000, 100_000, 1_000_000];
const SECONDS = 0.4;
const BATCH = 64;
const WRITE_BYTES = 64;
const BUFFER_BYTES = 65536;
/** As many as the largest number of keys: fewer would stay in the caches. */
const KEYS_DRAWN = 1 << 20;

interface World {
  readonly context: Context;
  readonly qp: QueuePair;
  readonly cq: CompletionQueue;
  readonly side: Side;
  readonly shared: number;
  readonly keys: readonly number[];
  readonly members: readonly Member[];
}

async function openWorld(): Promise<World> {
  const name = freshName();
  const regionsMax = COUNTS.at(-1)! + 64;
  const sizes = { memoryBytes: 384 * 2 ** 20, regionsMax };
  const context = await openDevice({ name, port: 0, progress: 'poll', ...sizes });
  const pd = context.allocPd();
  const buffer = context.alloc(BUFFER_BYTES);
  const mr = pd.regMr(buffer, ALL_ACCESS);
  const { qp, cq, side } = connectPair(context, pd, buffer, mr);
  const members: Member[] = [];
  const keys: number[] = [];
  for (let index = 0; index < PROCESSES; index++) members.push(await Member.open({ name }));
  // In turn, so that the first ones of the list are of all processes.
  let registered = 0;
  for (const count of COUNTS) {
    const each = Math.floor((count - registered) / PROCESSES);
    for (const member of members) {
      const some = await register(member, pd.handle, buffer.byteOffset, each);
      for (const key of some) keys.push(key);
    }
    registered += each * PROCESSES;
  }
  return { context, qp, cq, side, shared: mr.rkey, keys, members };
}

/** Registers the memory `count` times in a process; all objects stay. Returns the keys. */
async function register(
  member: Member,
  handle: number,
  address: number,
  count: number,
): Promise<number[]> {
  const keys: number[] = [];
  for (let left = count; left > 0; left -= 50_000) {
    const some = await member.run(
      ({ context, kept, pair }, handle, address, bytes, count) => {
        kept.pd ??= context.importPd(handle);
        kept.memory ??= context.attach(address, bytes);
        const regions = Array.from({ length: count }, () =>
          kept.pd.regMr(kept.memory, pair.ALL_ACCESS),
        );
        return regions.map(({ rkey }) => rkey);
      },
      handle,
      address,
      BUFFER_BYTES,
      Math.min(left, 50_000),
    );
    for (const key of some) keys.push(key);
  }
  return keys;
}

/** Two queue pairs of the device, connected on the local path. */
function connectPair(
  context: Context,
  pd: ProtectionDomain,
  buffer: Uint8Array,
  mr: Side['mr'],
): { readonly qp: QueuePair; readonly cq: CompletionQueue; readonly side: Side } {
  const cq = context.createCq(1024);
  const cap = { maxSendWr: 256, maxRecvWr: 1, maxSendSge: 1, maxRecvSge: 1 };
  const [qp, other] = [0, 1].map(() => pd.createQp({ sendCq: cq, recvCq: cq, cap })) as [
    QueuePair,
    QueuePair,
  ];
  const side = { context, pd, cq, buffer, mr, qp: other } as Side;
  connect(qp, side, 1, 1, {});
  connect(other, { ...side, qp } as Side, 1, 1, {});
  return { qp, cq, side };
}

/** Nanoseconds of processor time per request, with keys in random order. */
function measure({ qp, cq, side }: World, keys: readonly number[], seconds: number): number {
  const drawn = Array.from(
    { length: KEYS_DRAWN },
    (_, index) => keys[Math.floor(((index * 0x9e3779b1) >>> 0) * (keys.length / 2 ** 32))]!,
  );
  const { mr } = side;
  const watch = new Stopwatch();
  let [count, at] = [0, 0];
  while (watch.cpuSeconds() < seconds) {
    for (let posted = 0; posted < BATCH; posted++) {
      qp.postSend({
        opcode: WrOpcode.RDMA_WRITE,
        sendFlags: SendFlag.SIGNALED,
        sgList: [{ addr: mr.addr, length: WRITE_BYTES, lkey: mr.lkey }],
        rdma: { remoteAddr: mr.addr, rkey: drawn[at]! },
      });
      at = (at + 1) % KEYS_DRAWN;
    }
    for (let completed = 0; completed < BATCH;) {
      for (const { status } of cq.poll(BATCH)) {
        if (status !== WcStatus.SUCCESS) throw new Error(`completion status ${status}`);
        completed++;
      }
    }
    count += BATCH;
  }
  return (watch.cpuSeconds() * 1e9) / count;
}

async function run(pace: Pace): Promise<BenchResult> {
  const world = await openWorld();
  try {
    const seconds = SECONDS * pace.share;
    const variants = [
      (): Figures => ({ shared_1_ns: measure(world, [world.shared], seconds) }),
      ...COUNTS.map((count) => (): Figures => ({
        [`own_${count}_ns`]: measure(world, world.keys.slice(0, count), seconds),
      })),
    ];
    const rounds = await interleave('registrations', variants, pace);
    const most = COUNTS.at(-1)!;
    const growth = medianOf(rounds, (f) => f[`own_${most}_ns`]! / f['shared_1_ns']!);
    const few = medianOf(rounds, (f) => f['shared_1_ns']! / f[`own_${PROCESSES}_ns`]!);
    return {
      rounds,
      figures: { ...medians(rounds), processes: PROCESSES, own_1000000_of_shared: growth },
      curves: [
        {
          title: 'time per request by number of registrations, ns',
          lines: {
            'own registrations': COUNTS.map((count): readonly [number, number] => [
              count,
              medians(rounds)[`own_${count}_ns`]!,
            ]),
          },
        },
      ],
      bars: [
        atMost('a request by one shared registration against one of four own', few, 1.1),
        // The cost that shared domains save; a larger ratio would mean that a lookup walks.
        atMost('a request by one of 10^6 own registrations against one shared', growth, 3),
      ],
    };
  } finally {
    for (const member of world.members) await member.close();
    await world.context.close();
  }
}

export const bench: Bench = {
  name: 'registrations',
  description:
    'Measured: a WRITE of 64 bytes by one shared registration, and by up to 10^6 own ones of four ' +
    'processes',
  run,
};
