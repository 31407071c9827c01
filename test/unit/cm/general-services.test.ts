/** Queue pair 1: one per device, reserved, open to every sender that has the right Q_Key. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { GENERAL_SERVICES_QPN } from '#build/abi.js';
import {
  AccessFlag,
  Endpoint,
  LoopbackNetwork,
  RefusalError,
  SendFlag,
  WcOpcode,
  WcStatus,
  WrOpcode,
  connect,
  createEventChannel,
  createLoopbackPair,
  faultLink,
  listen,
  openDevice,
  type Context,
  type Link,
  type OpenOptions,
  type PacketBatch,
  type WorkCompletion,
} from '../../../host/index.js';
import { GeneralServices } from '../../../host/cm/general-services.js';
import { Manager } from '../../../host/cm/manager.js';
import { QueuePair } from '../../../host/verbs/queues/queue-pair.js';
import { expectRefusal } from '../../support/refusal.js';

const QKEY = 0x80010000;
const small = { cap: { maxSendWr: 4, maxRecvWr: 4 } };

function open(link: Link, options: Partial<OpenOptions> = {}): Promise<Context> {
  return openDevice({ memoryBytes: 16 * 2 ** 20, ...options, link } as OpenOptions);
}

/** Lets whatever is under way arrive. */
async function rest(): Promise<void> {
  for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve));
}

test('a device has one, and no queue pair of an application is in its way', async () => {
  for (const queuePairsMax of [1, 2, 7]) {
    const { a } = createLoopbackPair();
    const context = await open(a, { queuePairsMax });
    const pd = context.allocPd();
    const cq = context.createCq(16);
    const made: QueuePair[] = [];
    for (let count = 0; count < queuePairsMax; count++) {
      made.push(pd.createQp({ sendCq: cq, recvCq: cq }));
    }
    const services = new GeneralServices(context, () => {});
    expectRefusal(() => new GeneralServices(context, () => {}), 'EINVAL');
    expectRefusal(() => pd.createQp({ sendCq: cq, recvCq: cq }), 'ENOMEM');
    for (const qp of made) {
      assert.not.equal(qp.qpNum, GENERAL_SERVICES_QPN);
      qp.destroy();
    }
    // Given back and taken again: it goes to no application's list.
    services.close();
    for (let count = 0; count < queuePairsMax; count++) pd.createQp({ sendCq: cq, recvCq: cq });
    expectRefusal(() => pd.createQp({ sendCq: cq, recvCq: cq }), 'ENOMEM');
    new GeneralServices(context, () => {}).close();
    await context.close();
  }
});

test('the place of its number in a small table is kept for it', async () => {
  const { a } = createLoopbackPair();
  const context = await open(a, { queuePairsMax: 2 });
  const pd = context.allocPd();
  const cq = context.createCq(16);
  // Four places: a number whose last two bits are 1 would lie where queue pair 1 does.
  for (let turn = 0; turn < 200; turn++) {
    const qp = pd.createQp({ sendCq: cq, recvCq: cq });
    assert.is.not(qp.qpNum & 3, 1);
    qp.destroy();
  }
  await context.close();
});

test('closing frees everything: memory, regions, domains', async () => {
  const { a } = createLoopbackPair();
  const context = await open(a, { protectionDomainsMax: 1, regionsMax: 1 });
  const before = context.device.arena.heap.bytesFree;
  for (let turn = 0; turn < 3; turn++) new GeneralServices(context, () => {}).close();
  assert.is(context.device.arena.heap.bytesFree, before);
  await context.close();
});

test('where there is no room nothing is taken', async () => {
  const scarce: Partial<OpenOptions>[] = [
    { protectionDomainsMax: 1 },
    { completionQueuesMax: 1 },
    { regionsMax: 1 },
  ];
  for (const limits of scarce) {
    const { a } = createLoopbackPair();
    const context = await open(a, limits);
    if (limits.protectionDomainsMax === undefined) context.createCq(1);
    else context.allocPd();
    if (limits.regionsMax !== undefined) {
      context.allocPd().regMr(context.alloc(1), AccessFlag.LOCAL_WRITE);
    }
    const before = context.device.arena.heap.bytesFree;
    expectRefusal(() => createEventChannel(context).createId(), 'ENOMEM');
    assert.is(context.device.arena.heap.bytesFree, before, Object.keys(limits).join());
    await context.close();
  }
});

