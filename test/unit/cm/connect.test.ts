/** Connections in short form, and ids as librdmacm has them, over a link inside this process. */
import * as assert from 'uvu/assert';
import { PathLayout, PathStateLayout, QUEUE_PAIR_PATH, QueuePairLayout } from '#build/abi.js';
import {
  AccessFlag,
  CmEventType,
  ConnectError,
  Gid,
  MisuseError,
  Mtu,
  PortSpace,
  QpState,
  RDMA_UDP_QKEY,
  type RefusalError,
  RejectReason,
  SendFlag,
  WcStatus,
  WrOpcode,
  connect,
  createEventChannel,
  createLoopbackPair,
  listen,
  openDevice,
  type CmEvent,
  type Context,
  type EventChannel,
  type Link,
  type OpenOptions,
  type QueuePair,
  type RdmaConnection,
} from '../../../host/index.js';
import { structAt } from '../../../host/engine/struct.js';
import { Manager } from '../../../host/cm/manager.js';
import { expectMisuse, expectRefusal } from '../../support/refusal.js';
import { testsIn } from '../../support/tests-in.js';
import { until } from '../../support/until.js';

interface World {
  readonly a: Context;
  readonly b: Context;
  readonly links: readonly Link[];
}

async function inWorld(
  work: (world: World) => Promise<void>,
  device: Partial<OpenOptions> = {},
): Promise<void> {
  const { a: linkA, b: linkB } = createLoopbackPair();
  const open = (link: Link): Promise<Context> =>
    openDevice({ memoryBytes: 16 * 2 ** 20, ...device, link } as OpenOptions);
  const a = await open(linkA);
  const b = await open(linkB);
  try {
    await work({ a, b, links: [linkA, linkB] });
  } finally {
    await a.close();
    await b.close();
  }
}

const test = testsIn(inWorld);

const text = (value: string): Uint8Array => new TextEncoder().encode(value);
const small = { cap: { maxSendWr: 4, maxRecvWr: 4 } };

/** A buffer that is registered with the connection's domain. */
function buffer({ context, pd }: { context: Context; pd: QueuePair['pd'] }, bytes = 64) {
  const memory = context.alloc(bytes);
  const mr = pd.regMr(memory, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE);
  const sge = { addr: mr.addr, length: bytes, lkey: mr.lkey };
  const release = (): void => {
    mr.dereg();
    context.free(memory);
  };
  return { memory, mr, sge, release };
}

/** Round trip that the handshake measured, in microseconds; 0: none. */
function seedOf({ qp, context }: RdmaConnection): number {
  const { memory } = context.device.arena;
  const { state } = structAt(memory, PathLayout, qp.handle + QUEUE_PAIR_PATH);
  return structAt(memory, PathStateLayout, state).seedMicros;
}

async function pairUp(world: World): Promise<[RdmaConnection, RdmaConnection]> {
  const listener = await listen({ address: '127.0.0.2', port: 0 }, { context: world.b });
  const target = { address: '127.0.0.2', port: listener.port };
  const active = connect(target, { context: world.a, qp: small });
  const passive = (await listener.getRequest())!.accept({ qp: small });
  const both = await Promise.all([active, passive]);
  await listener.close();
  return both;
}

test('a connection carries private data both ways, a message, and ends on both sides', async (world) => {
  const listener = await listen('127.0.0.2:7471', { context: world.b });
  const going = connect('127.0.0.2:7471', {
    context: world.a,
    privateData: text('hello'),
    qp: small,
    initiatorDepth: 3,
    responderResources: 5,
  });
  const request = (await listener.getRequest())!;
  assert.is(request.peer.address, '127.0.0.1');
  assert.equal(request.privateData, text('hello'));
  assert.equal([request.param.responderResources, request.param.initiatorDepth], [3, 5]);
  const inbox = buffer({ context: world.b, pd: world.b.allocPd() });
  const accepted = request.accept(
    { privateData: text('welcome'), qp: small, pd: inbox.mr.pd },
    (qp) => qp.postRecv({ sgList: [inbox.sge] }),
  );
  const [a, b] = await Promise.all([going, accepted]);
  assert.equal(a.privateData, text('welcome'));
  assert.equal([a.qp.query().maxRdAtomic, a.qp.query().maxDestRdAtomic], [3, 5]);
  assert.equal([b.qp.query().maxRdAtomic, b.qp.query().maxDestRdAtomic], [5, 3]);
  const outbox = buffer(a);
  outbox.memory.set(text('ping'));
  a.qp.postSend({ opcode: WrOpcode.SEND, sgList: [outbox.sge], sendFlags: SendFlag.SIGNALED });
  assert.is((await a.sendCq.wait())[0]?.status, WcStatus.SUCCESS);
  assert.is((await b.recvCq.wait())[0]?.byteLen, 64);
  assert.equal(inbox.memory.slice(0, 4), text('ping'));
  await a.disconnect();
  await b.disconnected;
  assert.equal([a.qp.state, b.qp.state], [QpState.ERR, QpState.ERR]);
  await a.close();
  await b.close();
  await listener.close();
});

