/** Members of ids besides their connections: short verbs, queue pairs of others, groups, names. */
import dns from 'node:dns/promises';
import { syncBuiltinESMExports } from 'node:module';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  CmEventType,
  McJoinFlag,
  MisuseError,
  Mtu,
  PortSpace,
  QpState,
  QpType,
  RaiFlag,
  RefusalError,
  RejectReason,
  SendFlag,
  WcStatus,
  createEp,
  createEventChannel,
  createLoopbackPair,
  getaddrinfo,
  openDevice,
  type CmId,
  type Context,
  type EventChannel,
  type Link,
  type MemoryRegion,
  type OpenOptions,
} from '../../../host/index.js';
import { expectMisuse, expectRefusal, rejection } from '../../support/refusal.js';

const SMALL = { cap: { maxSendWr: 8, maxRecvWr: 8, maxInlineData: 64 } };
const { SIGNALED } = SendFlag;

interface World {
  readonly a: Context;
  readonly b: Context;
}

async function inWorld(
  device: Partial<OpenOptions>,
  work: (world: World) => Promise<void>,
): Promise<void> {
  const { a: linkA, b: linkB } = createLoopbackPair();
  const options = { memoryBytes: 16 * 2 ** 20, ...device };
  await using a = await openDevice({ ...options, link: linkA } as OpenOptions);
  await using b = await openDevice({ ...options, link: linkB } as OpenOptions);
  await work({ a, b });
}

async function next(channel: EventChannel, wanted: number) {
  const event = await channel.getEvent();
  assert.is(event?.event, wanted, `event ${event?.name}`);
  return event!;
}

/** The promise fails, with that code if the caller names one. */
async function fails(promise: Promise<unknown>, code?: string): Promise<void> {
  const error: unknown = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof RefusalError || error instanceof MisuseError, `${error}`);
  if (code) assert.is((error as RefusalError).code, code);
}

async function listener(context: Context, port = 7): Promise<CmId> {
  const own = await getaddrinfo('127.0.0.2', port, { flags: RaiFlag.PASSIVE });
  const id = await createEp(context, own, undefined, SMALL);
  id.listen();
  return id;
}

/** Two end points that talk. */
async function pairUp({ a, b }: World): Promise<[CmId, CmId]> {
  const listenId = await listener(b);
  const client = await createEp(a, await getaddrinfo('127.0.0.2', 7), undefined, SMALL);
  client.connect();
  const server = (await listenId.getRequest())!;
  server.accept();
  await next(client.channel, CmEventType.ESTABLISHED);
  await next(server.channel, CmEventType.ESTABLISHED);
  listenId.channel.destroy();
  return [client, server];
}

/** Memory of an id, as it registers it. */
function memory(id: CmId, by: 'regMsgs' | 'regRead' | 'regWrite', bytes = 64) {
  const mr = id[by](id.context.alloc(bytes));
  const halves = [mr.buffer.subarray(0, bytes / 2), mr.buffer.subarray(bytes / 2)] as const;
  return { mr, all: mr.buffer, halves };
}

const sge = ({ addr, lkey }: MemoryRegion, offset: number, length: number) => ({
  addr: addr + BigInt(offset),
  length,
  lkey,
});

async function sent(id: CmId, wrId: number): Promise<void> {
  const wc = await id.getSendComp();
  assert.equal([wc?.status, wc?.wrId], [WcStatus.SUCCESS, BigInt(wrId)]);
}

test('messages: of a buffer, of a list, and of bytes that are copied', () =>
  inWorld({}, async (world) => {
    const [client, server] = await pairUp(world);
    const outbox = memory(client, 'regMsgs');
    const inbox = memory(server, 'regMsgs');
    outbox.all.forEach((_, index) => (outbox.all[index] = index));
    server.postRecv(1, inbox.halves[1], inbox.mr);
    client.postSend(2, outbox.halves[1], outbox.mr, SIGNALED);
    await sent(client, 2);
    const wc = await server.getRecvComp();
    assert.equal([wc?.wrId, wc?.byteLen], [1n, 32]);
    assert.equal(inbox.halves[1], outbox.halves[1]);
    assert.ok(inbox.halves[0].every((byte) => byte === 0));
    server.postRecvv(3, [sge(inbox.mr, 0, 4), sge(inbox.mr, 60, 4)]);
    client.postSendv(4, [sge(outbox.mr, 8, 4), sge(outbox.mr, 16, 4)], SIGNALED);
    await sent(client, 4);
    assert.is((await server.getRecvComp())?.byteLen, 8);
    assert.equal(
      [...inbox.all.slice(0, 4), ...inbox.all.slice(60)],
      [8, 9, 10, 11, 16, 17, 18, 19],
    );
    server.postRecv(5, inbox.all, inbox.mr);
    const foreign = Uint8Array.of(7, 7, 7);
    client.postSend(6, foreign, undefined, SIGNALED);
    foreign.fill(0);
    await sent(client, 6);
    assert.is((await server.getRecvComp())?.byteLen, 3);
    assert.equal([...inbox.all.slice(0, 3)], [7, 7, 7]);
  }));

