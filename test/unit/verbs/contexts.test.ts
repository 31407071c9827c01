/** Several contexts of one device in one thread: `ibv_open_device` again. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  AsyncEvent,
  SendFlag,
  WcStatus,
  WrOpcode,
  connect as cmConnect,
  createLoopbackPair,
  listen,
  openDevice,
  type Context,
} from '../../../host/index.js';
import { ALL_ACCESS, connect, type Side } from '../../support/pair.js';
import { expectRefusal } from '../../support/refusal.js';

function sideOf(context: Context, pd = context.allocPd()): Side {
  const cq = context.createCq(16);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq });
  const buffer = context.alloc(4096);
  return { context, pd, cq, qp, buffer, mr: pd.regMr(buffer, ALL_ACCESS) };
}

async function world() {
  const { a, b, network } = createLoopbackPair({ auto: false });
  const first = await openDevice({ link: a });
  const peer = await openDevice({ link: b });
  const settle = (): void => {
    while (network.deliver() > 0);
  };
  const link = (ours: Side, theirs: Side): void => {
    connect(ours.qp, theirs, 1, 1, {});
    connect(theirs.qp, ours, 1, 1, {});
  };
  /** The status of a WRITE of 64 bytes. */
  const write = (ours: Side, theirs: Pick<Side, 'mr'>): number => {
    ours.qp.postSend({
      opcode: WrOpcode.RDMA_WRITE,
      sendFlags: SendFlag.SIGNALED,
      sgList: [{ addr: ours.mr.addr, length: 64, lkey: ours.mr.lkey }],
      rdma: { remoteAddr: theirs.mr.addr, rkey: theirs.mr.rkey },
    });
    settle();
    return ours.cq.poll(1)[0]!.status;
  };
  const close = async (): Promise<void> => {
    await first.close();
    await peer.close();
  };
  return { first, peer, link, write, close };
}

test('contexts of a device have queues, domains and events of their own, and one address', async () => {
  const { first, peer, link, write, close } = await world();
  const second = first.openDevice();
  assert.equal(second.local, first.local);
  const [one, two] = [sideOf(first), sideOf(second)];
  const theirs = [sideOf(peer), sideOf(peer)] as const;
  link(one, theirs[0]);
  link(two, theirs[1]);
  assert.is(write(theirs[0], one), WcStatus.SUCCESS);
  assert.is(write(theirs[1], two), WcStatus.SUCCESS);
  // The events of a queue pair go to its creator: this key is of the other context's domain.
  const heard = second.getAsyncEvent();
  assert.is(write(theirs[1], one), WcStatus.REM_ACCESS_ERR);
  const event = await heard;
  assert.is(event?.eventType, AsyncEvent.QP_ACCESS_ERR);
  assert.is(event?.element, two.qp);
  assert.throws(
    () => second.allocPd().createQp({ sendCq: one.cq, recvCq: one.cq }),
    /same context/,
  );
  await close();
  await second.close();
});

test('objects of a context end with it; other contexts and their peers go on', async () => {
  const { first, peer, link, write, close } = await world();
  const second = first.openDevice();
  const [one, two] = [sideOf(first), sideOf(second)];
  const theirs = [sideOf(peer), sideOf(peer)] as const;
  link(one, theirs[0]);
  link(two, theirs[1]);
  two.pd.allocMw(1);
  const free = first.device.arena.heap.bytesFree;
  const { rkey } = one.mr;
  await first.close();
  assert.ok(first.device.arena.heap.bytesFree > free, 'its queues are freed');
  assert.throws(() => first.allocPd(), /is closed/);
  assert.throws(() => one.qp.postSend([]), /destroyed/);
  assert.is(write(theirs[1], { mr: { ...one.mr, addr: one.mr.addr, rkey } as never }), 10);
  const again = sideOf(second);
  const other = sideOf(peer);
  link(again, other);
  assert.is(write(other, again), WcStatus.SUCCESS);
  await second.close();
  assert.ok(second.device.closed, 'the device ends with the last of them');
  await close();
});

test('a domain is shared by contexts of one thread, and ends with its last instance', async () => {
  const { first, peer, link, write, close } = await world();
  const second = first.openDevice();
  const one = sideOf(first);
  const handle = one.pd.allocShpd(0x5eed);
  expectRefusal(() => second.sharePd(handle, 0x5eee), 'EINVAL');
  const pd = second.sharePd(handle, 0x5eed);
  const two = sideOf(second, pd);
  const theirs = sideOf(peer);
  link(two, theirs);
  assert.is(
    write(theirs, one),
    WcStatus.SUCCESS,
    "the first one's key, the second one's queue pair",
  );
  expectRefusal(() => one.pd.dealloc(), 'EBUSY');
  one.qp.destroy();
  one.mr.dereg();
  one.pd.dealloc();
  assert.is(write(theirs, two), WcStatus.SUCCESS, 'the domain lives on');
  expectRefusal(() => pd.dealloc(), 'EBUSY');
  two.qp.destroy();
  two.mr.dereg();
  pd.dealloc();
  expectRefusal(() => second.sharePd(handle, 0x5eed), 'EINVAL');
  await close();
  await second.close();
});

test('an imported domain ends for all contexts when one deallocates it', async () => {
  const { first, close } = await world();
  const second = first.openDevice();
  const pd = first.allocPd();
  const same = second.importPd(pd.handle);
  expectRefusal(() => second.importPd(pd.handle), 'ENOENT');
  const mr = same.regMr(second.alloc(64), AccessFlag.LOCAL_WRITE);
  expectRefusal(() => pd.dealloc(), 'EBUSY');
  assert.is(pd.importMr(mr.handle).lkey, mr.lkey);
  mr.dereg();
  same.dealloc();
  expectRefusal(() => pd.regMr(first.alloc(64), 0), 'EINVAL');
  await close();
  await second.close();
});

test('memory whose region another context has ended may be freed', async () => {
  const { first, close } = await world();
  const second = first.openDevice();
  const pd = first.allocPd();
  const memory = first.alloc(64);
  const mr = pd.regMr(memory, AccessFlag.LOCAL_WRITE);
  const imported = second.importPd(pd.handle).importMr(mr.handle);
  imported.dereg();
  assert.throws(() => imported.dereg(), /no longer imported/);
  expectRefusal(() => first.free(memory), 'EBUSY');
  expectRefusal(() => mr.dereg(), 'EINVAL');
  assert.throws(() => mr.dereg(), /deregistered already/);
  first.free(memory);
  await close();
  await second.close();
});

test('memory of one may be registered and freed by another', async () => {
  const { first, close } = await world();
  const second = first.openDevice();
  const memory = first.alloc(100);
  const mr = second.allocPd().regMr(memory, AccessFlag.LOCAL_WRITE);
  expectRefusal(() => first.free(memory), 'EBUSY');
  mr.dereg();
  second.free(memory);
  await close();
  await second.close();
});

test('the connection manager is the device’s, whichever of them asked for it first', async () => {
  const { a, b } = createLoopbackPair();
  const first = await openDevice({ link: a });
  const second = first.openDevice();
  const client = await openDevice({ link: b });
  const early = await listen('127.0.0.1:7470', { context: first });
  await early.close();
  await first.close();
  const listener = await listen(`${second.local.gid}:7471`, { context: second });
  const accepted = (async () => {
    for await (const request of listener) return request.accept();
    throw new Error('no connection request');
  })();
  const connection = await cmConnect(`${second.local.gid}:7471`, { context: client });
  const theirs = await accepted;
  assert.is(theirs.context, second);
  await connection.close();
  await listener.close();
  await client.close();
  await second.close();
});

test.run();