test('the passive side may send first: the active side posts receives before it connects', async (world) => {
  const listener = await listen('127.0.0.2:7472', { context: world.b });
  let inbox: ReturnType<typeof buffer> | undefined;
  // Without patience: a receive that is posted later is too late.
  const options = { context: world.a, qp: small, rnrRetryCount: 0 };
  const going = connect('127.0.0.2:7472', options, (qp) => {
    inbox = buffer({ context: world.a, pd: qp.pd });
    qp.postRecv({ sgList: [inbox.sge] });
  });
  const b = await (await listener.getRequest())!.accept({ qp: small });
  const outbox = buffer(b);
  outbox.memory.set(text('first'));
  b.qp.postSend({ opcode: WrOpcode.SEND, sgList: [outbox.sge], sendFlags: SendFlag.SIGNALED });
  assert.is((await b.sendCq.wait())[0]?.status, WcStatus.SUCCESS);
  const a = await going;
  assert.is((await a.recvCq.wait())[0]?.byteLen, 64);
  assert.equal(inbox!.memory.slice(0, 5), text('first'));
  await a.close();
  await b.close();
  await listener.close();
});

test('a target without an address is refused with the forms that are valid', async (world) => {
  for (const target of [{}, { address: '', port: 2 }, { address: 5, port: 2 }, null, 5, [], '']) {
    const misuse: unknown = await connect(target as never, { context: world.a }).catch(
      (error: unknown) => error,
    );
    assert.instance(misuse, MisuseError);
    assert.match((misuse as MisuseError).message, /^target: .* is not host:port or /);
  }
});

test('a REJ carries a reason, and the private data of the application', async (world) => {
  const failure = async (going: Promise<unknown>): Promise<ConnectError> => {
    try {
      await going;
    } catch (error) {
      assert.instance(error, ConnectError);
      return error as ConnectError;
    }
    throw new Error('it connected');
  };
  const listener = await listen('127.0.0.2:2', { context: world.b });
  const missing = await failure(connect('127.0.0.2:1', { context: world.a }));
  assert.equal([missing.code, missing.reason], ['ECONNREFUSED', RejectReason.INVALID_SERVICE_ID]);
  // No application rejected it: no private data.
  assert.is(missing.privateData.length, 0);
  assert.match(
    missing.message,
    'the peer has no listener at that port (INVALID_SERVICE_ID); start it, or check port and UDP port',
  );
  for (const target of ['239.1.1.1:2', '[ff0e::1]:2']) {
    const misuse: unknown = await connect(target, { context: world.a }).catch((error) => error);
    assert.instance(misuse, MisuseError);
    assert.match((misuse as MisuseError).message, /is a multicast group/);
  }
  const going = failure(connect('127.0.0.2:2', { context: world.a }));
  (await listener.getRequest())!.reject(text('not today'));
  const refused = await going;
  assert.is(refused.reason, RejectReason.CONSUMER_DEFINED);
  assert.equal(refused.privateData, text('not today'));
  const late = await failure(
    connect('127.0.0.9:2', { context: world.a, cmResponseTimeout: 10, maxCmRetries: 1 }),
  );
  assert.is(late.code, 'ETIMEDOUT');
});

test('a listener that closes rejects its pending requests, and none can be accepted later', async (world) => {
  const listener = await listen('127.0.0.2:3', { context: world.b });
  const going = [1, 2, 3].map(() =>
    connect('127.0.0.2:3', { context: world.a, qp: small }).then(
      () => 'connected',
      (error: ConnectError) => `${error.code} ${error.reason}`,
    ),
  );
  const held = (await listener.getRequest())!;
  await listener.close();
  const refused = `ECONNREFUSED ${RejectReason.CONSUMER_DEFINED}`;
  assert.equal(await Promise.all(going), [refused, refused, refused]);
  let error: unknown;
  await held.accept().catch((thrown: unknown) => (error = thrown));
  assert.is((error as RefusalError).code, 'EINVAL');
  const again = await listen('127.0.0.2:3', { context: world.b });
  await again.close();
});