test('a peer reads and writes what was registered for it, and nothing else', () =>
  inWorld({}, async (world) => {
    const [client, server] = await pairUp(world);
    const own = memory(client, 'regMsgs');
    const read = memory(server, 'regRead');
    const write = memory(server, 'regWrite');
    read.all.fill(3);
    client.postRead(1, own.halves[1], own.mr, SIGNALED, read.mr.addr, read.mr.rkey);
    await sent(client, 1);
    assert.equal([own.all[31], own.all[32], own.all[63]], [0, 3, 3]);
    const pieces = [sge(own.mr, 0, 4), sge(own.mr, 8, 4)];
    client.postReadv(2, pieces, SIGNALED, read.mr.addr, read.mr.rkey);
    await sent(client, 2);
    assert.equal([...own.all.slice(0, 12)], [3, 3, 3, 3, 0, 0, 0, 0, 3, 3, 3, 3]);
    const { addr, rkey } = write.mr;
    client.postWrite(3, own.halves[1], own.mr, SIGNALED, addr, rkey);
    await sent(client, 3);
    assert.equal([write.all[31], write.all[32]], [3, 0]);
    client.postWrite(4, Uint8Array.of(5), undefined, SIGNALED, addr + 63n, rkey);
    await sent(client, 4);
    client.postWritev(5, [sge(own.mr, 4, 2), sge(own.mr, 8, 2)], SIGNALED, addr, rkey);
    await sent(client, 5);
    assert.equal([...write.all.slice(0, 4), write.all[63]], [0, 0, 3, 3, 5]);
    client.postWrite(6, own.all, own.mr, SIGNALED, read.mr.addr, read.mr.rkey);
    assert.is((await client.getSendComp())?.status, WcStatus.REM_ACCESS_ERR);
  }));

test('a buffer lies in its region, and an id that posts has a queue pair', () =>
  inWorld({}, async ({ a }) => {
    const channel = createEventChannel(a);
    const id = channel.createId();
    const { mr, all } = memory(id, 'regMsgs');
    expectMisuse(() => id.postRecv(1, all, mr), /no queue pair/);
    expectMisuse(() => id.destroyQp(), /no queue pair/);
    id.createQp(SMALL);
    expectMisuse(() => id.postRecv(1, a.alloc(64), mr), /lie in the region/);
    expectMisuse(() => id.postRecv(1, new Uint8Array(8), mr), /lie in the region/);
    const wider = a.alloc(64);
    const part = id.regMsgs(wider.subarray(16, 32));
    expectMisuse(() => id.postSend(1, wider.subarray(16, 33), part), /lie in the region/);
    expectMisuse(() => id.postSend(1, wider.subarray(15, 20), part), /lie in the region/);
    id.postRecv(1, wider.subarray(20, 32), part);
    channel.destroy();
  }));

test('completion queues that an id makes go with its queue pair', () =>
  inWorld({ completionQueuesMax: 8 }, async ({ a }) => {
    const channel = createEventChannel(a);
    const id = channel.createId();
    const free = (): number => {
      const queues = [];
      try {
        for (;;) queues.push(a.createCq(4));
      } catch (error) {
        assert.match((error as Error).message, /ENOMEM/);
      }
      for (const queue of queues) queue.destroy();
      return queues.length;
    };
    const before = free();
    const { sendCq, recvCq } = id.createQp({ ...SMALL, cqe: 20 });
    assert.ok(sendCq !== recvCq && sendCq.cqe >= 20);
    expectMisuse(() => id.createQp(SMALL), /has a queue pair/);
    assert.is(free(), before - 2);
    id.destroyQp();
    assert.is(free(), before);
    // A completion queue of the caller stays with the caller.
    const own = a.createCq(8);
    id.createQp({ ...SMALL, sendCq: own });
    id.destroy();
    assert.is(free(), before - 1);
    own.destroy();
    // When the queue pair is refused, nothing was taken.
    const other = channel.createId();
    assert.throws(() => other.createQp({ cap: { maxSendWr: 2 ** 30 }, cqe: 4 }));
    assert.is(free(), before);
    channel.destroy();
  }));