test('an application may use all address handles: a message without one is lost, and counted', async () => {
  const { a, b } = createLoopbackPair();
  const from = await open(a, { addressHandlesMax: 1 });
  const to = await open(b);
  let heard = 0;
  const services = new GeneralServices(to, () => heard++);
  const sender = new GeneralServices(from, () => {});
  const ah = from.allocPd().createAh({ dgid: '127.0.0.2' });
  sender.send(new Uint8Array(256), to.local);
  await rest();
  assert.equal([heard, sender.sendsDropped], [0, 1]);
  ah.destroy();
  for (let count = 0; count < 3; count++) {
    sender.send(new Uint8Array(256), to.local);
    await rest();
  }
  assert.equal([heard, sender.sendsDropped], [3, 1]);
  services.close();
  sender.close();
  await from.close();
  await to.close();
});

test('a datagram with the right Q_Key is received, with its source port', async () => {
  const { a, b } = createLoopbackPair();
  const from = await open(a);
  const to = await open(b);
  const heard: string[] = [];
  const services = new GeneralServices(to, (mad, source) => {
    heard.push(`${mad.length} ${mad[0]} ${source}`);
  });
  const sender = new GeneralServices(from, () => {});
  sender.send(new Uint8Array(256).fill(7), to.local);
  await rest();
  assert.equal(heard, ['256 7 127.0.0.1:4791']);
  // Another queue pair may not speak for queue pair 1, and a wrong key is not heard at all.
  const channel = createEventChannel(from);
  const pd = from.allocPd();
  const cq = from.createCq(16);
  const qp = QueuePair.create(pd, { qpType: 4, sendCq: cq, recvCq: cq });
  qp.modify({ qpState: 1, pkeyIndex: 0, portNum: 1, qkey: 5 });
  qp.modify({ qpState: 2 });
  qp.modify({ qpState: 3, sqPsn: 0 });
  const ah = pd.createAh({ dgid: to.local.gid });
  const memory = from.alloc(256);
  const mr = pd.regMr(memory, AccessFlag.LOCAL_WRITE);
  for (const remoteQkey of [QKEY, 0x11111111]) {
    qp.postSend({
      opcode: WrOpcode.SEND,
      sgList: [{ addr: mr.addr, length: 256, lkey: mr.lkey }],
      ud: { ah, remoteQpn: GENERAL_SERVICES_QPN, remoteQkey },
    });
  }
  await rest();
  assert.is(heard.length, 1);
  // A key with its top bit set is the queue pair's own: 5, as Linux has it for applications.
  assert.is(to.counters().dropQkey, 2n);
  // And with the key as its own: it is still not queue pair 1.
  qp.modify({ qpState: 3, qkey: QKEY });
  const received = to.counters().rdmaRecvs;
  qp.postSend({
    opcode: WrOpcode.SEND,
    sgList: [{ addr: mr.addr, length: 256, lkey: mr.lkey }],
    ud: { ah, remoteQpn: GENERAL_SERVICES_QPN, remoteQkey: QKEY },
  });
  await rest();
  assert.equal([heard.length, to.counters().rdmaRecvs - received], [1, 1n]);
  channel.destroy();
  services.close();
  sender.close();
  await from.close();
  await to.close();
});

test('a flood finds as many buffers as there are, and then again', async () => {
  const { a, b } = createLoopbackPair();
  const from = await open(a);
  const to = await open(b);
  let heard = 0;
  const services = new GeneralServices(to, () => heard++);
  const sender = new GeneralServices(from, () => {});
  let sent = 0;
  for (let round = 0; round < 20; round++) {
    for (let count = 0; count < 200; count++) sender.send(new Uint8Array(256), to.local);
    sent += 200;
    await rest();
  }
  assert.is(heard + sender.sendsDropped, sent);
  assert.ok(heard >= 20 * 128, `${heard}`);
  services.close();
  sender.close();
  await from.close();
  await to.close();
});