test('beyond its share of the backlog an address is refused for want of room', async (world) => {
  const listener = await listen('127.0.0.2:4', { context: world.b, backlog: 4 });
  const reasons = await Promise.all(
    [1, 2, 3, 4].map((index) =>
      index < 3
        ? connect('127.0.0.2:4', { context: world.a, qp: small }).catch(() => 0)
        : connect('127.0.0.2:4', { context: world.a, qp: small }).then(
            () => 0,
            async (error: ConnectError) => {
              if (index === 4) await listener.close();
              return error.reason;
            },
          ),
    ),
  );
  assert.equal(reasons.slice(2), [RejectReason.NO_RESOURCES, RejectReason.NO_RESOURCES]);
  assert.is(Manager.of(world.b).counters.refused, 2);
});

test('private data that is too long is misuse, and nothing has happened', async (world) => {
  const [a, b] = await pairUp(world);
  const long = (bytes: number): Uint8Array => new Uint8Array(bytes);
  expectMisuse(() => a.id.disconnect(long(221)), 'privateData');
  assert.is(a.qp.state, QpState.RTS);
  let error: unknown;
  const options = { context: world.a, privateData: long(57), qp: small };
  await connect('127.0.0.2:1', options).catch((thrown: unknown) => (error = thrown));
  assert.instance(error, MisuseError);
  await a.close();
  await b.close();
});

test('a thousand connections come and go, and nothing is left', async (world) => {
  const listener = await listen('127.0.0.2:5', { context: world.b });
  const served = (async () => {
    for await (const request of listener) {
      const connection = await request.accept({ qp: small });
      void connection.disconnected.then(() => connection.close());
    }
  })();
  const free = (): number[] => [world.a, world.b].map(({ device }) => device.arena.heap.bytesFree);
  // 16 times 0.27 s to be answered, however long a busy machine holds us up; a second until all
  // is forgotten.
  const quick = { ackTimeout: 8, cmResponseTimeout: 16 };
  const once = async (): Promise<void> => {
    const options = { context: world.a, qp: small, ...quick };
    await (await connect('127.0.0.2:5', options)).close();
  };
  await once();
  const before = free();
  for (let round = 0; round < 100; round++) {
    await Promise.all(Array.from({ length: 10 }, once));
  }
  await listener.close();
  await served;
  // Time-wait records answer late messages; they hold no queue pair and no id.
  for (const context of [world.a, world.b]) {
    const manager = Manager.of(context);
    assert.is(manager.byQueuePair.size, 0);
    assert.is(manager.ids.size, 0);
    const { connections, timeWait, halfOpen, waiting } = manager.core.books;
    assert.equal([connections! - timeWait!, halfOpen, waiting], [0, 0, 0]);
  }
  await until(() => Manager.of(world.a).core.books['connections'] === 0);
  await until(() => Manager.of(world.b).core.books['connections'] === 0);
  assert.equal(free(), before);
});

// Ids, step by step.

async function next(channel: EventChannel, type: number): Promise<CmEvent> {
  const event = (await channel.getEvent())!;
  const names = Object.entries(CmEventType);
  assert.is(event.name, names.find(([, value]) => value === type)![0]);
  event.ackEvent();
  return event;
}

test('an id goes its way in librdmacm’s steps, each with its event', async (world) => {
  const listening = createEventChannel(world.b);
  const listenId = listening.createId();
  listenId.bindAddr({ port: 18515 });
  listenId.listen(4);
  const channel = createEventChannel(world.a);
  const id = channel.createId(PortSpace.TCP);
  expectRefusal(() => id.connect(), 'EINVAL');
  id.resolveAddr({ address: '127.0.0.2', port: 18515 });
  await next(channel, CmEventType.ADDR_RESOLVED);
  id.resolveRoute();
  await next(channel, CmEventType.ROUTE_RESOLVED);
  const cq = world.a.createCq(16);
  id.createQp({ sendCq: cq, recvCq: cq });
  assert.is(id.qp?.state, QpState.INIT);
  id.setOption({ ackTimeout: 10 });
  id.connect({ retryCount: 3 });
  const request = await next(listening, CmEventType.CONNECT_REQUEST);
  assert.is(request.listenId, listenId);
  assert.is(request.conn?.retryCount, 3);
  assert.equal(request.id.getPeerAddr(), {
    address: '127.0.0.1',
    port: id.getSrcPort(),
    udpPort: 4791,
  });
  assert.equal(request.id.getPeerAddr(), id.getLocalAddr());
  assert.equal(request.id.getLocalAddr(), id.getPeerAddr());
  const cqB = world.b.createCq(16);
  request.id.createQp({ sendCq: cqB, recvCq: cqB });
  request.id.accept();
  await next(channel, CmEventType.ESTABLISHED);
  await next(listening, CmEventType.ESTABLISHED);
  assert.equal([id.qp?.state, request.id.qp?.state], [QpState.RTS, QpState.RTS]);
  id.disconnect();
  await next(channel, CmEventType.DISCONNECTED);
  await next(listening, CmEventType.DISCONNECTED);
  request.id.disconnect();
  await next(channel, CmEventType.TIMEWAIT_EXIT);
  channel.destroy();
  listening.destroy();
  cq.destroy();
  cqB.destroy();
  assert.is(await channel.getEvent(), undefined);
});