test('queue pair attributes for a caller’s own queue pair follow the negotiation', () =>
  inWorld({}, async ({ a, b }) => {
    const listening = createEventChannel(b);
    const listenId = listening.createId();
    listenId.bindAddr({ port: 7 });
    listenId.listen();
    const id = await createEp(a, await getaddrinfo('127.0.0.2', 7));
    assert.is(id.qp, undefined);
    const { LOCAL_WRITE, REMOTE_READ } = AccessFlag;
    const init = id.initQpAttr(QpState.INIT);
    assert.equal([init.pkeyIndex, init.portNum], [0, 1]);
    assert.is(init.qpAccessFlags! & (LOCAL_WRITE | REMOTE_READ), LOCAL_WRITE | REMOTE_READ);
    expectRefusal(() => id.initQpAttr(QpState.RTR), 'EINVAL');
    expectMisuse(() => id.initQpAttr(QpState.ERR), /qpState/);
    id.setOption({ ackTimeout: 19 });
    id.connect({ qpNum: 0x111, initiatorDepth: 3, responderResources: 5, retryCount: 6 });
    const child = (await next(listening, CmEventType.CONNECT_REQUEST)).id;
    const early = child.initQpAttr(QpState.RTS);
    assert.equal([early.maxRdAtomic, early.timeout, early.retryCnt], [5, 19, 6]);
    child.setOption({ ackTimeout: 11 });
    child.accept({ qpNum: 0x222, initiatorDepth: 4, responderResources: 2, rnrRetryCount: 1 });
    await next(id.channel, CmEventType.CONNECT_RESPONSE);
    const receives = [id, child].map((each) => each.initQpAttr(QpState.RTR));
    const sends = [id, child].map((each) => each.initQpAttr(QpState.RTS));
    assert.equal(
      receives.map(({ destQpNum, maxDestRdAtomic, pathMtu }) => [
        destQpNum,
        maxDestRdAtomic,
        pathMtu,
      ]),
      [
        [0x222, 4, Mtu.MTU_4096],
        [0x111, 2, Mtu.MTU_4096],
      ],
    );
    assert.equal(
      sends.map(({ maxRdAtomic, timeout, rnrRetry }) => [maxRdAtomic, timeout, rnrRetry]),
      [
        [2, 19, 1],
        [4, 11, 7],
      ],
    );
    assert.equal([receives[0]!.rqPsn, receives[1]!.rqPsn], [sends[1]!.sqPsn, sends[0]!.sqPsn]);
    // A message received early still counts.
    assert.is(early.sqPsn, sends[1]!.sqPsn);
    id.channel.destroy();
    listening.destroy();
  }));

test('datagram queue pairs of the caller get the Q_Key of their port space', () =>
  inWorld({}, async ({ a }) => {
    const channel = createEventChannel(a);
    const id = channel.createId(PortSpace.UDP);
    const cq = a.createCq(8);
    const qp = id.pd.createQp({ qpType: QpType.UD, sendCq: cq, recvCq: cq });
    for (const state of [QpState.INIT, QpState.RTR, QpState.RTS]) qp.modify(id.initQpAttr(state));
    assert.equal([qp.state, qp.query().qkey], [QpState.RTS, 0x01234567]);
    channel.destroy();
  }));

test('the passive side keeps the timeout that its caller set', () =>
  inWorld({}, async ({ a, b }) => {
    const listenId = await listener(b);
    const client = await createEp(a, await getaddrinfo('127.0.0.2', 7), undefined, SMALL);
    client.setOption({ ackTimeout: 15 });
    client.connect();
    const server = (await listenId.getRequest())!;
    server.setOption({ ackTimeout: 12 });
    server.accept();
    await next(client.channel, CmEventType.ESTABLISHED);
    await next(server.channel, CmEventType.ESTABLISHED);
    assert.equal([client.qp!.query().timeout, server.qp!.query().timeout], [15, 12]);
  }));