/** Loses every datagram of the connection manager that has this attribute. */
function losing(link: Link, attribute: number): Link & { lost: number } {
  const wrapped = {
    lost: 0,
    get info() {
      return link.info;
    },
    open: (receiver: Parameters<Link['open']>[0]) => link.open(receiver),
    close: () => link.close(),
    send(batch: PacketBatch): void {
      const isIt = Array.from({ length: batch.count }, (_, at) => batch.bytesOf(at)).some(
        (bytes) => bytes[0] === 0x64 && bytes[7] === 1 && bytes[20 + 17] === attribute,
      );
      if (!isIt) return link.send(batch);
      wrapped.lost++;
      batch.release();
    },
  };
  return wrapped;
}

test('an RTU that is lost for good: the first packet connects all the same', async () => {
  const { a, b } = createLoopbackPair();
  const link = losing(a, 0x14);
  const from = await open(link);
  const to = await open(b);
  const listener = await listen('127.0.0.2:7', { context: to });
  const going = connect('127.0.0.2:7', { context: from, qp: small });
  const request = (await listener.getRequest())!;
  const memory = to.alloc(8);
  const mr = request.id.pd.regMr(memory, AccessFlag.LOCAL_WRITE);
  const sgList = [{ addr: mr.addr, length: 8, lkey: mr.lkey }];
  const accepted = request.accept({ qp: small }, (qp) => qp.postRecv({ sgList }));
  const active = await going;
  active.qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED, sgList: [] });
  assert.is((await active.sendCq.wait())[0]?.status, WcStatus.SUCCESS);
  const passive = await accepted;
  assert.is((await passive.recvCq.wait())[0]?.status, WcStatus.SUCCESS);
  assert.ok(link.lost >= 1);
  await active.close();
  await passive.close();
  await listener.close();
  await from.close();
  await to.close();
});

test('on a wire that loses, doubles and reorders, all sides connect', async () => {
  const { a, b } = createLoopbackPair();
  const faults = { loss: 0.2, duplication: 0.1, reordering: 0.1, seed: 5 };
  const from = await open(faultLink(a, faults));
  const to = await open(faultLink(b, { ...faults, seed: 6 }));
  // 4 ms until a message is sent again.
  const quick = { cmResponseTimeout: 10, maxCmRetries: 15, ackTimeout: 10, qp: small };
  const listener = await listen('127.0.0.2:8', { context: to });
  let served = 0;
  const serving = (async () => {
    for await (const request of listener) {
      served++;
      void request.accept(quick).then(
        (connection) => connection.disconnected.then(() => connection.close()),
        (error: unknown) => assert.instance(error, RefusalError),
      );
    }
  })();
  for (let turn = 0; turn < 40; turn++) {
    const connection = await connect('127.0.0.2:8', { context: from, ...quick });
    await connection.close();
  }
  assert.is(served, 40);
  assert.ok(Manager.of(from).counters.retransmitted > 0);
  await listener.close();
  await serving;
  await from.close();
  await to.close();
});

test('a device with IPv6 addresses connects as well', async () => {
  await using context = await openDevice({ address: '::1', port: 24793 });
  await using other = await openDevice({ address: '::1', port: 24794 });
  const listener = await listen('[::1]:9', { context });
  const going = connect('[::1]:9', { context: other, udpPort: 24793, qp: small });
  const request = (await listener.getRequest())!;
  assert.is(request.peer.address, '::1');
  assert.is(request.peer.udpPort, 24794);
  const [active, passive] = await Promise.all([going, request.accept({ qp: small })]);
  await active.close();
  await passive.close();
  await listener.close();
});

