/**
 * Facts that a peer can guess, or learn from time: statistics of 10,000 keys, queue pair numbers,
 * ids and PSNs (ReDMArk, USENIX Security 2021, section 5), and how long refusals take (Pythia,
 * USENIX Security 2019).
 */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  QpType,
  SendFlag,
  WcStatusName,
  WrOpcode,
  connect,
  createEventChannel,
  openDevice,
  type CompletionQueue,
  type Context,
  type RdmaConnection,
} from '../../host/index.js';
import { parseMad } from '../../host/cm/mad.js';
import { Random } from '../simulation/random.js';
import { freshName, Member } from '../support/member.js';
import type { Attack } from './attack.js';

const SERVICE = 7478;
const DRAWS = 10_000;
/** Standard deviations: chance exceeds 6 in one of 500 million judgements. */
const SIGMAS = 6;
const [MAD_OFFSET, MAD_BYTES] = [20, 256];
/** Ids that are tried before the socket is read. */
const BATCH = 50;

/** Rejects values that could be predicted from earlier ones. */
function judge(name: string, bits: number, values: readonly number[]): void {
  const { length } = values;
  const limit = (SIGMAS * Math.sqrt(length)) / 2;
  const half = (count: number, what: string): void =>
    assert.ok(Math.abs(count - length / 2) < limit, `${name}: ${what}: ${count} of ${length}`);
  for (let bit = 0; bit < bits; bit++) {
    const of = (value: number): number => (value >>> bit) & 1;
    half(values.filter((value) => of(value)).length, `bit ${bit} is set`);
    const repeated = values.filter((value, at) => at > 0 && of(value) === of(values[at - 1]!));
    half(repeated.length, `bit ${bit} repeats the one before`);
  }
  for (const shift of [0, bits - 8]) {
    const counts = new Array<number>(256).fill(0);
    for (const value of values) counts[(value >>> shift) & 255]!++;
    const expected = length / 256;
    const chi = counts.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
    // 255 degrees of freedom: mean 255, standard deviation 22.6.
    assert.ok(chi < 255 + SIGMAS * 22.6, `${name}: chi-squared ${chi} from bit ${shift}`);
  }
  // The next value is the last one plus a small step, or plus the last step.
  const mask = 2 ** bits - 1;
  let hits = 0;
  for (let at = 2; at < length; at++) {
    const step = ((values[at]! - values[at - 1]!) & mask) >>> 0;
    const last = ((values[at - 1]! - values[at - 2]!) & mask) >>> 0;
    if (step === last || step < 8 || step > mask - 8) hits++;
  }
  const chance = (length * 17) / 2 ** bits;
  assert.ok(hits <= chance + SIGMAS * Math.sqrt(chance) + 2, `${name}: ${hits} were predicted`);
}

/** Ids and first PSNs of REQs to an address that never answers. */
async function requests(context: Context, to: string): Promise<[number[], number[]]> {
  const silent = createSocket('udp4');
  silent.bind(4791, to);
  await once(silent, 'listening');
  silent.setRecvBufferSize(2 ** 20);
  const found = new Map<string, readonly [number, number]>();
  silent.on('message', (datagram) => {
    const message = parseMad(datagram.subarray(MAD_OFFSET, MAD_OFFSET + MAD_BYTES));
    if (typeof message === 'object' && message.name === 'REQ') {
      const { localCommId, startingPsn } = message;
      found.set(`${localCommId} ${startingPsn}`, [localCommId, startingPsn]);
    }
  });
  const channel = createEventChannel(context);
  try {
    while (found.size < DRAWS) {
      const [wanted, end] = [found.size + BATCH, performance.now() + 20_000];
      const ids = Array.from({ length: BATCH }, () => channel.createId());
      for (const id of ids) {
        id.resolveAddr({ address: to, port: SERVICE });
        (await channel.getEvent())!.ackEvent();
        id.resolveRoute();
        (await channel.getEvent())!.ackEvent();
        id.connect({ qpNum: 17 });
      }
      while (found.size < wanted && performance.now() < end) {
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
      assert.is(found.size, wanted, 'REQs that arrived');
      for (const id of ids) id.destroy();
    }
  } finally {
    channel[Symbol.dispose]();
    silent.close();
  }
  const pairs = [...found.values()];
  return [pairs.map(([id]) => id), pairs.map(([, psn]) => psn)];
}

const SAMPLES = 100;
const CLASSES = ['unknown', 'other domain', 'deregistered', 'no right'] as const;

/** Rank sum of `one` among both, in standard deviations from what chance gives. */
function rankSum(one: readonly number[], two: readonly number[]): number {
  const all = [...one.map((value) => ({ value, mine: true })), ...two.map((value) => ({ value }))];
  all.sort((left, right) => left.value - right.value);
  let sum = 0;
  for (const [rank, each] of all.entries()) if ('mine' in each) sum += rank + 1;
  const mean = (one.length * (all.length + 1)) / 2;
  return (sum - mean) / Math.sqrt((one.length * two.length * (all.length + 1)) / 12);
}

/** Polls a device that nothing else runs until `promise` is settled. */
async function polled<T>(cq: CompletionQueue, promise: Promise<T>): Promise<T> {
  let isOver = false;
  const over = (): void => void (isOver = true);
  void promise.then(over, over);
  while (!isOver) {
    cq.poll(1);
    await new Promise((resolve) => setImmediate(resolve));
  }
  return promise;
}

/** Microseconds until a WRITE of 8 bytes completes, and its status. */
function timed(
  { qp, sendCq }: RdmaConnection,
  mr: { readonly addr: bigint; readonly lkey: number },
  remoteAddr: bigint,
  rkey: number,
): { micros: number; status: string } {
  const began = performance.now();
  qp.postSend({
    opcode: WrOpcode.RDMA_WRITE,
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr: mr.addr, length: 8, lkey: mr.lkey }],
    rdma: { remoteAddr, rkey },
  });
  for (;;) {
    const [completion] = sendCq.poll(1);
    const micros = (performance.now() - began) * 1000;
    if (completion) return { micros, status: WcStatusName[completion.status]! };
    if (micros > 10e6) return { micros, status: 'no completion' };
  }
}