test('a listener with a channel of its own gives requests, and refuses what it cannot serve', () =>
  inWorld({}, async ({ a, b }) => {
    const shared = createEventChannel(b).createId();
    await fails(shared.getRequest(), 'EINVAL');
    const own = await getaddrinfo('127.0.0.2', 7, { flags: RaiFlag.PASSIVE });
    const listenId = await createEp(b, own, undefined, { cap: { maxSendWr: 2 ** 30 } });
    listenId.listen();
    const client = await createEp(a, await getaddrinfo('127.0.0.2', 7), undefined, SMALL);
    client.connect();
    await fails(listenId.getRequest());
    const { status } = await next(client.channel, CmEventType.REJECTED);
    assert.is(status, RejectReason.CONSUMER_DEFINED);
    const waiting = listenId.getRequest();
    listenId.channel.destroy();
    assert.is(await waiting, undefined);
    // The port is free again.
    await listener(b);
    await fails(listener(b), 'EADDRINUSE');
  }));

test('an end point that cannot be leaves nothing behind', () =>
  inWorld({}, async ({ a }) => {
    const srcAddr = { address: '127.0.0.1', port: 9 };
    const info = { ...(await getaddrinfo('127.0.0.2', 7)), srcAddr };
    await fails(createEp(a, info, undefined, { cap: { maxSendWr: 2 ** 30 } }));
    for (const wrong of [undefined, null, 7]) {
      const { message } = (await rejection(createEp(a, wrong as never))) as MisuseError;
      assert.match(message, /^info: createEp takes an object, got/);
    }
    const id = await createEp(a, info, undefined, SMALL);
    assert.equal([id.getSrcPort(), id.getDstPort()], [9, 7]);
    id.channel.destroy();
  }));

test('a send-only member of a group receives nothing from it, and can leave it', () =>
  inWorld({}, async ({ a, b }) => {
    const group = '239.1.1.1';
    const members: CmId[] = [];
    for (const context of [a, b]) {
      const id = createEventChannel(context).createId(PortSpace.UDP);
      id.createQp(SMALL);
      members.push(id);
    }
    const [sender, receiver] = members as [CmId, CmId];
    expectMisuse(() => sender.joinMulticastEx({ addr: group, joinFlags: 2 }), /joinFlags/);
    receiver.joinMulticastEx({ addr: group });
    sender.joinMulticastEx({ addr: group, joinFlags: McJoinFlag.SENDONLY_FULLMEMBER });
    const { ud } = await next(sender.channel, CmEventType.MULTICAST_JOIN);
    const inboxes = members.map((id) => memory(id, 'regMsgs', 128));
    members.forEach((id, index) => id.postRecv(index, inboxes[index]!.all, inboxes[index]!.mr));
    const ah = sender.pd.createAh(ud!.ahAttr);
    sender.postUdSend(9, Uint8Array.of(1, 2, 3), undefined, SIGNALED, ah, ud!.qpNum);
    await sent(sender, 9);
    assert.is((await receiver.getRecvComp())?.byteLen, 43);
    assert.equal(sender.qp!.recvCq.poll(1), []);
    sender.leaveMulticast(group);
    expectRefusal(() => sender.leaveMulticast(group), 'EADDRNOTAVAIL');
  }));

/** As links of browsers are. */
function withoutGroups(link: Link): Link {
  return {
    get info() {
      return { ...link.info, multicast: false };
    },
    open: (receiver) => link.open(receiver),
    send: (batch) => link.send(batch),
    close: () => link.close(),
  };
}

test('on a link without multicast a send-only join is refused too', async () => {
  await using context = await openDevice({ link: withoutGroups(createLoopbackPair().a) });
  const id = createEventChannel(context).createId(PortSpace.UDP);
  id.createQp(SMALL);
  const joinFlags = McJoinFlag.SENDONLY_FULLMEMBER;
  expectRefusal(() => id.joinMulticastEx({ addr: '239.1.1.1', joinFlags }), 'EOPNOTSUPP');
});

