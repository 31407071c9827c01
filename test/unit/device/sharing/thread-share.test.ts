/** One device in several threads of one process, without koffi: one memory, a socket for each. */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { ArenaLayout } from '#build/abi.js';
import {
  MisuseError,
  SendFlag,
  WcStatus,
  WrOpcode,
  openDevice,
  type Context,
  type DeviceShare,
} from '../../../../host/index.js';
import { ALL_ACCESS, connect, type Side } from '../../../support/pair.js';
import { expectRefusal, expectRejected, rejection } from '../../../support/refusal.js';

/** Node's own sockets in this very thread: what there is without koffi. */
const INLINE = { progress: 'inline', address: '127.0.0.1', port: 0 } as const;

interface Told {
  readonly port: number;
  readonly address: string;
  readonly qpNum: number;
  readonly addr: bigint;
  readonly rkey: number;
}

class Partner {
  readonly #worker: Worker;

  constructor(share: DeviceShare) {
    const file = new URL('../../../support/thread-member.js', import.meta.url);
    this.#worker = new Worker(file, { workerData: share });
  }

  async ask<Answer>(message: object): Promise<Answer> {
    this.#worker.postMessage(message);
    return ((await once(this.#worker, 'message')) as [Answer])[0];
  }

  async end(): Promise<void> {
    await this.#worker.terminate();
  }
}

function sideOf(context: Context): Side {
  const pd = context.allocPd();
  const cq = context.createCq(16);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq });
  const buffer = context.alloc(4096);
  return { context, pd, cq, qp, buffer, mr: pd.regMr(buffer, ALL_ACCESS) };
}

async function write(side: Side, remoteAddr: bigint | number, rkey: number): Promise<number> {
  side.qp.postSend({
    opcode: WrOpcode.RDMA_WRITE,
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr: side.mr.addr, length: 64, lkey: side.mr.lkey }],
    rdma: { remoteAddr, rkey },
  });
  return (await side.cq.wait(1))[0]!.status;
}

function connectTo({ qp }: Side, { address, port, qpNum }: Told): void {
  connect(qp, { context: { local: { gid: address, port } }, qp: { qpNum } } as never, 1, 1, {});
}

test('a thread has the memory, the domains and the keys of the device that another opened', async () => {
  await using device = await openDevice({ ...INLINE, threadsMax: 3 });
  await using client = await openDevice(INLINE);
  const pd = device.allocPd();
  const shared = device.alloc(4096);
  const mr = pd.regMr(shared, ALL_ACCESS);
  const partner = new Partner(device.share());
  const there = await partner.ask<Told>({ shpd: pd.allocShpd(7), shareKey: 7 });
  assert.is(there.address, '127.0.0.1');
  assert.is.not(there.port, device.local.port, 'its port is its own');
  const side = sideOf(client);
  connectTo(side, there);
  await partner.ask({
    connect: { gid: '127.0.0.1', port: client.local.port, qpNum: side.qp.qpNum },
  });
  side.buffer.fill(0x77);
  assert.is(await write(side, mr.addr, mr.rkey), WcStatus.SUCCESS, 'our key, its queue pair');
  assert.is(shared[63], 0x77);
  assert.is(await write(side, there.addr, there.rkey), WcStatus.SUCCESS, 'its key');
  const theirs = new Uint8Array(shared.buffer, Number(there.addr), 64);
  assert.ok(
    theirs.every((byte) => byte === 0x77),
    'its memory is at the same address here',
  );
  // Its key in a queue pair of this thread.
  const ours = sideOf(client);
  const cq = device.createCq(16);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq });
  connect(ours.qp, { context: device, qp } as never, 1, 1, {});
  connect(qp, ours, 1, 1, {});
  assert.is(await write(ours, there.addr, there.rkey), WcStatus.SUCCESS);
  await partner.end();
});

test('resources of an ended thread are reclaimed, whenever it ended', async () => {
  await using device = await openDevice({ ...INLINE, threadsMax: 2, memoryBytes: 48 * 2 ** 20 });
  await using client = await openDevice(INLINE);
  const free = device.device.arena.heap.bytesFree;
  for (let round = 0; round < 3; round++) {
    const share = device.share();
    expectRefusal(() => device.share(), 'EBUSY');
    const partner = new Partner(share);
    const pd = device.allocPd();
    const { addr, rkey } = await partner.ask<Told>({ shpd: pd.allocShpd(7), shareKey: 7 });
    const cq = device.createCq(16);
    const qp = pd.createQp({ sendCq: cq, recvCq: cq });
    const side = sideOf(client);
    connect(side.qp, { context: device, qp } as never, 1, 1, {});
    connect(qp, side, 1, 1, {});
    assert.is(await write(side, addr, rkey), WcStatus.SUCCESS);
    await partner.end();
    device.unshare(share);
    assert.is(await write(side, addr, rkey), WcStatus.REM_ACCESS_ERR, 'its keys are dead');
    assert.throws(() => device.unshare(share), /must be a share of this device/);
    qp.destroy();
    cq.destroy();
    pd.dealloc();
    assert.is(device.device.arena.heap.bytesFree, free, 'its memory is back');
  }
});

test('a device without `threadsMax` has no thread shares, and a share is for one thread', async () => {
  const alone = await openDevice(INLINE);
  expectRefusal(() => alone.share(), 'EOPNOTSUPP');
  await alone.close();
  const device = await openDevice({ ...INLINE, threadsMax: 2, memoryBytes: 64 * 2 ** 20 });
  const share = device.share();
  // On the same thread too: the first to open it has it.
  const second = await openDevice({ ...INLINE, threadShare: share });
  await expectRejected(openDevice({ ...INLINE, threadShare: share }), 'EBUSY');
  await second.close();
  await device.close();
  for (const threadsMax of [0, 257, 1.5]) {
    const error = await rejection(openDevice({ ...INLINE, threadsMax }));
    assert.instance(error, MisuseError);
  }
});

/** A thread that takes the lock of the tables, reports it, and never releases it. */
const HOLDER = `
  const { parentPort, workerData } = require('node:worker_threads');
  (async () => {
    const { EngineMemory } = await import(workerData.memoryModule);
    const { WordLock } = await import(workerData.lockModule);
    const { memory, word, slot } = workerData;
    const lock = new WordLock(new EngineMemory(memory), word, slot);
    while (lock.tryTake() === undefined);
    parentPort.postMessage('taken');
  })();
`;

test('if a Worker is terminated inside the tables’ lock, verbs fail until unshare frees the lock', async () => {
  await using device = await openDevice({ ...INLINE, threadsMax: 2, memoryBytes: 48 * 2 ** 20 });
  const share = device.share();
  const { memory, arena, slot } = share;
  const worker = new Worker(HOLDER, {
    eval: true,
    workerData: {
      memory,
      slot,
      word: arena + ArenaLayout.fields.lock[0],
      memoryModule: new URL('../../../../host/engine/memory.js', import.meta.url).href,
      lockModule: new URL('../../../../host/device/sharing/arena-lock.js', import.meta.url).href,
    },
  });
  await once(worker, 'message');
  await worker.terminate();
  const pd = (): unknown => device.allocPd();
  const begin = performance.now();
  expectRefusal(pd, 'EBUSY', /slot 1.*unshare/);
  assert.ok(performance.now() - begin < 10_000, 'the wait has an end');
  device.unshare(share);
  device.allocPd();
});

test.run();