export const GUESSING_ATTACKS: readonly Attack[] = [
  {
    name: 'of 10,000 keys, queue pair numbers, connection ids and PSNs none follows from the last ones',
    position: 'peer',
    unit: 'draws',
    async run() {
      const context = await openDevice({ address: '127.1.32.1', memoryBytes: 2 ** 26 });
      try {
        const pd = context.allocPd();
        const memory = context.alloc(64);
        const cq = context.createCq(16);
        const cap = { maxSendWr: 1, maxRecvWr: 1 };
        const keys = Array.from({ length: DRAWS }, () => {
          const mr = pd.regMr(memory, 0);
          mr.dereg();
          return mr.rkey;
        });
        const numbers = Array.from({ length: DRAWS }, () => {
          const qp = pd.createQp({ qpType: QpType.RC, sendCq: cq, recvCq: cq, cap });
          qp.destroy();
          return qp.qpNum;
        });
        const [ids, psns] = await requests(context, '127.1.32.2');
        judge('keys', 32, keys);
        judge('queue pair numbers', 16, numbers);
        judge('connection ids', 24, ids);
        judge('first PSNs', 24, psns);
        return keys.length + numbers.length + ids.length + psns.length;
      } finally {
        await context.close();
      }
    },
  },
  {
    name: 'the time of a refusal does not tell whether a key exists, is of another domain, or is stale',
    position: 'peer',
    unit: 'requests',
    async run() {
      const address = '127.1.32.3';
      const server = await Member.open({ name: freshName(), address });
      const context = await openDevice({ address: '127.1.32.4', port: 0, progress: 'poll' });
      try {
        const [addr, valid, other, deregistered, noRight] = await server.run(
          async ({ verbena, context: own, kept }, at, port) => {
            const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ } = verbena.AccessFlag;
            const pd = own.allocPd();
            kept.memory = own.alloc(4096);
            const listener = await verbena.listen({ address: at, port }, { context: own });
            void (async () => {
              for await (const connection of listener.connections({ pd })) {
                void connection.disconnected.then(() => connection.close());
              }
            })();
            const register = (domain: typeof pd, access: number) =>
              domain.regMr(kept.memory, access);
            const mr = register(pd, LOCAL_WRITE | REMOTE_WRITE);
            const stale = register(pd, LOCAL_WRITE | REMOTE_WRITE);
            stale.dereg();
            const foreign = register(own.allocPd(), LOCAL_WRITE | REMOTE_WRITE);
            const readOnly = register(pd, REMOTE_READ);
            const keys = [mr, foreign, stale, readOnly].map(({ rkey }) => rkey);
            return [String(mr.addr), ...keys] as [string, number, number, number, number];
          },
          address,
          SERVICE,
        );
        const random = new Random(9);
        const idle = context.createCq(1);
        const times = new Map(CLASSES.map((name) => [name, [] as number[]]));
        const mr = context.allocPd().regMr(context.alloc(64), AccessFlag.LOCAL_WRITE);
        const count = SAMPLES * CLASSES.length;
        for (let at = 0; at < count; at++) {
          // In turn: what else the machine does hits all alike.
          const name = CLASSES[at % CLASSES.length]!;
          const qp = { cap: { maxSendWr: 4, maxRecvWr: 1 } };
          const options = { context, pd: mr.pd, qp, cqe: 8 };
          const connection = await polled(idle, connect({ address, port: SERVICE }, options));
          const key = {
            unknown: random.u32(),
            'other domain': other,
            deregistered,
            'no right': noRight,
          }[name];
          assert.is(timed(connection, mr, BigInt(addr), valid).status, 'SUCCESS');
          const { micros, status } = timed(connection, mr, BigInt(addr), key);
          assert.is(status, 'REM_ACCESS_ERR', name);
          times.get(name)!.push(micros);
          await polled(idle, connection.close());
        }
        for (const name of CLASSES.slice(1)) {
          const z = rankSum(times.get(name)!, times.get('unknown')!);
          assert.ok(Math.abs(z) < SIGMAS, `${name} against unknown: ${z} standard deviations`);
        }
        return count;
      } finally {
        await context.close();
        server.kill();
        await server.ended;
      }
    },
  },
];
