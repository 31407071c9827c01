/** The local path between contexts of one device: threads, processes, and what dies or lies. */
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { ArenaLayout, LOCAL_ENDPOINT_SIZE } from '#build/abi.js';
import {
  AccessFlag,
  QpState,
  SendFlag,
  WcStatusName,
  WrOpcode,
  openDevice,
  rds,
  type Context,
  type MemoryRegion,
  type QpAttributes,
} from '../../host/index.js';
import { reportDevice } from '../../host/device/sharing/device-report.js';
import { structAt } from '../../host/engine/struct.js';
import { ALL_ACCESS, connect, type Side } from '../support/pair.js';
import {
  expect,
  join,
  localRequests,
  open,
  received,
  requests,
  type Told,
} from '../support/local-sides.js';
import { Member, freshName, withMembers } from '../support/member.js';
import { sample } from '../support/sample.js';

function sideOf(context: Context): Side {
  const pd = context.allocPd();
  const cq = context.createCq(256);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq });
  const buffer = context.alloc(4096);
  return { context, pd, cq, qp, buffer, mr: pd.regMr(buffer, ALL_ACCESS) };
}

function connectTo(side: Side, told: Told, attributes: QpAttributes = {}): void {
  const { address: gid, port, qpNum } = told;
  const peer = { context: { local: { gid, port } }, qp: { qpNum } } as never;
  connect(side.qp, peer, 1, 1, { attributes: { timeout: 17, retryCnt: 2, ...attributes } });
}

async function run(side: Side, opcode: number, told: Told, value?: bigint): Promise<string> {
  const rdma = { remoteAddr: told.addr, rkey: told.rkey };
  const length = value === undefined ? 64 : 8;
  const sgList = [{ addr: side.mr.addr, length, lkey: side.mr.lkey }];
  const where = value === undefined ? { rdma } : { atomic: { ...rdma, compareAdd: value } };
  side.qp.postSend({ opcode, sendFlags: SendFlag.SIGNALED, sgList, ...where });
  return WcStatusName[(await side.cq.wait(1))[0]!.status]!;
}

const INLINE = { progress: 'inline', address: '127.0.0.1', port: 0 } as const;

type ThreadProgress = 'inline' | 'thread';

interface ThreadOptions {
  readonly pkey?: number;
  readonly timeout?: number;
  /** Of this thread, and of the other one. */
  readonly progress?: readonly [ThreadProgress, ThreadProgress];
}

/** A device of two threads: this one's side, and a Worker's. */
async function withThread(
  body: (side: Side, there: Told, ask: (message: object) => Promise<unknown>) => Promise<void>,
  // On a busy machine the worker polls late: three waits of 0.5 s until no answer is a failure.
  { timeout = 17, progress = ['inline', 'inline'], ...options }: ThreadOptions = {},
): Promise<void> {
  const [here, yonder] = progress;
  await using device = await openDevice({ ...INLINE, ...options, progress: here, threadsMax: 2 });
  const share = device.share();
  const file = new URL('../support/thread-member.js', import.meta.url);
  const worker = new Worker(file, { workerData: { ...share, progress: yonder } });
  const ask = async (message: object): Promise<unknown> => {
    worker.postMessage(message);
    return ((await once(worker, 'message')) as [unknown])[0];
  };
  const pd = device.allocPd();
  const there = (await ask({ shpd: pd.allocShpd(7), shareKey: 7 })) as Told;
  // A domain of its own: the requester takes no part in that of its target.
  const side = sideOf(device);
  const { gid, port } = device.local;
  await ask({ connect: { gid: `${gid}`, port, qpNum: side.qp.qpNum } });
  connectTo(side, there, { timeout });
  try {
    await body(side, there, async (message) => {
      if ('end' in message) {
        await worker.terminate();
        device.unshare(share);
        return undefined;
      }
      return ask(message);
    });
  } finally {
    await worker.terminate();
  }
}

test('requests to a queue pair of another thread need no packet', () =>
  withThread(async (side, there) => {
    const { context, buffer } = side;
    assert.is(side.qp.usesLocalPath, true);
    const memory = new Uint8Array(buffer.buffer, Number(there.addr), 64);
    buffer.fill(0x5a);
    const before = context.counters().sentPkts;
    assert.is(await run(side, WrOpcode.RDMA_WRITE, there), 'SUCCESS');
    assert.equal(memory, new Uint8Array(64).fill(0x5a));
    memory.fill(9);
    assert.is(await run(side, WrOpcode.RDMA_READ, there), 'SUCCESS');
    assert.is(buffer[63], 9);
    assert.is(await run(side, WrOpcode.ATOMIC_FETCH_AND_ADD, there, 1n), 'SUCCESS');
    assert.is(memory[0], 10);
    const { localRequests, sentPkts } = context.counters();
    assert.equal([localRequests, sentPkts - before], [3n, 0n]);
  }));