test('a host name is resolved, or its failure is reported', () =>
  inWorld({}, async ({ a }) => {
    const channel = createEventChannel(a);
    const id = channel.createId();
    id.resolveAddrinfo('localhost', 80);
    expectRefusal(() => id.resolveAddrinfo('localhost', 80), 'EBUSY');
    expectRefusal(() => id.queryAddrinfo(), 'ENOENT');
    await next(channel, CmEventType.ADDRINFO_RESOLVED);
    assert.match(id.queryAddrinfo().dstAddr!.address, /^(127\.0\.0\.1|::1)$/);
    id.resolveAddrinfo('a..b', 80);
    assert.is((await next(channel, CmEventType.ADDRINFO_ERROR)).status, -2);
    id.resolveAddrinfo('::1', '65535', { flags: RaiFlag.PASSIVE });
    await next(channel, CmEventType.ADDRINFO_RESOLVED);
    assert.equal(id.queryAddrinfo(), {
      flags: RaiFlag.PASSIVE,
      portSpace: PortSpace.TCP,
      srcAddr: { address: '::1', port: 65535 },
    });
    for (const service of ['http', '', '65536', -1, 1.5]) {
      expectMisuse(() => id.resolveAddrinfo('::1', service), /service/);
    }
    expectMisuse(() => id.resolveAddrinfo('::1', 1, { flags: 4 }), /flags/);
    expectMisuse(() => id.resolveAddrinfo('::1', 1, { portSpace: 1 }), /portSpace/);
    expectMisuse(() => id.resolveAddrinfo('host', 1, { flags: RaiFlag.NUMERICHOST }), /node/);
    for (const hints of [null, 5, { flag: 1 }]) {
      const { message } = (await rejection(getaddrinfo('::1', 1, hints as never))) as MisuseError;
      assert.match(message, /^(options|flag): getaddrinfo /);
    }
    id.resolveAddrinfo('127.0.0.1', 1);
    channel.destroy();
  }));

test('an application puts events of its own into the queue, and no others', () =>
  inWorld({}, async ({ a }) => {
    const channel = createEventChannel(a);
    const id = channel.createId();
    expectRefusal(() => id.writeCmEvent(CmEventType.ESTABLISHED, 0, 0), 'EINVAL');
    id.writeCmEvent(CmEventType.USER, -5, 7);
    const { status, arg } = await next(channel, CmEventType.USER);
    assert.equal([status, arg], [-5, 7n]);
    channel.destroy();
    expectMisuse(() => id.writeCmEvent(CmEventType.USER, 0, 0), /destroyed/);
  }));

/** `work` with a resolver that fails with this code. */
async function withResolver(code: string, work: () => Promise<void>): Promise<void> {
  const { lookup } = dns;
  const failing = (): Promise<never> => {
    const error = new Error(`getaddrinfo ${code} there`);
    return Promise.reject(Object.assign(error, { code, syscall: 'getaddrinfo' }));
  };
  Object.assign(dns, { lookup: failing });
  syncBuiltinESMExports();
  try {
    await work();
  } finally {
    Object.assign(dns, { lookup });
    syncBuiltinESMExports();
  }
}

test('a name that the resolver cannot answer now is refused as one to try again', async () => {
  const rows: readonly (readonly [code: string, errno: number, name: string, says: RegExp])[] = [
    ['EAI_AGAIN', 11, 'EAGAIN', /does not answer now for the host there .*; try again later/],
    ['EAI_FAIL', 5, 'EIO', /cannot look up the host there: .* EAI_FAIL/],
    ['ENOTFOUND', 2, 'ENOENT', /the host there is not known; check the name/],
  ];
  for (const [code, errno, name, says] of rows) {
    await withResolver(code, () =>
      inWorld({}, async ({ a }) => {
        const error = (await rejection(getaddrinfo('there', 80))) as RefusalError;
        assert.instance(error, RefusalError);
        assert.is(error.code, name);
        assert.match(error.message, says);
        assert.is((error.cause as NodeJS.ErrnoException).code, code);
        const channel = createEventChannel(a);
        channel.createId().resolveAddrinfo('there', 80);
        assert.is((await next(channel, CmEventType.ADDRINFO_ERROR)).status, -errno);
      }),
    );
  }
});

test('an empty name is not known', async () => {
  await fails(getaddrinfo('', 80), 'ENOENT');
});

test.run();