test('a reply that arrives during send is delivered after send returns', async () => {
  const network = new LoopbackNetwork({ auto: false });
  const here = network.link(Endpoint.parse('10.0.0.1', 4791));
  const there = Endpoint.parse('10.0.0.2', 4791);
  // Polling for completions delivers the packets that have arrived.
  const polled: Link = {
    get info() {
      return here.info;
    },
    open: (receiver, memory) => here.open(receiver, memory),
    send: (batch) => here.send(batch),
    poll: () => network.deliver(),
    close: () => here.close(),
  };
  const a = await open(polled);
  const b = await open(network.link(there));
  const story: string[] = [];
  const asker = new GeneralServices(a, () => story.push('heard'));
  const answerer = new GeneralServices(b, (mad, source) => answerer.send(mad, source));
  const question = new Uint8Array(256).fill(7);
  for (let turn = 0; turn < 3; turn++) {
    asker.send(question, there);
    story.push('asked');
    for (let count = 0; count < 4; count++) {
      network.deliver();
      await rest();
    }
  }
  assert.equal(story, ['asked', 'heard', 'asked', 'heard', 'asked', 'heard']);
  // A reply that arrives after close is dropped.
  asker.send(question, there);
  asker.close();
  await rest();
  assert.is(story.length, 6);
  answerer.close();
  await a.close();
  await b.close();
});

/** A link that hands over whatever is under way whenever something is sent. */
function eager(link: Link, network: LoopbackNetwork): Link {
  return new Proxy(link, {
    get(target, name) {
      if (name === 'send') {
        return (batch: PacketBatch): void => {
          target.send(batch);
          network.deliver();
        };
      }
      const value: unknown = Reflect.get(target, name);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

test('a message that arrives during send is delivered after send returns', async () => {
  const network = new LoopbackNetwork({ auto: false });
  const linkOf = (address: string): Link => network.link(Endpoint.parse(address, 4791));
  const a = await open(eager(linkOf('127.0.0.1'), network));
  const b = await open(linkOf('127.0.0.2'));
  const heard: string[] = [];
  const ours = new GeneralServices(a, () => heard.push('message'));
  const theirs = new GeneralServices(b, () => {});
  theirs.send(new Uint8Array(256), a.local);
  ours.send(new Uint8Array(256), b.local);
  heard.push('sent');
  await rest();
  assert.equal(heard, ['sent', 'message']);
  await a.close();
  await b.close();
});

test('a message that arrived early is handled after the manager is made, not before', async () => {
  const network = new LoopbackNetwork({ auto: false });
  const here = network.link(Endpoint.parse('10.0.0.1', 4791));
  const polled: Link = {
    get info() {
      return here.info;
    },
    open: (receiver, memory) => here.open(receiver, memory),
    send: (batch) => here.send(batch),
    poll: () => network.deliver(),
    close: () => here.close(),
  };
  const a = await open(polled);
  const b = await open(network.link(Endpoint.parse('10.0.0.2', 4791)));
  const sender = new GeneralServices(b, () => {});
  sender.send(new Uint8Array(256), a.local);
  const story: string[] = [];
  const services = new GeneralServices(a, () => story.push('heard'));
  story.push('made');
  await rest();
  assert.equal(story, ['made', 'heard']);
  services.close();
  sender.close();
  await a.close();
  await b.close();
});

test('a flood lets the event loop run after at most 256 completions', async () => {
  const { a } = createLoopbackPair();
  const context = await open(a);
  const { createCq } = context;
  let polls = 0;
  let ofFlood = 4000;
  // A queue that never runs empty, as one that another thread fills.
  context.createCq = (...words) => {
    const cq = createCq.apply(context, words);
    const { poll } = cq;
    cq.poll = (count) => {
      polls++;
      if (ofFlood-- <= 0) return poll.call(cq, count);
      const done = { wrId: 0n, opcode: WcOpcode.SEND, status: WcStatus.SUCCESS };
      return [done as unknown as WorkCompletion];
    };
    return cq;
  };
  const turns: number[] = [];
  const watch = (): void => {
    turns.push(polls);
    if (ofFlood > 0) setImmediate(watch);
  };
  setImmediate(watch);
  const services = new GeneralServices(context, () => {});
  while (ofFlood > 0) await rest();
  const most = Math.max(...turns.map((count, at) => count - (turns[at - 1] ?? 0)));
  assert.ok(most <= 512, `${most} polls between two turns of the event loop`);
  assert.ok(turns.length >= 8, `${turns.length} turns`);
  services.close();
  await context.close();
});

test.run();