test('a wrong key is refused by the thread of the target, as over the wire', () =>
  withThread(async (side, there) => {
    const wrong = { ...there, rkey: there.rkey ^ 0x100 };
    assert.is(await run(side, WrOpcode.RDMA_WRITE, wrong), 'REM_ACCESS_ERR');
    assert.is(side.qp.state, QpState.ERR);
    assert.is(side.context.counters().localRequests, 0n);
  }));

test('a target of another partition is not reached', () =>
  withThread(
    async (side, there) => {
      assert.is(await run(side, WrOpcode.RDMA_WRITE, there), 'RETRY_EXC_ERR');
      assert.is(side.context.counters().localRequests, 0n);
    },
    { pkey: 0x8123, timeout: 12 },
  ));

test('an endpoint that its owner is changing, or that lies, is not used', () =>
  withThread(async (side, there) => {
    const { memory, address } = side.context.device.arena;
    const { localEndpoints, localEndpointsMax } = structAt(memory, ArenaLayout, address);
    const slot = there.qpNum >>> 16;
    const index = slot * localEndpointsMax + (there.qpNum & (localEndpointsMax - 1));
    const at = (localEndpoints + index * LOCAL_ENDPOINT_SIZE) >> 2;
    const { words } = memory;
    const [sequence, qpn, peer] = [words[at]!, words[at + 1]!, words[at + 2]!];
    assert.equal([sequence & 1, qpn, peer], [0, there.qpNum, side.qp.qpNum]);
    for (const [word, value] of [
      [0, sequence + 1],
      [1, qpn + 1],
      [2, peer + 1],
      [3, 0x12345],
    ] as const) {
      const kept = words[at + word]!;
      words[at + word] = value;
      assert.is(await run(side, WrOpcode.RDMA_WRITE, there), 'SUCCESS', `word ${word}`);
      words[at + word] = kept;
    }
    assert.is(side.context.counters().localRequests, 0n, 'all of them went by packets');
    // Acknowledgements of packets may be late.
    assert.is(await run(side, WrOpcode.RDMA_WRITE, there), 'SUCCESS');
    assert.is(side.context.counters().localRequests, 1n);
  }));

test('each of 300 queue pairs has a place of its own among the endpoints', async () => {
  await using context = await openDevice({ ...INLINE, progress: 'thread', name: freshName() });
  const { arena } = context.device;
  const { localEndpointsMax } = structAt(arena.memory, ArenaLayout, arena.address);
  assert.ok(localEndpointsMax >= 1024, `${localEndpointsMax}`);
  const pd = context.allocPd();
  const cq = context.createCq(16);
  const cap = { maxSendWr: 1, maxRecvWr: 1 };
  const places = Array.from(
    { length: 300 },
    () => pd.createQp({ sendCq: cq, recvCq: cq, cap }).qpNum % localEndpointsMax,
  );
  assert.is(new Set(places).size, 300);
});

test('a thread that ended serves nothing: its packets get no answer', () =>
  withThread(async (side, there, ask) => {
    assert.is(await run(side, WrOpcode.RDMA_WRITE, there), 'SUCCESS');
    await ask({ end: true });
    assert.is(await run(side, WrOpcode.RDMA_WRITE, there), 'RETRY_EXC_ERR');
    assert.is(side.context.counters().localRequests, 1n);
  }));

/** How a thread is woken: Atomics.notify, or an eventfd if its engine has a thread. */
const PROGRESS = [
  ['inline', 'inline'],
  ['thread', 'thread'],
  ['inline', 'thread'],
] as const;

for (const progress of PROGRESS) {
  test(`SENDs to a thread that waits, and back: no packet (${progress.join(', ')})`, () =>
    withThread(
      async (side, _there, ask) => {
        const { cq, qp, mr, buffer, context } = side;
        const count = 200;
        await ask({ echo: count });
        const before = context.counters().sentPkts;
        for (let turn = 0; turn < count; turn++) {
          qp.postRecv({ wrId: 1, sgList: [{ addr: mr.addr + 1024n, length: 64, lkey: mr.lkey }] });
          buffer[0] = turn;
          const sgList = [{ addr: mr.addr, length: 64, lkey: mr.lkey }];
          qp.postSend({ wrId: 2, opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED, sgList });
          for (let got = 0; got < 2;) {
            for (const { status } of await cq.wait(2)) {
              assert.is(WcStatusName[status], 'SUCCESS');
              got++;
            }
          }
          assert.is(buffer[1024], turn & 255);
        }
        const { localRequests, sentPkts } = context.counters();
        assert.equal([localRequests, sentPkts - before], [BigInt(count), 0n]);
      },
      { timeout: 18, progress },
    ));
}