test('without queue pairs of their own ids exchange what the applications need', async (world) => {
  const listening = createEventChannel(world.b);
  const listenId = listening.createId();
  listenId.bindAddr({ port: 9 });
  listenId.listen();
  const channel = createEventChannel(world.a);
  const id = channel.createId();
  id.resolveAddr({ address: '127.0.0.2', port: 9 });
  id.resolveRoute();
  await next(channel, CmEventType.ADDR_RESOLVED);
  await next(channel, CmEventType.ROUTE_RESOLVED);
  expectMisuse(() => id.connect({}));
  id.connect({ qpNum: 0x1234 });
  const request = await next(listening, CmEventType.CONNECT_REQUEST);
  assert.is(request.conn?.qpNum, 0x1234);
  request.id.accept({ qpNum: 0x4321 });
  const response = await next(channel, CmEventType.CONNECT_RESPONSE);
  assert.is(response.conn?.qpNum, 0x4321);
  id.establish();
  await next(listening, CmEventType.ESTABLISHED);
  request.id.notify();
  request.id.disconnect(text('bye'));
  const end = await next(channel, CmEventType.DISCONNECTED);
  assert.equal(end.privateData, text('bye'));
  await next(listening, CmEventType.DISCONNECTED);
  channel.destroy();
  listening.destroy();
});

test('datagrams: a service is resolved, and messages go both ways', async (world) => {
  const listening = createEventChannel(world.b);
  const listenId = listening.createId(PortSpace.UDP);
  listenId.bindAddr({ port: 7174 });
  listenId.listen();
  const channel = createEventChannel(world.a);
  const id = channel.createId(PortSpace.UDP);
  id.resolveAddr({ address: '127.0.0.2', port: 7174 });
  id.resolveRoute();
  await next(channel, CmEventType.ADDR_RESOLVED);
  await next(channel, CmEventType.ROUTE_RESOLVED);
  const cqA = world.a.createCq(16);
  const cqB = world.b.createCq(16);
  const qpA = id.createQp({ sendCq: cqA, recvCq: cqA });
  id.connect({ privateData: text('abc') });
  const request = await next(listening, CmEventType.CONNECT_REQUEST);
  assert.equal(request.privateData, text('abc'));
  const qpB = request.id.createQp({ sendCq: cqB, recvCq: cqB });
  const inbox = buffer({ context: world.b, pd: qpB.pd }, 104);
  qpB.postRecv({ sgList: [inbox.sge] });
  request.id.accept({ privateData: text('me') });
  const { ud } = await next(channel, CmEventType.ESTABLISHED);
  assert.equal([ud?.qpNum, ud?.qkey], [qpB.qpNum, RDMA_UDP_QKEY]);
  assert.equal(ud?.privateData, text('me'));
  const outbox = buffer({ context: world.a, pd: qpA.pd });
  const ah = qpA.pd.createAh(ud!.ahAttr);
  qpA.postSend({
    opcode: WrOpcode.SEND,
    sgList: [outbox.sge],
    sendFlags: SendFlag.SIGNALED,
    ud: { ah, remoteQpn: ud!.qpNum, remoteQkey: ud!.qkey },
  });
  const [wc] = await cqB.wait();
  assert.equal([wc?.byteLen, wc?.srcQp, wc?.srcPort], [104, qpA.qpNum, 4791]);
  const back = world.b.initAhFromWc(1, wc!, inbox.memory);
  assert.equal([`${back.dgid as Gid}`, back.port], ['127.0.0.1', 4791]);
  // A service that is refused, and one that is not there.
  const other = channel.createId(PortSpace.UDP);
  other.resolveAddr({ address: '127.0.0.2', port: 7174 });
  other.resolveRoute();
  await next(channel, CmEventType.ADDR_RESOLVED);
  await next(channel, CmEventType.ROUTE_RESOLVED);
  other.connect();
  (await next(listening, CmEventType.CONNECT_REQUEST)).id.reject();
  assert.is((await next(channel, CmEventType.UNREACHABLE)).status, 2);
  ah.destroy();
  channel.destroy();
  listening.destroy();
});