/** More than go by packets before the local path is tried again (local-path.ts). */
const DATAGRAMS = 150;

test('RDS nodes of two contexts of a device: most messages need no packet', async () => {
  const memoryBytes = 96 * 2 ** 20;
  const options = { ...INLINE, address: '127.1.7.2', threadsMax: 2, memoryBytes: 3 * memoryBytes };
  await using one = await openDevice(options);
  const threadShare = one.share({ memoryBytes });
  await using two = await openDevice({ threadShare, progress: 'inline' });
  const [a, b] = [one, two].map((context, index) => {
    const socket = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, context);
    socket.bind({ port: 5 + index });
    return socket;
  });
  for (let turn = 0; turn < DATAGRAMS; turn++) {
    const to = { address: options.address, port: 6, udpPort: two.local.port };
    await a!.send(to, Buffer.alloc(10 * turn, turn));
    assert.is((await b!.recv())!.data.length, 10 * turn);
  }
  for (const context of [one, two]) assert.ok(context.counters().localRequests > 10n);
});

/** Seconds, and rounds of a busy machine. */
const [RACE_SECONDS, RACE_ROUNDS] = sample([1, 10], [4, 30]);
const RACE_BYTES = 512 * 1024;
const CANARY = 0x5a;

/** Each ends the right to write to the region, by the queue pair that the requests go to. */
const ENDS: Record<string, (side: Side, mr: MemoryRegion) => void> = {
  'its deregistration': (_, mr) => mr.dereg(),
  'a RESET of the queue pair': ({ qp }) => qp.modify({ qpState: QpState.RESET }),
  'an ERR of the queue pair': ({ qp }) => qp.modify({ qpState: QpState.ERR }),
  'the end of the right to write': ({ qp }) => {
    qp.modify({ qpAccessFlags: AccessFlag.REMOTE_READ });
  },
};

for (const [name, endRight] of Object.entries(ENDS)) {
  test(`no requester of another domain writes to memory after ${name}`, () =>
    withThread(async (side, there, ask) => {
      const { context, pd, qp } = side;
      const { gid, port } = context.local;
      const buffer = context.alloc(RACE_BYTES);
      const end = performance.now() + RACE_SECONDS * 1000;
      let rounds = 0;
      let local = 0n;
      for (; rounds < RACE_ROUNDS || performance.now() < end; rounds++) {
        qp.modify({ qpState: QpState.RESET });
        connectTo(side, there);
        buffer.fill(0);
        const mr = pd.regMr(buffer, ALL_ACCESS);
        const flood = { remoteAddr: mr.addr, rkey: mr.rkey, length: RACE_BYTES };
        const told = ask({ connect: { gid: `${gid}`, port, qpNum: qp.qpNum }, flood });
        // It writes: somewhere in a copy its right ends.
        while (Atomics.load(buffer, RACE_BYTES - 1) === 0);
        for (let turn = (rounds * 997) % 5000; turn > 0; turn--) Atomics.load(buffer, 0);
        endRight(side, mr);
        buffer.fill(CANARY);
        const late = performance.now() + 0.3;
        while (performance.now() < late);
        assert.ok(
          buffer.every((byte) => byte === CANARY),
          `round ${rounds}`,
        );
        ({ local } = (await told) as { local: bigint });
        mr[Symbol.dispose]();
      }
      assert.ok(local >= rounds, `${local} local requests in ${rounds} rounds`);
      context.free(buffer);
    }));
}

const named = () => ({
  name: freshName(),
  address: '127.1.7.1',
  memoryBytes: 16 * 2 ** 20,
  localMemoryBytes: 32 * 2 ** 20,
});

const shared = named();

test('processes of one device: WRITEs, and atomics of both at the same word', () =>
  withMembers(2, shared, async (a, b) => {
    const [one, other] = [await open(a!), await open(b!)];
    await join(b!, one);
    await join(a!, other);
    assert.equal(await requests(a!, other, WrOpcode.RDMA_WRITE, 10), ['SUCCESS']);
    // Both add to the first word of B: A by its connection, B by its own processor's atomics.
    const added = requests(a!, other, WrOpcode.ATOMIC_FETCH_AND_ADD, 500);
    const own = b!.run(({ kept }) => {
      const words = new BigUint64Array(kept.memory.buffer, Number(kept.mr.addr), 1);
      for (let turn = 0; turn < 100_000; turn++) Atomics.add(words, 0, 1n);
    });
    await own;
    assert.equal(await added, ['SUCCESS']);
    const sum = await b!.run(({ kept }) => {
      return Number(new BigUint64Array(kept.memory.buffer, Number(kept.mr.addr), 1)[0]);
    });
    assert.is(sum, 100_500);
    assert.is(await localRequests(a!), 510);
    const { processes } = await reportDevice(shared.name);
    const told = processes.map((one) => [one.localRequests, one.localEndpoints]);
    assert.equal(told, [
      [510, 1],
      [0, 1],
    ]);
  }));