test('a group is joined by datagram ids, and by no others', async (world) => {
  const channel = createEventChannel(world.a);
  const cq = world.a.createCq(4);
  const id = channel.createId(PortSpace.UDP);
  const connected = channel.createId();
  connected.createQp({ sendCq: cq, recvCq: cq });
  expectMisuse(() => connected.joinMulticast('239.1.1.1'), 'id');
  id.createQp({ sendCq: cq, recvCq: cq });
  expectMisuse(() => id.joinMulticast('10.0.0.1'));
  id.joinMulticast('239.1.1.1');
  const { ud } = await next(channel, CmEventType.MULTICAST_JOIN);
  assert.equal([ud?.qpNum, `${ud?.ahAttr.dgid as Gid}`], [0xffffff, '239.1.1.1']);
  id.leaveMulticast('239.1.1.1');
  channel.destroy();
});

test('ports are taken once, and given back', async (world) => {
  const channel = createEventChannel(world.a);
  const id = channel.createId();
  id.bindAddr({ port: 5000 });
  const other = channel.createId();
  expectRefusal(() => other.bindAddr({ port: 5000 }), 'EADDRINUSE');
  channel.createId(PortSpace.UDP).bindAddr({ port: 5000 });
  id.destroy();
  other.bindAddr({ port: 5000 });
  expectRefusal(() => other.bindAddr({ port: 5001 }), 'EINVAL');
  expectMisuse(() => channel.createId(7));
  expectMisuse(() => channel.createId().bindAddr({ port: 65536 }));
  expectMisuse(() => channel.createId().resolveAddr({ address: 'x', port: 1 }));
  expectMisuse(() => channel.createId().setOption({ maxCmRetries: 16 }));
  channel.destroy();
  expectMisuse(() => channel.createId());
});

test('closing a device disconnects its connections, and their peers are notified', async (world) => {
  const [a, b] = await pairUp(world);
  await world.a.close();
  await Promise.all([a.disconnected, b.disconnected]);
  await a.close();
  await b.close();
});

test('the port, buffer and selective repeat that a Verbena peer announces are used', async (world) => {
  const listener = await listen('127.0.0.2:6', { context: world.b });
  const qp = { cap: { ...small.cap, reorderPackets: 16 } };
  const going = connect('127.0.0.2:6', { context: world.a, qp });
  const [a, b] = await Promise.all([
    going,
    (await listener.getRequest())!.accept({ qp: { cap: { ...small.cap, reorderPackets: 8 } } }),
  ]);
  const kept = ({ qp: { handle }, context }: RdmaConnection): number => {
    const { arena } = context.device;
    return structAt(arena.memory, QueuePairLayout, handle).reorderPeer;
  };
  assert.equal([kept(a), kept(b)], [8, 16]);
  await a.close();
  await b.close();
  await listener.close();
});

test('the handshake seeds the timers of both sides', async (world) => {
  const [active, passive] = await pairUp(world);
  assert.ok(seedOf(active) > 0 && seedOf(passive) > 0);
});

test('a handshake whose REQ was sent twice bounds the round trip from above', async (world) => {
  const [link] = world.links;
  const send = link!.send.bind(link);
  let count = 0;
  link!.send = (batch) => (count++ === 0 ? batch.release() : send(batch));
  const listener = await listen({ address: '127.0.0.2', port: 0 }, { context: world.b });
  const target = { address: '127.0.0.2', port: listener.port };
  const began = performance.now();
  // 67 ms between the two.
  const active = connect(target, { context: world.a, qp: small, cmResponseTimeout: 14 });
  const passive = (await listener.getRequest())!.accept({ qp: small });
  const micros = seedOf(await active);
  assert.ok(micros > 67_000 && micros <= (performance.now() - began) * 1000, `${micros} us`);
  assert.ok(seedOf(await passive) > 0);
});

test('a peer that does not receive long packets names a path MTU, and the next REQ has it', async (world) => {
  const manager = Manager.of(world.b);
  for (const expected of [Mtu.MTU_4096, Mtu.MTU_1024, Mtu.MTU_512, Mtu.MTU_256, Mtu.MTU_256]) {
    const both = await pairUp(world);
    const used = both.map(({ qp }) => qp.query().pathMtu);
    assert.equal(used, [expected, expected]);
    // The passive side has noticed it; the active side is disconnected only.
    manager.core.pathMtus.tooLarge(manager.now, both[1].qp);
    for (const each of both) await each.close();
  }
  assert.is(manager.core.counters.refused, 3);
});

test.run();