test('processes of one device: SENDs to one that waits need no packet', () =>
  withMembers(2, named(), async (a, b) => {
    const [one, other] = [await open(a!), await open(b!)];
    await join(b!, one);
    await join(a!, other, 7);
    await expect(b!, 100);
    const got = received(b!, 100);
    const packets = (): Promise<number> =>
      a!.run(({ context }) => Number(context.counters().sentPkts));
    const before = await packets();
    assert.equal(await requests(a!, other, WrOpcode.SEND, 100), ['SUCCESS']);
    assert.is(await got, 100);
    assert.equal([await localRequests(a!), (await packets()) - before], [100, 0]);
  }));

test('a stopped process: SENDs to it go by packets, and arrive once when it goes on', () =>
  withMembers(2, named(), async (a, b) => {
    const [one, other] = [await open(a!), await open(b!)];
    await join(b!, one);
    await join(a!, other, 7);
    await expect(b!, 10);
    assert.equal(await requests(a!, other, WrOpcode.SEND, 5), ['SUCCESS']);
    b!.kill('SIGSTOP');
    const late = requests(a!, other, WrOpcode.SEND, 1);
    // Longer than the timeout: what it has not taken is withdrawn.
    await sleep(150);
    b!.kill('SIGCONT');
    assert.equal(await late, ['SUCCESS']);
    assert.equal(await requests(a!, other, WrOpcode.SEND, 4), ['SUCCESS']);
    assert.is(await received(b!, 10), 10);
    assert.ok((await localRequests(a!)) >= 9);
    assert.is(await b!.run(({ kept }) => kept.cq.poll(10).length), 0);
  }));

test('a process that is killed while messages wait: retries end, and its slot is used again', () =>
  withMembers(2, named(), async (a, b) => {
    const [one, other] = [await open(a!), await open(b!)];
    await join(b!, one);
    await join(a!, other);
    await expect(b!, 3);
    b!.kill('SIGSTOP');
    const sends = requests(a!, other, WrOpcode.SEND, 1);
    b!.kill();
    await b!.ended;
    assert.equal(await sends, ['RETRY_EXC_ERR']);
    await a!.run(({ context }) => context.device.shared!.members.look());
    const { name } = await a!.run(({ context }) => ({ name: context.device.shared!.name }));
    const again = await Member.open({ ...named(), name });
    try {
      const [three, four] = [await open(a!), await open(again)];
      await join(again, three);
      await join(a!, four, 7);
      await expect(again, 5);
      assert.equal(await requests(a!, four, WrOpcode.SEND, 5), ['SUCCESS']);
      assert.is(await localRequests(a!), 5);
    } finally {
      await again.close();
    }
  }));

test('a process that is killed: retries end, its keys are gone, others go on', () =>
  withMembers(3, named(), async (a, b, c) => {
    const [one, two] = [await open(a!), await open(b!)];
    await join(b!, one);
    await join(a!, two);
    assert.equal(await requests(a!, two, WrOpcode.RDMA_WRITE, 5), ['SUCCESS']);
    b!.kill();
    await b!.ended;
    await a!.run(({ context }) => context.device.shared!.members.look());
    assert.equal(await requests(a!, two, WrOpcode.RDMA_WRITE, 1), ['RETRY_EXC_ERR']);
    assert.is(await localRequests(a!), 5);
    // The requester may die as well.
    const three = await open(c!);
    const again = await open(a!);
    await join(c!, again);
    await join(a!, three);
    assert.equal(await requests(c!, again, WrOpcode.RDMA_READ, 5), ['SUCCESS']);
    c!.kill();
    await c!.ended;
    await a!.run(({ context, kept }) => {
      context.device.shared!.members.look();
      kept.qp.destroy();
      kept.mr.dereg();
      context.free(kept.memory);
    });
  }));

test('a stopped process: its memory is written, and its answers are not needed', () =>
  withMembers(2, named(), async (a, b) => {
    const [one, other] = [await open(a!), await open(b!)];
    await join(b!, one);
    await join(a!, other);
    assert.equal(await requests(a!, other, WrOpcode.RDMA_WRITE, 1), ['SUCCESS']);
    b!.kill('SIGSTOP');
    try {
      assert.equal(await requests(a!, other, WrOpcode.RDMA_WRITE, 100), ['SUCCESS']);
    } finally {
      b!.kill('SIGCONT');
    }
    assert.is(await localRequests(a!), 101);
  }));

test.run();
